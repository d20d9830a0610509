"""Forked processes: exit codes, descriptors and signals are those of spawned ones; no process outlives a server."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import Mock

import pytest
from multiprocess import Pipe
from multiprocess.connection import Connection

from ringside.run.children import ChildProcess, _Inherited
from ringside.run.fork_server import ForkServer
from shared.machine.subprocesses import wait_for_end
from shared.process.signals import STOP_SIGNALS, TELL_STACKS
from shared.root import ROOT
from tests.shared.process.test_spawning import END_SECONDS, Unpickled, ended
from tests.support.waiting import until

PARENT = """
import os, signal, sys
from ringside.run.children import ChildProcess
from ringside.run.fork_server import ForkServer
from tests.support.waiting import until
if __name__ == "__main__":
    process = ChildProcess(target=signal.pause)
    process.server = ForkServer([])
    process.start()
    until(lambda: process.exitcode is None and process.pid not in process.server.pids)
    print(process.pid, *process.server.pids, flush=True)
    signal.pause()
"""


@pytest.fixture
def server() -> Iterator[ForkServer]:
    server = ForkServer(["colorsys"])
    yield server
    server.close()


def start(server: ForkServer, target: Callable[..., object], *arguments: object) -> ChildProcess:
    process = ChildProcess(target=target, args=arguments, daemon=True)
    process.server = server
    process.start()
    return process


def exit_code(process: ChildProcess) -> int | None:
    """Wait for the end."""
    assert wait_for_end(process, END_SECONDS)
    return process.exitcode


def forked(process: ChildProcess) -> bool:
    assert process.exitcode is None
    return process.pid not in process.server.pids


def test_a_server_is_needed_anew_until_it_starts(server: ForkServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, ROOT])  # of which Python takes texts alone
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # as a parent may have left it
    assert exit_code(start(server, os._exit, 3)) == 3
    server.close()
    monkeypatch.setattr(subprocess, "Popen", Mock(side_effect=BlockingIOError))
    for _ in range(2):
        with pytest.raises(BlockingIOError):
            start(server, os._exit, 3)


CALLS: dict[int, tuple[Any, ...]] = {0: (print,), 7: (sys.exit, 7), 1: (divmod, 1, 0), -9: (signal.raise_signal, 9)}


@pytest.mark.parametrize(("code", "call"), CALLS.items())
def test_exit_codes_are_those_of_spawned_processes(server: ForkServer, code: int, call: tuple[Any, ...]) -> None:
    process = start(server, *call)
    assert (exit_code(process), bool(process.sentinel)) == (code, True)


def _tell(connection: Connection, inherited: list[int]) -> None:
    """Send what a process finds when it begins."""
    for number, descriptor in enumerate(inherited):
        os.write(descriptor, bytes([number]))
    blocked = set(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, ())))
    loaded = "colorsys" in sys.modules
    main = getattr(sys.modules["__main__"], "__file__", None)
    connection.send((os.getppid(), len(os.listdir("/proc/self/task")), blocked, loaded, main))


def test_a_process_has_its_descriptors_whatever_their_numbers_and_begins_as_a_spawned_one(server: ForkServer) -> None:
    """Some numbers are those of the server's own descriptors, others are far above."""
    pipes = [os.pipe() for _ in range(40)]
    low = [write for _, write in pipes]
    inherited = [*map(_Inherited, reversed(low)), _Inherited(os.dup2(low[0], 900))]
    found = []
    for way in (server, None):
        ours, theirs = Pipe()
        process = start(way, _tell, theirs, inherited)
        found.append(ours.recv())
        assert wait_for_end(process, END_SECONDS)
        for number, (read, _) in enumerate(reversed(pipes)):
            assert os.read(read, 8) == (bytes([number]) if read != pipes[0][0] else bytes([39, 40]))
    for read, write in pipes:
        os.close(read)
        os.close(write)
    os.close(900)
    parents, threads, blocked, loaded, mains = zip(*found, strict=True)
    assert (parents, threads) == ((*server.pids, os.getpid()), (1, 1))
    assert blocked[0] == blocked[1] >= {*STOP_SIGNALS, TELL_STACKS}
    assert (loaded, len(set(mains))) == ((True, False), 1)


def test_descriptors_are_renumbered_however_they_are_in_each_others_way() -> None:
    """In a process of its own, since the numbers are those of anything."""
    program = """
import os, random
from ringside.run.fork_server import _renumber
for seed in range(20):
    draws, files = random.Random(seed), [os.memfd_create(str(number)) for number in range(12)]
    before, numbers = len(os.listdir("/proc/self/fd")), draws.sample(range(3, 20), 12)
    _renumber(files, numbers)
    names = [os.readlink(f"/proc/self/fd/{number}") for number in numbers]
    assert names == [f"/memfd:{number} (deleted)" for number in range(12)]
    assert len(os.listdir("/proc/self/fd")) == before
    list(map(os.close, numbers))
"""
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, timeout=60)


def test_processes_die_with_their_server_and_the_next_one_has_a_new_one(server: ForkServer) -> None:
    processes = [start(server, signal.pause) for _ in range(3)]
    until(lambda: all(map(forked, processes)))
    pidfds, first = [os.pidfd_open(process.pid) for process in processes], server.pids
    os.kill(first[0], signal.SIGKILL)
    assert all(ended(pidfd) for pidfd in pidfds)
    assert [exit_code(process) for process in processes] == [-signal.SIGKILL] * 3
    for pidfd in pidfds:
        os.close(pidfd)
    process = start(server, sys.exit, 7)
    assert (exit_code(process), server.pids != first) == (7, True)


def test_no_process_counts_as_ended_before_all_of_a_dead_server_are_gone(server: ForkServer) -> None:
    """One holds out: it has no parent-death signal any more, as a process that waits in the kernel."""
    ours, theirs = Pipe()
    held = start(server, _hold_out, theirs)
    other = start(server, signal.pause)
    until(lambda: forked(held) and forked(other))
    assert ours.recv() == "holds out"
    os.kill(server.pids[0], signal.SIGKILL)
    pidfd = os.pidfd_open(other.pid)
    assert ended(pidfd)
    os.close(pidfd)
    assert other.exitcode is held.exitcode is None
    ours.send("enough")
    assert all(wait_for_end(each, END_SECONDS) for each in (other, held))


def _hold_out(connection: Connection) -> None:
    import ctypes

    ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)
    connection.send("holds out")
    connection.recv()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_server_that_is_killed_or_stopped_while_it_loads(server: ForkServer, number: signal.Signals) -> None:
    """Stopped it goes on; killed it was asked in vain."""
    process = start(server, sys.exit, 7)
    os.kill(server.pids[0], number)
    assert exit_code(process) == (-signal.SIGKILL if number == signal.SIGKILL else 7)


@pytest.mark.parametrize(("modules", "code"), [("['']", 7), ("[0]", 7), ("sys.exit(9)", 9)])
def test_a_module_that_fails_may_end_a_server_with_its_code(server: ForkServer, modules: Any, code: int) -> None:
    server.modules = modules  # as text of the program
    assert exit_code(start(server, sys.exit, 7)) == code


def test_a_process_that_cannot_be_forked_yet_takes_no_other_along(server: ForkServer) -> None:
    late = "import os; fork, results = os.fork, ['/', '', '', '']; "
    late += "os.fork = lambda: fork() if not results else os.stat(results.pop()) and fork()"
    server.modules = f"[exec({late!r}, globals())]"
    held = start(server, signal.pause)
    assert (exit_code(start(server, sys.exit, 7)), forked(held)) == (7, True)


def test_until_a_process_is_forked_its_server_is_killed_for_it(server: ForkServer) -> None:
    process = start(server, signal.pause)
    process.kill()
    assert exit_code(process) == -signal.SIGKILL


def test_requests_for_stacks_and_to_stop_end_neither_server_nor_process(server: ForkServer) -> None:
    ours, theirs = Pipe()
    process, first = start(server, print, Unpickled(Connection.recv, theirs)), server.pids
    os.kill(server.pids[0], TELL_STACKS)
    until(lambda: forked(process))
    os.kill(process.pid, TELL_STACKS)
    os.kill(process.pid, signal.SIGTERM)
    os.kill(server.pids[0], signal.SIGTERM)
    ours.send("now you may")
    assert ([exit_code(each) for each in (process, start(server, print))], server.pids) == ([0, 0], first)


def test_server_and_processes_end_with_the_launcher() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], cwd=ROOT, stdout=subprocess.PIPE, text=True) as parent:
        pidfds = [os.pidfd_open(int(pid)) for pid in parent.stdout.readline().split()]
        parent.kill()
        assert all(ended(pidfd) for pidfd in pidfds)
        for pidfd in pidfds:
            os.close(pidfd)
