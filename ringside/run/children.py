"""Child processes of a run: the supervisor's record of each, and their making."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import multiprocess
from multiprocess import reduction

from ringside.run.deaths import Deaths, crash_report, last_line
from ringside.run.hang_detector import HangDetector
from ringside.run.spawning import ChildProcess
from shared.checkpoint.manifest import Manifest
from shared.files import disk_trouble
from shared.files.lock import identity
from shared.machine.cores import Claims, choose_actor_threads
from shared.memory.process_table import Role
from shared.memory.run_memory import Memory
from shared.memory.wait import Doorbell
from shared.process.child import ENV_FAULT, FATAL, ChildSpec, Doorbells, log_path, run_role
from shared.process.ownership import LOCK_FILE

MODULES = {
    Role.INFERENCE: "learner.inference",
    Role.LEARNER: "learner.learner",
    Role.RANK: "learner.ranks.rank",
    Role.SCRIBE: "ringside.records.scribe",
    Role.EVALUATOR: "actors.evaluator",
    Role.ACTOR: "actors.actor",
    Role.WORKER: "workers.worker",
}
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
    deaths: Deaths = field(default_factory=Deaths)
    hang_detector: HangDetector = field(default_factory=HangDetector)
    killed_at: float | None = None
    """Time at which it was killed because it hung, or did not leave; None: it was not."""
    first_heartbeat: int = -1
    """Heartbeat that the supervisor wrote in its name before its start; its own begin when its libraries are loaded."""

    def restarted_as(self, process: multiprocess.Process, incarnation: int) -> Child:
        """The next incarnation, with the same record."""
        self.hang_detector.restart()
        return Child(process, incarnation, self.deaths, self.hang_detector)


class ChildMaker:
    """Makes the processes of a run, and reports the last one of a role that ended for good."""

    def __init__(
        self, memory: Memory, doorbells: Sequence[Doorbell], run_dir: Path, checkpoint: Manifest | None = None
    ) -> None:
        """Choose the cores of the actors. `doorbells` are those of all processes, by position."""
        plan = memory.plan
        self._memory, self._plan, self._run_dir = memory, plan, run_dir
        self._doorbells, self._checkpoint = doorbells, checkpoint
        self._processes = plan.processes
        self._log_starts: dict[int, int] = {}
        """Lengths of the logs when this run began."""
        self._env_faults: set[tuple[int, str]] = set()
        """Errors of a user's env that have ended a process, with its position."""
        self._rendezvous: tuple[int, int] | None = None
        """Incarnation of the ranks of the learner, and the descriptor of the file in which they find each other."""
        self._lock = identity(run_dir / LOCK_FILE)
        self._claims = Claims()
        self._threads: Sequence[frozenset[int] | None] = [None] * plan.actors
        if plan.config.machine.pin == "auto":
            actors = plan.config.machine.actors
            self._threads = [*choose_actor_threads(actors, self._claims), *[None] * plan.elsewhere.actors]

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
            parent=os.getpid(),
            run_dir=self._run_dir,
            cores=self._threads[number] if role is self._plan.player else None,
            lock=self._lock,
            checkpoint=self._checkpoint if role is Role.SCRIBE else None,
            rendezvous=self._rendezvous_of(index, incarnation),
        )
        if index not in self._log_starts:
            log = log_path(self._run_dir, child_spec.name)
            self._log_starts[index] = log.stat().st_size if os.path.exists(log) else 0
        elsewhere = role is Role.ACTOR and number >= self._plan.config.machine.actors
        module = self._plan.elsewhere.module if elsewhere else MODULES[role]
        return ChildProcess(target=run_role, args=(module, child_spec), name=child_spec.name, daemon=True)

    def _rendezvous_of(self, index: int, incarnation: int) -> int | None:
        """Descriptor of a file in memory for the ranks of this incarnation; None: the process is no rank.

        Every incarnation has a new one: a rank that was killed may have left half a word in the former.
        """
        if self._plan.config.machine.learner_ranks == 1 or index not in self._processes.learners:
            return None
        if self._rendezvous is None or self._rendezvous[0] != incarnation:
            self._close_rendezvous()
            self._rendezvous = incarnation, os.memfd_create("ranks", os.MFD_CLOEXEC)
        return _Inherited(self._rendezvous[1])

    def _close_rendezvous(self) -> None:
        if self._rendezvous is not None:
            os.close(self._rendezvous[1])
            self._rendezvous = None

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
        """Give back the claims to cores, and close what processes were to inherit."""
        self._claims.close()
        self._close_rendezvous()
