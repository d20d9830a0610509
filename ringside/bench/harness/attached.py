"""A run in another process, with its shared memory attached for reading."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ringside.bench.harness.measured_plans import early_learning, game_unless_env
from ringside.bench.harness.measured_runs import SILENT_SECONDS
from ringside.bench.harness.programs import last_log_line, running
from ringside.bench.harness.tables import CannotRun
from ringside.watch.attach import attach, read_config
from shared.memory.run_memory import Memory
from shared.process.live import LIVE_FILE

POLL_SECONDS = 0.02
"""Interval between two checks of a condition."""
WARM_ROUNDS = 2
"""Rounds with updates before anything is measured."""


@dataclass
class AttachedRun:
    """A started run and its memory, read-only."""

    process: subprocess.Popen[bytes]
    """Launcher of the run."""
    directory: Path
    errors: Path
    """File of its standard error."""
    memory: Memory

    def until(self, condition: Callable[[], object]) -> None:
        """Wait until `condition` is true. Raises `CannotRun` if the run ends first or the wait takes too long."""
        _until(condition, self.process, self.errors)

    def until_it_learns(self) -> None:
        """Wait until `WARM_ROUNDS` are committed. Raises as `until`."""
        board, learns = self.memory.board, self.memory.run_schedule.first_learning_round + WARM_ROUNDS
        self.until(lambda: board.committed >= learns)


def lasting(words: Sequence[str]) -> list[str]:
    """These arguments, with others with which the run learns early and never ends by itself."""
    return [*early_learning(words), "--total-steps", "1_000_000_000", *words]


def _until(condition: Callable[[], object], process: subprocess.Popen[bytes], errors: Path) -> None:
    deadline = time.monotonic() + SILENT_SECONDS
    while not condition():
        try:
            process.wait(POLL_SECONDS)
        except subprocess.TimeoutExpired:
            if time.monotonic() > deadline:
                raise CannotRun(f"The run did nothing of what was waited for within {SILENT_SECONDS:.0f} s.") from None
        else:
            raise _ended(errors)


def _ended(errors: Path) -> CannotRun:
    return CannotRun(f"The run ended: {last_log_line(errors)}")


@contextmanager
def attached_run(game: str, words: list[str]) -> Iterator[AttachedRun]:
    """Start `launch.py` and attach to its memory; the run ends with the block. Raises `CannotRun`."""
    with tempfile.TemporaryDirectory(prefix="ringside-bench-") as scratch:
        run_dir, errors = Path(scratch) / "run", Path(scratch) / "errors"
        command = ["launch.py", "--plain", *game_unless_env(game, words), *words, "--run-dir", str(run_dir)]
        with running(command, errors) as process:
            _until((run_dir / LIVE_FILE).exists, process, errors)
            found = attach(run_dir, read_config(run_dir))
            if found is None:
                raise _ended(errors)
            try:
                yield AttachedRun(process, run_dir, errors, found[0])
            finally:
                found[0].arena.close()
