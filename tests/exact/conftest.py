"""Undisturbed runs to compare with, and a stop."""

import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

import psutil
import pytest

from shared.memory.run_memory import Memory
from tests.support.runs import awaited, finish, kill, start, wait_until

Undisturbed = Callable[..., Path]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    """`undisturbed(*words, **flags)`: the directory of a run that nothing disturbed; made once."""

    @cache
    def run(*words: str, **flags: str) -> Path:
        run_dir = tmp_path_factory.mktemp("undisturbed") / "run"
        finish(start(run_dir, *words, **flags))
        return run_dir

    return run


def kill_when(process: subprocess.Popen[str], role: str, condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Kill the child of that title as soon as the condition of the run is true."""
    wait_until(process, condition, seconds)
    kill(process, role)


def stop_at(
    process: subprocess.Popen[str],
    memory: Memory,
    boundary: float,
    number: int = signal.SIGTERM,
    killed: str | None = None,
) -> str:
    """Ask a run to stop when it has committed a boundary; return what it printed.

    A child named `killed` is killed between the request and the checkpoint.
    """
    victim = awaited(process, killed) if killed else None  # the search takes longer than some stops
    wait_until(process, lambda: memory.board.committed >= boundary)
    process.send_signal(number)
    if victim is not None:
        with suppress(psutil.NoSuchProcess):
            victim.kill()
    return finish(process)
