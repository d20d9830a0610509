"""The lanes that an actor owns. Lanes change their owner at boundaries (actors/lane.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

import numpy as np

from actors.env import Env
from actors.lane import Lane
from shared.memory.run_memory import Memory
from shared.memory.wait import Doorbell, Stopped


class Lanes:
    """The lanes of one actor, and the envs of lanes that move to it.

    Envs are made one at a time (about 0.1 s each), so that the other lanes do not wait for long.

    Attributes:
        played: the lanes that were started and not handed over.
        ticks: ticks played by this incarnation of the actor.
        redone: those among them whose results were in the ring.
    """

    def __init__(
        self,
        memory: Memory,
        actor: int,
        make: Callable[[int], Env],
        doorbells: Sequence[Doorbell],
        heartbeat: Callable[[], None],
    ) -> None:
        """`make(e)` makes the env of global index `e`; `doorbells` are those of all actors.

        `heartbeat` is called during long work.
        """
        self.played: list[Lane] = []
        self.ticks = 0
        self.redone = 0
        self._memory = memory
        self._lane_envs = memory.run_schedule.lane_envs
        self._actor = actor
        self._make = make
        self._doorbells = doorbells
        self._heartbeat = heartbeat
        self._envs: dict[int, list[Env]] = {}

    @property
    def has_new_lanes(self) -> bool:
        """True if this actor owns a lane that it does not play yet."""
        return bool(np.count_nonzero(self._memory.board.lane_owner == self._actor) != len(self.played))

    @property
    def due(self) -> bool:
        """True if there is a tick to play, a lane to start, to hand over or to keep, or an env to make."""
        waiting = any(lane.ready or lane.other_owner is not None or lane.lacks_last_snapshot for lane in self.played)
        return waiting or self.has_new_lanes or self._lane_missing_envs() is not None

    def start(self, wait: Callable[[Callable[[], bool]], object]) -> None:
        """Make the envs, `wait` until the memory is prepared, and start the lanes."""
        while self.prefetch_env():
            self._heartbeat()
        wait(lambda: bool(self._memory.board.prepared[0]))
        while self.adopt():
            self._heartbeat()

    def ready(self) -> Iterator[Lane]:
        """The lanes whose next tick can be played; each is checked when its turn comes."""
        for lane in tuple(self.played):
            if lane.ready:
                yield lane

    def step(self, lane: Lane) -> bool:
        """Play a tick of a lane that is `ready`. Return True if it ended a round."""
        redone = lane.redone
        ended = lane.step()
        self.redone += lane.redone - redone
        self.ticks += 1
        self._close_if_handed_over(lane)
        return ended

    def prefetch_env(self) -> bool:
        """Make one env for a lane that will move to this actor. Return False when none is missing."""
        board = self._memory.board
        coming = {*self._lanes_where(board.lane_wanted), *self._lanes_where(board.lane_owner)}
        for index in self._envs.keys() - coming:
            _close(self._envs.pop(index))
        missing = self._lane_missing_envs()
        if missing is not None:
            self._make_one(missing)
        return missing is not None

    @property
    def lack_last_snapshots(self) -> bool:
        """True if a lane stands where the run ends, without a snapshot."""
        return any(lane.lacks_last_snapshot for lane in self.played)

    def keep_last_snapshots(self) -> bool:
        """Keep the snapshots that lanes lack where the run ends. Return True if there was one."""
        lacking = [lane for lane in self.played if lane.lacks_last_snapshot]
        for lane in lacking:
            lane.keep_snapshot()
        return bool(lacking)

    def hand_over(self) -> None:
        """Hand over the lanes that wait at a snapshot, and that another actor should own by now.

        Lanes of one cell reach a boundary one after another. Some may have asked here before the balancer moved the
        cell. Inference answers a cell only when all of its lanes ask in one place, so these lanes must move, too.
        """
        for lane in [lane for lane in self.played if lane.other_owner is not None]:
            lane.hand_over_if_wanted()
            self._close_if_handed_over(lane)

    def adopt(self) -> bool:
        """Start a lane that became this actor's, or make the next env that it needs.

        Return False when there was nothing to do.
        """
        if not self.has_new_lanes:
            return False
        played = {lane.index for lane in self.played}
        index = next(index for index in self._lanes_where(self._memory.board.lane_owner) if index not in played)
        if len(self._envs.get(index, ())) < self._lane_envs:
            self._make_one(index)
            return True
        lane = Lane(self._memory.lane(index), self._memory.plan, self._envs.pop(index), self._actor)
        self.played.append(lane)
        lane.start(self._heartbeat)
        self._close_if_handed_over(lane)
        return True

    def close(self) -> None:
        """Close the envs of all lanes, played and prefetched; no request to stop interrupts that."""
        for envs in (*(lane.envs for lane in self.played), *self._envs.values()):
            for env in envs:
                with suppress(Stopped):
                    self._heartbeat()
                env.close()

    def _close_if_handed_over(self, lane: Lane) -> None:
        """Close the envs of a lane that was handed over, and wake its next owner."""
        if lane.next_owner is not None:
            self.played.remove(lane)
            self._doorbells[lane.next_owner].ring()
            _close(lane.envs)

    def _lanes_where(self, actors: np.ndarray) -> list[int]:
        """Numbers of the lanes for which the field of actors names this one."""
        return np.flatnonzero(actors == self._actor).tolist()

    def _lane_missing_envs(self) -> int | None:
        """The first lane that is to be this actor's and has not all of its envs."""
        played = {lane.index for lane in self.played}
        wanted = (index for index in self._lanes_where(self._memory.board.lane_wanted) if index not in played)
        return next((index for index in wanted if len(self._envs.get(index, ())) < self._lane_envs), None)

    def _make_one(self, index: int) -> None:
        envs = self._envs.setdefault(index, [])
        envs.append(self._make(index * self._lane_envs + len(envs)))


def _close(envs: Sequence[Env]) -> None:
    for env in envs:
        env.close()
