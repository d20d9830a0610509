"""Child process with the setup of a role of a run; it sends its result through a pipe."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any

from multiprocess import Pipe
from multiprocess.connection import Connection

from ringside.bench.harness.tables import CannotRun, WrongResult
from ringside.supervisor.spawning import ChildProcess
from shared.errors import ConfigError, DeviceFault
from shared.machine.subprocesses import REAP_SECONDS
from shared.memory.region.arena import ArenaError
from shared.process.library_env import choose_workspace, pinned_thread_env
from shared.process.signals import enable_stack_dumps

START_SECONDS = 120.0
"""Longest time that a process may take beyond its measuring time."""
END_SECONDS = 10.0
"""Longest time that a process may take to end by itself."""


class Child:
    """Process that runs a function and sends messages or an exception; it is killed at the end of the block."""

    def __init__(
        self, work: Callable[..., None], arguments: tuple[Any, ...], environment: Mapping[str, str] | None = None
    ) -> None:
        choose_workspace()
        self._ours, theirs = Pipe()
        self._process = ChildProcess(
            target=_child, args=(theirs, work, arguments, dict(environment or {})), daemon=True
        )
        with pinned_thread_env():  # same threads as the processes of a run
            self._process.start()
        theirs.close()

    def ask(self, word: str) -> Any:
        """Send `word` and return the next message of the child. Raises as `answer`."""
        try:
            self._ours.send(word)
        except OSError as error:
            raise CannotRun("Its process ended early.") from error
        return self.answer()

    def finish(self, word: str) -> None:
        """Ask the child to end by itself, and wait up to `END_SECONDS`."""
        with suppress(OSError):  # the child has ended already
            self._ours.send(word)
        self._process.join(END_SECONDS)

    def answer(self, seconds: float = 0.0) -> Any:
        """Return the next message of the child. Raises the exception that it sends, or `CannotRun` if none arrives."""
        try:
            message = self._ours.recv() if self._ours.poll(seconds + START_SECONDS) else None
        except EOFError:
            message = None
        if message is None:
            raise CannotRun("Its process ended early, or did not answer.")
        if isinstance(message, Exception):
            raise message
        return message

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ours.close()
        self._process.kill()
        self._process.join(REAP_SECONDS)


def _child(connection: Connection, work: Callable[..., None], arguments: tuple[Any, ...], env: dict[str, str]) -> None:
    """Entry point of the child."""
    os.environ.update(env)
    enable_stack_dumps()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent handles it
    from learner.engine.engine import NonFiniteError
    from learner.engine.faults import device_faults_named

    try:
        with device_faults_named():
            work(connection, *arguments)
    except (CannotRun, WrongResult) as error:
        connection.send(error)
    except ArenaError as error:
        connection.send(CannotRun(f"There is too little memory: {error}"))
    except (DeviceFault, ConfigError) as error:
        connection.send(CannotRun(str(error)))
    except NonFiniteError as error:
        connection.send(WrongResult(str(error)))
