"""Numbers that every run, checkpoint and published score depends on: they stay what they are.

Exploration, whose chances are drawn ahead, follows the definition: one number for each env and tick.
"""

from typing import Any

import numpy as np
import pytest

from learner.replay.sampling import draw_fractions, draw_integers
from shared.config.presets import PRESETS
from shared.config.resolve import resolve
from shared.config.run_schedule import make_run_schedule
from shared.config.settings import Config, ResolvedConfig
from shared.exploration import AHEAD, Exploration
from shared.prng import Stream, bits, randint, uniform, uniforms

SEED = 2**63 + 5

FIRST_BITS = {
    "EXPLORE": 3773637371183827801,
    "EXPLORE_ACTION": 11659991464836519322,
    "STICKY": 16186166381525230725,
    "NOOPS": 13061374044194638228,
    "ENV_SEED": 12579280987115435168,
    "REPLAY": 1112339080716505948,
    "NETWORK": 598014165460744735,
    "EVALUATION": 14203470153781606838,
    "FRACTIONS": 2540104171322470928,
    "NOISE": 2565541728140286717,
    "POWER_ITERATION": 6067459121989288790,
    "NOISE_SIGNS": 1159248853220920859,
    "POLICY": 10522314540030565895,
    "MINIBATCH": 4926592213177075983,
    "WORKER_EPSILON": 5981208925063506343,
    "AUGMENT": 17207098442464458773,
}


def test_draws_stay_what_they_are() -> None:
    assert {name: bits(1, stream, 2, 3) for name, stream in Stream.__members__.items()} == FIRST_BITS
    assert bits(2**63 + 5, Stream.EXPLORE) == 17398141243482819830
    assert uniform(7, Stream.POLICY, 0, 1) == 0.6789685057408671
    assert randint(18, 7, Stream.EXPLORE_ACTION, 3, 5) == 9
    assert draw_integers(1000, 2, 4, 7, 3).tolist() == [[179, 469, 510, 729], [564, 990, 428, 285]]
    assert draw_fractions(1, 2, 7, 3, 0).tolist() == [[0.007786229003557521, 0.05038735906971925]]


def test_a_digest_stays_what_it_is() -> None:
    config = PRESETS["quick"].with_settings(seed=3)
    assert config.digest() == "a7b70e283a448479d562038d4fcb05dc7b9f62cfef083023d40cd631287d9910"
    assert config.experiment() == PRESETS["quick"].with_settings(seed=3, precision="bf16").experiment()


# Exploration


def test_many_numbers_equal_those_drawn_one_by_one() -> None:
    last = np.array([0, 1, 63, 64, 2**40, 2**62], np.int64)
    found = uniforms(last, SEED, Stream.EXPLORE, 7)
    assert found.tolist() == [uniform(SEED, Stream.EXPLORE, 7, counter) for counter in last.tolist()]


def two_lanes(lane_envs: int, **settings: Any) -> ResolvedConfig:
    sizes = {"envs": 2 * lane_envs, "lane_envs": lane_envs, "inference_batch": lane_envs}
    return resolve(Config().with_settings(**sizes, device="cpu", **settings))


@pytest.mark.parametrize("settings", [{"epsilon_ladder": 1.0}, {"epsilon_start": 0.5, "epsilon_end": 0.5}])
def test_actions_are_a_function_of_seed_env_and_tick_in_any_order(settings: dict[str, float]) -> None:
    config = two_lanes(3, **settings)
    run_schedule, explore = make_run_schedule(config), config.explore
    exploration = Exploration(1, run_schedule, explore, SEED)
    best, actions, differ = np.array([1, 0, 2], np.uint8), [4, 6, 18], 0
    for tick in (*range(AHEAD + 1), 3 * AHEAD + 5, 3, 5_000_000, 5_000_063, 5_000_064, 4_999_999):
        for j, action in enumerate(exploration.choose(tick, best, actions)):
            epsilon = run_schedule.epsilon(tick, explore) ** run_schedule.ladder(3 + j, explore)
            explores = uniform(SEED, Stream.EXPLORE, 3 + j, tick) < epsilon
            drawn = randint(actions[j], SEED, Stream.EXPLORE_ACTION, 3 + j, tick)
            assert action == (drawn if explores else best[j])
            differ += action != best[j]
    assert differ > 10


def test_the_random_action_does_not_depend_on_the_chance_that_took_it() -> None:
    config = two_lanes(1, epsilon_start=0.05, epsilon_end=0.05)
    exploration = Exploration(0, make_run_schedule(config), config.explore, 1)
    taken = [exploration.choose(tick, np.array([9]), [4])[0] for tick in range(8_000)]
    assert min(np.bincount(taken, minlength=10)[:4]) > 60, "a twentieth of 8,000, in four parts"


def test_workers_end_with_the_three_chances_of_the_paper() -> None:
    """Mnih et al. 2016, section 5.1: 0.1, 0.01 and 0.5 with the probabilities 0.4, 0.3 and 0.3, drawn by worker."""
    config = PRESETS["nq-async"]
    run_schedule = make_run_schedule(config)
    explorations = [Exploration(worker, run_schedule, config.explore, 1) for worker in range(2_000)]
    ends = [each._explore.epsilon_end for each in explorations]
    for end, chance in ((0.1, 0.4), (0.01, 0.3), (0.5, 0.3)):
        assert abs(ends.count(end) / len(ends) - chance) < 0.04
