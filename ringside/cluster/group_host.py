"""A group: an object on a node that has lanes played there. It takes the place of learner and scribe in its region.

The region belongs to this process, and has memory for the lanes that are played here alone. Inference server and actors
are children of a program of its own, the second part of this module: they need a main thread, which dies with its
parent, and Ray's workers have other signals and other modules.

    python -m ringside.cluster.group_host MEMORY_FD DOORBELL_FD...     # the plan comes through standard input
"""

from __future__ import annotations

import os
import pickle
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from multiprocess.reduction import ForkingPickler
from numpy.typing import NDArray

from ringside.cluster.node_object import NodeObject, numerics
from ringside.cluster.parcel import LaneState, pack, restore_lane
from ringside.run.supervisor import Supervisor
from shared.errors import RingsideError, RunFailed
from shared.files.disk_trouble import log_line
from shared.machine.subprocesses import terminate_and_reap
from shared.memory.arena import ArenaError
from shared.memory.plan import Plan
from shared.memory.process_table import Role
from shared.memory.run_memory import Memory
from shared.memory.wait import Doorbell
from shared.process.signals import enable_stack_dumps

GROUP_PROGRAM = "ringside.cluster.group_host"
NO_OWNER = 1 << 30
"""Owner of the lanes that other groups play."""
STREAM_SHARE = 16
"""Part of a round after which what was played is sent, while the rest is played."""
_POLL_SECONDS = 0.02


class GroupHost(NodeObject):
    """A group."""

    leave_seconds = 5.0

    def __init__(self, plan: Plan, cores: int, **lease: Any) -> None:
        """Nothing is started yet.

        Args:
            plan: of the whole run.
            cores: number of CPUs for the group.
            lease: arguments of `NodeObject`.
        """
        super().__init__(**lease)
        self._plan = group_plan(plan, cores)
        self._memory: Memory | None = None
        self._doorbells: list[Doorbell] = []

    def probe(self) -> str:
        """Hash of what this machine computes. Raises `RunFailed` if it cannot compute the network."""
        return numerics(self._plan)

    def begin(self, states: Sequence[LaneState]) -> None:
        """Have these lanes played from now on, and no others.

        Args:
            states: of the lanes, at least one.

        Raises:
            RunFailed: this machine lacks memory, disk or processes for them.
        """
        self._stop()
        try:
            memory = self._memory = Memory.create(self._plan, [state.lane for state in states])
            owners = np.full(memory.run_schedule.lanes, NO_OWNER)
            for place, state in enumerate(states):
                owners[state.lane] = place % self._plan.actors  # as on one machine (shared/memory/plan.py)
                restore_lane(memory, state)
            memory.board.lane_owner[:] = memory.board.lane_wanted[:] = owners
            memory.board.prepared[0] = 1
            self._doorbells = [Doorbell.create() for _ in range(len(self._plan.processes))]
            self._start(memory)
        except (ArenaError, OSError) as error:
            self._stop()
            raise RunFailed(f"Node {os.uname().nodename} cannot play lanes: {str(error).rstrip('.')}.") from error

    def play(self, round_: int, weights: NDArray[np.float32] | None) -> None:
        """Play round `round_`, and those before it that are not played yet.

        Args:
            weights: parameters of its version; None: those of the call before.
        """
        memory = self._living()
        if weights is not None:
            memory.weights.publish(round_, lambda out: np.copyto(out, weights))
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
        while not self._enough(memory, sent) and (left := deadline - time.monotonic()) > 0:
            learner.wait(min(_POLL_SECONDS, left))
            self._living()
        return pack(memory, sent)

    def keep(self) -> None:
        """Renew the lease. Raises `RunFailed` if a program was begun and has ended."""
        if self._memory is not None:
            self._living()

    def close(self) -> None:
        """End the group, and leave nothing behind."""
        self._stop()
        super().close()

    def _enough(self, memory: Memory, sent: Mapping[int, int]) -> bool:
        """True if every lane has played a part of the round, or has come to its end."""
        ticks = memory.run_schedule.round_ticks
        part, finished, done = max(1, ticks // STREAM_SHARE), memory.board.lane_finished, memory.board.lane_done
        return all(
            finished.values[lane] > first // ticks or (first >= 0 and done.values[lane] >= first + part)
            for lane, first in sent.items()
        )

    def _living(self) -> Memory:
        """The region, whose program lives. Raises `RunFailed` if it has ended."""
        memory, program = self._memory, self._program
        assert memory is not None, "begin first"
        assert program is not None, "begin first"
        if (code := program.poll()) is not None:
            (*_, last) = [f"exit code {code}", *self._last_lines()]
            raise RunFailed(f"Lanes on node {os.uname().nodename} cannot be played: {last}")
        return memory

    def _start(self, memory: Memory) -> None:
        """Start the program."""
        fds = [memory.arena.fd, *(doorbell.fd for doorbell in self._doorbells)]
        words = ["-m", GROUP_PROGRAM, *map(str, fds)]
        self._start_program(words, os.getcwd(), question=bytes(ForkingPickler.dumps(self._plan)), pass_fds=fds)

    def _stop(self) -> None:
        """End the program, and give its region back."""
        if self._program is not None:
            terminate_and_reap(self._program, self.leave_seconds)
            self._program = None
        if self._memory is not None:
            self._memory.arena.close()
            self._memory = None
        for doorbell in self._doorbells:
            os.close(doorbell.fd)
        self._doorbells = []


def group_actors(plan: Plan, cores: int) -> int:
    """Actors of a group that has so many CPUs."""
    return max(1, cores - plan.config.machine.inference_threads)


def group_plan(plan: Plan, cores: int) -> Plan:
    """Plan of a group's region: one round of window, no evaluation, as many actors as cores are left."""
    changes: dict[str, Any] = {
        "actors": group_actors(plan, cores),
        "eval_every_steps": 0,
        "pin": "off",
        "balance": "off",
        "require_exact": True,  # a lane that cuts an episode writes ticks that are not sent again
    }
    if not plan.method.on_policy:
        changes["replay_size"] = plan.run_schedule.round_steps
    config = plan.config.with_settings(**changes)
    return Plan(config, plan.actions, keeps_every_boundary=True, own_torso=plan.own_torso)


def main() -> int:
    """Supervise inference server and actors of a group until a signal comes.

    Return 1 if a fault ended the group; the last line of the output says which.
    """
    enable_stack_dumps()
    memory_fd, *doorbells = map(int, sys.argv[1:])
    plan: Plan = pickle.load(sys.stdin.buffer)
    region = Memory.attach(memory_fd, plan), [Doorbell(fd) for fd in doorbells]
    with tempfile.TemporaryDirectory(prefix="ringside-group-") as logs:
        plan = replace(plan, config=plan.config.with_settings(run_dir=Path(logs)))
        try:
            Supervisor(plan, lambda memory: None, log_line, region=region, roles=(Role.INFERENCE,)).run()
        except RingsideError as error:
            log_line(" ".join(str(error).split()))
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
