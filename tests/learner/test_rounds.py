"""Slices of a learner's round, without a network."""

from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import Mock

import pytest

from learner import learner
from learner.commits import Commits
from learner.engine.engine import NonFiniteError
from learner.engine.interfaces import CHUNK_UPDATES
from learner.engine.round_means import RoundMetrics
from learner.learner import SLICE_SECONDS, SLICE_UPDATES, SLICES_AHEAD, SLICES_LEFT, STUCK_SECONDS, Rounds
from shared.errors import DeviceFault, FatalError
from shared.memory.board import METRIC_RECORDS
from shared.memory.plan import Plan
from shared.memory.process_table import Role
from shared.memory.run_memory import Memory
from tests.support.configurations import settled
from tests.support.fake_doorbells import fake_doorbells


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The learner's `time.monotonic`."""
    now = [0.0]
    monkeypatch.setattr(learner, "time", Mock(monotonic=lambda: now[0]))
    return now


def make_engine(run: Callable[[int], None] = lambda count: None) -> Any:
    """An engine whose updates are calls of `run`."""
    return Mock(run=run, unfinished_slices=lambda: 0, checksum=lambda: 7)


def make_rounds(engine: Any, **settings: Any) -> tuple[Any, list[int]]:
    """A learner with memory of its own, and the updates done at each of its heartbeats."""
    small = {"network": "small", "round_steps": 80, "replay_size": 160, "total_steps": 800}
    memory = Memory.create(Plan(settled(**small | settings), 4))
    memory.arena.close()  # its mapping stays
    heartbeats = list[int]()
    waiter = Mock(process=int(Role.LEARNER), doorbell=engine)
    waiter.heartbeat = lambda: heartbeats.append(int(memory.board.updates[0]))
    memory.board.commits.publish(0)
    return Rounds(memory, waiter, engine, fake_doorbells(engine)), heartbeats


@pytest.mark.parametrize(("newest", "published"), [(20, []), (0, [4, 16]), (4, [16])])
def test_with_free_repeated_updates_publish_nothing(newest: int, published: list[int]) -> None:
    """Their weights are older than those that inference has, also in a round that was not committed."""
    rounds, _ = make_rounds(make_engine(), schedule="free", publish_every_updates=4)
    done: list[int] = []
    rounds._memory.weights.content = [newest]
    rounds._memory.weights.publish = lambda updates, fill: done.append(updates)
    rounds._slice = 4
    rounds._run(0, 24)
    assert done == published


def test_numbers_that_are_not_finite_are_found_at_the_end_of_a_round() -> None:
    """By all members together, though one of them publishes before."""
    done, published = list[int](), Mock()
    rounds, _ = make_rounds(make_engine(done.append), schedule="free", publish_every_updates=4)
    rounds._engine.check = Mock(side_effect=NonFiniteError("They are not finite.", {}))
    rounds._memory.weights.publish = published
    rounds._run(0, 24)
    assert sum(done) == 24
    assert rounds._engine.check.called
    assert not published.called


def test_repeated_updates_are_counted_where_slices_end_elsewhere() -> None:
    """The incarnation before had done 3 of the updates of the second slice."""
    rounds, _ = make_rounds(make_engine())
    rounds._board.updates[0] = 7
    rounds._slice = 4
    rounds._run(0, 12)
    assert (rounds._board.redone[Role.LEARNER], rounds._board.updates[0]) == (7, 12)


WHOLE_CHUNKS = [1, 1 + CHUNK_UPDATES, 2 * CHUNK_UPDATES, 3 * CHUNK_UPDATES]
SLICES: dict[str, tuple[float, list[float], Sequence[int], list[int]]] = {
    "slow": (3.0, [], (4, 3), [1, 2, 3, 4, 4, 4, 4]),  # the second round repeats those of the first
    # As graphs do, of which slices are whole ones.
    "fast": (0.01, [], (2 * SLICE_UPDATES,), [1, SLICE_UPDATES, 2 * SLICE_UPDATES]),
    # One by one while they are slow, and as many as fit into the time when they are not.
    "as known": (0.12, [0.6, 0.4, 0.4, 2.0], (13,), [1, 2, 3, 4, 5, 9, 13]),
    "whole chunks": (SLICE_SECONDS / 11, [], (3 * CHUNK_UPDATES,), WHOLE_CHUNKS),
}


@pytest.mark.parametrize(("seconds", "paces", "counts", "done"), SLICES.values(), ids=SLICES)
def test_a_slice_takes_about_as_long_as_it_should(
    clock: list[float], seconds: float, paces: list[float], counts: Sequence[int], done: list[int]
) -> None:
    """A heartbeat comes after each. The first slices take `paces`, the others `seconds` an update."""
    first = iter(paces)

    def run(updates: int) -> None:
        clock[0] += next(first, seconds * updates)

    rounds, heartbeats = make_rounds(make_engine(run))
    for round_, count in enumerate(counts):
        rounds._run(round_, count)
    assert heartbeats == done
    assert SLICE_UPDATES % CHUNK_UPDATES == 0


def test_members_that_differ_end_the_run_before_the_commit() -> None:
    def meet(_value: int, what: str) -> None:
        if "parameters" in what:
            raise FatalError("They differ.")

    rounds, _ = make_rounds(make_engine(), learning_starts=1)
    rounds._team = Mock(meet=meet)
    rounds._commit = Mock()
    with pytest.raises(FatalError, match="They differ"):
        rounds.run_round(1)
    assert not rounds._commit.called


def test_a_round_with_broken_numbers_is_not_committed() -> None:
    rounds, _ = make_rounds(make_engine(), learning_starts=1)
    rounds._engine.end_round = Mock(side_effect=NonFiniteError("They are not finite.", {}))
    rounds._commit = Mock()
    with pytest.raises(NonFiniteError):
        rounds.run_round(1)
    assert not rounds._commit.called


class Gpu:
    """An engine whose GPU does a slice at every wait for it."""

    export_into = None

    def check(self) -> None:
        pass

    def __init__(self) -> None:
        self.unfinished = self.most = 0

    def unfinished_slices(self) -> int:
        return self.unfinished

    def run(self, count: int) -> None:
        self.unfinished += 1
        self.most = max(self.most, self.unfinished)

    def wait(self, seconds: float) -> None:
        self.unfinished -= 1


def test_a_gpu_is_asked_for_some_slices_ahead_and_no_more() -> None:
    gpu = Gpu()
    rounds, heartbeats = make_rounds(gpu)
    rounds._run(0, 20 * SLICE_UPDATES)
    assert gpu.most == SLICES_AHEAD + 1
    assert gpu.unfinished == SLICES_AHEAD, "they are waited for elsewhere, with something to do meanwhile"
    assert len(heartbeats) > 20, "a wait sends heartbeats"


def test_a_gpu_that_does_not_go_on_is_a_fault(clock: list[float]) -> None:

    def wait(seconds: float) -> None:
        clock[0] += STUCK_SECONDS / 4

    rounds, heartbeats = make_rounds(Mock(unfinished_slices=lambda: 9, wait=wait))
    with pytest.raises(DeviceFault, match="did not finish a slice of up to 16 updates in 300 s"):
        rounds._wait_for_slices(SLICES_LEFT)
    assert len(heartbeats) == 5


def test_updates_are_done_before_they_are_published_in_mid_round() -> None:
    gpu = Gpu()
    rounds, _ = make_rounds(gpu, schedule="free", publish_every_updates=2 * SLICE_UPDATES)
    left = list[int]()
    rounds._memory.weights.content = [0]
    rounds._memory.weights.publish = lambda updates, fill: left.append(gpu.unfinished)
    rounds._run(0, 8 * SLICE_UPDATES)
    assert left == [SLICES_LEFT] * 3


@pytest.mark.parametrize(("begun", "looks"), [(SLICES_LEFT, 0), (SLICES_LEFT + 3, 3)])
def test_the_next_round_is_drawn_while_the_gpu_has_work_for_some_looks(begun: int, looks: int) -> None:
    gpu = Gpu()
    gpu.unfinished = begun
    rounds, heartbeats = make_rounds(gpu, learning_starts=1)
    drawn = list[int]()
    rounds._engine = Mock(wraps=gpu, begin_round=Mock(), end_round=Mock(), update_target=Mock(), checksum=Mock())
    rounds._run, rounds._commit, rounds._prefetch = Mock(), Mock(), drawn.append
    rounds.run_round(4)
    assert (len(heartbeats) - 1, drawn) == (looks, [5] * looks)  # one more begins the round


UNRECORDED = {
    "written": (10, 9, 8, 0, True),
    "in the ring": (10, 8, 8, 0, True),
    "soon overwritten": (10, 7, 8, 0, False),
    "refused by the disk": (10, 7, 8, 1, True),
    "metrics fit": (99 + METRIC_RECORDS, 100, 0, 0, True),
    "metrics do not fit": (100 + METRIC_RECORDS, 100, 0, 0, False),
}


@pytest.mark.parametrize("case", UNRECORDED.values(), ids=UNRECORDED)
def test_a_commit_lets_no_lane_overwrite_an_unrecorded_round(case: tuple[int, int, int, int, bool]) -> None:
    """With round 10 the lanes may write over round 7, not over round 8; nor are metrics overwritten."""
    boundary, written, readable_from, refused, commits = case
    board = Mock(written=[written], records_refused=[refused], newest_record=boundary - 1)
    run_schedule = Mock(round_ticks=5, record_number=lambda at: at - 1, segment_begin=lambda at: at)
    run_schedule.oldest_readable_tick = {boundary: 5 * readable_from}.__getitem__
    waiter, answers = Mock(), list[bool]()
    waiter.wait = lambda until: answers.append(until())
    Commits(Mock(board=board, run_schedule=run_schedule), waiter, fake_doorbells()).wait_for_scribe(boundary)
    assert answers == [commits]


def test_a_record_has_the_means_over_its_updates() -> None:
    rounds, _ = make_rounds(make_engine())
    names = rounds._run_schedule.method.metrics
    rounds._record += [RoundMetrics(1, dict.fromkeys(names, 1.0)), RoundMetrics(3, dict.fromkeys(names, 5.0))]
    assert rounds._end_record() == (4, dict.fromkeys(names, 4.0))
    assert rounds._end_record() == (0, {}), "the next one begins"


def test_a_learner_that_died_between_its_snapshot_and_its_commit_commits_first() -> None:
    """Lanes wait for the commit, and the learner would wait for their next round."""
    rounds, _ = make_rounds(make_engine())
    committed = list[int]()
    rounds._commit = committed.append
    rounds._memory.weights.publish(0, lambda flat: None)
    rounds._memory.learner_snapshots.write(1, lambda out: None)
    assert (rounds.restore(), committed) == (1, [1])
    rounds._board.commits.publish(1)
    assert (rounds.restore(), committed) == (1, [1]), "once"


def test_a_commit_keeps_its_order() -> None:
    """A learner that is killed in between repeats what is missing; nothing is seen that could be lost."""
    rounds, _ = make_rounds(make_engine())
    done = list[str]()
    for name in ("wait_for_lanes", "wait_for_scribe", "name_last", "record", "snapshot", "queue_evaluation", "publish"):
        setattr(rounds._commits, name, lambda *arguments, name=name: done.append(name))
    rounds._memory.weights.publish = lambda *arguments: done.append("weights")
    rounds._prefetch = lambda round_: None
    rounds._commit(1)
    before = ["wait_for_lanes", "wait_for_scribe", "name_last", "record", "snapshot"]
    assert done == [*before, "weights", "queue_evaluation", "publish"]
