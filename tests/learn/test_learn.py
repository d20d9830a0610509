"""It learns: the small pixel game, within minutes on two cores, and not when rewards say nothing."""

from collections import deque
from pathlib import Path

import numpy as np
import pytest

import ringside
from shared.config.method_declaration import method_declaration
from shared.frame_shape import FRAME_SIDE, STACK
from tests.support import pixel_game
from tests.support.runs import finish, flags_in, records, start, summary

PLAYED_WELL = 1.5
"""Mean return that only a paddle under the block gets: at random it is -0.2, at best 2.2."""

GAME = flags_in("actors=1 envs=16 inference_batch=8 discount=0.95")
ADAM = flags_in("optimizer=adam learning_rate=5e-4 optimizer_decay=0.999 optimizer_epsilon=1e-5")
REPLAY = flags_in("round_steps=320 learning_starts=640 replay_size=8_000 epsilon_steps=5_000 epsilon_end=0.02")
SETTINGS = GAME | ADAM | REPLAY | {"total_steps": "12_800"}


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


ROUNDS = GAME | flags_in("schedule=alternate snapshot_every_steps=2_000 optimizer_epsilon=1e-5 clip_gradient=0.5")
ACTOR_CRITIC = ROUNDS | flags_in("method=a2c round_steps=80 batch_size=80 total_steps=20_000")
ACTOR_CRITIC |= flags_in("optimizer=rms learning_rate=4e-3 optimizer_decay=0.99")
PASSES = ROUNDS | flags_in("method=ppo round_steps=512 batch_size=128 epochs=3 total_steps=20_000")
PASSES |= flags_in("optimizer=adam learning_rate=1e-3 optimizer_decay=0.999")
Q_LAMBDA = PASSES | flags_in("method=pqn epochs=2 total_steps=40_000 optimizer=radam clip_gradient=10")
Q_LAMBDA |= flags_in("epsilon_steps=10_000 epsilon_end=0.02")
SHORT_ROUNDS = flags_in("round_steps=128 batch_size=64 learning_rate_end=1e-4 anneal_steps=40_000")
ON_POLICY = {
    "a2c": ACTOR_CRITIC,
    "a3c": ACTOR_CRITIC | flags_in("method=a3c schedule=concurrent round_steps=160 total_steps=30_000"),
    "ppo": PASSES,
    "ppo a version behind": PASSES | flags_in("schedule=concurrent total_steps=30_000"),
    "pqn": Q_LAMBDA,
    "pqn a version behind": Q_LAMBDA | SHORT_ROUNDS | flags_in("schedule=concurrent"),
    "vtrace": ACTOR_CRITIC | flags_in("method=vtrace schedule=concurrent total_steps=10_000"),
}
MEMORY = ACTOR_CRITIC | flags_in("env=tests.learn.games:Cue round_steps=112 batch_size=112 total_steps=12_000")
MEMORY |= flags_in("optimizer=adam optimizer_decay=0.999 learning_rate=2e-3 discount=0.9")
"""Rounds of 7 ticks: an episode has 6, and one tick more that resets it."""


WORKERS = flags_in("schedule=ordered workers=16 lane_envs=1 t_max=5 actors=2 discount=0.95 snapshot_every_steps=2_000")
WORKERS |= flags_in("optimizer=rms learning_rate=1e-3 optimizer_decay=0.99 optimizer_epsilon=1e-3 total_steps=40_000")
WORKERS_OF_Q = WORKERS | flags_in("round_steps=640 epsilon_steps=10_000 epsilon_end=0.02")
OF_REPLAY = ADAM | flags_in("method=dqn workers=4 t_max=4 local_replay=2_000 learning_starts=640 epsilon_steps=5_000")
OF_REPLAY |= flags_in("round_steps=320 batch_size=32 total_steps=12_000")
BY_WORKERS = {
    "a2c": WORKERS | flags_in("method=a2c"),
    **{method: WORKERS_OF_Q | {"method": method} for method in ("n-step-q", "one-step-q", "sarsa")},
    "dqn": WORKERS_OF_Q | OF_REPLAY,
}


MEMORY_OF_WORKERS = WORKERS | flags_in("method=a2c network=a3c t_max=7 discount=0.9 total_steps=30_000")
MEMORY_OF_WORKERS |= {"env": MEMORY["env"]}
"""A3C with an LSTM."""
IMPLICIT = flags_in("method=iqn iqn_samples=8 iqn_policy_samples=8 munchausen dueling n_step=3 prioritized")
# An update of the residual network takes 100 ms.
RESIDUAL = flags_in("network=impala pooling spectral_norm batch_size=16 epsilon_ladder=2 total_steps=9_600")
RESIDUAL |= flags_in("clip_gradient=10 no_clip_rewards")
SCHEDULES = {"alternate": {}, "free": {"publish_every_updates": 40}}
CASES = {
    "dqn": SETTINGS,
    "categorical": SETTINGS | flags_in("method=c51 atoms=29 v_min=-2 v_max=12 double n_step=3 prioritized"),
    "implicit": SETTINGS | IMPLICIT,
    "quantiles": SETTINGS | flags_in("method=qr-dqn atoms=21 noisy double normalize=last value_rescaling"),
    "residual": SETTINGS | RESIDUAL,
    **{name: SETTINGS | more | {"schedule": name, "snapshot_every_steps": 640} for name, more in SCHEDULES.items()},
    **ON_POLICY,
    **{
        f"{name} by workers, {schedule}": settings | {"schedule": schedule}
        for name, settings in BY_WORKERS.items()
        for schedule in ("ordered", "async")
    },
}
QUICKEST = "vtrace"
SHUFFLED = {"dqn"} | ON_POLICY.keys() | {name for name in CASES if "by workers" in name}
STRESS = [pytest.mark.stress, pytest.mark.timeout(1_300)]


def train(run_dir: Path, case: str, env: str = "tests.support.pixel_game:factory") -> None:
    """Train by the settings of a case."""
    finish(start(run_dir, env=env, **CASES[case]), seconds=1_200.0)


@pytest.mark.parametrize("seed", ["1", *(pytest.param(seed, marks=pytest.mark.stress) for seed in ("2", "3"))])
def test_learns_the_pixel_game(tmp_path: Path, seed: str) -> None:
    settings = SETTINGS | {"total_steps": "9_600"}
    finish(start(tmp_path / "run", env="tests.support.pixel_game:factory", seed=seed, **settings))
    assert played(tmp_path / "run") > PLAYED_WELL
    assert summary(tmp_path / "run")["updates"] == (9_600 - 640) // 4


OTHERS = [pytest.param(name, marks=[] if name == QUICKEST else STRESS) for name in CASES if name != "dqn"]


@pytest.mark.parametrize("case", OTHERS)
def test_methods_and_schedules_learn_the_pixel_game(tmp_path: Path, case: str) -> None:
    train(tmp_path / "run", case)
    assert played(tmp_path / "run") > PLAYED_WELL
    assert summary(tmp_path / "run")["exact"] == (CASES[case].get("schedule") not in ("async", "free"))
    if case in ON_POLICY:
        last = [record for record in records(tmp_path / "run", "round") if record["updates"]][-1]
        assert set(method_declaration(CASES[case]["method"]).metrics) <= last.keys()


@pytest.mark.parametrize("case", [pytest.param(name, marks=STRESS) for name in CASES if name in SHUFFLED])
def test_nothing_is_learned_from_shuffled_rewards(tmp_path: Path, case: str) -> None:
    """The tests above can fail: runs with rewards at meaningless moments, some of them longer, stay far below."""
    train(tmp_path / "run", case, "tests.learn.games:Shuffled")
    assert played(tmp_path / "run") < PLAYED_WELL / 2


NEEDING_MEMORY = [
    pytest.param(MEMORY, id="a2c", marks=STRESS),
    pytest.param(MEMORY | {"method": "vtrace", "schedule": "concurrent"}, id="vtrace", marks=STRESS),
    pytest.param(MEMORY_OF_WORKERS | {"schedule": "ordered"}, id="workers, ordered", marks=STRESS),
    pytest.param(MEMORY_OF_WORKERS | {"schedule": "async"}, id="workers, async", marks=STRESS),
]


@pytest.mark.parametrize("settings", NEEDING_MEMORY)
def test_a_recurrent_agent_learns_what_needs_memory(tmp_path: Path, settings: dict[str, str]) -> None:
    """Without memory the mean return stays near 0. Gradients of workers go back through an episode at most."""
    returns = {}
    for name, words in (("recurrent", ["--recurrent"]), ("plain", [])):
        finish(start(tmp_path / name, *words, **settings), seconds=300.0)
        returns[name] = summary(tmp_path / name)["mean_return_100"]
    assert returns["recurrent"] > 0.8
    assert abs(returns["plain"]) < 0.4
    if "workers" not in settings:
        evaluated = ringside.evaluate(tmp_path / "recurrent", env=settings["env"], episodes=30, eval_actions="greedy")
        assert evaluated["mean"] > 0.9


@pytest.mark.stress
def test_an_on_policy_method_of_a_plug_in_learns_the_pixel_game(tmp_path: Path) -> None:
    settings = ACTOR_CRITIC | flags_in("plugin=tests.support.reinforce method=reinforce total_steps=16_000")
    finish(start(tmp_path / "run", env="tests.support.pixel_game:factory", **settings))
    assert summary(tmp_path / "run")["mean_return_100"] > PLAYED_WELL / 2
    last = [record for record in records(tmp_path / "run", "round") if record.get("loss") is not None][-1]
    assert {"loss", "gradient_norm", "baseline"} <= last.keys()
    assert "mean_q" not in last
