"""Exploration, whose chances are drawn ahead, against the definition: one number for each env and tick."""

from __future__ import annotations

import numpy as np
import pytest

from shared.config.presets import PRESETS
from shared.config.resolve import resolve
from shared.config.run_schedule import make_run_schedule
from shared.config.settings import Config
from shared.exploration import AHEAD, Exploration
from shared.prng import Stream, randint, uniform, uniforms

SEED = 2**63 + 5


def test_many_numbers_equal_those_drawn_one_by_one() -> None:
    last = np.array([0, 1, 63, 64, 2**40, 2**62], np.int64)
    found = uniforms(last, SEED, Stream.EXPLORE, 7)
    assert found.tolist() == [uniform(SEED, Stream.EXPLORE, 7, counter) for counter in last.tolist()]


@pytest.mark.parametrize("settings", [{"epsilon_ladder": 1.0}, {"epsilon_start": 0.5, "epsilon_end": 0.5}])
def test_actions_are_a_function_of_seed_env_and_tick_in_any_order(settings: dict[str, float]) -> None:
    config = resolve(Config().with_settings(envs=6, lane_envs=3, device="cpu", inference_batch=3, **settings))
    run_schedule, explore, lane = make_run_schedule(config), config.explore, 1
    exploration = Exploration(lane, run_schedule, explore, SEED)
    best, actions, differ = np.array([1, 0, 2], np.uint8), [4, 6, 18], 0
    for tick in (*range(AHEAD + 1), 3 * AHEAD + 5, 3, 5_000_000, 5_000_063, 5_000_064, 4_999_999):
        chosen = exploration.choose(tick, best, actions)
        for j, action in enumerate(chosen):
            env = lane * 3 + j
            epsilon = run_schedule.epsilon(tick, explore) ** run_schedule.ladder(env, explore)
            explores = uniform(SEED, Stream.EXPLORE, env, tick) < epsilon
            drawn = randint(actions[j], SEED, Stream.EXPLORE_ACTION, env, tick)
            assert action == (drawn if explores else best[j])
            differ += action != best[j]
    assert differ > 10


def test_workers_end_with_the_three_chances_of_the_paper() -> None:
    """Mnih et al. 2016, section 5.1: 0.1, 0.01 and 0.5 with the probabilities 0.4, 0.3 and 0.3, drawn by worker."""
    config = PRESETS["nq-async"]
    run_schedule = make_run_schedule(config)
    explorations = [Exploration(worker, run_schedule, config.explore, 1) for worker in range(2_000)]
    ends = [each._explore.epsilon_end for each in explorations]
    for end, chance in ((0.1, 0.4), (0.01, 0.3), (0.5, 0.3)):
        assert abs(ends.count(end) / len(ends) - chance) < 0.04
