"""The first steps of a child process, and the specification that it receives."""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys
import traceback
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from setproctitle import setproctitle

from shared.errors import DeviceFault, EnvFault, FatalError
from shared.files.atomic import PRIVATE_UMASK
from shared.files.disk_trouble import log_line
from shared.files.plain_files import open_to_write
from shared.files.run_file_names import LOGS
from shared.machine.cores import NICENESS
from shared.machine.subprocesses import leave_threads
from shared.memory.board import Phase
from shared.memory.plan import Plan
from shared.memory.process_table import ProcessTable, Role, process_name
from shared.memory.run_memory import Memory
from shared.memory.wait import Doorbell, Waiter
from shared.process.signals import STOP_SIGNALS, enable_stack_dumps, ignore_requests

FATAL = 3
"""Exit code of a child that a restart cannot help; the last line of its log is the sentence for the user."""
DEVICE_FAULT = 4
"""Exit code of a child after a fault of the GPU; the last line of its log is the sentence for the user."""
ENV_FAULT = 5
"""Exit code of a child after an error of a user's env; the last line of its log is the sentence for the user."""


@dataclass(frozen=True)
class Doorbells:
    """Descriptors of the doorbells of all processes, by position on the board."""

    fds: tuple[int, ...]
    processes: ProcessTable

    def __getitem__(self, process: int) -> Doorbell:
        """The doorbell of a process, by its position."""
        return Doorbell(self.fds[process])

    def of_role(self, role: Role) -> list[Doorbell]:
        """The doorbells of all processes of a role."""
        return [Doorbell(fd) for fd in self.fds[self.processes.slice_of(role)]]

    def without(self, *processes: int) -> list[Doorbell]:
        """The doorbells of all processes but these."""
        return [Doorbell(fd) for position, fd in enumerate(self.fds) if position not in processes]


@dataclass(frozen=True)
class ChildSpec:
    """Plan, descriptors and identity of a child process."""

    plan: Plan
    memory_fd: int
    doorbells: Doorbells
    role: Role
    number: int
    """Among the processes of its role."""
    process: int
    """Position on the board."""
    incarnation: int
    run_dir: Path
    cores: frozenset[int] | None
    lock: bytes | None = None
    """Identity of the lock that the run holds on its directory; None: it holds none."""
    checkpoint: Path | None = None
    """Verified checkpoint that the scribe of a resumed run restores: all of it may be more than a pipe holds."""
    rendezvous: int | None = None
    """Descriptor of the file in memory that the members of a learner share; None: it has one member."""

    @property
    def name(self) -> str:
        """Name of the process, as in `ps`, logs and displays."""
        return process_name(self.role, self.number)


def log_path(run_dir: Path, name: str) -> Path:
    """Path of the log of the process of that name."""
    return run_dir / LOGS / f"{name.replace(' ', '-')}.log"


def run_role(module: str, child_spec: ChildSpec) -> None:
    """Become the child: signals, title, log, stacks, cores; then run `module.main(child_spec)`.

    Ctrl-C reaches the whole foreground group, and systemd and batch systems ask every process to end; only the
    supervisor decides what it means. The module is named, not passed, so that the supervisor need not import it.
    """
    ignore_requests()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)  # as at its start: programs that it starts may handle them
    setproctitle(f"ringside {child_spec.name}")
    os.umask(PRIVATE_UMASK)
    log = _open_log(log_path(child_spec.run_dir, child_spec.name))
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    enable_stack_dumps()
    if child_spec.role not in (Role.LEARNER, Role.MEMBER, Role.INFERENCE):
        os.nice(NICENESS)
    if child_spec.cores:
        with suppress(OSError):  # the group lost them meanwhile; the process runs without
            os.sched_setaffinity(0, child_spec.cores)
    code = 0
    try:
        role = importlib.import_module(module)
        gc.freeze()  # what was loaded stays: with PyTorch, collections at the end would search it for half a second
        role.main(child_spec)
    except (FatalError, EnvFault) as error:
        code = ENV_FAULT if isinstance(error, EnvFault) else FATAL
        log_line((traceback.format_exc() if code == ENV_FAULT else "") + str(error))
    except DeviceFault as error:
        log_line(traceback.format_exc() + str(error))
        os._exit(DEVICE_FAULT)  # freeing memory of a faulty device would fail and change the code
    if code or child_spec.role in (Role.ACTOR, Role.EVALUATOR, Role.WORKER):  # a full disk refuses what is buffered
        leave_threads(code)
    sys.exit(code)


def _open_log(path: Path) -> int:
    """A descriptor for the output of a process; of /dev/null when there can be no log, which must not end a run."""
    try:
        return open_to_write(path, os.O_WRONLY | os.O_APPEND)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY)


def enter(child_spec: ChildSpec) -> tuple[Memory, Waiter]:
    """Attach the memory and record the first heartbeat."""
    memory = Memory.attach(child_spec.memory_fd, child_spec.plan)
    waiter = Waiter(memory.board, child_spec.process, child_spec.doorbells[child_spec.process])
    memory.board.phase[child_spec.process] = Phase.STARTING
    memory.board.record_heartbeat(child_spec.process)
    return memory, waiter
