"""Settings that make no sense together, or with the method."""

from __future__ import annotations

from typing import Any

import pytest

from shared.config import validate
from shared.config.presets import PRESETS
from shared.config.settings import Config
from shared.errors import ConfigError
from tests.support.configurations import ON_POLICY, assert_refused


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"eval_video": True}, "--eval-video films evaluations beside training: pass --eval-every-steps N, too."),
        ({"envs": 97}, "--envs 97 cannot be divided into lanes of --lane-envs 2; --lane-envs 1 takes any number"),
        ({"lane_envs": 128, "envs": 96}, "the nearest is --envs 128"),
        ({"replay_size": 31}, "--batch-size 32 is more than --replay-size 31."),
        ({"replay_size": 5_000}, "--replay-size 5_000 is smaller than one round, which has 9_984 steps"),
        (
            {"learning_starts": 60_000, "total_steps": 50_000},
            "--learning-starts 60_000 is more than --total-steps 50_000: nothing would be",
        ),
        ({"learning_starts": 31}, "--batch-size 32 is more than --learning-starts 31."),
        ({"epsilon_start": 0.05}, "--epsilon-end 0.1 is more than --epsilon-start 0.05"),
        ({"learning_rate_end": 0.0}, "--learning-rate-end 0 needs --anneal-steps, the steps after which it is reached"),
        ({"anneal_steps": 1_000}, "--anneal-steps 1_000 has no effect, since no setting has an end: add --learning-"),
        ({"resume": "/", "init_from": "/"}, "give one of them"),
        ({"munchausen": True, "double": True}, "--munchausen learns the soft value"),
        ({"munchausen": True, "method": "c51"}, "--munchausen averages over actions"),
        ({"value_rescaling": True, "method": "c51"}, "--value-rescaling changes the scale of returns"),
        ({"method": "c51", "v_min": 3.0, "v_max": 3.0}, "--v-min 3.0 must be below --v-max 3.0"),
        ({"width": 2}, "--width, --pooling and --spectral-norm are for --network impala"),
        ({"pooling": True}, "--width, --pooling and --spectral-norm are for --network impala"),
        ({"spectral_norm": True, "network": "small"}, "are for --network impala"),
        ({"normalize": "all", "network": "impala"}, "pass --normalize last with --network impala"),
        (
            {"n_step": 625},
            "--n-step 625 is more than the 624 steps that each of 96 emulators has made when learning starts; "
            "--learning-starts 60_000 is enough.",
        ),
        ({"method": "c51", "v_min": 2.0}, "--v-min 2.0 to --v-max 10.0 must hold 0"),
        (
            {"prioritized": True, "clip_rewards": False, "priority_exponent": 1.0},
            "--priority-exponent 1 is too much for errors of up to 1e+07, which these settings allow: with "
            "--replay-size 1_000_000 all priorities beyond 262,144 would be the same. Pass --priority-exponent 0.77 or "
            "less, or clip rewards.",
        ),
        (
            {"prioritized": True, "method": "qr-dqn", "priority_exponent": 1.0, "discount": 0.999},
            "errors of up to 4e+05",
        ),
        (
            {"method": "a2c"},
            "--round-steps 10_000 must be a multiple of --envs 96 with --method a2c; the nearest",
        ),
        ({**ON_POLICY, "batch_size": 50}, "--round-steps 960 must be a multiple of --batch-size 50, since every step"),
        (
            {**ON_POLICY, "prioritized": True},
            "--prioritized has no effect with --method a2c, which learns from the newest round and has no replay "
            "buffer: omit it.",
        ),
        (
            {**ON_POLICY, "batch_size": 48, "learner_shards": 49},
            "--learner-shards 49 is more than --batch-size 48",
        ),
        ({"learner_shards": 64}, "--learner-shards 64 is more than --batch-size 32: pass fewer."),
        (
            {"learner_ranks": 2, "learner_shards": 3},
            "--learner-shards 3 must be a multiple of --learner-ranks 2, to be shared evenly; the nearest is 4.",
        ),
        (
            {"learner_ranks": 2, "learner_shards": 4, "batch_size": 34},
            "--batch-size 34 must be a multiple of --learner-shards 4 with --learner-ranks",
        ),
        ({"learner_ranks": 2, "schedule": "free"}, "--learner-ranks 2 are for --schedule concurrent and alternate"),
        ({**ON_POLICY, "n_step": 3}, "--n-step has no effect with --method a2c, which learns from the newest round"),
        ({**ON_POLICY, "train_every": 8}, "--train-every has no effect with --method a2c"),
        ({**ON_POLICY, "learning_starts": 960}, "--learning-starts has no effect with --method a2c"),
        ({**ON_POLICY, "replay_on": "host"}, "--replay-on has no effect with --method a2c"),
        ({**ON_POLICY, "publish_every_updates": 1}, "--publish-every-updates has no effect with --method a2c"),
        ({**ON_POLICY, "importance_end": 0.5}, "--importance-end has no effect with --method a2c"),
        ({**ON_POLICY, "double": True}, "--double has no effect with --method a2c, which learns from no TD targets"),
        (
            {**ON_POLICY, "munchausen_alpha": 0.5},
            "--munchausen-alpha has no effect with --method a2c, which learns",
        ),
        ({**ON_POLICY, "dueling": True}, "--dueling has no effect with --method a2c, which learns a policy and no"),
        (
            {**ON_POLICY, "epsilon_end": 0.0},
            "--epsilon-end has no effect with --method a2c, which samples its actions from its policy: omit it.",
        ),
        ({**ON_POLICY, "schedule": "free"}, "which --schedule free does not keep: pass alternate or concurrent"),
        ({**ON_POLICY, "width": 2}, "--width, --pooling and --spectral-norm are for --network impala"),
        (
            {"eval_actions": "sample"},
            "--eval-actions sample draws from a policy, and --method dqn learns action values",
        ),
        ({**ON_POLICY, "method": "ppo", "clip_ratio_end": 0.0}, "--clip-ratio-end 0 needs --anneal-steps"),
        ({**ON_POLICY, "method": "pqn", "epsilon_start": 0.0, "epsilon_end": 0.0}, "Nothing would be explored"),
        ({"epsilon_start": 0.0, "epsilon_end": 0.0}, "Nothing would be explored"),
        ({"importance_start": 0.9, "importance_end": 0.4}, "--importance-start 0.9 is more than --importance-end 0.4"),
        (
            {"epsilon_ladder": 7.0, "epsilon_start": 0.0, "epsilon_end": 0.0, "noisy": True},
            "--epsilon-ladder has no effect with an epsilon of 0",
        ),
        (
            {"recurrent": True},
            "--recurrent has no effect with --method dqn, which learns no policy from whole rounds: omit it.",
        ),
        ({**ON_POLICY, "method": "pqn", "recurrent": True}, "--recurrent has no effect with --method pqn"),
        (
            {**ON_POLICY, "batch_size": 32, "recurrent": True},
            "--batch-size 32 must be a multiple of 10, the ticks of a round of --round-steps 960 with --envs 96, with "
            "--recurrent; the nearest that fits is 30.",
        ),
        (
            {**ON_POLICY, "batch_size": 30, "recurrent": True, "learner_shards": 4},
            "--learner-shards 4 is more than the 3 envs whose rounds are one --batch-size 30 with --recurrent",
        ),
        (
            {**ON_POLICY, "recurrent": True, "learner_ranks": 2},
            "--recurrent is for a learner of one process: omit --learner-ranks 2.",
        ),
        ({"prioritized": True, "replay_size": 20_000_000}, "--replay-size 20_000_000 is more than 16_777_216"),
        ({"frame_size": 63}, "--frame-size 63 must be a multiple of 4; the nearest is 64"),
        ({"frame_size": 32}, "--frame-size 32 is too small for --network nature: 36 is the least"),
        ({"frame_size": 16, "network": "small"}, "--frame-size 16 is too small for --network small: 20 is the least"),
        ({"frame_size": 164}, "--frame-size 164 is more than an Atari screen has: pass 160 or less"),
        ({"frame_color": "rgb"}, "--frame-color rgb is for --env: games of Atari are played in gray"),
    ],
)
def test_settings_that_make_no_sense_together_are_refused(wrong: dict[str, Any], says: str) -> None:
    assert_refused(validate.settings, Config().with_settings(**wrong), says)


def test_several_steps_go_with_rounds_of_one_tick() -> None:
    """With alternate a round is a tick or few; transitions may reach over its end."""
    validate.settings(Config().with_settings(schedule="alternate", n_step=3))


DQN_ASYNC = PRESETS["dqn-async"]
C51 = {"method": "c51", "v_min": -10.0}


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (
            {"n_step": 10, "learning_starts": 16},
            "8 steps that each of 4 emulators has made when learning starts; --learning-starts 36 is",
        ),
        ({**C51, "v_min": 5.0, "v_max": -5.0}, "--v-min 5.0 must be below --v-max -5.0"),
        ({**C51, "v_min": 5.0, "v_max": 10.0}, "--v-min 5.0 to --v-max 10.0 must hold 0"),
        ({"munchausen": True, "double": True}, "--munchausen learns the soft value of a state"),
        ({**C51, "value_rescaling": True}, "--value-rescaling changes the scale of returns"),
        ({"method": "n-step-q", "double": True}, "--double has no effect with --method n-step-q"),
        ({"method": "sarsa", "munchausen": True}, "--munchausen has no effect with --method sarsa"),
    ],
)
def test_methods_of_workers_are_checked_as_those_of_a_learner(wrong: dict[str, Any], says: str) -> None:
    settings = {**({} if "method" not in wrong or wrong["method"] == "c51" else {"local_replay": 0}), **wrong}
    assert_refused(validate.settings, DQN_ASYNC.with_settings(**settings), says)


def test_the_least_learning_starts_that_is_advised_is_enough() -> None:
    validate.settings(DQN_ASYNC.with_settings(n_step=10, learning_starts=9 * 16))


def test_an_exponent_below_zero_is_no_advice() -> None:
    wrong = Config().with_settings(prioritized=True, replay_size=10**12)
    with pytest.raises(ConfigError) as refused:
        validate.settings(wrong)
    assert "exponent -" not in str(refused.value)
