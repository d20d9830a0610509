"""Child processes of a run: the supervisor's record of each, and their making.

Deaths of a role have causes, and a number in a row that ends the run with a sentence. Progress is work beyond that of
all former incarnations (`furthest` on the board). Repeated work does not count, so a death that comes at the same place
every time ends the run.

Processes of `multiprocess` end with their parent, and survive `TELL_STACKS`, from the first instruction on. Before its
first line of our code, a child loads Python, the main module and its arguments, for seconds on a busy machine. So two
settings are made before exec, which keeps them: the parent-death signal, and a mask that blocks the request for stacks.
Without the mask the request would end a child that cannot answer yet.
"""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

import multiprocess
from multiprocess import popen_spawn_posix, reduction, resource_tracker, spawn, util

from ringside.run.fork_server import MOST_DESCRIPTORS, ForkServer
from ringside.run.hang_detector import HangDetector
from shared.checkpoint.manifest import Manifest
from shared.errors import ConfigError, FileError
from shared.files import disk_trouble
from shared.files.lock import identity
from shared.files.plain_files import open_to_read
from shared.machine.control_groups import OomKills
from shared.machine.cores import Claims, choose_threads
from shared.machine.subprocesses import can_open_processes, die_with
from shared.memory.arena import memory_file
from shared.memory.process_table import Role
from shared.memory.run_memory import Memory
from shared.memory.wait import Doorbell
from shared.process.child import DEVICE_FAULT, ENV_FAULT, FATAL, ChildSpec, Doorbells, log_path, run_role
from shared.process.library_env import pinned_thread_env
from shared.process.ownership import LOCK_FILE
from shared.process.signals import STOP_SIGNALS, stack_dumps_held_back


def require_main_program() -> None:
    """Refuse a call from where no run can be started, with a `ConfigError`.

    That is another thread: signals reach the main thread, and processes end with the thread that starts them. Or it is
    the top level of the main module.
    """
    require_main_guard()
    if threading.current_thread() is not threading.main_thread():
        raise ConfigError("Training was called from another thread: call it from the main thread.")


def require_main_guard() -> None:
    """Refuse a call from the top level of the main module: every child imports this module again, and would call, too.

    A main module without a file is imported by no child: a script from standard input, or the cells of a notebook.

    Raises:
        ConfigError: the statement of the main module that leads here is in no `if __name__ == "__main__":`.
    """
    path = getattr(sys.modules["__main__"], "__file__", None)
    if path is None or not os.path.isfile(path):
        return
    bodies = [frame for frame, _ in traceback.walk_stack(sys._getframe()) if frame.f_code.co_name == "<module>"]
    calls = [frame.f_lineno for frame in bodies if os.path.realpath(frame.f_code.co_filename) == os.path.realpath(path)]
    nodes = ast.walk(ast.parse(Path(path).read_bytes())) if calls else ()
    guards = (each for each in nodes if isinstance(each, ast.If) and "'__name__'" in ast.dump(each.test))
    if calls and not any(each.lineno <= calls[0] <= (each.end_lineno or each.lineno) for each in guards):
        raise ConfigError(
            f"{path}, line {calls[0]}, starts a run whenever the file is imported, and each process of the run imports "
            'it: put the call under if __name__ == "__main__":.'
        )


class _Popen(popen_spawn_posix.Popen):
    """The start method `spawn`, with a step before exec, and for a main module without a file; or a fork server."""

    pid: int

    def _launch(self, process: ChildProcess) -> None:
        self._server = process.server
        start = _fork_exec if self._server is None else self._server.request
        originals = util.spawnv_passfds, spawn.get_preparation_data
        util.spawnv_passfds, spawn.get_preparation_data = start, partial(_preparation_data, originals[1])
        try:
            with suppress(BrokenPipeError):  # the server died, and `poll` says so
                super()._launch(process)
        finally:
            util.spawnv_passfds, spawn.get_preparation_data = originals
        self._number = self.pid
        self.poll()

    def poll(self, flag: int = os.WNOHANG) -> int | None:
        """Exit code; None: the process lives. Note the id of a forked process."""
        if self._server is None:
            return super().poll(flag)
        self.pid, self.returncode = self._server.state(self._number)
        return self.returncode


class ChildProcess(multiprocess.context.SpawnProcess):
    """A process of `multiprocess` that is killed when the thread that started it, the main thread, ends.

    It starts with `TELL_STACKS` blocked, which `enable_stack_dumps` unblocks, and with requests to stop: Ctrl-C and
    `systemctl stop` reach every process, and may not end a child before it ignores them.
    """

    server: ForkServer | None = None
    """Server that forks the process, which dies with it; None: it is spawned."""

    @staticmethod
    def _Popen(process: ChildProcess) -> _Popen:
        if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:  # inherited: exit codes of children would be lost
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        with stack_dumps_held_back(), pinned_thread_env():
            signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)  # until the end of the block
            resource_tracker.ensure_running()  # started by `_launch` it would be killed before it has cleaned up
            signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)  # of which its start unblocks two
            return _Popen(process)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "server": None}


def _preparation_data(original: Callable[[str], dict[str, Any]], name: str) -> dict[str, Any]:
    """Data by which a child prepares itself. A script from standard input has a path that leads to no file."""
    data = original(name)
    if not os.path.isfile(data.get("init_main_from_path", __file__)):
        del data["init_main_from_path"]
    return data


def _fork_exec(path: bytes, words: Sequence[str], descriptors: Sequence[int]) -> int:
    """Start a program that has these descriptors, and return its id."""
    process = subprocess.Popen(
        words,
        executable=path,
        pass_fds=descriptors,
        restore_signals=False,
        preexec_fn=partial(die_with, os.getpid()),
    )
    process.returncode = 0  # unknown; an object without it would reap the process that `multiprocess` waits for
    return process.pid


_END_BYTES = 1 << 16
"""Most bytes that are read of a log, which may be long."""


class Cause(Enum):
    """Cause of a death; the value is the number in a row that ends the run."""

    OWN = 5
    """Fault of the role: an exception, a signal such as SIGSEGV, a lack of memory, a hang."""
    DEVICE = 2
    """Fault of the GPU: one clean restart. A GPU that fails twice does not recover, and each fault costs it memory."""
    OUTSIDE = 100
    """SIGKILL from outside is no fault of the role. The bound ends a run whose role is killed again and again."""


def diagnose(code: int, *, hung: bool, oom_kills: OomKills) -> tuple[str, Cause]:
    """Kind and cause of a death, the kind as half a sentence.

    Args:
        code: exit code; negative: the signal that ended the process.
        hung: True if the supervisor killed the process.
        oom_kills: the kernel's kills for lack of memory.
    """
    if hung:
        return "hung", Cause.OWN
    if code == DEVICE_FAULT:
        return "met a fault of the GPU", Cause.DEVICE
    if code == ENV_FAULT:
        return "met an error of its env", Cause.OWN
    if code == -signal.SIGKILL and (starved := oom_kills.explain()):
        return starved, Cause.OWN
    return exit_in_words(code), Cause.OUTSIDE if code == -signal.SIGKILL else Cause.OWN


def exit_in_words(code: int) -> str:
    """End of a process by its exit code: "ended with code 1", "was killed by SIGKILL"; some signals have no name."""
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    return f"was killed by {name}" if code < 0 else f"ended with code {code}"


def crash_report(name: str, how: str, count: int, code: int, log: Path, begin: int) -> str:
    """The sentence that ends a run when a role may not restart.

    Args:
        name: name of the role.
        how: kind of death, as from `diagnose`.
        count: number of such deaths in a row.
        code: exit code; negative: the signal that ended the process.
        log: log file of the role.
        begin: length of the log when this run began.
    """
    last = last_line(log, begin)
    if code == FATAL and last:
        return last
    if code == ENV_FAULT:
        return f"{last} Restarts of {name} did not help; the traceback is in {log}."
    if code < 0:
        where = f"Its stacks, if any, are in {log}"
    elif last:
        where = f"The last line of its log: {last} (all of it is in {log})"
    else:
        where = f"It wrote nothing into {log}: code that it ran, such as an env's, ended the process."
    return f"{name} {how}, {count} times in a row without progress. {where}"


def last_line(log: Path, begin: int) -> str:
    """Last line of a log, from byte `begin` on; empty if there is none, or it cannot be read."""
    try:
        with open_to_read(log) as file:
            file.seek(max(begin, os.fstat(file.fileno()).st_size - _END_BYTES))
            lines = file.read(_END_BYTES).decode(errors="replace").strip().splitlines()
    except (OSError, FileError):
        return ""
    return lines[-1] if lines else ""


MODULES = {
    Role.INFERENCE: "learner.inference",
    Role.LEARNER: "learner.learner",
    Role.MEMBER: "learner.team.member",
    Role.SCRIBE: "ringside.records.scribe",
    Role.EVALUATOR: "actors.evaluator",
    Role.ACTOR: "actors.actor",
    Role.WORKER: "workers.worker",
}
TORCH_ROLES = (Role.INFERENCE, Role.LEARNER, Role.MEMBER, Role.WORKER)
"""They load PyTorch. On a CPU a fork server has it loaded."""
FIRST_CALLS = "learner.first_calls"
GPU_ROLES = (Role.LEARNER, Role.INFERENCE)
"""Under MPS they share the faults of the GPU, and it accepts no client until both have ended: they restart together."""


class _Inherited(int):
    """A descriptor that a spawned child gets under the same number."""

    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        return int, (reduction.DupFd(int(self)).detach(),)


@dataclass
class Child:
    """The process at one position, and the record of its former incarnations."""

    process: multiprocess.Process
    incarnation: int = 0
    furthest: int = -1
    """Furthest point of the role's work at its newest death."""
    deaths: Counter[Cause] = field(default_factory=Counter)
    """Deaths without progress between them."""
    hang_detector: HangDetector = field(default_factory=HangDetector)
    killed_at: float | None = None
    """Time at which it was killed because it hung, or did not leave; None: it was not."""
    first_heartbeat: int = -1
    """Heartbeat that the supervisor wrote in its name before its start; its own begin when its libraries are loaded."""

    def count_death(self, cause: Cause, furthest: int) -> int:
        """Count a death at the furthest point of the role's work; return the number in a row with this cause."""
        if furthest > self.furthest:
            self.deaths.clear()
        self.furthest = furthest
        self.deaths[cause] += 1
        return self.deaths[cause]


class ChildMaker:
    """Makes the processes of a run, and reports the last one of a role that ended for good."""

    def __init__(
        self, memory: Memory, doorbells: Sequence[Doorbell], run_dir: Path, checkpoint: Manifest | None = None
    ) -> None:
        """Choose the cores of actors and members. `doorbells` are those of all processes, by position."""
        plan = memory.plan
        self._memory, self._plan, self._run_dir = memory, plan, run_dir
        self._doorbells, self._checkpoint = doorbells, None if checkpoint is None else checkpoint.path.resolve()
        self._processes = plan.processes
        self._log_starts: dict[int, int] = {}
        """Lengths of the logs when this run began."""
        self._env_faults: set[tuple[int, str]] = set()
        """Errors of a user's env that have ended a process, with its position."""
        self._rendezvous: dict[int, int] = {}
        """Newest incarnation of the learner's members, and the descriptor of the file that they share."""
        self.server = ForkServer([*(MODULES[role] for role in plan.roles if role in TORCH_ROLES), FIRST_CALLS])
        self._lock = identity(run_dir / LOCK_FILE)
        self._claims = Claims()
        self._threads: dict[int, frozenset[int]] = {}
        """Threads to which processes are bound, by position."""
        machine, team = plan.config.machine, plan.processes.learners
        if machine.pin == "auto":
            members = team if machine.device == "cpu" and len(team) > 1 else ()
            actors = plan.processes.indexes_of(plan.player)[: machine.actors]
            threads = choose_threads(len(actors), len(members), self._claims)
            self._threads = dict(zip((*actors, *members), threads, strict=False))

    def make(self, index: int, incarnation: int) -> ChildProcess:
        """Return the process at a position, not yet started."""
        role, number = self._processes.role_of(index), self._processes.number_of(index)
        doorbells = tuple(_Inherited(doorbell.fd) for doorbell in self._doorbells)
        child_spec = ChildSpec(
            plan=self._plan,
            memory_fd=_Inherited(self._memory.arena.fd),
            doorbells=Doorbells(doorbells, self._processes),
            role=role,
            number=number,
            process=int(index),
            incarnation=incarnation,
            run_dir=self._run_dir,
            cores=self._threads.get(index),
            lock=self._lock,
            checkpoint=self._checkpoint if role is Role.SCRIBE else None,
            rendezvous=self._rendezvous_of(index, incarnation),
        )
        if index not in self._log_starts:
            log = log_path(self._run_dir, child_spec.name)
            self._log_starts[index] = log.stat().st_size if os.path.exists(log) else 0
        elsewhere = role is Role.ACTOR and number >= self._plan.config.machine.actors
        module = self._plan.elsewhere.module if elsewhere else MODULES[role]
        process = ChildProcess(target=run_role, args=(module, child_spec), name=child_spec.name, daemon=True)
        few = len(self._doorbells) < MOST_DESCRIPTORS - 8  # memory, rendezvous, and those of `multiprocess`
        if role in TORCH_ROLES and self._plan.config.machine.device == "cpu" and few and can_open_processes():
            process.server = self.server
        return process

    def _rendezvous_of(self, index: int, incarnation: int) -> int | None:
        """Descriptor of a file in memory for the members of this incarnation; None: the process has none to share with.

        Every incarnation has a new one: a member that was killed may have left half a word in the former.
        """
        if self._plan.config.machine.learner_processes == 1 or index not in self._processes.learners:
            return None
        if incarnation not in self._rendezvous:
            self._close_rendezvous()
            self._rendezvous[incarnation] = memory_file("learner")
        return _Inherited(self._rendezvous[incarnation])

    def repeats_env_fault(self, index: int, code: int) -> bool:
        """True if a process ended by an error of a user's env that has ended it before."""
        if code != ENV_FAULT:
            return False
        log = log_path(self._run_dir, self._processes.name_of(index))
        fault = index, last_line(log, self._log_starts[index])
        repeats = fault in self._env_faults
        self._env_faults.add(fault)
        return repeats

    def crash_report(self, index: int, how: str, count: int, code: int) -> str:
        """The sentence that ends the run when the process at a position may not restart."""
        trouble = int(self._memory.board.trouble[0])
        if code == FATAL and index == Role.SCRIBE and trouble:  # its log lies on the disk that is in trouble
            return disk_trouble.without_checkpoint(trouble, self._run_dir)
        name = self._processes.name_of(index)
        return crash_report(name, how, count, code, log_path(self._run_dir, name), self._log_starts[index])

    def close(self) -> None:
        """End the fork server, give back the claims to cores, and close what processes were to inherit."""
        self.server.close()
        self._claims.close()
        self._close_rendezvous()

    def _close_rendezvous(self) -> None:
        while self._rendezvous:
            os.close(self._rendezvous.popitem()[1])
