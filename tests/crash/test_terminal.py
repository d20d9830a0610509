"""A terminal that is closed, and a shell that is gone: the run saves its last boundary and leaves nothing behind."""

import os
import pty
import signal
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from shared.checkpoint.finding import find_checkpoint
from shared.root import ROOT
from shared.text import flag_of
from tests.crash.storm import FLAGS
from tests.support.runs import SMALL, living, records, summary
from tests.support.waiting import until

STEPS, ROUNDS = "4_800", 10
"""Some seconds even of a quiet machine, so that the run is not over before the terminal is."""
SECONDS = 100.0
"""Seconds after which a test gives up, for a machine under load."""


def start_in_terminal(run_dir: Path) -> tuple[int, int]:
    """A shell in a terminal of its own with the launcher in its foreground; its id, and our side of the terminal."""
    flags = SMALL | {flag_of(name): value for name, value in FLAGS.items()} | {"--total-steps": STEPS}
    del flags["--game"]
    words = [sys.executable, "launch.py", *(word for flag in flags.items() for word in flag), "--run-dir", str(run_dir)]
    shell, terminal = pty.fork()
    if shell == 0:
        os.chdir(ROOT)
        os.environ.update(TERM="xterm-256color", COLUMNS="80", LINES="40")
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup, which may have started the tests, ignores it
        os.execv("/bin/sh", ["sh", "-c", '"$@"; :', "sh", *words])  # not the last command, or the shell became it
    os.set_blocking(terminal, False)
    return shell, terminal


@pytest.mark.timeout(300)
@pytest.mark.parametrize("how", ["terminal closed", pytest.param("shell killed", marks=pytest.mark.stress)])
def test_a_terminal_that_goes_away_stops_the_run(run_dir: Path, how: str) -> None:
    shell, terminal = start_in_terminal(run_dir)

    def plays() -> bool:
        with suppress(BlockingIOError):
            os.read(terminal, 1 << 16)  # or the display would wait for a reader
        return bool(records(run_dir, "round"))

    until(plays, SECONDS)
    family = psutil.Process(shell).children(recursive=True)
    assert len(family) >= 7
    if how == "terminal closed":
        os.close(terminal)
    else:
        os.kill(shell, signal.SIGKILL)
    os.waitpid(shell, 0)
    until(lambda: living(family) is None, SECONDS)
    if how == "shell killed":
        os.close(terminal)
    stopped = summary(run_dir)
    assert 1 <= stopped["rounds"] < ROUNDS
    assert (stopped["restarts"], find_checkpoint(run_dir).boundary) == (0, stopped["rounds"])
