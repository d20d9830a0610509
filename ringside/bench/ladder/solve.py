"""Time that a run of `launch.py` takes to solve its game, from the command to the required mean training return."""

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
from shared.files.run_file_names import METRICS_FILE

POLL_SECONDS = 0.5
"""Interval between two reads of the records."""


@dataclass(frozen=True)
class Learned:
    """Progress of a run."""

    seconds: float
    """Seconds since the command."""
    steps: int
    mean_return: float | None
    """Raw mean of the last hundred training episodes; None if there were fewer."""


def solve_run(words: Sequence[str], bound: float, minutes: float) -> Learned:
    """Run until the mean return reaches `bound`, the run ends, or `minutes` are over.

    Raises:
        CannotRun: the run failed; the message has its last error line.
    """
    with tempfile.TemporaryDirectory(prefix="ringside-solve-") as scratch:
        run_dir, errors = Path(scratch) / "run", Path(scratch) / "errors"
        begun = time.monotonic()
        reached = Learned(0.0, 0, None)
        with running(["launch.py", "--plain", *words, "--run-dir", str(run_dir)], errors) as process:
            going = True
            while going and time.monotonic() - begun < 60 * minutes:
                going = not _ended(process)
                reached = _read_progress(run_dir / METRICS_FILE, time.monotonic() - begun, reached)
                going = going and not (reached.mean_return is not None and reached.mean_return >= bound)
        if process.returncode:
            raise CannotRun(f"The run ended with code {process.returncode}: {last_log_line(errors)}")
    return reached


def _ended(process: subprocess.Popen[bytes]) -> bool:
    """Wait up to `POLL_SECONDS` for the end of the run. Return True if it has ended."""
    try:
        process.wait(POLL_SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return True


def _read_progress(path: Path, seconds: float, before: Learned) -> Learned:
    """Progress at the newest recorded round."""
    if not path.exists():
        return before
    newest: dict[str, Any] | None = None
    for record in read_metrics(path):
        if record["kind"] == "round":
            newest = record
    if newest is None:
        return before
    mean = newest["mean_return_100"] if newest["episodes"] >= MEAN_OVER else None
    return Learned(seconds, newest["steps"], mean)
