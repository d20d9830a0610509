"""How long a run of `launch.py` takes to play well, from the command on, by its last training episodes."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.report import ROOT, CannotRun
from watch.metrics import MEAN_OVER, read_metrics

LOOK_SECONDS = 0.5
END_SECONDS = 300.0


@dataclass(frozen=True)
class Learnt:
    """How far a run came."""

    seconds: float
    """Since the command."""
    steps: int
    mean_return: float | None
    """Of the last hundred training episodes, raw; None: there were fewer."""


def solve_run(words: Sequence[str], bound: float, minutes: float) -> Learnt:
    """Run until the mean return reaches `bound`, the run ends, or so many minutes are over.

    Raises:
        CannotRun: it was refused or failed, with the last thing it said.
    """
    with tempfile.TemporaryDirectory(prefix="ringside-solve-") as scratch:
        run_dir, said = Path(scratch) / "run", Path(scratch) / "said"
        begun = time.monotonic()
        with open(said, "wb") as errors:
            command = [sys.executable, "launch.py", "--plain", *words, "--run-dir", str(run_dir)]
            process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=errors)
        reached = Learnt(0.0, 0, None)
        try:
            going = True
            while going and time.monotonic() - begun < 60 * minutes:
                going = not _ended(process)
                reached = _look(run_dir / "metrics.jsonl", time.monotonic() - begun, reached)
                going = going and not (reached.mean_return is not None and reached.mean_return >= bound)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()  # its children die with it
                process.wait()
        if process.returncode:
            lines = said.read_text(errors="replace").strip().splitlines() or ["it said nothing"]
            raise CannotRun(f"The run ended with code {process.returncode}: {lines[-1]}")
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
