"""Settings that `validate` refuses, extreme ones that can run, and likely mistakes."""

import json
import subprocess
import sys
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest

from ringside.run import planning
from shared.config import validate
from shared.config.presets import PRESETS
from shared.config.settings import Config
from shared.errors import ConfigError
from shared.machine import facts
from shared.network_spec import Network, OwnTorso, is_own, network_of
from shared.root import ROOT
from shared.text import flag_of, shown
from tests.support.configurations import ON_POLICY, assert_refused, settled

WORKERS: dict[str, Any] = {"schedule": "ordered", "workers": 4, "lane_envs": 2, "method": "a2c", "network": "a3c"}
REPLAY: dict[str, Any] = WORKERS | {"method": "dqn", "local_replay": 1_000}
ON_GPUS = {"device": "cuda", "batch_size": 34}
NO_EFFECT = "has no effect with --method a2c"
FEW = {"lane_envs": 1, "t_max": 4, "n_step": 10}
MADE = "emulators has made when learning starts; --learning-starts"
NO_EPSILON = {"epsilon_start": 0.0, "epsilon_end": 0.0}


OTHER_KINDS = [
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
]


@pytest.mark.parametrize(("name", "value", "says"), OTHER_KINDS)
def test_a_value_of_another_kind_is_refused(name: str, value: object, says: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} .*{says}"):
        Config().with_settings(**{name: value})


def test_a_number_may_be_of_another_kind() -> None:
    config = Config().with_settings(seed=np.int64(3), learning_rate=np.float32(0.5), envs=np.float64(8))
    assert [(type(value), value) for value in (config.run.seed, config.play.envs)] == [(int, 3), (int, 8)]
    assert (type(config.learn.learning_rate), config.learn.learning_rate) == (float, 0.5)
    learn = Config().with_settings(total_steps=1e6, snapshot_every_steps=2e4).learn
    assert (learn.total_steps, learn.snapshot_every_steps) == (1_000_000, 20_000)
    assert type(learn.total_steps) is int
    assert type(Config().with_settings(checkpoint_every_minutes=5).run.checkpoint_every_minutes) is float


BEYOND = {
    "dqn": "lane_envs=-2 frame_size=513 frame_stack=0 frame_stack=17 batch_size=0 total_steps=-1 train_every=0 "
    "discount=1.01 learning_starts=0 learning_rate=inf learning_rate_end=-1e-9 n_step=0 width=0 width=65 "
    "noisy_std=100.1 priority_exponent=-0.1 priority_exponent=1.1 priority_exponent=nan importance_start=1.1 "
    "importance_end=-0.1 munchausen_temperature=0 munchausen_alpha=-1 munchausen_floor=nan clip_gradient=0 "
    "epsilon_start=-0.1 epsilon_end=nan epsilon_ladder=-1 eval_epsilon=1.5 eval_max_frames=4000001 graph_updates=-1 "
    "graph_updates=9 actors=0 learner_parts=17 learner_members=0 learner_ranks=0 learner_ranks=17 "
    "checkpoint_every_minutes=nan",
    "c51": "v_min=-inf v_max=nan v_max=1000001 v_min=-1000001 atoms=1 atoms=4097",
    "qr-dqn": "atoms=4097",
    "iqn": "iqn_samples=0 iqn_samples=4097 iqn_policy_samples=0 iqn_policy_samples=4097",
    "a2c": "trace=1.5 entropy_weight_end=-1 epochs=1001",
    "ppo": "clip_ratio=0",
    "vtrace": "rho_max=0",
    "a3c": "return_steps=0",
}
"""Numbers out of their range, by a method that has the setting."""


NUMBERS = [(method, *each.split("=")) for method, beyond in BEYOND.items() for each in beyond.split()]


@pytest.mark.parametrize(("method", "name", "value"), NUMBERS)
def test_number_out_of_its_range_is_refused(method: str, name: str, value: str) -> None:
    config = Config().with_settings(method=method, **{name: float(value)})
    assert_refused(validate.settings, config, f"{flag_of(name)} {shown(config.to_flat()[name])} must ")


REFUSED = [
    # Ranges in words.
    ({"envs": 0}, "--envs 0 must be at least 1."),
    ({"seed": -1}, "--seed -1 must be at least 0."),
    ({"seed": 2**62}, "--seed 4_611_686_018_427_387_904 must be below 4_611_686_018_427_387_904."),
    ({"learning_rate": 0.0}, "--learning-rate 0.0 must be above 0."),
    ({"munchausen_floor": 0.1}, "--munchausen-floor 0.1 must be below 0."),
    ({"noisy_std": 0.0}, "--noisy-std 0.0 must be above 0 and at most 100."),
    ({"optimizer_decay": 1.0}, "--optimizer-decay 1.0 must be at least 0 and below 1."),
    ({"eval_max_frames": 0}, "--eval-max-frames 0 must lie between 1 and 4_000_000."),
    ({"clip_gradient": float("inf")}, "--clip-gradient inf must be a finite number."),
    # Settings that need another one.
    ({"network": "m:N", "normalize": "last"}, "--normalize last is for built-in networks: pass --normalize none."),
    ({"network": "m:N.<locals>.N"}, "--network 'm:N.<locals>.N' is no class of a module: write module:Class."),
    ({"network": "__main__:Net"}, "no process imports: use a module."),
    ({"width": 2}, "--width 2 needs --network impala: pass that, or omit it."),
    ({"pooling": True}, "--pooling needs --network impala"),
    (ON_POLICY | {"spectral_norm": True, "network": "small"}, "--spectral-norm needs --network impala"),
    ({"frame_color": "rgb"}, "--frame-color rgb needs --env, since games of Atari are played in gray"),
    ({"workers": 4}, "--workers 4 needs --schedule ordered or async"),
    (WORKERS | {"acting_device": "cpu"}, "--acting-device cpu needs an inference server, which --workers have not"),
    (WORKERS | {"acting_precision": "fp32"}, "--acting-precision fp32 needs an inference server"),
    ({"t_max": 20}, "--t-max 20 needs --schedule ordered or async"),
    ({"local_replay": 20}, "--local-replay 20 needs --schedule ordered or async"),
    ({"epsilon_by_worker": True}, "--epsilon-by-worker needs --schedule ordered or async"),
    (REPLAY | {"epsilon_by_worker": True, "epsilon_end": 0.01}, "--epsilon-end 0.01 needs --no-epsilon-by-worker"),
    ({"method": "n-step-q"}, "--method n-step-q needs --schedule ordered or async with --workers"),
    ({"schedule": "ordered", "method": "a2c"}, "--schedule ordered needs --workers N"),
    (ON_POLICY | {"schedule": "free"}, "--schedule free needs a replay buffer, not --method a2c"),
    ({"learner_ranks": 2, "schedule": "free"}, "--learner-ranks 2 needs --schedule concurrent or alternate"),
    (ON_POLICY | {"recurrent": True, "learner_ranks": 2}, "--recurrent needs --learner-ranks 1, not 2"),
    ({"require_exact": True, "schedule": "free"}, "--require-exact needs an exact --schedule, not free"),
    ({"require_exact": True, "deterministic": "off"}, "--require-exact needs --deterministic on"),
    ({"wandb_group": "mine"}, "--wandb-group mine needs --track wandb"),
    ({"eval_video": True}, "--eval-video needs --eval-every-steps N"),
    ({"learning_rate_end": 0.0}, "--learning-rate-end 0.0 needs --anneal-steps N, after which it is reached"),
    (ON_POLICY | {"method": "ppo", "clip_ratio_end": 0.0}, "--clip-ratio-end 0.0 needs --anneal-steps N"),
    ({"anneal_steps": 1_000}, "--anneal-steps 1_000 needs a setting with an end, as --learning-rate-end"),
    # Settings without an effect on the method.
    ({"recurrent": True}, "--recurrent has no effect with --method dqn, which learns no policy from whole rounds"),
    (ON_POLICY | {"method": "pqn", "recurrent": True}, "--recurrent has no effect with --method pqn"),
    (ON_POLICY | {"epsilon_end": 0.0}, f"--epsilon-end {NO_EFFECT}, which samples its actions from its policy"),
    (ON_POLICY | {"prioritized": True}, f"--prioritized {NO_EFFECT}, which learns from the newest round"),
    (ON_POLICY | {"double": True}, f"--double {NO_EFFECT}, which learns from no TD targets"),
    (ON_POLICY | {"munchausen_alpha": 0.5}, f"--munchausen-alpha {NO_EFFECT}, which learns"),
    (ON_POLICY | {"dueling": True}, f"--dueling {NO_EFFECT}, which learns a policy and no"),
    ({"eval_actions": "sample"}, "--eval-actions sample draws from a policy, and --method dqn learns action"),
    # Settings that make no sense together.
    ({"envs": 97}, "--envs 97 cannot be divided into lanes of --lane-envs 2; --lane-envs 1 takes any number"),
    ({"lane_envs": 128, "envs": 96}, "the nearest is --envs 128"),
    ({"resume": "/", "init_from": "/"}, "--init-from / needs a new run, not --resume"),
    ({"frame_size": 63}, "--frame-size 63 must be a multiple of 4; the nearest is 64"),
    ({"frame_size": 32}, "--frame-size 32 is too small for --network nature: 36 is the least"),
    ({"frame_size": 16, "network": "small"}, "--frame-size 16 is too small for --network small: 20 is the least"),
    ({"frame_size": 164}, "--frame-size 164 is more than an Atari screen has: pass 160 or less"),
    ({"normalize": "all", "network": "impala"}, "--normalize all needs another network than impala"),
    ({"epsilon_start": 0.05}, "--epsilon-end 0.1 is more than --epsilon-start 0.05"),
    (NO_EPSILON, "--epsilon-start 0.0 needs --noisy, or nothing is explored"),
    (NO_EPSILON | {"epsilon_ladder": 7.0, "noisy": True}, "--epsilon-ladder 7.0 needs an epsilon above 0"),
    # Replay buffers.
    ({"replay_size": 31}, "--batch-size 32 is more than --replay-size 31."),
    ({"replay_size": 5_000}, "--replay-size 5_000 is smaller than one round, which has 9_984 steps"),
    ({"prioritized": True, "replay_size": 20_000_000}, "--replay-size 20_000_000 is more than 16_777_216"),
    ({"learning_starts": 31}, "--batch-size 32 is more than --learning-starts 31."),
    ({"total_steps": 40_000}, "--learning-starts 50_000 is more than --total-steps 40_000: nothing would be"),
    ({"importance_start": 0.9, "importance_end": 0.4}, "--importance-start 0.9 is more than --importance-end 0.4"),
    ({"n_step": 625}, f"--n-step 625 is more than the 624 steps that each of 96 {MADE} 60_000 is enough."),
    ({"munchausen": True, "double": True}, "--double needs --no-munchausen, as soft values choose no action"),
    ({"augment": True}, "--augment needs --n-step 2 or more, with which each state has its own frames: pass that"),
    ({"augment": True, "n_step": 3, "replay_on": "device"}, "--augment needs --replay-on host or auto, not device"),
    ({"munchausen": True, "method": "c51"}, "--munchausen needs --method dqn, qr-dqn or iqn, not c51"),
    ({"value_rescaling": True, "method": "c51"}, "--value-rescaling needs --method dqn, qr-dqn or iqn"),
    ({"method": "c51", "v_min": 3.0, "v_max": 3.0}, "--v-min 3.0 must be below --v-max 3.0"),
    ({"method": "c51", "v_min": 2.0}, "--v-min 2.0 to --v-max 10.0 must hold 0"),
    # Rounds of an on-policy method.
    ({"method": "a2c"}, "--round-steps 10_000 must be a multiple of --envs 96 with --method a2c; the nearest"),
    (ON_POLICY | {"batch_size": 50}, "--round-steps 960 must be a multiple of --batch-size 50, since every step"),
    (
        ON_POLICY | {"batch_size": 32, "recurrent": True},
        "--batch-size 32 must be a multiple of 10, the ticks of a round of --round-steps 960 with --envs 96, with "
        "--recurrent; the nearest that fits is 30.",
    ),
    ({"learner_parts": 3}, "--learner-parts 3 is not one of 1, 2, 4, 8 and 16."),
    # Workers.
    (WORKERS | {"method": "dqn"}, "--workers 4 needs --local-replay 10_000, or no --method dqn"),
    (WORKERS | {"device": "cuda"}, "--device cuda needs a learner (--preset ppo), as --workers are on the CPU"),
    (WORKERS | {"normalize": "last"}, "without --dueling, --noisy, --normalize"),
    (WORKERS | {"network": "impala", "recurrent": True}, "pass --network a3c or nature"),
    (WORKERS | {"method": "n-step-q", "recurrent": True}, "--recurrent has no effect with --method n-step-q"),
    (WORKERS | {"method": "n-step-q", "double": True}, "--double has no effect with --method n-step-q"),
    (WORKERS | {"method": "sarsa", "munchausen": True}, "--munchausen has no effect with --method sarsa"),
    (WORKERS | {"method": "ppo"}, "--epochs 4 has no effect"),
    (WORKERS | {"envs": 16}, "--envs 16 has no effect with --schedule ordered"),
    (WORKERS | {"batch_size": 64}, "--batch-size 64 has no effect with --schedule ordered"),
    (WORKERS | {"round_steps": 80}, "--round-steps 80 has no effect with --schedule ordered"),
    (REPLAY | {"train_every": 8}, "--train-every 8 has no effect with --schedule ordered, since --t-max says it"),
    (REPLAY | {"prioritized": True}, "--prioritized needs one replay buffer for all, not --local-replay"),
    (REPLAY | {"local_replay": 19}, "--local-replay 19 is too small to draw from; 32 is the least"),
    (REPLAY | FEW | {"learning_starts": 16}, f"8 steps that each of 4 {MADE} 36 is enough"),
]


@pytest.mark.parametrize(("wrong", "says"), REFUSED)
def test_settings_are_refused_before_anything_is_asked_of_the_machine(wrong: dict[str, Any], says: str) -> None:
    assert_refused(validate.settings, Config().with_settings(**wrong), says)


TAKEN = [
    WORKERS | {"recurrent": True},
    WORKERS | {"envs": 8},  # the emulators that play anyway
    {"method": "iqn", "iqn_policy_samples": 4_096, "iqn_samples": 4_096},
    {"method": "c51", "v_min": -1e6, "v_max": 1e6, "atoms": 4_096},
    {"noisy": True, "noisy_std": 100.0, "network": "impala", "width": 64},
    {"network": "a3c", "normalize": "all"},
    {"method": "qr-dqn", "atoms": 4_096},
    {"env": "m:f", "frame_size": 512, "frame_color": "rgb", "frame_stack": 16},
    {"env": "m:f", "network": "m.n:N.Inner", "frame_size": 4, "noisy": True},
    {"env": "m:f", "frame_size": 4, "frame_stack": 1, "network": "impala"},
    {"schedule": "alternate", "n_step": 3},  # transitions may reach over the end of a round of one tick
    REPLAY | FEW | {"learning_starts": 36},  # as the refusal above advises
    {"schedule": "alternate", "envs": 1, "lane_envs": 1, "train_every": 1, "learning_starts": 35, "n_step": 36},
]


@pytest.mark.parametrize("settings", TAKEN)
def test_settings_that_fit_together_are_taken_and_their_network_can_be_read_again(settings: dict[str, Any]) -> None:
    config = Config().with_settings(**settings)
    validate.settings(config)
    torso = OwnTorso(4, 8, (("weight", (4, 2)), ("scale", ()))) if is_own(config.learn.network) else None
    network = network_of(config, 18, torso)
    assert Network.from_json(json.loads(json.dumps(asdict(network)))) == network


def test_zero_is_not_above_zero_where_torch_flushes_denormals() -> None:
    code = (
        "import torch; torch.set_flush_denormal(True); from shared.config import validate;"
        "from shared.config.settings import Config; validate.settings(Config().with_settings(learning_rate=0.0))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert "--learning-rate 0.0 must be above 0" in done.stderr


CLASHES = [
    ({"actors": 5}, "--actors 5 is more than the 4 lanes"),
    ({"envs": 2, "inference_batch": 2}, "--actors 2 is more than the 1 lane of"),
    ({"inference_batch": 3}, "--inference-batch 3 must be a multiple of --lane-envs 2"),
    ({"inference_batch": 6}, "divides --envs 8"),
    ({"precision": "tf32"}, "--precision tf32 is for CUDA"),
    ({"replay_on": "device"}, "--replay-on device is for CUDA"),
    ({"acting_precision": "tf32"}, "--acting-precision tf32 is for CUDA"),
    ({"learner_ranks": 2}, "for GPUs: on a CPU pass --learner-ranks 1 and --learner-members 2."),
    (ON_GPUS | {"learner_members": 2}, "--learner-members 2 is for a CPU: on cuda:0 pass --learner-members 1."),
    (ON_GPUS | {"learner_ranks": 3}, "--learner-ranks 3 cannot share --learner-parts 4 evenly: pass one of"),
    (ON_GPUS | {"learner_ranks": 4}, "--batch-size 34 must be a multiple of --learner-parts 4 with --lear"),
    ({"learner_members": 3}, "--learner-members 3 cannot share --learner-parts 4 evenly: pass one of 1, 2, 4."),
    ({"learner_parts": 2, "learner_members": 8}, "--learner-members 8 cannot share --learner-parts 2 evenly: pass"),
    (WORKERS | {"actors": 5}, "--actors 5 is more than --workers 4, each of which runs on one process."),
    (WORKERS | {"learner_ranks": 2}, "--learner-ranks 2 cannot be with --schedule ordered"),
    (WORKERS | {"learner_parts": 2}, "--learner-parts 2 cannot be with --schedule ordered"),
    (WORKERS | {"inference_batch": 3}, "--inference-batch 3 must be a multiple of --lane-envs 2"),
    (WORKERS | {"inference_batch": 4, "schedule": "async"}, "--inference-batch 4 cannot be with --schedule async"),
]


@pytest.mark.parametrize(("wrong", "says"), CLASHES)
def test_settings_that_clash_are_refused(monkeypatch: pytest.MonkeyPatch, wrong: dict[str, Any], says: str) -> None:
    monkeypatch.setattr(facts, "cuda_devices", lambda: 4)
    validate.resolved(settled(**WORKERS if "workers" in wrong else {}))
    assert_refused(validate.resolved, settled(**wrong), says)


SHARED = [
    {"learner_parts": 16, "learner_members": 8, "batch_size": 3},
    {"schedule": "free", "learner_members": 2},
    ON_POLICY | {"batch_size": 120, "recurrent": True, "learner_members": 2},  # some parts have no sequence
]


@pytest.mark.parametrize("settings", SHARED)
def test_members_share_every_batch(settings: dict[str, Any]) -> None:
    validate.settings(config := settled(**settings))
    validate.resolved(config)


def test_the_window_holds_an_observation_and_the_steps_behind_it() -> None:
    small = {"envs": 256, "round_steps": 1_024, "learning_starts": 1_024, "replay_size": 1_500, "device": "cpu"}
    assert planning.check(Config().with_settings(**small, frame_stack=3)).run_schedule.window_ticks == 4
    with pytest.raises(ConfigError, match=r"holds 4 ticks .*the 7 that an observation with --n-step 3 needs; 2_048 is"):
        planning.check(Config().with_settings(**small, n_step=3))
    short = {"envs": 96, "round_steps": 96, "learning_starts": 96, "total_steps": 288, "replay_size": 10_000}
    assert planning.check(Config().with_settings(**short, device="cpu")).run_schedule.window_ticks == 3


RESUMED = {"resume": "runs/pong"}
PQN = {"method": "pqn", "round_steps": 960, "batch_size": 96}
SHORT = {"total_steps": 5_000, "learning_starts": 1_000}
BEGINS_LATE = "Nothing will be learned: rounds have 9_984 steps, updates begin with round 2, and there are 1. More "
ONLY = "The chance of a random action will only come from 1 to"
RATE_0 = "The learning rate is 0 after --anneal-steps 40_000_000: the last 10_000_000 steps learn nothing."
ENDS_AT_0 = {"learning_rate_end": 0.0, "anneal_steps": 40_000_000}


MISTAKES = [
    (SHORT, BEGINS_LATE + "--total-steps, or fewer --learning-starts or --round-steps, would change that."),
    (
        {"total_steps": 10_500, "learning_starts": 1_000, "epsilon_steps": 9_000},
        "The run will play 19_968 steps, not --total-steps 10_500: a round has 9_984 steps.",
    ),
    ({"priority_exponent": 0.7}, "--priority-exponent 0.7 has no effect: --prioritized is off."),
    ({"noisy_std": 0.2}, "--noisy-std 0.2 has no effect: --noisy is off."),
    ({"munchausen_alpha": 0.5}, "--munchausen-alpha 0.5 has no effect: --munchausen is off."),
    ({"total_steps": 500_000}, f"{ONLY} 0.59 in 500_000 steps; --epsilon-steps 450_000 would bring it to 0.1."),
    (
        PQN | {"total_steps": 400_000},
        f"{ONLY} 0.64 in 400_000 steps; --epsilon-steps 400_000 would bring it to 0.1.",
    ),
    (
        {"eval_every_steps": 60_000_000},
        "No evaluation beside training: the run has fewer steps than --eval-every-steps 60_000_000.",
    ),
    (ENDS_AT_0, RATE_0),
    (
        {"optimizer": "adam", "optimizer_decay": 0.999},
        "--optimizer adam keeps RMSProp's --optimizer-epsilon 0.01; usual are 1e-8 to 1.5e-4, and 0.999 for "
        "--optimizer-decay.",
    ),
    # A resumed run is advised nothing that it refuses.
    (RESUMED | ENDS_AT_0, RATE_0),
    (RESUMED | {"total_steps": 500_000}, None),
    (RESUMED | SHORT, BEGINS_LATE + "--total-steps would change that."),
    # A chance that would go "from 1 to 1", one of each worker, and a policy, which has none.
    (REPLAY | {"epsilon_by_worker": True, "total_steps": 500_000}, None),
    ({"total_steps": 10_500, "learning_starts": 10_000, "round_steps": 240}, None),
    (PQN | {"method": "a2c", "total_steps": 500_000}, None),
]


@pytest.mark.parametrize(("settings", "says"), MISTAKES)
def test_a_likely_mistake_gets_a_warning(settings: dict[str, Any], says: str | None) -> None:
    assert validate.config_warnings(Config().with_settings(**settings)) == ([] if says is None else [says])


def test_settings_of_a_preset_get_no_warning() -> None:
    assert validate.config_warnings(PRESETS["btr"].with_settings(prioritized=False)) == []


def test_a_run_with_videos_is_read_without_their_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    config = settled(eval_video=True, eval_every_steps=1_000)
    assert_refused(validate.settings, config, "needs the package av")
    assert validate.recorded(config.to_json()).evaluate.eval_video
