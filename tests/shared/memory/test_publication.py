"""Published parameters, mailboxes and snapshots: complete for the reader, whenever the writer is killed."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

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
    return lambda out: out.fill(value)


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
    if before_the_number:
        dying = SimpleNamespace(read=publications.read, publish=Mock(side_effect=Killed))
        weights.publications = dying  # type: ignore[assignment]
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

    assert (weights.read(load), seen) == (2, [1.0, 3.0])


# Mailboxes


@pytest.fixture
def run_schedule() -> RunSchedule:
    return make_run_schedule(small_config())


def test_a_first_request_is_no_empty_mailbox() -> None:
    assert request_number(life=0, tick=0) != 0
    assert request_number(life=1, tick=0) != request_number(life=0, tick=1)


# Snapshots


def lane_snapshots_of(run_schedule: RunSchedule) -> LaneSnapshots:
    made = LaneSnapshots(Arena.create(Layout(LaneSnapshots.fields(LaneSnapshots.sizes(run_schedule)))))
    made.clear()
    return made


@pytest.fixture
def snapshots(run_schedule: RunSchedule) -> LaneSnapshots:
    return lane_snapshots_of(run_schedule)


@pytest.fixture
def learner(run_schedule: RunSchedule) -> LearnerSnapshots:
    fields = [*state_fields(run_schedule, PARAMETERS).values(), *LearnerSnapshots.fields({})]
    made = LearnerSnapshots(Arena.create(Layout(fields)), run_schedule)
    made.clear()
    return made


def stored(value: float) -> Callable[[dict[str, Any]], None]:
    """Stores one number in every vector."""
    return lambda out: [vector.fill(value) for vector in out.values()] and None


def held(learner: LearnerSnapshots, boundary: int) -> set[float]:
    """Numbers in the vectors of a snapshot."""
    return {number for vector in learner.read(boundary).values() for number in vector.tolist()}


def test_a_lane_goes_on_from_its_newest_whole_snapshot(snapshots: LaneSnapshots) -> None:
    assert (snapshots.newest(0), snapshots.read(0, 0)) == (-1, None)
    for boundary in range(3):
        snapshots.write(0, boundary, b"state %d" % boundary)
    assert (snapshots.newest(0), snapshots.newest(1)) == (2, -1), "of each lane by itself"
    assert [snapshots.read(0, boundary) for boundary in range(3)] == [None, b"state 1", b"state 2"]
    snapshots.write(0, 3, b"s")
    assert snapshots.read(0, 3) == b"s", "a shorter one is not longer than it is"


def test_a_snapshot_replaces_the_oldest_wherever_it_is(snapshots: LaneSnapshots, learner: LearnerSnapshots) -> None:
    """A run that resumes where it was stopped has its first regular snapshot nearer than the others."""
    for boundary in (7, 10, 20, 23):
        snapshots.write(0, boundary, b"%d" % boundary)
        learner.write(boundary, stored(boundary))
        former = {7: 7, 10: 7, 20: 10, 23: 20}[boundary]
        assert (snapshots.read(0, boundary), snapshots.read(0, former)) == (b"%d" % boundary, b"%d" % former)
        assert held(learner, former) == {former}


def test_a_lane_that_is_killed_at_its_snapshot_has_the_one_before(snapshots: LaneSnapshots) -> None:
    snapshots.write(0, 0, b"zero")
    snapshots.write(0, 1, b"one")
    with pytest.raises(TypeError):
        snapshots.write(0, 2, None)  # type: ignore[arg-type]
    assert snapshots.newest(0) == 1
    assert [snapshots.read(0, boundary) for boundary in (0, 2)] == [None, None], "their place is half written"


def test_free_lanes_keep_a_snapshot_more() -> None:
    snapshots = lane_snapshots_of(make_run_schedule(small_config().with_settings(schedule="free")))
    for boundary in range(4):
        snapshots.write(0, boundary, b"%d" % boundary)
    assert [snapshots.read(0, boundary) for boundary in range(4)] == [None, b"1", b"2", b"3"]


def test_a_learner_that_is_killed_at_its_snapshot_has_the_one_before(learner: LearnerSnapshots) -> None:
    learner.write(0, stored(0.5))
    learner.write(1, stored(1.5))
    with pytest.raises(Killed):
        learner.write(2, lambda out: killed_midway(out["online"]))
    assert (learner.newest(), held(learner, 1)) == (1, {1.5})
    assert (learner.read(0), learner.read(2)) == (None, None)


def test_a_reply_is_there_before_its_number(run_schedule: Any) -> None:
    fields = Mailbox.fields(Mailbox.sizes(run_schedule, actions=4))
    mailbox, seen = Mailbox(Arena.create(Layout(fields)), run_schedule), list[Any]()
    mailbox.declared = {"log_prob": np.zeros((2, 2), np.float32)}

    def publish(lanes: object, numbers: object) -> None:
        seen.append((mailbox.actions[1].tolist(), mailbox.declared["log_prob"][1].tolist()))

    mailbox.reply = SimpleNamespace(publish=publish)  # type: ignore[assignment]
    mailbox.answer(np.array([1]), np.array([5]), np.array([[2, 3]], np.uint8), {"log_prob": np.array([[-1.0, -2.0]])})
    assert seen == [([2, 3], [-1.0, -2.0])]
