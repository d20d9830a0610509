"""It learns: the small pixel game, within minutes on two cores, and not when rewards say nothing."""

from __future__ import annotations

from collections import deque
from pathlib import Path

import numpy as np
import pytest

import ringside
from shared.config.method_declaration import method_declaration
from shared.frame_shape import FRAME_SIDE, STACK
from tests.support import pixel_game
from tests.support.runs import finish, records, start, summary

PLAYED_WELL = 1.5
"""Mean return that only a paddle under the block gets: at random it is -0.2, at best 2.2."""

SETTINGS = {
    "actors": "1",
    "envs": "16",
    "inference_batch": "8",
    "round_steps": "320",
    "learning_starts": "640",
    "total_steps": "12_800",
    "replay_size": "8_000",
    "optimizer": "adam",
    "learning_rate": "5e-4",
    "optimizer_decay": "0.999",
    "optimizer_epsilon": "1e-5",
    "epsilon_steps": "5_000",
    "epsilon_end": "0.02",
    "discount": "0.95",
}


def played(run_dir: Path, episodes: int = 60) -> float:
    """Mean true return of a trained agent that always takes its best action."""
    agent, env = ringside.load_agent(run_dir, eval_actions="greedy"), pixel_game.factory()
    returns = []
    for episode in range(episodes):
        observation, _ = env.reset(seed=10_000 + episode)
        blank = np.zeros((FRAME_SIDE, FRAME_SIDE), np.uint8)
        stack = deque([blank] * (STACK - 1) + [observation], maxlen=STACK)
        total, over = 0.0, False
        while not over:
            observation, reward, over, _, _ = env.step(np.int64(agent(np.stack(stack))))
            stack.append(observation)
            total += reward
        returns.append(total)
    return float(np.mean(returns))


@pytest.mark.parametrize("seed", ["1", *(pytest.param(seed, marks=pytest.mark.stress) for seed in ("2", "3"))])
def test_learns_the_pixel_game(tmp_path: Path, seed: str) -> None:
    flags = SETTINGS | {"total_steps": "9_600"}
    finish(start(tmp_path / "run", env="tests.support.pixel_game:factory", seed=seed, **flags))
    assert played(tmp_path / "run") > PLAYED_WELL
    assert summary(tmp_path / "run")["updates"] == (9_600 - 640) // 4


@pytest.mark.stress
def test_learns_nothing_from_shuffled_rewards(tmp_path: Path) -> None:
    """The test above can fail: a longer run with rewards at meaningless moments stays far below."""
    finish(start(tmp_path / "run", env="tests.learn.shuffled:factory", **SETTINGS))
    assert played(tmp_path / "run") < PLAYED_WELL / 2


ROUNDS = {
    **{name: SETTINGS[name] for name in ("actors", "envs", "inference_batch", "discount")},
    "schedule": "alternate",
    "snapshot_every_steps": "2_000",
    "optimizer_epsilon": "1e-5",
    "clip_gradient": "0.5",
}
ACTOR_CRITIC = ROUNDS | {
    "method": "a2c",
    "round_steps": "80",
    "batch_size": "80",
    "total_steps": "20_000",
    "optimizer": "rms",
    "learning_rate": "4e-3",
    "optimizer_decay": "0.99",
}
PASSES = ROUNDS | {
    "method": "ppo",
    "round_steps": "512",
    "batch_size": "128",
    "epochs": "3",
    "total_steps": "20_000",
    "optimizer": "adam",
    "learning_rate": "1e-3",
    "optimizer_decay": "0.999",
}
Q_LAMBDA = PASSES | {
    "method": "pqn",
    "epochs": "2",
    "total_steps": "40_000",
    "optimizer": "radam",
    "clip_gradient": "10",
    "epsilon_steps": "10_000",
    "epsilon_end": "0.02",
}
SHORT_ROUNDS = {"round_steps": "128", "batch_size": "64", "learning_rate_end": "1e-4", "anneal_steps": "40_000"}
ON_POLICY = {
    "a2c": ACTOR_CRITIC,
    "a3c": ACTOR_CRITIC | {"method": "a3c", "schedule": "concurrent", "round_steps": "160", "total_steps": "30_000"},
    "ppo": PASSES,
    "ppo a version behind": PASSES | {"schedule": "concurrent", "total_steps": "30_000"},
    "pqn": Q_LAMBDA,
    "pqn a version behind": Q_LAMBDA | SHORT_ROUNDS | {"schedule": "concurrent"},
    "vtrace": ACTOR_CRITIC | {"method": "vtrace", "schedule": "concurrent", "total_steps": "10_000"},
}
QUICKEST = "vtrace"


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "case", [pytest.param(name, marks=[] if name == QUICKEST else pytest.mark.stress) for name in ON_POLICY]
)
def test_an_on_policy_method_learns_the_pixel_game(tmp_path: Path, case: str) -> None:
    flags = ON_POLICY[case]
    finish(start(tmp_path / "run", env="tests.support.pixel_game:factory", **flags), seconds=300.0)
    assert played(tmp_path / "run") > PLAYED_WELL
    assert summary(tmp_path / "run")["exact"]
    last = [record for record in records(tmp_path / "run", "round") if record["updates"]][-1]
    assert set(method_declaration(flags["method"]).metrics) <= last.keys()


MEMORY = ACTOR_CRITIC | {
    "env": "tests.support.cue_game:factory",
    "round_steps": "112",
    "batch_size": "112",
    "total_steps": "12_000",
    "optimizer": "adam",
    "optimizer_decay": "0.999",
    "learning_rate": "2e-3",
    "discount": "0.9",
}
"""Rounds of 7 ticks: an episode has 6, and one tick more that resets it."""


@pytest.mark.stress
@pytest.mark.timeout(400)
@pytest.mark.parametrize(("method", "schedule"), [("a2c", "alternate"), ("vtrace", "concurrent")])
def test_a_recurrent_agent_learns_what_needs_memory(tmp_path: Path, method: str, schedule: str) -> None:
    """Without memory the mean return stays near 0."""
    returns = {}
    for name, words in (("recurrent", ["--recurrent"]), ("plain", [])):
        run_dir = tmp_path / name
        finish(start(run_dir, *words, **MEMORY | {"method": method, "schedule": schedule}), seconds=300.0)
        returns[name] = summary(run_dir)["mean_return_100"]
    assert returns["recurrent"] > 0.8
    assert abs(returns["plain"]) < 0.4
    evaluated = ringside.evaluate(tmp_path / "recurrent", env=MEMORY["env"], episodes=30, eval_actions="greedy")
    assert evaluated["mean"] > 0.9


@pytest.mark.stress
@pytest.mark.timeout(700)
@pytest.mark.parametrize("schedule", ["ordered", "async"])
def test_recurrent_workers_learn_what_needs_memory(tmp_path: Path, schedule: str) -> None:
    """A3C with an LSTM, as in the test above; gradients go back through an episode at most."""
    flags = WORKERS | {"method": "a2c", "schedule": schedule, "network": "a3c", "t_max": "7", "discount": "0.9"}
    flags |= {"env": MEMORY["env"], "total_steps": "30_000"}
    returns = {}
    for name, words in (("recurrent", ["--recurrent"]), ("plain", [])):
        run_dir = tmp_path / name
        finish(start(run_dir, *words, **flags), seconds=300.0)
        returns[name] = summary(run_dir)["mean_return_100"]
    assert returns["recurrent"] > 0.8
    assert abs(returns["plain"]) < 0.4


@pytest.mark.stress
def test_an_on_policy_method_of_a_plug_in_learns_the_pixel_game(tmp_path: Path) -> None:
    flags = ACTOR_CRITIC | {"plugin": "tests.support.reinforce", "method": "reinforce", "total_steps": "16_000"}
    finish(start(tmp_path / "run", env="tests.support.pixel_game:factory", **flags))
    assert summary(tmp_path / "run")["mean_return_100"] > PLAYED_WELL / 2
    last = [record for record in records(tmp_path / "run", "round") if record.get("loss") is not None][-1]
    assert {"loss", "gradient_norm", "baseline"} <= last.keys()
    assert "mean_q" not in last


@pytest.mark.stress
@pytest.mark.timeout(400)
@pytest.mark.parametrize("case", ON_POLICY)
def test_an_on_policy_method_learns_nothing_from_shuffled_rewards(tmp_path: Path, case: str) -> None:
    finish(start(tmp_path / "run", env="tests.learn.shuffled:factory", **ON_POLICY[case]), seconds=300.0)
    assert played(tmp_path / "run") < PLAYED_WELL / 2


CATEGORICAL = (
    *("--method", "c51", "--atoms", "29", "--v-min", "-2", "--v-max", "12"),
    *("--double", "--n-step", "3", "--prioritized"),
)
IMPLICIT = (
    *("--method", "iqn", "--iqn-samples", "8", "--iqn-policy-samples", "8"),
    *("--munchausen", "--dueling", "--n-step", "3", "--prioritized"),
)
QUANTILES = ("--method", "qr-dqn", "--atoms", "21", "--noisy", "--double", "--normalize", "last", "--value-rescaling")


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(CATEGORICAL, id="categorical", marks=pytest.mark.stress),
        pytest.param(IMPLICIT, id="implicit", marks=pytest.mark.stress),
        pytest.param(QUANTILES, id="quantiles", marks=pytest.mark.stress),
    ],
)
def test_combinations_learn_the_pixel_game(tmp_path: Path, words: tuple[str, ...]) -> None:
    finish(start(tmp_path / "run", *words, env="tests.support.pixel_game:factory", **SETTINGS))
    assert played(tmp_path / "run") > PLAYED_WELL


RESIDUAL = (
    *("--network", "impala", "--pooling", "--spectral-norm", "--batch-size", "16"),
    *("--epsilon-ladder", "2", "--clip-gradient", "10", "--no-clip-rewards"),
)


@pytest.mark.stress
@pytest.mark.timeout(1_300)
def test_a_residual_network_learns_the_pixel_game(tmp_path: Path) -> None:
    """Four minutes and more: an update takes 100 ms."""
    flags = SETTINGS | {"total_steps": "9_600"}
    finish(start(tmp_path / "run", *RESIDUAL, env="tests.support.pixel_game:factory", **flags), seconds=1_200.0)
    assert played(tmp_path / "run") > PLAYED_WELL


@pytest.mark.stress
@pytest.mark.parametrize("schedule", ["alternate", "free"])
def test_every_schedule_learns(tmp_path: Path, schedule: str) -> None:
    flags = SETTINGS | {"schedule": schedule, "snapshot_every_steps": "640", "publish_every_updates": "40"}
    finish(start(tmp_path / "run", env="tests.support.pixel_game:factory", **flags))
    assert played(tmp_path / "run") > PLAYED_WELL


WORKERS = {
    "schedule": "ordered",
    "workers": "16",
    "lane_envs": "1",
    "t_max": "5",
    "actors": "2",
    "discount": "0.95",
    "snapshot_every_steps": "2_000",
    "optimizer": "rms",
    "learning_rate": "1e-3",
    "optimizer_decay": "0.99",
    "optimizer_epsilon": "1e-3",
    "total_steps": "40_000",
}
WORKERS_OF_Q = WORKERS | {"round_steps": "640", "epsilon_steps": "10_000", "epsilon_end": "0.02"}
LOCAL_REPLAY = {name: SETTINGS[name] for name in ("learning_rate", "optimizer", "optimizer_decay", "optimizer_epsilon")}
BY_WORKERS = {
    "a2c": WORKERS | {"method": "a2c"},
    "n-step-q": WORKERS_OF_Q | {"method": "n-step-q"},
    "one-step-q": WORKERS_OF_Q | {"method": "one-step-q"},
    "sarsa": WORKERS_OF_Q | {"method": "sarsa"},
    "dqn": WORKERS_OF_Q
    | LOCAL_REPLAY
    | {"method": "dqn", "workers": "4", "t_max": "4", "local_replay": "2_000", "learning_starts": "640"}
    | {"epsilon_steps": "5_000", "round_steps": "320", "batch_size": "32", "total_steps": "12_000"},
}


@pytest.mark.stress
@pytest.mark.timeout(700)
@pytest.mark.parametrize("schedule", ["ordered", "async"])
@pytest.mark.parametrize("case", BY_WORKERS)
def test_workers_learn_the_pixel_game(tmp_path: Path, case: str, schedule: str) -> None:
    flags = BY_WORKERS[case] | {"schedule": schedule}
    finish(start(tmp_path / "run", env="tests.support.pixel_game:factory", **flags), seconds=600.0)
    assert played(tmp_path / "run") > PLAYED_WELL
    assert summary(tmp_path / "run")["exact"] == (schedule == "ordered")


@pytest.mark.stress
@pytest.mark.timeout(700)
@pytest.mark.parametrize("schedule", ["ordered", "async"])
@pytest.mark.parametrize("case", BY_WORKERS)
def test_workers_learn_nothing_from_shuffled_rewards(tmp_path: Path, case: str, schedule: str) -> None:
    flags = BY_WORKERS[case] | {"schedule": schedule}
    finish(start(tmp_path / "run", env="tests.learn.shuffled:factory", **flags), seconds=600.0)
    assert played(tmp_path / "run") < PLAYED_WELL / 2
