"""Fork server: a process that has loaded PyTorch and forks those that compute on a CPU, so that they share its pages.

It computes nothing and has one thread. A forked process goes on as a spawned one begins: with the same program, the
same numbers of descriptors, the same signal mask. It dies with the server, and the server with the launcher. All of
them hold the server's end of the socket, so the launcher reads the end of its stream only once all are gone.
"""

from __future__ import annotations

import errno
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module

from multiprocess import spawn
from multiprocess.connection import wait
from setproctitle import setproctitle

from shared.machine.subprocesses import die_with, kill_and_reap

TITLE = "ringside fork server"
_SERVERS = 100
"""Most servers for one process: what kills a server may kill the next."""
_START_SECONDS = 180.0
"""Longest time to load the modules and to fork."""
_POLL_SECONDS = 0.25
_DESCRIPTORS = 250
"""Most descriptors of a message; Linux allows 253."""


class ForkServer:
    """The launcher's side of the server. `fork` replaces a server that died, once its processes are gone.

    A server has the signal mask and the environment of the call that starts it.
    """

    def __init__(self, modules: Sequence[str]) -> None:
        """Start a server that loads these modules."""
        self._modules = list(modules)
        self._exit_codes: dict[int, int | None] = {}
        """Exit codes of forked processes by their ids; None: the process lives."""
        self._start()

    def _start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket: socket.socket | None = ours
        *words, _, flag = spawn.get_command_line()
        program = f"import sys; sys.path[:] = {sys.path}; from {__name__} import serve; "
        program += f"exec(serve({theirs.fileno()}, {self._modules}))"
        with theirs:
            self._process = subprocess.Popen(
                [*words, program, flag],
                pass_fds=[theirs.fileno()],
                restore_signals=False,
                preexec_fn=partial(die_with, os.getpid()),
            )

    @property
    def pid(self) -> int:
        """Id of the newest server."""
        return self._process.pid

    def fork(self, _: bytes, words: Sequence[str], descriptors: Sequence[int]) -> int:
        """Fork a process that runs the program of this command, with these descriptors; return its id.

        Raises:
            OSError: there are too many processes, or the server does not answer.
        """
        for _server in range(_SERVERS):
            if self._socket is None:
                self._start()
            pid = self._request(words[-2], descriptors)
            if pid is not None:
                return pid
        raise OSError(errno.ECONNRESET, "its server was killed")

    def _request(self, program: str, descriptors: Sequence[int]) -> int | None:
        """Ask for a process and return its id; None: the server died."""
        assert self._socket is not None, "it was started"
        deadline = time.monotonic() + _START_SECONDS
        with suppress(ConnectionError):  # the answer says so, too
            for first in range(0, len(descriptors), _DESCRIPTORS):
                part, is_last = descriptors[first : first + _DESCRIPTORS], first + _DESCRIPTORS >= len(descriptors)
                socket.send_fds(self._socket, [json.dumps([part, program if is_last else None]).encode()], part)
        while self._socket is not None and time.monotonic() < deadline:
            pid, code = self._receive(_POLL_SECONDS)
            if code is None and pid:
                return pid
            if code is not None and not pid:
                raise OSError(code, os.strerror(code))
        if self._socket is not None:
            self._process.kill()
            raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
        return None

    def exit_code(self, pid: int) -> int | None:
        """Exit code of a forked process, as `multiprocess` has it; None: it lives."""
        while self._exit_codes[pid] is None and self._receive(0.0)[0]:
            pass
        return self._exit_codes[pid]

    def _receive(self, seconds: float) -> tuple[int, int | None]:
        """Process and exit code that the server reports within so many seconds; 0 and None: it reports nothing.

        A process without exit code was forked; an exit code without process is the error number of a failed fork.
        """
        assert self._socket is not None, "without a server all exit codes are known"
        self._process.send_signal(signal.SIGCONT)  # it would keep the exit codes while it is stopped
        if not wait([self._socket], seconds):
            return 0, None
        message = b""
        with suppress(ConnectionError):
            message = self._socket.recv(64)
        if not message:
            self.close()
            return 0, None
        pid, code = json.loads(message)
        self._exit_codes[pid] = code
        return pid, code

    def close(self) -> None:
        """Forget the server, which has died or is killed, and its processes with it."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        kill_and_reap(self._process)
        self._exit_codes = {pid: -signal.SIGKILL if code is None else code for pid, code in self._exit_codes.items()}


def serve(connection: int, modules: Sequence[str]) -> str:
    """Fork a process for every request, and report it and its end. Return the program to run in the forked process."""
    with suppress(ImportError):  # a process that needs the module will have the error in its log
        for module in modules:
            import_module(module)
    gc.collect()
    gc.freeze()
    setproctitle(TITLE)
    launcher, processes, held = socket.socket(fileno=connection), dict[int, int](), dict[int, int]()
    while True:
        for ready in wait([launcher, *processes]):
            if ready is not launcher:
                pid = processes.pop(ready)
                os.close(ready)
                _report(launcher, pid, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
                continue
            message, received, *_ = socket.recv_fds(launcher, 1 << 16, _DESCRIPTORS)
            if not message:
                sys.exit()
            numbers, program = json.loads(message)
            held |= zip(numbers, received, strict=True)
            if program is None:
                continue
            server = os.getpid()
            try:
                pid = os.fork()
            except OSError as error:
                _report(launcher, 0, error.errno)
            else:
                if not pid:
                    die_with(server)
                    for pidfd in processes:
                        os.close(pidfd)
                    _renumber({-1: launcher.detach(), **held})
                    return program
                processes[os.pidfd_open(pid)] = pid
                _report(launcher, pid, None)
            for descriptor in held.values():
                os.close(descriptor)
            held.clear()


def _report(launcher: socket.socket, pid: int, code: int | None) -> None:
    launcher.send(json.dumps([pid, code]).encode())


def _renumber(held: dict[int, int]) -> None:
    """Give descriptors their numbers in the launcher, which are the keys; below 0: any number."""
    for number in (each for each in held if each >= 0):
        for other, descriptor in held.items():
            if descriptor == number != other:
                held[other] = os.dup(number)
        if held[number] != number:
            os.dup2(held[number], number, inheritable=False)
            os.close(held[number])
            held[number] = number
