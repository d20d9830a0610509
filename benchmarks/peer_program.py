"""Steps/s of another project's agent or envs on an Atari game. Runs in the peers' own environment.

    .venv-peers/bin/python -P benchmarks/peer_program.py sb3 --game breakout --threads 2 --steps 4000
    .venv-peers/bin/python -P benchmarks/peer_program.py ale --game breakout --envs 8 --threads 2 --seconds 5

Agents, with their own published settings: `sb3`, `sb3-ppo` and `sb3-a2c` are Stable-Baselines3's with `CnnPolicy`,
`AtariWrapper` and `VecFrameStack`, as in its zoo; `pfrl` is PFRL's DQN as in its reproduction of Mnih et al. 2015, with
Gymnasium's preprocessing; `cleanrl-dqn` and `cleanrl-ppo` are files of CleanRL, unchanged, from a clone. CleanRL was
written for an older Gymnasium: the games of ale-py are registered for it, and two wrappers have their old names. Replay
buffers are smaller than published, which slows nothing down.

Steps are counted at the envs, updates in PyTorch's optimizers. The measured time begins and ends before a step: for
methods with rollouts before the first step of one.

Envs under random actions: `ale` is ale-py's `AtariVectorEnv`, in C++ threads; `sync` and `async` are Gymnasium's
`SyncVectorEnv` and `AsyncVectorEnv` over `AtariPreprocessing` and `FrameStackObservation`. All return stacks of four
gray frames of 84x84, with up to 30 no-ops at a reset and no sticky actions, and reset automatically.

The last line of the output is the result, as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import ale_py
import gymnasium
import numpy as np
from ale_py.registration import rom_id_to_name
from ale_py.vector_env import AtariVectorEnv
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation, GrayscaleObservation

BARE: dict[str, Any] = {"frameskip": 1, "repeat_action_probability": 0.0}
"""Emulator without frame skip and sticky actions; the wrappers do the rest."""
BUFFER_STEPS, LEARNING_STARTS = 10_000, 1_000
WARM_SECONDS = 1.0
NOOPS = 30


class Measured(Exception):
    """The end of the measurement, which ends a program."""


class Clock:
    """Time and updates between two steps of the envs."""

    def __init__(self, first: int, rollout: int, steps: int) -> None:
        """Measure from behind step `first`, for whole rollouts with at least so many steps."""
        self._first, self._last = first, first + -(-steps // rollout) * rollout
        self._begun = 0.0
        self._updates = self._updates_before = self._steps = 0
        self.result: dict[str, Any] = {}

    def count_update(self, *_: Any) -> None:
        """Count one step of an optimizer."""
        self._updates += 1

    def before_step(self, envs: int) -> None:
        """Look at the clock before `envs` more steps. Raises `Measured` at the end."""
        if self._steps == self._first:
            self._begun, self._updates_before = time.perf_counter(), self._updates
        if self._steps == self._last:
            seconds, updates = time.perf_counter() - self._begun, self._updates - self._updates_before
            self.result = {"steps": self._last - self._first, "updates": updates, "seconds": seconds}
            raise Measured
        self._steps += envs

    def count_in(self, owner: Any, method: str, envs: int) -> None:
        """Have every call of a method of an object count as a step of so many envs."""
        original = getattr(owner, method)

        def counted(*arguments: Any) -> Any:
            self.before_step(envs)
            return original(*arguments)

        setattr(owner, method, counted)


# --- agents: each plays until `Measured` is raised


def sb3(options: argparse.Namespace, clock: Clock, envs: int) -> None:
    """Stable-Baselines3's DQN, PPO or A2C with the numbers of rl-baselines3-zoo."""
    from stable_baselines3 import A2C, DQN, PPO
    from stable_baselines3.common.env_util import make_atari_env
    from stable_baselines3.common.sb2_compat.rmsprop_tf_like import RMSpropTFLike
    from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecFrameStack

    game, kind = f"ALE/{rom_id_to_name(options.game)}-v5", SubprocVecEnv if options.env_processes else DummyVecEnv
    frames = make_atari_env(game, n_envs=envs, seed=1, env_kwargs=BARE, vec_env_cls=kind)
    env = VecFrameStack(frames, n_stack=4)
    clock.count_in(env, "step_async", envs)
    rmsprop = {"optimizer_class": RMSpropTFLike, "optimizer_kwargs": {"eps": 1e-5}}
    # The final epsilon from the start; with decay it would act at random, without inference, while measured.
    epsilon = {"exploration_initial_eps": 0.05, "exploration_final_eps": 0.05}
    every = {"batch_size": 32, "train_freq": 4, "gradient_steps": 1, "target_update_interval": 10_000}
    rollouts = {"learning_rate": 2.5e-4, "n_steps": 128, "batch_size": 256, "n_epochs": 4}
    agents: dict[str, tuple[Any, dict[str, Any]]] = {
        "sb3": (DQN, {**every, **epsilon, "buffer_size": BUFFER_STEPS, "learning_starts": LEARNING_STARTS}),
        "sb3-ppo": (PPO, {**rollouts, "clip_range": 0.1, "ent_coef": 0.01, "vf_coef": 0.5}),
        "sb3-a2c": (A2C, {"ent_coef": 0.01, "vf_coef": 0.25, "policy_kwargs": rmsprop}),
    }
    method, settings = agents[options.peer]
    try:
        method("CnnPolicy", env, device=options.device, seed=1, **settings).learn(1 << 40)
    finally:
        env.close()


def pfrl(options: argparse.Namespace, clock: Clock, envs: int) -> None:
    """PFRL's DQN: centered RMSProp, clipped errors."""
    from pfrl.agents import DQN
    from pfrl.explorers import LinearDecayEpsilonGreedy
    from pfrl.initializers import init_chainer_default
    from pfrl.nn import LargeAtariCNN
    from pfrl.optimizers import RMSpropEpsInsideSqrt
    from pfrl.q_functions import DiscreteActionValueHead
    from pfrl.replay_buffers import ReplayBuffer
    from torch import nn

    env = preprocessed(options.game, terminal_on_life_loss=True)
    actions, random = int(env.action_space.n), np.random.default_rng(1)  # type: ignore[attr-defined]
    q = nn.Sequential(LargeAtariCNN(), init_chainer_default(nn.Linear(512, actions)), DiscreteActionValueHead())
    agent = DQN(
        q,
        RMSpropEpsInsideSqrt(q.parameters(), lr=2.5e-4, alpha=0.95, momentum=0.0, eps=1e-2, centered=True),
        ReplayBuffer(BUFFER_STEPS),
        gamma=0.99,
        gpu=None if options.device == "cpu" else int(options.device.partition(":")[2]),
        explorer=LinearDecayEpsilonGreedy(1.0, 0.1, 10**6, lambda: int(random.integers(actions))),
        replay_start_size=LEARNING_STARTS,
        target_update_interval=10_000,
        update_interval=4,
        minibatch_size=32,
        clip_delta=True,
        batch_accumulator="sum",
        phi=lambda stack: np.asarray(stack, dtype=np.float32) / 255,
    )
    observation, _ = env.reset(seed=1)
    while True:
        action = agent.act(observation)
        clock.before_step(envs)
        observation, reward, terminated, truncated, _ = env.step(action)
        agent.observe(observation, float(np.sign(float(reward))), terminated, truncated)
        if terminated or truncated:
            observation, _ = env.reset()


def cleanrl(options: argparse.Namespace, clock: Clock, envs: int) -> None:
    """CleanRL's file, with arguments that change no speed but shorten the time until it learns."""
    import torch

    name = {"cleanrl-dqn": "dqn_atari", "cleanrl-ppo": "ppo_atari"}[options.peer]
    # The final epsilon from the start: random steps ask no network.
    of_dqn = ["--learning-starts", "1000", "--buffer-size", "10000", "--start-e", "0.05", "--end-e", "0.05"]
    gymnasium.wrappers.GrayScaleObservation = GrayscaleObservation
    gymnasium.wrappers.FrameStack = FrameStackObservation
    clock.count_in(SyncVectorEnv, "step", envs)
    if options.device != "cpu":
        torch.cuda.set_device(options.device)
    clone = options.clone.resolve()
    sys.path.insert(0, str(clone))
    cuda = "--no-cuda" if options.device == "cpu" else "--cuda"
    game = f"{rom_id_to_name(options.game)}NoFrameskip-v4"
    sys.argv = [name, "--env-id", game, cuda, *(of_dqn if name == "dqn_atari" else [])]
    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)  # CleanRL writes its curves into the present directory
        runpy.run_path(str(clone / "cleanrl" / f"{name}.py"), run_name="__main__")


AGENTS: dict[str, tuple[Callable[[argparse.Namespace, Clock, int], None], int, int, int]] = {
    "sb3": (sb3, 1, LEARNING_STARTS + 400, 4),
    "pfrl": (pfrl, 1, LEARNING_STARTS + 400, 4),
    "cleanrl-dqn": (cleanrl, 1, LEARNING_STARTS + 400, 4),
    "sb3-ppo": (sb3, 8, 1_024, 1_024),
    "cleanrl-ppo": (cleanrl, 8, 1_024, 1_024),
    "sb3-a2c": (sb3, 16, 1_040, 80),
}
"""Program, envs, the step behind which the measured time begins, and the steps of a rollout."""


def measure_agent(options: argparse.Namespace) -> dict[str, Any]:
    """Steps, updates and seconds of an agent."""
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook

    torch.set_num_threads(options.threads)
    program, envs, first, rollout = AGENTS[options.peer]
    clock = Clock(first, rollout, options.steps)
    register_optimizer_step_post_hook(clock.count_update)
    with suppress(Measured):
        program(options, clock, envs)
    return clock.result | {"threads": torch.get_num_threads()}


# --- envs under random actions


def preprocessed(game: str, **settings: Any) -> gymnasium.Env[Any, Any]:
    """One game with Gymnasium's preprocessing; registers the games, as it is called in child processes."""
    gymnasium.register_envs(ale_py)
    env = gymnasium.make(f"ALE/{rom_id_to_name(game)}-v5", disable_env_checker=True, **BARE)
    return FrameStackObservation(AtariPreprocessing(env, noop_max=NOOPS, frame_skip=4, screen_size=84, **settings), 4)


def vector(options: argparse.Namespace) -> VectorEnv[Any, Any, Any]:
    """Envs of a kind; threads are for `ale` alone."""
    rules: dict[str, Any] = {"use_fire_reset": False, "reward_clipping": False, "repeat_action_probability": 0.0}
    if options.peer == "ale":
        return AtariVectorEnv(options.game, num_envs=options.envs, num_threads=options.threads, noop_max=NOOPS, **rules)
    kind = SyncVectorEnv if options.peer == "sync" else AsyncVectorEnv
    return kind([partial(preprocessed, options.game)] * options.envs)


def measure_envs(options: argparse.Namespace) -> dict[str, Any]:
    """Steps and seconds of random actions, and how many of the looks at the observations saw valid ones."""
    env, random = vector(options), np.random.default_rng(1)
    actions = int(env.single_action_space.n)  # type: ignore[attr-defined]
    env.reset(seed=1)
    for seconds in (WARM_SECONDS, options.seconds):
        looks = seen = 0
        begun = time.perf_counter()
        while (took := time.perf_counter() - begun) < seconds:
            for choice in random.integers(actions, size=(32, options.envs)):
                observations, *_ = env.step(choice)
            looks += 1
            valid = observations.shape == (options.envs, 4, 84, 84) and observations.dtype == np.uint8
            seen += int(valid and observations.any())
    env.close()
    return {"steps": 32 * options.envs * looks, "seconds": took, "looks": looks, "seen": seen}


def main() -> None:
    """Measure once, and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", choices=(*AGENTS, "ale", "sync", "async"))
    parser.add_argument("--game", default="breakout", help="as in ale-py")
    parser.add_argument("--device", default="cpu", help="cpu or cuda:N")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=4_000, help="least measured steps of an agent")
    parser.add_argument("--env-processes", action="store_true", help="a process for each env of an agent")
    parser.add_argument("--clone", type=Path, help="of CleanRL's repository")
    parser.add_argument("--envs", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    gymnasium.register_envs(ale_py)
    print(json.dumps(measure_agent(options) if options.peer in AGENTS else measure_envs(options)))


if __name__ == "__main__":
    main()
