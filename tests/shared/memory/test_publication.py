"""Published parameters, mailboxes and snapshots: complete for the reader, whenever the writer is killed."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from shared.config.run_schedule import RunSchedule, make_run_schedule
from shared.memory.arena import Arena
from shared.memory.layout import Layout
from shared.memory.mailbox import Mailbox, request_number
from shared.memory.publication import PublishedWeights
from shared.memory.snapshot import LaneSnapshots, LearnerSnapshots, state_fields
from tests.support.played_ring import small_config

PARAMETERS = 5


class Killed(Exception):
    """The process ends here."""


def filled(value: float) -> Callable[[Any], None]:
    """Writes one number everywhere."""

    def fill(out: Any) -> None:
        out[:] = value

    return fill


def killed_midway(out: Any) -> None:
    """Writes half, and is no more."""
    out[: len(out) // 2] = -1
    raise Killed


# Parameters


@pytest.fixture
def weights() -> PublishedWeights:
    made = PublishedWeights(Arena.create(Layout(PublishedWeights.fields({"parameters": PARAMETERS}))))
    made.clear()
    return made


def read(weights: PublishedWeights) -> tuple[int, list[float]]:
    """The newest publication, and what was in it."""
    seen = list[list[float]]()
    number = weights.read(lambda flat: seen.append(flat.tolist()))
    return number, seen[-1]


def test_the_newest_parameters_are_read_and_unchanged_ones_not_published_again(weights: PublishedWeights) -> None:
    assert weights.current == -1
    for updates in range(4):
        for value in (updates + 0.5, 9.0):
            weights.publish(updates, filled(value))
            assert read(weights) == (updates, [updates + 0.5] * PARAMETERS)


@pytest.mark.parametrize("before_the_number", [False, True])
def test_a_death_in_the_midst_leaves_the_former_parameters(weights: PublishedWeights, before_the_number: bool) -> None:
    """The next incarnation has the same updates, and must not take them for published."""
    weights.publish(1, filled(1.0))
    publications = weights.publications

    def publish(number: int) -> None:
        raise Killed

    if before_the_number:
        weights.publications = SimpleNamespace(read=publications.read, publish=publish)  # type: ignore[assignment]
    with pytest.raises(Killed):
        weights.publish(2, filled(2.0) if before_the_number else killed_midway)
    weights.publications = publications
    assert read(weights) == (0, [1.0] * PARAMETERS)
    weights.publish(2, filled(2.0))
    assert read(weights) == (1, [2.0] * PARAMETERS)


def test_a_reader_that_is_overtaken_reads_again(weights: PublishedWeights) -> None:
    weights.publish(1, filled(1.0))
    seen = list[float]()

    def load(flat: np.ndarray) -> None:
        seen.append(float(flat[0]))
        if len(seen) == 1:  # two more come while it reads, the second into the same buffer
            weights.publish(2, filled(2.0))
            weights.publish(3, filled(3.0))

    assert weights.read(load) == 2
    assert seen == [1.0, 3.0]


# Mailboxes


def mailbox_of(run_schedule: RunSchedule) -> Mailbox:
    fields = Mailbox.fields(Mailbox.sizes(run_schedule, actions=4))
    return Mailbox(Arena.create(Layout(fields)), run_schedule)


@pytest.fixture
def run_schedule() -> RunSchedule:
    return make_run_schedule(small_config())


def test_a_first_request_is_no_empty_mailbox() -> None:
    assert request_number(life=0, tick=0) != 0
    assert request_number(life=1, tick=0) != request_number(life=0, tick=1)


# Snapshots


def lane_snapshots_of(run_schedule: RunSchedule) -> LaneSnapshots:
    return LaneSnapshots(Arena.create(Layout(LaneSnapshots.fields(LaneSnapshots.sizes(run_schedule)))))


def learner_snapshots_of(run_schedule: RunSchedule) -> LearnerSnapshots:
    fields = [*state_fields(run_schedule, PARAMETERS).values(), *LearnerSnapshots.fields({})]
    return LearnerSnapshots(Arena.create(Layout(fields)), run_schedule)


def test_a_lane_goes_on_from_its_newest_whole_snapshot(run_schedule: RunSchedule) -> None:
    snapshots = lane_snapshots_of(run_schedule)
    snapshots.clear()
    assert snapshots.newest(0) == -1
    assert snapshots.read(0, 0) is None
    for boundary in range(3):
        snapshots.write(0, boundary, b"state %d" % boundary)
    assert snapshots.newest(0) == 2
    assert snapshots.newest(1) == -1, "of each lane by itself"
    assert snapshots.read(0, 2) == b"state 2"
    assert snapshots.read(0, 1) == b"state 1"
    assert snapshots.read(0, 0) is None, "its place was taken by that of boundary 2"
    snapshots.write(0, 3, b"s")
    assert snapshots.read(0, 3) == b"s", "a shorter one is not longer than it is"


def test_a_snapshot_replaces_the_oldest_wherever_it_is(run_schedule: RunSchedule) -> None:
    """A run that resumes where it was stopped has its first regular snapshot nearer than the others."""
    snapshots, learner = lane_snapshots_of(run_schedule), learner_snapshots_of(run_schedule)
    snapshots.clear()
    learner.clear()
    for boundary in (7, 10, 20, 23):
        snapshots.write(0, boundary, b"%d" % boundary)
        learner.write(boundary, lambda out, value=boundary: [vector.fill(value) for vector in out.values()])
        former = {7: 7, 10: 7, 20: 10, 23: 20}[boundary]
        assert (snapshots.read(0, boundary), snapshots.read(0, former)) == (b"%d" % boundary, b"%d" % former)
        state = learner.read(former)
        assert state is not None
        assert all((vector == former).all() for vector in state.values())


def test_a_lane_that_is_killed_at_its_snapshot_has_the_one_before(run_schedule: RunSchedule) -> None:
    snapshots = lane_snapshots_of(run_schedule)
    snapshots.clear()
    snapshots.write(0, 0, b"zero")
    snapshots.write(0, 1, b"one")
    with pytest.raises(TypeError):
        snapshots.write(0, 2, None)  # type: ignore[arg-type]
    assert snapshots.newest(0) == 1
    assert snapshots.read(0, 2) is None
    assert snapshots.read(0, 0) is None, "its place is half written"


def test_free_lanes_keep_a_snapshot_more() -> None:
    run_schedule = make_run_schedule(small_config().with_settings(schedule="free"))
    snapshots = lane_snapshots_of(run_schedule)
    snapshots.clear()
    for boundary in range(4):
        snapshots.write(0, boundary, b"%d" % boundary)
    assert [snapshots.read(0, boundary) for boundary in range(4)] == [None, b"1", b"2", b"3"]


def test_a_learner_that_is_killed_at_its_snapshot_has_the_one_before(run_schedule: RunSchedule) -> None:
    snapshots = learner_snapshots_of(run_schedule)
    snapshots.clear()

    def store(value: float) -> Callable[[dict[str, Any]], None]:
        return lambda out: [filled(value)(vector) for vector in out.values()] and None

    snapshots.write(0, store(0.5))
    snapshots.write(1, store(1.5))

    def killed(out: dict[str, Any]) -> None:
        killed_midway(out["online"])

    with pytest.raises(Killed):
        snapshots.write(2, killed)
    assert snapshots.newest() == 1
    state = snapshots.read(1)
    assert state is not None
    assert {name: set(vector.tolist()) for name, vector in state.items()} == {name: {1.5} for name in state}
    assert snapshots.read(0) is None
    assert snapshots.read(2) is None


def test_a_reply_is_there_before_its_number(run_schedule: Any) -> None:
    mailbox, seen = mailbox_of(run_schedule), list[Any]()
    mailbox.declared = {"log_prob": np.zeros((2, 2), np.float32)}
    mailbox.reply = SimpleNamespace(
        publish=lambda lanes, numbers: seen.append(
            (mailbox.actions[1].tolist(), mailbox.declared["log_prob"][1].tolist())
        )
    )  # type: ignore[assignment]
    mailbox.answer(np.array([1]), np.array([5]), np.array([[2, 3]], np.uint8), {"log_prob": np.array([[-1.0, -2.0]])})
    assert seen == [([2, 3], [-1.0, -2.0])]
