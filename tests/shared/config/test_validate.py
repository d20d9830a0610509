"""Settings that `validate` refuses, each by itself, together or with the method, and extreme ones that can run."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from typing import Any

import pytest

from ringside.run import planning
from shared.config import resolve, validate
from shared.config.presets import PRESETS
from shared.config.settings import Config
from shared.errors import ConfigError
from shared.network_spec import Network, network_of
from shared.root import ROOT
from tests.shared.config.test_worker_settings import REPLAY, WORKERS
from tests.support.configurations import ON_POLICY, assert_refused, settled

NEWEST = "from the newest round"
DQN_ASYNC = PRESETS["dqn-async"]
C51 = {"method": "c51", "v_min": -10.0}


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("schedule", "conccurrent", "is not one of concurrent, alternate, free"),
        ("batch_size", 32.5, "is not a whole number"),
        ("total_steps", "many", "is not a whole number"),
        ("double", "no", "is not True or False"),
        ("envs", True, "is not a whole number"),
        ("learning_rate", "fast", "is not a finite number"),
        ("run_dir", 3, "is not a path or None"),
        ("acting_precision", "fp8", "is not one of auto, .* or None"),
        ("eval_episodes", "many", "is not a whole number or None"),
        ("learning_rate_end", "low", "is not a finite number or None"),
    ],
)
def test_a_value_of_another_kind_is_refused(name: str, value: object, says: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} .*{says}"):
        Config().with_settings(**{name: value})


def test_a_whole_number_may_be_a_float() -> None:
    learn = Config().with_settings(total_steps=1e6, snapshot_every_steps=2e4).learn
    assert (learn.total_steps, learn.snapshot_every_steps) == (1_000_000, 20_000)
    assert type(learn.total_steps) is int
    assert type(Config().with_settings(checkpoint_every_minutes=5).run.checkpoint_every_minutes) is float


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        # Numbers out of their range.
        ({"envs": 0}, "--envs 0 must be at least 1"),
        ({"graph_updates": -1}, "--graph-updates -1 must lie between 0 and 8"),
        ({"lane_envs": -2}, "--lane-envs -2 must be at least 1"),
        ({"batch_size": 0}, "--batch-size 0"),
        ({"total_steps": -1}, "--total-steps -1"),
        ({"train_every": 0}, "--train-every 0"),
        ({"actors": 0}, "--actors 0"),
        ({"learner_threads": 0}, "--learner-threads 0"),
        ({"seed": -1}, "--seed -1 must not be negative"),
        ({"checkpoint_every_minutes": float("nan")}, "--checkpoint-every-minutes nan"),
        ({"discount": 1.01}, "--discount 1.01 must lie between 0 and 1"),
        ({"epsilon_start": -0.1}, "--epsilon-start -0.1"),
        ({"epsilon_end": float("nan")}, "--epsilon-end nan"),
        ({"eval_epsilon": 1.5}, "--eval-epsilon 1.5 must lie between 0 and 1"),
        ({"eval_max_frames": 0}, "--eval-max-frames 0 must lie between 1 and 4_000_000"),
        ({"learning_rate": 0.0}, "--learning-rate 0.0 must be above 0"),
        ({"learning_rate": float("inf")}, "--learning-rate inf"),
        ({"learning_rate_end": -1e-9}, "--learning-rate-end -1e-09 must not be negative"),
        ({"optimizer_decay": 1.0}, "--optimizer-decay 1.0"),
        ({"n_step": 0}, "--n-step 0 must be at least 1"),
        ({"width": 0}, "--width 0 must lie between 1 and 64"),
        ({"method": "iqn", "iqn_samples": 0}, "--iqn-samples 0 must lie between 1 and 4_096"),
        ({"method": "iqn", "iqn_policy_samples": 0}, "--iqn-policy-samples 0 must lie between 1 and 4_096"),
        ({"priority_exponent": -0.1}, "--priority-exponent -0.1 must lie between 0 and 1"),
        ({"priority_exponent": 1.1}, "--priority-exponent 1.1 must lie between 0 and 1"),
        ({"priority_exponent": float("nan")}, "--priority-exponent nan must be a finite number"),
        ({"priority_exponent": float("inf")}, "--priority-exponent inf"),
        ({"importance_start": 1.1}, "--importance-start 1.1 must lie between 0 and 1"),
        ({"importance_end": -0.1}, "--importance-end -0.1 must lie between 0 and 1"),
        ({"noisy_std": 0.0}, "--noisy-std 0.0 must be above 0 and at most 100"),
        ({"munchausen_temperature": 0.0}, "--munchausen-temperature 0.0 must be above 0"),
        ({"munchausen_alpha": -1.0}, "--munchausen-alpha -1.0 must lie between 0 and 1"),
        ({"munchausen_floor": 0.1}, "--munchausen-floor 0.1 must be below 0"),
        ({"munchausen_floor": float("nan")}, "--munchausen-floor nan must be a finite number"),
        ({"clip_gradient": 0.0}, "--clip-gradient 0.0 must be above 0"),
        ({"clip_gradient": float("inf")}, "--clip-gradient inf must be a finite number"),
        ({"epsilon_ladder": -1.0}, "--epsilon-ladder -1.0 must not be negative"),
        ({"v_min": float("-inf"), "method": "c51"}, "--v-min -inf must be a finite number"),
        ({"v_max": float("nan"), "method": "c51"}, "--v-max nan must be a finite number"),
        ({"method": "c51", "atoms": 1}, "--atoms 1 must lie between 2 and 4_096"),
        ({"method": "qr-dqn", "atoms": 5_000}, "--atoms 5_000 must lie between 2 and 4_096"),
        ({"width": 65, "network": "impala"}, "--width 65 must lie between 1 and 64"),
        ({"method": "iqn", "iqn_policy_samples": 5_000}, "--iqn-policy-samples 5_000 must lie between 1 and 4_096"),
        ({"method": "c51", "v_max": 1e30}, "--v-max 1e+30 must lie between -1e+06 and 1e+06"),
        ({"noisy": True, "noisy_std": 1e12}, "--noisy-std 1000000000000.0 must be above 0 and at most 100"),
        ({"learner_ranks": 0}, "--learner-ranks 0 must lie between 1 and 64"),
        ({**ON_POLICY, "trace": 1.5}, "--trace 1.5 must lie between 0 and 1"),
        ({**ON_POLICY, "method": "ppo", "clip_ratio": 0.0}, "--clip-ratio 0.0 must be above 0"),
        (
            {**ON_POLICY, "entropy_weight_end": -1.0, "anneal_steps": 9},
            "--entropy-weight-end -1.0 must not be negative",
        ),
        ({**ON_POLICY, "method": "vtrace", "rho_max": 0.0}, "--rho-max 0.0 must be above 0"),
        ({**ON_POLICY, "method": "a3c", "return_steps": 0}, "--return-steps 0 must be at least 1"),
        ({"frame_size": 1_024, "env": "m:f"}, "--frame-size 1_024 must lie between 4 and 512"),
        ({"frame_stack": 0}, "--frame-stack 0 must lie between 1 and 16"),
        # Settings that make no sense together, or with the method.
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
        *(
            (
                {**ON_POLICY, name: value},
                f"--{name.replace('_', '-')} has no effect with --method a2c, which learns {why}",
            )
            for name, value, why in (
                *(("n_step", 3, NEWEST), ("train_every", 8, NEWEST), ("learning_starts", 960, NEWEST)),
                *(("replay_on", "host", NEWEST), ("publish_every_updates", 1, ""), ("importance_end", 0.5, NEWEST)),
                *(
                    ("double", True, "from no TD targets"),
                    ("munchausen_alpha", 0.5, ""),
                    ("dueling", True, "a policy and no"),
                ),
            )
        ),
        # Workers.
        ({"workers": 4}, "--workers 4 is for --schedule ordered and async"),
        ({"schedule": "ordered", "method": "a2c"}, "--schedule ordered needs --workers"),
        (WORKERS | {"method": "dqn"}, "add --local-replay"),
        (WORKERS | {"device": "cuda"}, "computes on the CPU, not on --device cuda"),
        (WORKERS | {"network": "impala"}, "pass --network a3c or nature"),
        (WORKERS | {"normalize": "last"}, "without --dueling, --noisy, --normalize"),
        (WORKERS | {"network": "impala", "recurrent": True}, "pass --network a3c or nature"),
        (WORKERS | {"method": "n-step-q", "recurrent": True}, "--recurrent has no effect with --method n-step-q"),
        (REPLAY | {"recurrent": True}, "--recurrent has no effect with --method dqn"),
        (WORKERS | {"method": "ppo"}, "--epochs 4 has no effect"),
        *(
            (WORKERS | {name: value}, f"--{name.replace('_', '-')} {value} has no effect with --schedule ordered")
            for name, value in (("envs", 16), ("batch_size", 64), ("round_steps", 80))
        ),
        (REPLAY | {"train_every": 8}, "--train-every 8 has no effect with --schedule ordered, since --t-max says it"),
        (REPLAY | {"prioritized": True}, "--prioritized makes no sense with --local-replay 1_000"),
        (REPLAY | {"local_replay": 19}, "--local-replay 19 is too small to draw from; 32 is the least"),
        (REPLAY | {"total_steps": 10}, "nothing would be learned"),
        (REPLAY | {"learning_starts": 0}, "--learning-starts 0 must be at least 1"),
        (
            {"method": "n-step-q"},
            "--method n-step-q computes its gradients in workers: pass --schedule ordered or async",
        ),
        ({"t_max": 20}, "--t-max is for --schedule ordered and async"),
        ({"local_replay": 20}, "--local-replay is for --schedule ordered and async"),
        ({"epsilon_by_worker": True}, "--epsilon-by-worker is for --schedule ordered and async"),
    ],
)
def test_settings_are_refused_before_anything_is_asked_of_the_machine(wrong: dict[str, Any], says: str) -> None:
    assert_refused(validate.settings, Config().with_settings(**wrong), says)


def test_several_steps_go_with_rounds_of_one_tick() -> None:
    """With alternate a round is a tick or few; transitions may reach over its end."""
    validate.settings(Config().with_settings(schedule="alternate", n_step=3))


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


def test_zero_is_not_above_zero_where_torch_flushes_denormals() -> None:
    code = (
        "import torch; torch.set_flush_denormal(True); from shared.config import validate;"
        "from shared.config.settings import Config; validate.settings(Config().with_settings(learning_rate=0.0))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert "--learning-rate 0.0 must be above 0" in done.stderr


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"actors": 5}, "--actors 5 is more than the 4 lanes"),
        ({"envs": 2, "inference_batch": 2}, "--actors 2 is more than the 1 lane of"),
        ({"inference_batch": 3}, "--inference-batch 3 must be a multiple of --lane-envs 2"),
        ({"inference_batch": 6}, "divides --envs 8"),
        ({"precision": "tf32"}, "--precision tf32 is for CUDA"),
        ({"replay_on": "device"}, "--replay-on device is for CUDA"),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(wrong: dict[str, Any], says: str) -> None:
    validate.resolved(settled())
    assert_refused(validate.resolved, settled(**wrong), says)


def test_defaults_that_ranks_cannot_share_are_refused() -> None:
    config = resolve.resolve(Config().with_settings(device="cpu", learner_ranks=2, batch_size=34))
    with pytest.raises(ConfigError, match="--batch-size 34 must be a multiple of --learner-shards 4"):
        validate.resolved(config)


def test_the_window_holds_an_observation_and_the_steps_behind_it() -> None:
    small = {"envs": 256, "round_steps": 1_024, "learning_starts": 1_024, "replay_size": 1_500, "device": "cpu"}
    assert planning.check(Config().with_settings(**small)).run_schedule.window_ticks == 4
    with pytest.raises(ConfigError, match=r"holds 4 ticks .*the 6 that an observation with --n-step 3 needs; 1_536 is"):
        planning.check(Config().with_settings(**small, n_step=3))
    with pytest.raises(ConfigError, match=r"holds 4 ticks .*the 5 that an observation with --n-step 1 needs; 1_280 is"):
        planning.check(Config().with_settings(**small, frame_stack=5))


@pytest.mark.parametrize(
    "extreme",
    [
        {"method": "iqn", "iqn_policy_samples": 4_096, "iqn_samples": 4_096},
        {"method": "c51", "v_min": -1e6, "v_max": 1e6, "atoms": 4_096},
        {"noisy": True, "noisy_std": 100.0, "network": "impala", "width": 64},
        {"network": "a3c", "normalize": "all"},
        {"method": "qr-dqn", "atoms": 4_096},
        {"env": "m:f", "frame_size": 512, "frame_color": "rgb", "frame_stack": 16},
        {"env": "m:f", "frame_size": 4, "frame_stack": 1, "network": "impala"},
    ],
)
def test_every_network_that_may_run_can_be_read_again(extreme: dict[str, Any]) -> None:
    config = Config().with_settings(**extreme)
    validate.settings(config)
    network = network_of(config, 18)
    assert Network.from_json(json.loads(json.dumps(asdict(network)))) == network
