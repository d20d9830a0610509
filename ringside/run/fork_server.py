"""Fork server: a process that has loaded PyTorch and forks those that compute on a CPU, so that they share its pages.

It computes nothing and has one thread. A forked process goes on as a spawned one begins: with the same program, the
same numbers of descriptors, the same signal mask. It dies with the server, and the server with the launcher. All of
them hold the server's end of the socket, so the launcher reads the end of its stream only once all are gone.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module

from msgspec import msgpack
from multiprocess.connection import wait
from setproctitle import setproctitle

from shared.machine.subprocesses import die_with, kill_and_reap, process_descriptor
from shared.memory import wait as memory_wait

TITLE = "ringside fork server"
MOST_DESCRIPTORS = 250
"""Most descriptors of a forked process; Linux allows 253 in a message."""
FORK_TRIES, FORK_PAUSE_SECONDS = 100, 0.1
"""Tries of a fork that the system refuses, and the pause after each."""


@dataclass
class ForkServer:
    """The launcher's side. A server starts with the first request after the end of the former and of its processes."""

    modules: list[str]
    """They are loaded before the first process is forked."""
    pids: list[int] = field(default_factory=list)
    """Id of the newest server, if there was one."""
    _states: list[tuple[int, int | None]] = field(default_factory=list)
    """Id and exit code of each process, as `state` returns them."""
    _process: subprocess.Popen[bytes] | None = None
    _socket: socket.socket | None = None

    def request(self, _: bytes, words: Sequence[str], descriptors: list[int]) -> int:
        """Have a process forked that runs the program of this command; return its number.

        Raises:
            OSError: no server can be started.
        """
        if self._socket is None or self._process is None:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            path = [each for each in sys.path if isinstance(each, str)]  # Python imports from no other
            program = f"import sys; sys.path[:] = {path}; from {__name__} import serve; "
            program += f"exec(serve({theirs.fileno()}, {self.modules}))"
            with theirs:
                self._process = subprocess.Popen(
                    [*words[:-2], program, words[-1]],
                    pass_fds=[theirs.fileno()],
                    restore_signals=False,
                    preexec_fn=partial(die_with, os.getpid()),
                )
            self._socket, self.pids = ours, [self._process.pid]
        self._states.append((self._process.pid, None))
        message = msgpack.encode([len(self._states) - 1, words[-2], descriptors])
        with suppress(ConnectionError):  # the next look at its state says so, too
            socket.send_fds(self._socket, [message], descriptors)
        return len(self._states) - 1

    def state(self, number: int) -> tuple[int, int | None]:
        """Id and exit code of a process; the server's id until it is forked, None while it lives."""
        while self._socket is not None and wait([self._socket], 0):
            message = b""
            with suppress(ConnectionError):
                message = self._socket.recv(64)
            if message:
                forked, pid, code = msgpack.decode(message)
                self._states[forked] = pid, code
            else:
                self.close()
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)  # stopped it would report no end
        return self._states[number]

    def close(self) -> None:
        """End the server, and with it its processes."""
        if self._socket is not None and self._process is not None:
            kill_and_reap(self._process)
            self._socket.close()
            self._socket = None
            ended = self._process.returncode or -signal.SIGKILL
            self._states = [(pid, ended if code is None else code) for pid, code in self._states]


def serve(connection: int, modules: Sequence[str]) -> str:
    """Load modules; fork a process for every request; report it and its end. Return in each process its program."""
    gc.disable()  # collections while PyTorch is loaded find nothing and take a tenth of the time
    with suppress(Exception):  # whatever a broken library raises, the process that needs it will meet again
        for module in modules:
            import_module(module)
    gc.freeze()
    memory_wait.inherited_bytes = memory_wait.private_bytes()
    setproctitle(TITLE)
    server, launcher, processes = os.getpid(), socket.socket(fileno=connection), dict[int, tuple[int, int]]()
    while True:
        for ready in wait([launcher, *processes]):
            if ready is not launcher:
                number, pid = processes.pop(ready)
                os.close(ready)
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                launcher.send(msgpack.encode([number, pid, code]))
                continue
            message, received, *_ = socket.recv_fds(launcher, 1 << 16, MOST_DESCRIPTORS)
            if not message:
                sys.exit()
            number, program, numbers = msgpack.decode(message)
            pid = _fork()
            if not pid:
                die_with(server)
                gc.enable()
                for pidfd in processes:
                    os.close(pidfd)
                _renumber([*received, launcher.detach()], [*numbers, max(numbers) + 1])
                return program
            processes[process_descriptor(pid)] = number, pid
            launcher.send(msgpack.encode([number, pid, None]))
            for descriptor in received:
                os.close(descriptor)


def _fork() -> int:
    """Fork. Tasks or memory that are missing may soon be free, and the end of the server would be that of all."""
    for _ in range(FORK_TRIES):
        with suppress(OSError):
            return os.fork()
        time.sleep(FORK_PAUSE_SECONDS)
    return os.fork()


def _renumber(descriptors: Sequence[int], numbers: Sequence[int]) -> None:
    """Give descriptors these numbers. One that is in the way of another moves first."""
    held = dict(zip(numbers, descriptors, strict=True))
    for number in numbers:
        for other, descriptor in held.items():
            if descriptor == number != other:
                held[other] = os.dup(number)
        if held[number] != number:
            os.dup2(held[number], number, inheritable=False)
            os.close(held[number])
            held[number] = number
