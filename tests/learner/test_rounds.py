"""Slices of a learner's round, without a network."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from learner import learner
from learner.commits import Commits
from learner.engine.interfaces import CHUNK_UPDATES
from learner.learner import SLICE_SECONDS, SLICE_UPDATES, SLICES_AHEAD, SLICES_LEFT, STUCK_SECONDS, Rounds
from shared.errors import DeviceFault, FatalError
from shared.memory.parts.board import METRIC_SPANS
from shared.memory.region.sequence import SequenceArray


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The learner's `time.monotonic`."""
    now = [0.0]
    monkeypatch.setattr(learner, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def rounds_of(run: Any) -> tuple[Any, list[int]]:
    """A learner whose engine is `run`, and the updates done at each of its heartbeats."""
    rounds: Any = object.__new__(Rounds)
    rounds._board = SimpleNamespace(updates=np.zeros(1, int), redone=np.zeros(1, int), committed=0)
    rounds._run_schedule = SimpleNamespace(updates_before=lambda round_: 0)
    rounds._learn = SimpleNamespace(schedule="concurrent", publish_every_updates=250)
    rounds._engine = SimpleNamespace(run=run, unfinished_slices=lambda: 0)
    rounds._slice = 1
    heartbeats = list[int]()
    rounds._waiter = SimpleNamespace(
        process=0,
        note_progress=lambda progress: None,
        heartbeat=lambda: heartbeats.append(int(rounds._board.updates[0])),
    )
    return rounds, heartbeats


@pytest.mark.parametrize(("newest", "published"), [(20, []), (0, [4, 16]), (4, [16])])
def test_with_free_repeated_updates_publish_nothing(clock: list[float], newest: int, published: list[int]) -> None:
    """Their weights are older than those that inference has, also in a round that was not committed."""
    rounds, _ = rounds_of(lambda count: None)
    rounds._learn = SimpleNamespace(schedule="free", publish_every_updates=4)
    rounds._engine.export_into, rounds._slice = None, 4
    done: list[int] = []
    rounds._memory = SimpleNamespace(
        weights=SimpleNamespace(content=[newest], publish=lambda updates, fill: done.append(updates))
    )
    rounds._run(0, 24)
    assert done == published


def test_slow_updates_each_send_a_heartbeat(clock: list[float]) -> None:
    def run(count: int) -> None:
        clock[0] += 3.0 * count

    rounds, heartbeats = rounds_of(run)
    rounds._run(0, 4)
    rounds._run(1, 3)
    assert heartbeats == [1, 2, 3, 4, 4, 4, 4]


def test_ranks_that_differ_end_the_run_before_the_commit(clock: list[float]) -> None:
    def meet(_value: int, what: str) -> None:
        if "parameters" in what:
            raise FatalError("They differ.")

    rounds, _ = rounds_of(lambda count: None)
    rounds._engine = SimpleNamespace(
        run=lambda count: None,
        unfinished_slices=lambda: 0,
        begin_round=lambda round_, end: 1,
        end_round=lambda: None,
        checksum=lambda: 7,
    )
    rounds._board.phase = {}
    rounds._run_schedule = SimpleNamespace(
        updates_in=lambda round_: 1,
        updates_before=lambda round_: round_,
        window_end=lambda round_: 10,
        target_changes_after=lambda round_: False,
        is_snapshot=lambda boundary: True,
    )
    committed = list[int]()
    rounds._ranks, rounds._span, rounds._commit = SimpleNamespace(meet=meet), [], committed.append
    with pytest.raises(FatalError, match="They differ"):
        rounds.run_round(3)
    assert committed == []


def test_others_come_in_slices_as_soon_as_their_pace_is_known(clock: list[float]) -> None:
    def run(count: int) -> None:
        clock[0] += 0.01 * count

    rounds, heartbeats = rounds_of(run)
    rounds._run(0, 2 * SLICE_UPDATES)
    assert heartbeats == [1, SLICE_UPDATES, 2 * SLICE_UPDATES]  # as graphs do, of which slices are whole ones
    assert SLICE_UPDATES % CHUNK_UPDATES == 0


def test_a_slice_takes_about_as_long_as_it_should(clock: list[float]) -> None:
    seconds = iter([0.6, 0.4, 0.4, 2.0])

    def run(count: int) -> None:
        clock[0] += next(seconds, 0.12 * count)

    rounds, heartbeats = rounds_of(run)
    rounds._run(0, 13)
    # One by one while they are slow, and as many as fit into the time when they are not.
    assert heartbeats == [1, 2, 3, 4, 5, 9, 13]


def test_slices_of_whole_chunks_stay_so(clock: list[float]) -> None:
    def run(count: int) -> None:
        clock[0] += SLICE_SECONDS / 11 * count

    rounds, heartbeats = rounds_of(run)
    rounds._run(0, 3 * CHUNK_UPDATES)
    assert heartbeats == [1, 1 + CHUNK_UPDATES, 2 * CHUNK_UPDATES, 3 * CHUNK_UPDATES]


class Gpu:
    """An engine whose GPU does a slice at every wait for it."""

    def __init__(self) -> None:
        self.unfinished = self.most = 0

    def unfinished_slices(self) -> int:
        return self.unfinished

    def run(self, count: int) -> None:
        self.unfinished += 1
        self.most = max(self.most, self.unfinished)

    def wait(self, seconds: float) -> None:
        self.unfinished -= 1


def test_a_gpu_is_asked_for_some_slices_ahead_and_no_more(clock: list[float]) -> None:
    gpu = Gpu()
    rounds, heartbeats = rounds_of(gpu.run)
    rounds._engine, rounds._waiter.doorbell = gpu, gpu
    rounds._run(0, 20 * SLICE_UPDATES)
    assert gpu.most == SLICES_AHEAD + 1
    assert gpu.unfinished == SLICES_AHEAD, "they are waited for elsewhere, with something to do meanwhile"
    assert len(heartbeats) > 20, "a wait sends heartbeats"


def test_a_gpu_that_does_not_go_on_is_a_fault(clock: list[float]) -> None:
    gpu = Gpu()
    rounds, heartbeats = rounds_of(gpu.run)

    def wait(seconds: float) -> None:
        clock[0] += STUCK_SECONDS / 4

    rounds._engine, rounds._waiter.doorbell = gpu, SimpleNamespace(wait=wait)
    gpu.unfinished = 9
    with pytest.raises(DeviceFault, match="did not finish a slice of up to 16 updates in 300 s"):
        rounds._wait_for_slices(SLICES_LEFT)
    assert len(heartbeats) == 5


def test_updates_are_done_before_they_are_published_in_mid_round(clock: list[float]) -> None:
    gpu = Gpu()
    rounds, _ = rounds_of(gpu.run)
    rounds._engine, rounds._waiter.doorbell = gpu, gpu
    rounds._learn = SimpleNamespace(schedule="free", publish_every_updates=2 * SLICE_UPDATES)
    gpu.export_into, left = None, list[int]()  # type: ignore[attr-defined]
    rounds._memory = SimpleNamespace(
        weights=SimpleNamespace(content=[0], publish=lambda updates, fill: left.append(gpu.unfinished))
    )
    rounds._run(0, 8 * SLICE_UPDATES)
    assert left == [SLICES_LEFT] * 3


@pytest.mark.parametrize(("begun", "looks"), [(SLICES_LEFT, 0), (SLICES_LEFT + 3, 3)])
def test_the_next_round_is_drawn_while_the_gpu_has_work_for_some_looks(
    clock: list[float], begun: int, looks: int
) -> None:
    gpu = Gpu()
    gpu.unfinished = begun
    rounds, heartbeats = rounds_of(gpu.run)
    rounds._engine, rounds._waiter.doorbell = gpu, gpu
    rounds._board.lane_finished = SequenceArray(np.array([5, 5]))
    drawn = list[int]()
    rounds._prefetch = drawn.append
    rounds._wait_for_gpu(5)
    assert len(heartbeats) == looks
    assert drawn == [5] * looks


def may_commit(boundary: int, *, written: int, oldest_readable_tick: int, trouble: int = 0) -> bool:
    """True if the learner commits without a wait, in rounds of five ticks."""
    commits: Any = object.__new__(Commits)
    commits._run_schedule = SimpleNamespace(
        snapshot_rounds=1, round_ticks=5, oldest_readable_tick={boundary: oldest_readable_tick}.__getitem__
    )
    commits._board = SimpleNamespace(written=np.array([written]), trouble=np.array([trouble]), committed=boundary - 1)
    commits._memory = SimpleNamespace(board=commits._board, run_schedule=commits._run_schedule)
    asked = list[bool]()
    commits._waiter = SimpleNamespace(wait=lambda until: asked.append(until()))
    commits.wait_for_scribe(boundary)
    (answer,) = asked
    return answer


@pytest.mark.parametrize(
    ("written", "trouble", "waits"),
    [(9, 0, False), (8, 0, False), (7, 0, True), (7, 5, False)],
    ids=["written down", "still in the ring", "about to be written over", "the disk takes nothing"],
)
def test_a_commit_lets_no_lane_overwrite_an_unrecorded_round(written: int, trouble: int, waits: bool) -> None:
    """Round 10 is about to be committed; with it the lanes may write over round 7, not over round 8."""
    assert may_commit(10, written=written, oldest_readable_tick=8 * 5, trouble=trouble) == (not waits)


def test_a_commit_overwrites_no_metrics_of_an_unrecorded_span() -> None:
    assert may_commit(99 + METRIC_SPANS, written=100, oldest_readable_tick=0)
    assert not may_commit(100 + METRIC_SPANS, written=100, oldest_readable_tick=0)
