"""Object on a node that has lanes played there: it takes the place of learner and scribe in the group's region.

The region belongs to this process, and has memory for the lanes that are played here alone. Inference server and actors
are children of a program of its own (node_program): they need a main thread, which dies with its parent, and Ray's
workers have other signals and other modules.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
from multiprocess.reduction import ForkingPickler
from numpy.typing import NDArray

from ringside.cluster.groups.lane_state import LaneState, restore_lane
from ringside.cluster.groups.parameters import ParameterCoding
from ringside.cluster.groups.parcel import pack
from ringside.cluster.lease import LEASE_SECONDS, Lease
from ringside.cluster.numerics import numerics
from ringside.cluster.program_host import Node, describe_node, module_environment, plain_environment
from shared.errors import RingsideError, RunFailed
from shared.machine.subprocesses import REAP_SECONDS, die_with, terminate_and_reap
from shared.memory.plan import Plan
from shared.memory.process_table import Role
from shared.memory.region.arena import ArenaError
from shared.memory.run_memory import Memory
from shared.memory.wait import Doorbell

NODE_PROGRAM = "ringside.cluster.groups.node_program"
NO_OWNER = 1 << 30
"""Owner of the lanes that other groups play."""
STREAM_SHARE = 16
"""Part of a round after which what was played is sent, while the rest is played."""
_POLL_SECONDS = 0.02
_PREFIX = "ringside-group-"
LEAVE_SECONDS = 5.0
"""Longest time of the program to end its children when asked; then it is killed."""


class GroupError(RingsideError):
    """The program of a group ended. The message is its last sentence."""


class GroupHost:
    """A group; call its methods from one thread."""

    def __init__(
        self,
        plan: Plan,
        cores: int,
        *,
        lease_seconds: float = LEASE_SECONDS,
        end: Callable[[int], object] = os._exit,
    ) -> None:
        """Nothing is started yet.

        Args:
            plan: of the whole run.
            cores: number of CPUs for the group.
            lease_seconds: longest time without a call.
            end: ends this process with an exit code when the lease has run out.
        """
        self._directory, self._lock = make_group_directory()
        self._plan = group_plan(plan, cores, self._directory)
        self._coding = ParameterCoding(self._plan)
        self._end = end
        self._session = ""
        self._lanes: list[int] = []
        self._memory: Memory | None = None
        self._doorbells: list[Doorbell] = []
        self._program: subprocess.Popen[bytes] | None = None
        self._log = self._directory / "program.log"
        self._lease = Lease(lease_seconds, self._expire)

    def describe(self) -> Node:
        """Name and software of this machine."""
        self._lease.renew()
        return describe_node()

    def probe(self) -> str:
        """Hash of what this machine computes. Raises `GroupError` if it cannot compute the network."""
        self._lease.renew()
        try:
            return numerics(self._plan, self._lease.renew)
        except RunFailed as error:
            raise GroupError(str(error)) from error

    def begin(self, session: str, states: Sequence[LaneState]) -> None:
        """Have these lanes played from now on, and no others.

        Args:
            session: name for the parcels.
            states: of the lanes, at least one.

        Raises:
            GroupError: this machine lacks memory, disk or processes for them.
        """
        self._lease.renew()
        self._stop()
        try:
            self._begin(session, states)
        except (ArenaError, OSError) as error:
            self._stop()
            raise GroupError(f"Node {os.uname().nodename} cannot play lanes: {str(error).rstrip('.')}.") from error

    def _begin(self, session: str, states: Sequence[LaneState]) -> None:
        """Make the memory of these lanes, and start the program."""
        self._session, self._lanes = session, [state.lane for state in states]
        memory = self._memory = Memory.create(self._plan, self._lanes)
        owners = np.full(memory.run_schedule.lanes, NO_OWNER)
        for place, state in enumerate(states):
            owners[state.lane] = place % self._plan.actors  # as on one machine (shared/memory/plan.py)
        memory.board.lane_owner[:] = memory.board.lane_wanted[:] = owners
        for state in states:
            restore_lane(memory, state)
        memory.board.prepared[0] = 1
        self._doorbells = [Doorbell.create() for _ in range(len(self._plan.processes))]
        self._start()

    def play(self, round_: int, weights: NDArray[np.uint16] | None) -> None:
        """Play round `round_`, and those before it that are not played yet.

        Args:
            weights: parameters of its version, coded; None: those of the call before.
        """
        memory = self._living()
        if weights is not None:
            memory.weights.publish(round_, partial(self._coding.decode, weights))
        memory.board.commits.publish(round_)
        for doorbell in self._doorbells:
            doorbell.ring()

    def collect(self, sent: Mapping[int, int], seconds: float) -> bytes:
        """Parcel of what was played: a part of a round, or its end; empty if there is none after `seconds`.

        Args:
            sent: by lane the first tick that the caller does not have.
        """
        memory = self._living()
        learner, deadline = self._doorbells[Role.LEARNER], time.monotonic() + seconds
        while not self._enough(memory, sent) and time.monotonic() < deadline:
            learner.wait(min(_POLL_SECONDS, max(0.0, deadline - time.monotonic())))
            self._living()
        return pack(memory, self._session, sent)

    def keep(self) -> None:
        """Renew the lease. Raises `GroupError` if a program was begun and has ended."""
        self._lease.renew()
        if self._program is not None:
            self._living()

    def receive(self, data: NDArray[np.uint16]) -> int:
        """Take data for a measurement of the link; return its bytes."""
        self._lease.renew()
        return int(data.nbytes)

    def close(self) -> None:
        """End the group, and leave nothing behind."""
        self._lease.give_up()
        self._stop()
        shutil.rmtree(self._directory, ignore_errors=True)
        os.close(self._lock)

    def _enough(self, memory: Memory, sent: Mapping[int, int]) -> bool:
        """True if every lane has played a part of the round, or has come to its end."""
        ticks = memory.run_schedule.round_ticks
        part, finished, done = max(1, ticks // STREAM_SHARE), memory.board.lane_finished, memory.board.lane_done
        for lane, first in sent.items():
            boundary = first // ticks + 1
            if finished.values[lane] < boundary and (first < 0 or done.values[lane] < first + part):
                return False
        return True

    def _living(self) -> Memory:
        """The region, whose program lives. Raises `GroupError` if it has ended."""
        self._lease.renew()
        assert self._memory is not None, "begin first"
        assert self._program is not None, "begin first"
        code = self._program.poll()
        if code is not None:
            lines = self._log.read_text(errors="replace").strip().splitlines() or [f"exit code {code}"]
            raise GroupError(f"Lanes on node {os.uname().nodename} cannot be played: {lines[-1]}")
        return self._memory

    def _start(self) -> None:
        """Start the program."""
        assert self._memory is not None, "begin first"
        fds = [self._memory.arena.fd, *(doorbell.fd for doorbell in self._doorbells)]
        with open(self._log, "wb") as log:
            self._program = subprocess.Popen(
                [sys.executable, "-m", NODE_PROGRAM, *map(str, fds)],
                cwd=self._directory,
                env=module_environment(plain_environment()),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=fds,
                start_new_session=True,
                preexec_fn=partial(die_with, os.getpid(), signal.SIGTERM),
            )
        assert self._program.stdin is not None, "it is a pipe"
        with self._program.stdin as pipe:
            pipe.write(ForkingPickler.dumps(self._plan))

    def _stop(self) -> None:
        """End the program, and give its region back."""
        if self._program is not None:
            terminate_and_reap(self._program, LEAVE_SECONDS)
            self._program = None
        if self._memory is not None:
            self._memory.arena.close()
            self._memory = None
        for doorbell in self._doorbells:
            os.close(doorbell.fd)
        self._doorbells = []

    def _expire(self) -> None:
        """End everything, since the launcher is out of reach."""
        if self._program is not None:
            terminate_and_reap(self._program, REAP_SECONDS)
        shutil.rmtree(self._directory, ignore_errors=True)
        self._end(1)


def make_group_directory() -> tuple[Path, int]:
    """A new directory for a group's logs, and the descriptor of its lock.

    Directories of groups that were killed are removed: theirs are not locked.
    """
    for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):  # another user's, or a group has just removed it
            lock = _lock(left)
            try:
                shutil.rmtree(left, ignore_errors=True)
            finally:
                os.close(lock)
    while True:
        made = Path(tempfile.mkdtemp(prefix=_PREFIX))
        with suppress(OSError):  # a group that begins at the same time took it for one of the dead
            return made, _lock(made)


def _lock(directory: Path) -> int:
    """Lock a directory, and return its descriptor. Raises `OSError` if it is locked, or another user's."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(descriptor).st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), str(directory))
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def group_actors(plan: Plan, cores: int) -> int:
    """Actors of a group that has so many CPUs."""
    return max(1, cores - plan.config.machine.inference_threads)


def group_plan(plan: Plan, cores: int, directory: Path) -> Plan:
    """Plan of a group's region: one round of window, no evaluation, as many actors as cores are left."""
    config = plan.config
    changes = {
        "actors": group_actors(plan, cores),
        "run_dir": directory,
        "eval_every_steps": 0,
        "pin": "off",
        "balance": "off",
        "require_exact": True,  # a lane that cuts an episode writes ticks that are not sent again
    }
    if not plan.method.on_policy:
        changes["replay_size"] = plan.run_schedule.round_steps
    return Plan(config.with_settings(**changes), plan.actions, keeps_every_boundary=True)
