"""The lanes that an actor owns. Lanes change their owner at boundaries (actors/lane.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from actors.env import Env
from actors.lane import Lane
from shared.memory.run_memory import Memory
from shared.memory.wait import Doorbell, Stopped, Waiter


class Lanes:
    """The lanes of one actor, and the envs of lanes that move to it.

    Envs are made one at a time (about 0.1 s each), so that the other lanes do not wait for long.

    Attributes:
        played: the lanes that were started and not handed over.
    """

    def __init__(
        self, memory: Memory, actor: int, make: Callable[[int], Env], doorbells: Sequence[Doorbell], waiter: Waiter
    ) -> None:
        """`make(e)` makes the env of global index `e`; `doorbells` are those of all actors; `waiter` is this one's."""
        self.played: list[Lane] = []
        self._memory, self._board, self._lane_envs = memory, memory.board, memory.run_schedule.lane_envs
        self._actor, self._make, self._doorbells, self._waiter = actor, make, doorbells, waiter
        self._progress = max(0, int(self._board.furthest[waiter.process]))
        """Ticks that were played for the first time, by this and former incarnations."""
        self._envs: dict[int, list[Env]] = {}

    @property
    def due(self) -> bool:
        """True if there is a tick to play, a lane to start, to hand over or to keep, or an env to make."""
        waiting = any(lane.ready or lane.other_owner is not None or lane.lacks_snapshot for lane in self.played)
        due = waiting or bool(np.count_nonzero(self._board.lane_owner == self._actor) != len(self.played))
        return due or self._lacks_env(self._not_played(self._board.lane_wanted)) is not None

    def start(self) -> None:
        """Make the envs, wait until the memory is prepared, and start the lanes."""
        while self.prefetch_env():
            pass
        self._waiter.wait(lambda: bool(self._board.prepared[0]))
        while self.adopt():
            pass

    def ready(self) -> Iterator[Lane]:
        """The lanes whose next tick can be played; each is checked when its turn comes."""
        return (lane for lane in tuple(self.played) if lane.ready)

    def step(self, lane: Lane) -> bool:
        """Play a tick of a lane that is `ready`, and count it. Return True if it ended a round."""
        redone = lane.redone
        ended = lane.step()
        again = lane.redone - redone
        self._board.redone[self._waiter.process] += again
        self._progress += 1 - again
        self._waiter.note_progress(self._progress)
        self._hand_over_if_wanted(lane)
        return ended

    def prefetch_env(self) -> bool:
        """Make one env for a lane that will move to this actor. Return False when none is missing."""
        wanted = self._not_played(self._board.lane_wanted)
        for index in self._envs.keys() - {*wanted, *self._not_played(self._board.lane_owner)}:
            _close(self._envs.pop(index))
        return self._make_one(wanted)

    def keep_last_snapshots(self) -> bool:
        """Keep the snapshots that lanes lack where the run ends. Return True if there was one."""
        lacking = [lane for lane in self.played if lane.lacks_snapshot]
        for lane in lacking:
            lane.keep_snapshot()
        return bool(lacking)

    def hand_over(self) -> None:
        """Hand over the lanes that wait at a snapshot, and that another actor should own by now.

        Lanes of one cell reach a boundary one after another. Some may have asked here before the balancer moved the
        cell. Inference answers a cell only when all of its lanes ask in one place, so these lanes must move, too.
        """
        for lane in tuple(self.played):
            self._hand_over_if_wanted(lane)

    def adopt(self) -> bool:
        """Start a lane that became this actor's, or make the next env that it needs.

        Return False when there was nothing to do.
        """
        new = self._not_played(self._board.lane_owner)[:1]
        if new and not self._make_one(new):
            lane = Lane(self._memory.lane(new[0]), self._memory.plan, self._envs.pop(new[0]), self._actor)
            self.played.append(lane)
            lane.start(self._waiter.heartbeat)
            self._waiter.heartbeat()
            self._hand_over_if_wanted(lane)
        return bool(new)

    def close(self) -> None:
        """Close the envs of all lanes, played and prefetched; no request to stop interrupts that."""
        for envs in (*(lane.envs for lane in self.played), *self._envs.values()):
            for env in envs:
                with suppress(Stopped):
                    self._waiter.heartbeat()
                env.close()

    def _hand_over_if_wanted(self, lane: Lane) -> None:
        """Hand a lane over if another actor should own it; wake that actor, and close the envs."""
        other = lane.other_owner
        if other is not None:
            self.played.remove(lane)
            lane.memory.hand_over(other)
            self._doorbells[other].ring()
            _close(lane.envs)

    def _not_played(self, actors: NDArray[np.int64]) -> list[int]:
        """Numbers of the lanes for which the field of actors names this one, and that it does not play."""
        played = {lane.index for lane in self.played}
        return [index for index in np.flatnonzero(actors == self._actor).tolist() if index not in played]

    def _lacks_env(self, lanes: Sequence[int]) -> int | None:
        """The first of these lanes that has not all of its envs."""
        return next((index for index in lanes if len(self._envs.get(index, ())) < self._lane_envs), None)

    def _make_one(self, lanes: Sequence[int]) -> bool:
        """Make the next env that one of these lanes needs. Return False when none is missing."""
        index = self._lacks_env(lanes)
        if index is not None:
            envs = self._envs.setdefault(index, [])
            envs.append(self._make(index * self._lane_envs + len(envs)))
            self._waiter.heartbeat()
        return index is not None


def _close(envs: Sequence[Env]) -> None:
    for env in envs:
        env.close()
