"""Processes that are still starting: they end with their parent, and go on when they are asked for their stacks."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from multiprocess import Pipe
from multiprocess.connection import Connection

from ringside.run.children import ChildProcess
from shared.process.signals import TELL_STACKS, enable_stack_dumps
from shared.root import ROOT

PARENT = """
import signal, sys
from ringside.run.children import ChildProcess
from tests.shared.process.test_spawning import Unpickled
process = ChildProcess(target=print, args=(Unpickled(signal.pause),))
process.start()
print(process.pid, flush=True)
signal.pause()
"""
END_SECONDS = 60.0


class Unpickled:
    """An argument at which a child calls a function, while it is still loading what it was given."""

    def __init__(self, function: Callable[..., object], *arguments: Any) -> None:
        self._call = function, arguments

    def __reduce__(self) -> tuple[Callable[..., object], tuple[Any, ...]]:
        return self._call


def ended(pidfd: int, seconds: float = END_SECONDS) -> bool:
    """Wait for the end of a process; `select` would refuse the high descriptors of a long test session."""
    waiting = select.poll()
    waiting.register(pidfd, select.POLLIN)
    return bool(waiting.poll(1000 * seconds))


def test_a_process_that_still_starts_ends_with_its_parent() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], cwd=ROOT, stdout=subprocess.PIPE, text=True) as parent:
        pidfd = os.pidfd_open(int(parent.stdout.readline()))
        try:
            assert not ended(pidfd, 0)
            parent.kill()
            if not (gone := ended(pidfd)):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            assert gone
        finally:
            parent.kill()
            os.close(pidfd)


def _answer(started: object, connection: Connection) -> None:
    enable_stack_dumps()
    connection.send("I go on")


def test_a_request_for_stacks_during_the_start_ends_no_process() -> None:
    ours, theirs = Pipe()
    process = ChildProcess(target=_answer, args=(Unpickled(Connection.recv, theirs), theirs))
    process.start()
    os.kill(process.pid, TELL_STACKS)
    ours.send("now you may")
    theirs.close()
    try:
        assert ours.recv() == "I go on"
    finally:
        process.join(END_SECONDS)
    assert process.exitcode == 0


def test_a_process_that_cannot_write_stacks_goes_on() -> None:
    program = "import os, signal; from shared.process.signals import *; enable_stack_dumps(); "
    program += "os.kill(os.getpid(), TELL_STACKS)"
    subprocess.run(["sh", "-c", f"{sys.executable} -c '{program}' 2>&-"], cwd=ROOT, check=True, timeout=60)


def test_the_command_goes_on_before_it_has_loaded_anything() -> None:
    """A module that `launch.py` loads asks for the stacks."""
    program = f"""
import os, runpy, signal, sys
class Asking:
    def __getattr__(self, name):
        os.kill(os.getpid(), signal.SIGUSR1)
        os._exit(7)
sys.modules["pathlib"] = Asking()
runpy.run_path({str(ROOT / "launch.py")!r}, run_name="__main__")
"""
    assert subprocess.run([sys.executable, "-c", program], timeout=60, check=False).returncode == 7
