"""Balance of lanes among actors: against all divisions, and in simulated runs with varying costs."""

from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pytest

from ringside.run.lane_balance import BUSY, GAIN, SPANS, Balancer, moves
from shared.config.settings import Config
from shared.memory.plan import Plan
from shared.memory.process_table import Role
from shared.memory.run_memory import Memory


def divisions(lanes: int, actors: int) -> Iterator[list[int]]:
    """Every way to give each actor at least one lane."""
    for cuts in combinations(range(1, lanes), actors - 1):
        yield [end - begin for begin, end in pairwise((0, *cuts, lanes))]


def longest(costs: Sequence[float], lanes: Sequence[int]) -> float:
    return max(cost * count for cost, count in zip(costs, lanes, strict=True))


@pytest.mark.parametrize("seed", range(50))
def test_no_division_is_faster(seed: int) -> None:
    draw = np.random.default_rng(seed)
    actors = int(draw.integers(2, 5))
    lanes = draw.integers(1, 5, size=actors).tolist()
    costs = draw.uniform(1, 4, size=actors).tolist()
    best = min(longest(costs, division) for division in divisions(sum(lanes), actors))
    found = list(lanes)
    for giver, taker in moves(costs, lanes):
        found[giver] -= 1
        found[taker] += 1
    assert min(found) >= 1
    if best < (1 - GAIN) * longest(costs, lanes):
        assert longest(costs, found) == pytest.approx(best)
    else:
        assert found == lanes


@pytest.mark.parametrize("seed", range(20))
def test_actors_that_differ_by_chance_keep_their_lanes(seed: int) -> None:
    """Also where the lanes cannot be divided evenly."""
    draw = np.random.default_rng(seed)
    actors = int(draw.integers(1, 17))
    lanes = int(draw.integers(actors, 97))
    even = [(actor + 1) * lanes // actors - actor * lanes // actors for actor in range(actors)]
    assert moves(draw.uniform(0.97, 1.03, size=actors).tolist(), even) == []


class Run:
    """A board, and what actors of given costs would write there."""

    def __init__(
        self, actors: int, lanes: int, *, waiting: bool = True, learning: float = 0.0, **settings: object
    ) -> None:
        """`learning`: time in which the learner works and the actors wait, divided by the time of play."""
        sizes: dict[str, object] = {"envs": lanes, "lane_envs": 1, "actors": actors, "inference_batch": 1}
        sizes |= {"round_steps": 100 * lanes, "total_steps": 10_000 * lanes, "replay_size": 100 * lanes, **settings}
        plan = Plan(Config().with_settings(network="small", device="cpu", run_dir=Path("."), **sizes), 4)
        self.board = Memory.create(plan).board
        self.board.commits.publish(0)
        self.balancer = Balancer(self.board, plan.processes, plan.cell_lanes)
        self.wanted: list[int] = []
        self._waiting, self._learning = waiting, learning

    @property
    def lanes(self) -> list[int]:
        return np.bincount(self.board.lane_owner).tolist()

    def round(self, costs: Sequence[float], times: int = 1) -> None:
        """As often as told all play a round of 100 ticks, `costs` seconds each; then lanes go where they are wanted."""
        for _ in range(times):
            board, lanes = self.board, self.lanes
            took = [cost * count * 100 for cost, count in zip(costs, lanes, strict=True)]
            end = max(took) if self._waiting else 3 * max(took)
            board.busy_ns[Role.LEARNER] += int(self._learning * end * 1e9)
            end *= 1 + self._learning
            for actor, (busy, count) in enumerate(zip(took, lanes, strict=True)):
                process = Role.ACTOR + actor
                board.busy_ns[process] += int(busy * 1e9)
                board.waited_ns[process] += int((end - busy) * 1e9)
                board.furthest[process] = max(0, int(board.furthest[process])) + 100 * count
            board.commits.publish(board.committed + 1)
            self.wanted.append(len(self.balancer.measure()))
            board.lane_owner[:] = board.lane_wanted
            assert self.balancer.measure() == []


@pytest.mark.parametrize("seed", range(20))
def test_it_converges_and_stops(seed: int) -> None:
    """With costs that differ for good, and vary by 3%."""
    draw = np.random.default_rng(seed)
    actors = int(draw.integers(2, 17))
    count = int(draw.integers(2 * actors, 6 * actors))
    true = draw.choice([1.0, 1.0, 1.0, 1.5, 2.0, 3.0], size=actors) * 0.01
    run = Run(actors, count)
    for _ in range(400):
        run.round((true * draw.uniform(0.97, 1.03, size=actors)).tolist())
    best = [1] * actors
    for _ in range(count - actors):
        best[min(range(actors), key=lambda actor: true[actor] * (best[actor] + 1))] += 1
    assert longest(true, run.lanes) <= longest(true, best) / (1 - GAIN) * 1.07
    assert (sum(run.wanted[60:]), run.board.moves[0]) == (0, sum(run.wanted))


def test_speeds_that_keep_changing_move_fewer_and_fewer_lanes() -> None:
    run = Run(2, 12)
    draw = np.random.default_rng(0)
    for _ in range(4_000):
        run.round((draw.choice([1.0, 4.0], size=2) * 0.001).tolist())
    batches = np.flatnonzero(run.wanted)
    assert 1 <= len(batches) <= 12


def test_a_slow_core_and_its_recovery() -> None:
    run = Run(2, 12)
    for costs, lanes in (([0.03, 0.01], [3, 9]), ([0.01, 0.01], [6, 6])):
        run.round(costs, times=40)
        assert run.lanes == lanes


def test_an_actor_that_takes_lanes_takes_them_from_every_batch() -> None:
    """Three batches of four lanes, of which the first of two actors ends with half as many as the other."""
    run = Run(2, 12, inference_batch=4)
    run.round([0.02, 0.01], times=40)
    batches = run.board.lane_owner.reshape(3, 4)
    assert run.lanes == [4, 8]
    assert sorted(np.bincount(batch).tolist() for batch in batches) == [[1, 3], [1, 3], [2, 2]]


def test_one_measurement_alone_moves_nothing() -> None:
    run = Run(2, 12)
    for round_ in range(60):
        run.round([0.02, 0.01] if round_ // SPANS % 2 else [0.01, 0.02])
    assert sum(run.wanted) == 0


def test_nothing_moves_while_the_actors_wait_for_others() -> None:
    run = Run(2, 12, waiting=False)
    run.round([0.02, 0.01], times=40)
    assert BUSY > 1 / 3
    assert sum(run.wanted) == 0


def test_a_measurement_takes_whole_spans_and_begins_anew_after_a_restart() -> None:
    run = Run(2, 12)
    for _ in range(1 + 2 * SPANS):
        assert sum(run.wanted) == 0
        run.round([0.02, 0.01])
    assert sum(run.wanted) == 2
    again = Run(2, 12)
    again.round([0.02, 0.01], times=SPANS)
    again.board.restarts[Role.ACTOR] += 1
    for _ in range(2 + 2 * SPANS):
        assert sum(again.wanted) == 0
        again.round([0.02, 0.01])
    assert sum(again.wanted) == 2


@pytest.mark.parametrize(("schedule", "n", "moved"), [("alternate", 1, 1), ("alternate", 2, 0), ("concurrent", 1, 0)])
def test_time_in_which_all_wait_for_the_learner_does_not_count(schedule: str, n: int, moved: int) -> None:
    """No move makes a run faster that a learner limits beside its actors, here by three times their work."""
    run = Run(2, 16, schedule=schedule, n_step=n, learning=3.0)
    run.round([0.02, 0.01], times=20 * run.board.run_schedule.snapshot_rounds)
    assert (run.lanes != [8, 8]) == moved
