"""Steps/s of another package's PPO or A2C on an Atari game. Runs in the peers' own environment.

    .venv-peers/bin/python -P ringside/bench/peers/peer_on_policy.py sb3-ppo --game breakout --threads 2 --steps 4096

Stable-Baselines3 plays with `CnnPolicy`, `AtariWrapper` and `VecFrameStack`, and with the numbers of its zoo:

* `sb3-ppo`: 8 envs, rollouts of 128 steps, 4 passes in minibatches of 256.
* `sb3-a2c`: 16 envs, rollouts of 5 steps, one update for each rollout, RMSProp as in TensorFlow.

Envs step in the main process, or with --env-processes each in a process. Whole rollouts with their updates are
measured, after the first ones. The last line of the output is the result, as JSON.
"""

from __future__ import annotations

import argparse
import json
import time
from importlib.metadata import version
from typing import Any

import ale_py
import gymnasium
import torch
from ale_py.registration import rom_id_to_name
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.sb2_compat.rmsprop_tf_like import RMSpropTFLike
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecFrameStack

BARE: dict[str, Any] = {"frameskip": 1, "repeat_action_probability": 0.0}
"""Emulator without frame skip and sticky actions; the wrappers do the rest."""
WARM_STEPS = 1_024
ENVS = {"sb3-ppo": 8, "sb3-a2c": 16}


class Clock(BaseCallback):
    """Measures the time and the updates of whole rollouts."""

    def __init__(self, steps: int) -> None:
        """`steps` is the least number of measured steps."""
        super().__init__()
        self._least = steps
        self._begun = 0.0
        self._first_step = -1
        self._updates_before = 0
        self._all_updates = 0
        self.steps = self.updates = 0
        self.seconds = 0.0

    def _on_training_start(self) -> None:
        self.model.policy.optimizer.register_step_post_hook(self._count)

    def _count(self, *_: Any) -> None:
        self._all_updates += 1

    def _on_rollout_start(self) -> None:
        if self._first_step < 0 and self.num_timesteps >= WARM_STEPS:
            self._begun, self._first_step = time.perf_counter(), self.num_timesteps
            self._updates_before = self._all_updates
        elif self._first_step >= 0 and self.num_timesteps - self._first_step >= self._least and not self.steps:
            self.seconds = time.perf_counter() - self._begun
            self.steps, self.updates = self.num_timesteps - self._first_step, self._all_updates - self._updates_before

    def _on_step(self) -> bool:
        return not self.steps


def model_of(peer: str, env: VecFrameStack, device: str) -> PPO | A2C:
    """The agent with the numbers of rl-baselines3-zoo; schedules end later than the measurement."""
    if peer == "sb3-ppo":
        return PPO("CnnPolicy", env, learning_rate=2.5e-4, n_steps=128, batch_size=256, n_epochs=4, clip_range=0.1,
                   ent_coef=0.01, vf_coef=0.5, device=device, seed=1)  # fmt: skip
    rmsprop = {"optimizer_class": RMSpropTFLike, "optimizer_kwargs": {"eps": 1e-5}}
    return A2C("CnnPolicy", env, ent_coef=0.01, vf_coef=0.25, policy_kwargs=rmsprop, device=device, seed=1)


def main() -> None:
    """Measure once, and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", choices=ENVS)
    parser.add_argument("--game", default="breakout", help="as in ale-py")
    parser.add_argument("--device", default="cpu", help="cpu or cuda:N")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=4_096)
    parser.add_argument("--env-processes", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    gymnasium.register_envs(ale_py)
    frames = make_atari_env(
        f"ALE/{rom_id_to_name(options.game)}-v5",
        n_envs=ENVS[options.peer],
        seed=1,
        env_kwargs=BARE,
        vec_env_cls=SubprocVecEnv if options.env_processes else DummyVecEnv,
    )
    env = VecFrameStack(frames, n_stack=4)
    clock = Clock(options.steps)
    model_of(options.peer, env, options.device).learn(1 << 40, callback=clock)
    env.close()
    result = {"steps": clock.steps, "updates": clock.updates, "seconds": clock.seconds}
    package = f"stable-baselines3 {version('stable-baselines3')}"
    print(json.dumps(result | {"package": package, "torch": torch.__version__, "threads": torch.get_num_threads()}))


if __name__ == "__main__":
    main()
