"""Lanes that move between actors, and actors that die while they give or take: what is played stays the same.

Actors are played here one turn at a time, in one process. A death is an exception instead of one of the writes to
shared memory; whatever the actor had in its own memory is forgotten.
"""

import os
from collections.abc import Callable
from itertools import count
from typing import Any, cast

import numpy as np
import pytest

from actors import lane as lane_module
from actors.lanes import Lanes
from shared.memory.process_table import Role
from shared.memory.sequence import Sequence
from shared.memory.wait import Doorbell, Stopped, Waiter
from tests.actors.test_lane import memory_of_lane
from tests.support.counting_env import Counting

ENVS, LANE_ENVS, ROUND_TICKS, ROUNDS = 8, 2, 6, 6


class Killed(BaseException):
    """The process is gone."""


class Fragile(np.ndarray):
    """An array of shared memory; a write may be the one that is not done any more."""

    left: int | None = None
    """Writes until the death; None: no process dies."""
    after: Callable[[], None] | None = None
    """Called after the next write of a lane's owner, as if the writer were slow from there on."""

    def __setitem__(self, key: Any, value: Any) -> None:
        Fragile.count_write()
        super().__setitem__(key, value)

    @staticmethod
    def count_write() -> None:
        """Raise `Killed` in the place of the write that is not done any more."""
        if Fragile.left is not None:
            Fragile.left -= 1
            if Fragile.left < 0:
                Fragile.left = None
                raise Killed


@pytest.fixture(autouse=True)
def fragile_sequences(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count single numbers and what is published among the writes."""
    monkeypatch.setattr(lane_module, "flat", lambda field: field.reshape(-1).view(Fragile))
    publish = Sequence.publish

    def counted(self: Sequence, value: int) -> None:
        Fragile.count_write()
        publish(self, value)

    monkeypatch.setattr(Sequence, "publish", counted)


class Owners(Fragile):
    """The words that say whose the lanes are."""

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, value)
        if Fragile.after is not None:
            called, Fragile.after = Fragile.after, None
            called()


class World:
    """A run of some actors, with inference and commits done by hand."""

    def __init__(self, actors: int, schedule: str = "concurrent") -> None:
        # `alternate`: rounds of a tick, a snapshot every so many
        sizes = dict.fromkeys(("round_steps", "snapshot_every_steps"), ROUND_TICKS * ENVS)
        sizes |= dict.fromkeys(("total_steps", "replay_size"), ROUNDS * ROUND_TICKS * ENVS)
        sizes |= dict.fromkeys(("envs", "train_every", "inference_batch"), ENVS)
        self.memory = memory = memory_of_lane(schedule=schedule, actors=actors, **sizes)
        self.ticks = memory.run_schedule.rounds * memory.run_schedule.round_ticks
        board, snapshots = memory.board, memory.lane_snapshots
        board.lane_owner = board.lane_owner.view(Owners)
        board.lane_life = board.lane_life.view(Fragile)
        snapshots.data, snapshots.length = snapshots.data.view(Fragile), snapshots.length.view(Fragile)
        memory.ring.field = {name: view.view(Fragile) for name, view in memory.ring.field.items()}
        self.bells = [Doorbell.create() for _ in range(actors)]
        self.actors = [self._born(actor) for actor in range(actors)]
        for lanes in self.actors:
            while lanes.prefetch_env():
                pass

    def _born(self, actor: int) -> Lanes:
        process = self.memory.plan.processes.index_of(Role.ACTOR, actor)
        waiter = Waiter(self.memory.board, process, self.bells[actor])
        return Lanes(self.memory, actor, lambda index: Counting(10 * index), self.bells, waiter)

    def turn(self, actor: int, dies_after: int | None = None) -> bool:
        """One turn of an actor, killed instead of a write if so wished. Returns whether it died."""
        Fragile.left = dies_after
        lanes = self.actors[actor]
        try:
            lanes.hand_over()
            lanes.adopt()
            for lane in tuple(lanes.played):
                if lane.ready:
                    lanes.step(lane)
            lanes.prefetch_env()
        except Killed:
            self.actors[actor] = self._born(actor)
            return True
        finally:
            Fragile.left = None
        played = sorted(lane.index for other in self.actors for lane in other.played)
        assert len(played) == len(set(played)), "a lane is played by two actors"
        return False

    def others(self) -> None:
        """Inference answers, the learner commits."""
        memory, board = self.memory, self.memory.board
        boundary = int(board.lane_finished.values.min())
        if boundary > board.committed:
            if memory.run_schedule.is_snapshot(boundary):
                kept = [memory.lane_snapshots.newest(lane) for lane in range(ENVS // LANE_ENVS)]
                assert min(kept) >= boundary, "a round is finished whose snapshot is not kept"
            board.commits.publish(boundary)
        numbers, run_schedule = memory.mailbox.request.values.copy(), memory.run_schedule
        ticks = memory.mailbox.tick_of(numbers)
        servable_rounds = min(board.committed + run_schedule.max_rounds_ahead, run_schedule.rounds)
        servable = ticks // run_schedule.round_ticks < servable_rounds
        lanes = np.flatnonzero((numbers != memory.mailbox.reply.values) & servable)
        actions = (ticks[lanes, None] + lanes[:, None] + np.arange(LANE_ENVS)) % 4
        memory.mailbox.answer(lanes, numbers[lanes], actions.astype(np.uint8))

    def finish(self, expected: dict[str, np.ndarray] | None = None) -> None:
        """Go on, without deaths, until the last round is committed; the ring holds what is expected."""
        for _ in range(200 * self.ticks):
            self.others()
            if self.memory.board.finished:
                break
            for actor in range(len(self.actors)):
                self.turn(actor)
        assert self.memory.board.finished, "it never ends"
        if expected is not None:
            np.testing.assert_equal(self.played(), expected)

    def until(self, tick: int) -> None:
        """Go on until every lane has played the ticks before `tick`."""
        while self.memory.board.lane_done.values.min() < tick:
            self.others()
            for actor, lanes in enumerate(self.actors):
                new = lanes._not_played(self.memory.board.lane_owner)
                if new or any(lane.ready and lane.tick < tick for lane in lanes.played):
                    self.turn(actor)

    def played(self) -> dict[str, np.ndarray]:
        """All that the lanes left in the ring."""
        assert self.ticks < self.memory.run_schedule.capacity
        fields = {name: np.array(view[:, : self.ticks + 1]) for name, view in self.memory.ring.field.items()}
        return {name: view if name in ("frame", "start", "valid") else view[:, :-1] for name, view in fields.items()}


def moving(schedule: str = "concurrent") -> World:
    """A world of two actors in the last tick before lane 2 moves from the first to the second."""
    world = World(2, schedule)
    world.until(2)
    world.memory.board.lane_wanted[2] = 1
    world.until(ROUND_TICKS - 1)
    return world


Expected = tuple[str, dict[str, np.ndarray]]


@pytest.fixture(scope="module", params=["concurrent", "alternate", "free"])
def undisturbed(request: pytest.FixtureRequest) -> Expected:
    """A schedule, and what one actor plays under it."""
    world = World(1, request.param)
    world.finish()
    return request.param, world.played()


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> list[Counting]:
    """The envs that were closed."""
    envs: list[Counting] = []
    monkeypatch.setattr(Counting, "close", lambda self: envs.append(self))
    return envs


def test_a_lane_moves_at_the_next_boundary_and_nothing_changes(undisturbed: Expected, closed: list[Counting]) -> None:
    schedule, expected = undisturbed
    world = moving(schedule)
    owner = world.memory.board.lane_owner
    assert owner.tolist() == [0, 1, 0, 1]
    (moved,) = (lane for lane in world.actors[0].played if lane.index == 2)
    assert not closed
    world.until(ROUND_TICKS + 1)
    assert closed == moved.envs
    assert os.eventfd_read(world.bells[1].fd) == 1, "the next owner is woken"
    assert owner.tolist() == [0, 1, 1, 1]
    assert ([lane.index for lane in world.actors[0].played], world.actors[0]._envs) == ([0], {})
    assert world.memory.board.lane_life.tolist() == [1, 1, 2, 1]
    world.finish(expected)
    assert not world.memory.board.redone.any()


@pytest.mark.parametrize("answered", [False, True])
def test_a_lane_that_has_asked_at_a_boundary_still_moves(undisturbed: Expected, *, answered: bool) -> None:
    """Its batch may be wanted in another place only after it has asked; a reply to it is not taken."""
    schedule, expected = undisturbed
    world = World(2, schedule)
    board, mailbox = world.memory.board, world.memory.mailbox
    world.until(ROUND_TICKS)
    standing = [lane for lane in (0, 2) if board.lane_done.values[lane] == ROUND_TICKS]  # with `free` 0 has gone on
    assert standing
    asked = mailbox.request.values.copy()
    if answered:
        world.others()
    board.lane_wanted[:] = 1
    assert world.actors[0].due
    world.actors[0].hand_over()
    assert np.flatnonzero(board.lane_owner == 1).tolist() == sorted([1, 3, *standing])
    while world.actors[1].adopt():
        pass
    assert (board.lane_life[standing] == 2).all()
    assert (mailbox.request.values[standing] != asked[standing]).all()
    world.finish(expected)


Coming = tuple[World, list[Counting]]


@pytest.fixture
def coming() -> Coming:
    """A world in which actor 1 has made the envs of a lane that is still to become its own, and these."""
    world = World(2)
    world.until(2)
    world.memory.board.lane_wanted[2] = 1
    while world.actors[1].prefetch_env():
        pass
    (envs,) = world.actors[1]._envs.values()
    assert [cast(Counting, env).more for env in envs] == [40, 50], "ten times the global index"
    return world, cast(list[Counting], envs)


def test_envs_of_a_lane_that_is_not_to_come_after_all_are_closed(coming: Coming, closed: list[Counting]) -> None:
    world, envs = coming
    world.memory.board.lane_wanted[2] = 0
    world.actors[1].prefetch_env()
    assert closed == envs
    assert not world.actors[1]._envs


def test_an_actor_closes_the_envs_that_it_plays_and_has_made(coming: Coming, closed: list[Counting]) -> None:
    """A request to stop, which a heartbeat tells, does not keep it from that."""
    (world, envs), heartbeats = coming, list[int]()

    def heartbeat() -> None:
        heartbeats.append(len(closed))
        raise Stopped

    world.actors[1]._waiter.heartbeat = heartbeat
    world.actors[1].close()
    assert closed == [*(env for lane in world.actors[1].played for env in lane.envs), *envs]
    assert heartbeats == list(range(len(closed))), "one before each env"


@pytest.mark.parametrize("victim", ["giver", "taker"])
def test_a_death_at_any_write_of_a_move_changes_nothing(undisturbed: Expected, victim: str) -> None:
    schedule, expected = undisturbed
    for deaths in count():
        world = moving(schedule)
        board = world.memory.board
        world.others()
        if victim == "giver":
            died = world.turn(0, dies_after=deaths)  # the last tick of the round, snapshots, the word
        else:
            while board.lane_owner[2] == 0:
                world.turn(0)
                world.others()
            died = world.turn(1, dies_after=deaths)
        world.finish(expected)
        assert board.lane_owner.tolist() == [0, 1, 1, 1]
        if not died:
            break
    assert deaths >= (20 if victim == "giver" else 2)


def test_a_lane_that_comes_back_at_once_is_not_played_twice(undisturbed: Expected) -> None:
    """The giver is slow after the word; meanwhile the taker took the lane and gave it back."""
    schedule, expected = undisturbed
    world = World(2, schedule)
    board = world.memory.board
    lives = []

    def meanwhile() -> None:
        board.lane_wanted[2] = 0
        while board.lane_owner[2] == 1:
            world.actors[1].adopt()
        lives.append(int(board.lane_life[2]))

    world.until(1)
    board.lane_wanted[2] = 1
    Fragile.after = meanwhile
    world.finish(expected)
    assert lives == [2]
    assert board.lane_life[2] == 3


def test_a_lane_that_stands_where_the_run_ends_keeps_its_snapshot_once() -> None:
    world = World(1, "alternate")
    world.until(2)
    (lanes,), due = world.actors, [world.actors[0].due]
    world.memory.board.last.publish(2)
    due += [lanes.due, lanes.keep_last_snapshots(), lanes.keep_last_snapshots(), lanes.due]
    assert due == [False, True, True, False, False]
    assert world.memory.lane_snapshots.number.values.max(1).tolist() == [2] * (ENVS // LANE_ENVS)


def test_the_word_is_the_last_that_the_giver_writes() -> None:
    world = moving()
    world.others()
    (lane,) = (lane for lane in world.actors[0].played if lane.index == 2)
    Fragile.after = lambda: setattr(Fragile, "left", 0)
    try:
        world.actors[0].step(lane)
        assert Fragile.left == 0
    finally:
        Fragile.left = Fragile.after = None
    assert (lane in world.actors[0].played, world.memory.board.lane_owner[2]) == (False, 1)


@pytest.mark.parametrize("seed", range(20))
def test_moves_and_deaths_at_random(undisturbed: Expected, seed: int) -> None:
    schedule, expected = undisturbed
    draw = np.random.default_rng(seed)
    world = World(3, schedule)
    board = world.memory.board
    moves = deaths = 0
    owners = board.lane_owner.tolist()
    while not board.finished:
        if draw.random() < 0.3:
            board.lane_wanted[draw.integers(len(owners))] = draw.integers(3)
        deaths += world.turn(int(draw.integers(3)), int(draw.integers(60)) if draw.random() < 0.1 else None)
        world.others()
        moves += sum(one != other for one, other in zip(owners, board.lane_owner.tolist(), strict=True))
        owners = board.lane_owner.tolist()
    world.finish(expected)
    assert moves >= 2
    assert deaths >= 2
    actors, ticks = world.memory.plan.processes.slice_of(Role.ACTOR), world.ticks * len(owners)
    assert ticks - deaths <= board.furthest[actors].sum() <= ticks, "each death may hide the count of a tick"
    assert board.redone[actors].sum() > 0
