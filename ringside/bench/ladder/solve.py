"""Time of a run of `launch.py` until it plays well, from the command on, judged by its last training episodes."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ringside.bench.harness.programs import last_log_line, running
from ringside.bench.harness.tables import CannotRun
from ringside.recording.metrics import read_metrics
from ringside.recording.totals import MEAN_OVER
from shared.config.settings import METRICS_FILE

LOOK_SECONDS = 0.5


@dataclass(frozen=True)
class Learnt:
    """Progress of a run."""

    seconds: float
    """Since the command."""
    steps: int
    mean_return: float | None
    """Raw mean of the last hundred training episodes; None: there were fewer."""


def solve_run(words: Sequence[str], bound: float, minutes: float) -> Learnt:
    """Run until the mean return reaches `bound`, the run ends, or so many minutes are over.

    Raises:
        CannotRun: it was refused or failed, with the last thing it said.
    """
    with tempfile.TemporaryDirectory(prefix="ringside-solve-") as scratch:
        run_dir, said = Path(scratch) / "run", Path(scratch) / "said"
        begun = time.monotonic()
        reached = Learnt(0.0, 0, None)
        with running(["launch.py", "--plain", *words, "--run-dir", str(run_dir)], said) as process:
            going = True
            while going and time.monotonic() - begun < 60 * minutes:
                going = not _ended(process)
                reached = _look(run_dir / METRICS_FILE, time.monotonic() - begun, reached)
                going = going and not (reached.mean_return is not None and reached.mean_return >= bound)
        if process.returncode:
            raise CannotRun(f"The run ended with code {process.returncode}: {last_log_line(said)}")
    return reached


def _ended(process: subprocess.Popen[bytes]) -> bool:
    """Wait for the end, but only until the next look."""
    try:
        process.wait(LOOK_SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return True


def _look(path: Path, seconds: float, before: Learnt) -> Learnt:
    """The state after the newest round that is written down."""
    if not path.exists():
        return before
    newest: dict[str, Any] | None = None
    for record in read_metrics(path):
        if record["kind"] == "round":
            newest = record
    if newest is None:
        return before
    mean = newest["mean_return_100"] if newest["episodes"] >= MEAN_OVER else None
    return Learnt(seconds, newest["steps"], mean)
