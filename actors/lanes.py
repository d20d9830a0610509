"""Which lanes an actor plays: those that it owns. They come and go at boundaries (actors/lane.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from actors.env import Env
from actors.lane import Lane
from shared.memory.run_memory import Memory
from shared.memory.wait import Bell


class Lanes:
    """The lanes of one actor, and the envs that it makes for lanes that come to it.

    Envs are made one at a time (about 0.1 s each), so that the other lanes are not kept waiting for long.

    Attributes:
        played: the lanes that were begun and not handed over.
        ticks: ticks played by this life of the actor.
        redone: those among them that were in the ring already.
    """

    def __init__(
        self, memory: Memory, actor: int, make: Callable[[int], Env], bells: Sequence[Bell], beat: Callable[[], None]
    ) -> None:
        """`make(e)` makes the env of global index `e`; `bells` are those of all actors; `beat` gives a sign of life."""
        self.played: list[Lane] = []
        self.ticks = 0
        self.redone = 0
        self._memory = memory
        self._owner = memory.board.lane_owner
        self._wanted = memory.board.lane_wanted
        self._actor = actor
        self._make = make
        self._bells = bells
        self._beat = beat
        self._envs: dict[int, list[Env]] = {}

    @property
    def has_new_lanes(self) -> bool:
        """Whether a lane became this actor's that it does not play yet. It has no lane but those it owns."""
        return bool(np.count_nonzero(self._owner == self._actor) != len(self.played))

    @property
    def due(self) -> bool:
        """Whether there is anything to do: a tick to be played, a lane to be begun, an env to be made."""
        return any(lane.ready for lane in self.played) or self.has_new_lanes or self._lane_missing_envs() is not None

    def prefetch_env(self) -> bool:
        """Make one env for the lanes that are to be this actor's. Returns False when none is missing."""
        coming = np.flatnonzero((self._wanted == self._actor) | (self._owner == self._actor))
        for index in self._envs.keys() - set(coming.tolist()):
            _close(self._envs.pop(index))
        lacking = self._lane_missing_envs()
        if lacking is not None:
            self._make_one(lacking)
        return lacking is not None

    def adopt(self) -> bool:
        """Begin the lanes that became this actor's, or make the next env that is needed for one.

        Returns False when there was nothing to do.
        """
        if not self.has_new_lanes:
            return False
        played = {lane.index for lane in self.played}
        index = next(int(index) for index in np.flatnonzero(self._owner == self._actor) if index not in played)
        if len(self._envs.get(index, ())) < self._memory.run_schedule.lane_envs:
            self._make_one(index)
            return True
        lane = Lane(self._memory.lane(index), self._memory.plan, self._envs.pop(index), self._actor)
        self.played.append(lane)
        lane.start(self._beat)
        self._release(lane)
        return True

    def step(self, lane: Lane) -> bool:
        """Play a tick of a lane that is `ready`. Returns whether it ended a round."""
        redone = lane.redone
        ended = lane.step()
        self.redone += lane.redone - redone
        self.ticks += 1
        self._release(lane)
        return ended

    def _release(self, lane: Lane) -> None:
        """Let go of a lane that was handed over, envs and all, and wake whose it is."""
        if lane.next_owner is not None:
            self.played.remove(lane)
            self._bells[lane.next_owner].ring()
            _close(lane.envs)

    def _lane_missing_envs(self) -> int | None:
        """The first lane that is to be this actor's and has not all of its envs."""
        played = {lane.index for lane in self.played}
        for index in np.flatnonzero(self._wanted == self._actor):
            if index not in played and len(self._envs.get(int(index), ())) < self._memory.run_schedule.lane_envs:
                return int(index)
        return None

    def _make_one(self, index: int) -> None:
        envs = self._envs.setdefault(index, [])
        envs.append(self._make(index * self._memory.run_schedule.lane_envs + len(envs)))


def _close(envs: Sequence[Env]) -> None:
    for env in envs:
        env.close()
