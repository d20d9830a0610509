"""One lane: a few envs that step together, their slots in the ring, their requests, their snapshots.

The action in the ring is a write-ahead log: reply -> actions into the slot -> `logged` -> step -> results -> `done`.
A lane that restarts from a snapshot plays the logged actions again and *compares* the results with those in the ring.
It asks inference only from the first tick without logged actions.

A user's env need not repeat itself. Its lane plays no tick again whose results are in the ring: it goes on at the
first tick without results, with new episodes. The tick before counts as truncated, and an episode that was cut has no
steps there, so it has no record.

A lane keeps a snapshot at the boundaries that have one, and where the run ends. That boundary may be named while the
lane stands there already.

A lane belongs to one actor at a time, its owner, which alone writes the lane's memory. At a boundary with a snapshot
the owner hands the lane over: it writes the number of the next owner, which starts the lane from the snapshot, as after
a restart. So the result does not depend on the actor that plays a lane, and no death at any moment loses a lane.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from actors.env import Env, EnvDiffers, EnvError, Frame
from shared.errors import EnvFault, FatalError
from shared.exploration import Exploration
from shared.memory.plan import Plan
from shared.memory.run_memory import LaneMemory
from shared.memory.snapshot import SNAPSHOT_BYTES

_ENV_HEADER = struct.Struct("<qqdq")  # env bytes, 1 if its next tick resets, return and steps of the episode
_MOST_STEPS = np.iinfo(np.uint16).max
"""Steps of an episode that the ring has room for."""
_RESULTS = ("raw_reward", "terminated", "truncated", "life_lost", "episode_return", "episode_steps")


class ReplayMismatchError(FatalError):
    """A tick played again differs from the one in the ring: memory or emulator cannot be trusted."""


class Lane:
    """Envs `first_env ...` that step together, played by their owner.

    Attributes:
        memory: the lane's own part of the region.
        tick: the next one to be played.
        redone: ticks played again, whose results were in the ring.
    """

    def __init__(self, memory: LaneMemory, plan: Plan, envs: Sequence[Env], actor: int) -> None:
        """`actor` owns the lane and plays it; `envs` are fresh."""
        run_schedule = plan.run_schedule
        self.index, self.envs, self.tick, self.redone = memory.index, envs, 0, 0
        self._actor, self._life = actor, -1
        self._kept = -1
        """Boundary of the newest snapshot; -1: none."""
        self.memory, self._run_schedule, self._slot = memory, run_schedule, memory.slot
        self._first_env = memory.index * run_schedule.lane_envs
        self._exploration = Exploration(memory.index, run_schedule, plan.config.explore, plan.config.run.seed)
        self._possible, self._samples = [env.actions for env in envs], plan.method.samples_actions
        self._env = plan.config.play.env
        self._may_differ = self._env is not None and not plan.config.run.require_exact
        # Single numbers go through flat views: an emulator leaves caches cold, and a numpy index runs far more code.
        self._action, self._start, self._valid = (flat(memory.slot[name]) for name in ("action", "start", "valid"))
        self._results = [flat(memory.slot[name]) for name in _RESULTS]
        self._resets, self._returns, self._steps = [False] * len(envs), [0.0] * len(envs), [0] * len(envs)
        self._frames, self._scratch = memory.slot["frame"], np.zeros(run_schedule.frames.frame, np.uint8)

    # --- starts and restarts

    def start(self, heartbeat: Callable[[], None] = lambda: None) -> None:
        """Restore the newest snapshot, or open the first episodes; then ask for the first actions.

        `heartbeat` is called during long work.
        """
        self._life = self.memory.begin_life()
        boundary = self._kept = self.memory.newest_snapshot()
        repeats = self.memory.repeats
        if boundary < 0 or (not repeats and self.memory.done.read() <= 0):
            for j, env in enumerate(self.envs):
                env.reset(0, self._frames[0, j])
            self._slot["start"][0] = self._slot["valid"][0] = 1
        elif repeats:
            self._continue_from(boundary, heartbeat)
        else:
            self._go_on_anew()
        self._settle()

    def _continue_from(self, boundary: int, heartbeat: Callable[[], None]) -> None:
        """Restore the snapshot at `boundary`. Raises `EnvDiffers` if an env that must repeat itself does not."""
        data = self.memory.read_snapshot(boundary)
        assert data is not None, "a lane's snapshots have no other writer"
        self.tick = boundary * self._run_schedule.round_ticks
        try:
            self._restore(data, heartbeat)
        except EnvDiffers:
            if not self._may_differ:
                raise
            self._leave_repetition()

    def _leave_repetition(self) -> None:
        """Note that from this tick on the lane's env did not repeat itself, and go on with new episodes."""
        self.memory.note_inexact(self.tick * self._run_schedule.envs)
        self._go_on_anew()

    def _go_on_anew(self) -> None:
        """Go on at the first tick without results, which resets all envs.

        The learner may have read the tick before as one that ended no episode: either way it bootstraps from the same
        frame.
        """
        self.tick = self.memory.done.read()
        capacity = self._run_schedule.capacity
        before, slot = (self.tick - 1) % capacity, self.tick % capacity
        cut = (self._slot["valid"][before] & self._slot["valid"][slot]) != 0
        self._slot["episode_steps"][before][cut] = 0  # first: the scribe must see no episode that ended
        self._slot["truncated"][before][cut] = 1
        self._slot["valid"][slot] = 0
        self._resets = [True] * len(self.envs)

    # --- boundaries

    @property
    def _boundary(self) -> int | None:
        """The boundary at which the lane stands; None: it is within a round."""
        boundary, ticks = divmod(self.tick, self._run_schedule.round_ticks)
        return None if ticks else boundary

    @property
    def lacks_snapshot(self) -> bool:
        """True if the lane stands at a boundary without the snapshot that is due there.

        Where the run ends that may become true while it stands there, as the last boundary is named late.
        """
        boundary = self._boundary
        return boundary is not None and self._kept < boundary and self.memory.is_snapshot(boundary)

    def keep_snapshot(self) -> None:
        """Keep the snapshot at the boundary where the lane stands."""
        boundary = self.tick // self._run_schedule.round_ticks
        self.memory.write_snapshot(boundary, self._state())
        self._kept = boundary

    def _settle(self) -> bool:
        """At a boundary keep the snapshot that is due, then publish that the ticks before are whole. Ask for actions.

        Return True at a boundary.
        """
        boundary = self._boundary
        if self.lacks_snapshot:
            self.keep_snapshot()
        if boundary is not None and self.memory.finished.read() < boundary:
            self.memory.finished.publish(boundary)
        if not self.replaying:
            self.memory.ask(self._life, self.tick)
        return boundary is not None

    @property
    def other_owner(self) -> int | None:
        """The actor that should own the lane instead, while it stands at its snapshot; None: there is none.

        The lane may have asked for actions. The next owner starts with another life, so no reply to that is taken.
        """
        if self._kept != self._boundary or not self.memory.repeats:
            return None
        wanted = self.memory.wanted_owner
        return None if wanted == self._actor else wanted

    # --- steps

    @property
    def replaying(self) -> bool:
        """True if this tick's actions are in the ring, logged by a former owner or life."""
        return self.memory.logged.read() > self.tick

    @property
    def ready(self) -> bool:
        """True if this tick can be played."""
        return self.replaying or self.memory.answered

    def step(self) -> bool:
        """Play this tick, which is `ready`. Return True if it ended a round.

        Raises `ReplayMismatchError` if a tick that must repeat does not.
        """
        memory, tick, slot = self.memory, self.tick, self.tick % self._run_schedule.capacity
        first = slot * len(self.envs)
        if not self.replaying:
            # Sampled actions are taken as they are.
            chosen = memory.actions.tolist() if self._samples else self.choose(tick, memory.actions)
            for place, action in enumerate(chosen, start=first):
                self._action[place] = action
            for name, field in memory.declared.items():
                self._slot[name][slot] = field
            memory.logged.publish(tick + 1)
        compare = memory.done.read() > tick
        self.redone += compare
        following = (tick + 1) % self._run_schedule.capacity
        try:
            for j in range(len(self.envs)):
                self._play(tick, first + j, following, j, compare)
        except (ReplayMismatchError, EnvFault):  # an error in a tick that went well before is a difference, too
            if not (compare and self._may_differ):
                raise
            self._leave_repetition()
        else:
            self.tick = tick + 1
            if not compare:
                memory.done.publish(tick + 1)
        return self._settle()

    def choose(self, tick: int, best: NDArray[np.integer]) -> list[int]:
        """Epsilon-greedy actions at a tick, from the best ones of all envs."""
        return self._exploration.choose(tick, best, self._possible)

    def _play(self, tick: int, place: int, following: int, j: int, compare: bool) -> None:
        """One tick of env `j`: a step, or after an end the reset, for which the tick's action is ignored.

        Its single numbers stand at `place` of the flat views, and what opens the next tick in slot `following`.
        """
        frame = self._scratch if compare else self._frames[following, j]
        if self._resets[j]:
            self.envs[j].reset(tick, frame)
            results = (0.0, False, False, False, 0.0, 0)
            start, valid = True, True
            self._resets[j], self._returns[j], self._steps[j] = False, 0.0, 0
        else:
            outcome = self.envs[j].step(tick, self._action[place], frame)
            self._returns[j] += outcome.raw_reward
            self._steps[j] += 1
            results = (*outcome, self._returns[j], self._steps[j])
            valid = not (outcome.terminated or outcome.truncated)
            start = False  # a lost life ends the return, not the episode: the stack continues (docs/protocols.md)
            self._resets[j] = not valid
        next_place = following * len(self.envs) + j
        if compare:
            held = [view[place] for view in self._results] + [self._start[next_place], self._valid[next_place]]
            self._compare(tick, j, held, (*results, start, valid), self._frames[following, j])
            return
        for view, value in zip(self._results, results, strict=True):
            view[place] = value
        self._start[next_place] = start
        self._valid[next_place] = valid

    def _compare(self, tick: int, j: int, held: Sequence[float], results: Sequence[float], frame: Frame) -> None:
        """Raise `ReplayMismatchError` unless the ring holds just this outcome of the tick."""
        same = all(np.float32(a) == np.float32(b) for a, b in zip(held, results, strict=True))
        if not same or not np.array_equal(frame, self._scratch):
            who = "The emulator or the memory of this machine cannot be trusted"
            if self._env is not None:
                who = f"{self._env} does not repeat itself, and is required to"
            raise ReplayMismatchError(
                f"Env {self._first_env + j} played tick {tick} again and did not repeat it. {who}; the last checkpoint "
                "was made before."
            )

    # --- snapshots

    def _state(self) -> bytes:
        parts = []
        for j, env in enumerate(self.envs):
            data = env.snapshot() if self.memory.repeats else b""
            if len(data) > SNAPSHOT_BYTES:
                raise EnvError(
                    f"Env {self._first_env + j} needs {len(data)} bytes to be kept, more than {SNAPSHOT_BYTES}."
                )
            parts += [_ENV_HEADER.pack(len(data), self._resets[j], self._returns[j], self._steps[j]), data]
        return b"".join(parts)

    def _restore(self, data: bytes, heartbeat: Callable[[], None]) -> None:
        """Restore the envs. Raises `EnvError` when the snapshot is damaged, as one of a foreign checkpoint may be."""
        offset = 0
        for j, env in enumerate(self.envs):
            begin = offset + _ENV_HEADER.size
            if len(data) < begin:
                raise EnvError(f"The snapshot of lane {self.index} is damaged: it ends too early.")
            length, resets, self._returns[j], self._steps[j] = _ENV_HEADER.unpack_from(data, offset)
            self._resets[j] = bool(resets)
            offset = begin + length
            if not begin <= offset <= len(data) or not 0 <= self._steps[j] <= _MOST_STEPS:
                raise EnvError(f"The snapshot of lane {self.index} is damaged: the header of env {j} is none.")
            try:
                env.restore(data[begin:offset], heartbeat)
            except EnvError as error:
                raise type(error)(f"Lane {self.index} cannot be restored: {error}") from error


def flat(field: NDArray[np.generic]) -> Any:
    """A memory view of a field of a lane, [capacity, lane_envs], by the number `slot * lane_envs + j`."""
    return memoryview(field.reshape(-1))  # type: ignore[arg-type]
