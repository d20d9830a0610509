"""Steps/s of another package's DQN on an Atari game, after learning has begun. Runs in the peers' own environment.

    .venv-peers/bin/python -P ringside/bench/peers/peer_dqn.py sb3 --game breakout --threads 2 --steps 4000

Each package plays one env and learns from 32 samples every 4 steps, with its own published settings:

* `sb3`: Stable-Baselines3's `DQN` with `CnnPolicy`, `AtariWrapper` and `VecFrameStack`, as in its zoo.
* `pfrl`: PFRL's `DQN` as in its reproduction of Mnih et al. 2015 (centered RMSProp, clipped errors). The preprocessing
  is Gymnasium's, since PFRL's own was written for the older Gym.

Replay buffers are smaller than published, which slows nothing down. The last line of the output is the result, as JSON.
"""

from __future__ import annotations

import argparse
import json
import time
from importlib.metadata import version
from typing import Any

BARE: dict[str, Any] = {"frameskip": 1, "repeat_action_probability": 0.0}
"""Emulator without frame skip and sticky actions; the wrappers do the rest."""
WARM_STEPS = 400
LEARNING_STARTS = 1_000
BUFFER_STEPS = 10_000
BATCH, TRAIN_EVERY, TARGET_EVERY = 32, 4, 10_000
EPSILON = 0.05


class Clock:
    """Measures time and updates between the first and the last measured step."""

    def __init__(self, steps: int) -> None:
        self._first, self._last = LEARNING_STARTS + WARM_STEPS, LEARNING_STARTS + WARM_STEPS + steps
        self._begun = 0.0
        self._updates_before = 0
        self.seconds = 0.0
        self.updates = 0

    def record(self, steps: int, updates: int) -> bool:
        """Record progress; call it after every step. Return True if more steps are needed."""
        if steps == self._first:
            self._begun, self._updates_before = time.perf_counter(), updates
        if steps == self._last:
            self.seconds, self.updates = time.perf_counter() - self._begun, updates - self._updates_before
        return steps < self._last


def sb3(game: str, device: str, clock: Clock) -> str:
    """Measure Stable-Baselines3, and return its version."""
    from stable_baselines3 import DQN
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_atari_env
    from stable_baselines3.common.vec_env import VecFrameStack

    class Look(BaseCallback):
        def _on_step(self) -> bool:
            return clock.record(self.num_timesteps, self.model._n_updates)

    env = VecFrameStack(make_atari_env(game, n_envs=1, seed=1, env_kwargs=BARE), n_stack=4)
    model = DQN(
        "CnnPolicy",
        env,
        buffer_size=BUFFER_STEPS,
        batch_size=BATCH,
        train_freq=TRAIN_EVERY,
        gradient_steps=1,
        target_update_interval=TARGET_EVERY,
        learning_starts=LEARNING_STARTS,
        # The final epsilon from the start; with decay it would act at random, without inference, while measured.
        exploration_initial_eps=EPSILON,
        exploration_final_eps=EPSILON,
        device=device,
        seed=1,
    )
    model.learn(1 << 40, callback=Look())
    return f"stable-baselines3 {version('stable-baselines3')}"


def pfrl(game: str, device: str, clock: Clock) -> str:
    """Measure PFRL, and return its version."""
    import gymnasium
    import numpy as np
    from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation
    from pfrl.agents import DQN
    from pfrl.explorers import LinearDecayEpsilonGreedy
    from pfrl.initializers import init_chainer_default
    from pfrl.nn import LargeAtariCNN
    from pfrl.optimizers import RMSpropEpsInsideSqrt
    from pfrl.q_functions import DiscreteActionValueHead
    from pfrl.replay_buffers import ReplayBuffer
    from torch import nn

    frames = gymnasium.make(game, disable_env_checker=True, **BARE)
    env = FrameStackObservation(AtariPreprocessing(frames, terminal_on_life_loss=True), 4)
    actions = int(env.action_space.n)  # type: ignore[attr-defined]
    random = np.random.default_rng(1)
    q = nn.Sequential(LargeAtariCNN(), init_chainer_default(nn.Linear(512, actions)), DiscreteActionValueHead())
    agent = DQN(
        q,
        RMSpropEpsInsideSqrt(q.parameters(), lr=2.5e-4, alpha=0.95, momentum=0.0, eps=1e-2, centered=True),
        ReplayBuffer(BUFFER_STEPS),
        gamma=0.99,
        gpu=None if device == "cpu" else int(device.partition(":")[2]),
        explorer=LinearDecayEpsilonGreedy(1.0, 0.1, 10**6, lambda: int(random.integers(actions))),
        replay_start_size=LEARNING_STARTS,
        target_update_interval=TARGET_EVERY,
        update_interval=TRAIN_EVERY,
        minibatch_size=BATCH,
        clip_delta=True,
        batch_accumulator="sum",
        phi=lambda stack: np.asarray(stack, dtype=np.float32) / 255,
    )
    observation, _ = env.reset(seed=1)
    steps, going = 0, True
    while going:
        observation, reward, terminated, truncated, _ = env.step(agent.act(observation))
        agent.observe(observation, float(np.sign(float(reward))), terminated, truncated)
        steps += 1
        going = clock.record(steps, agent.optim_t)
        if terminated or truncated:
            observation, _ = env.reset()
    return f"pfrl {version('pfrl')}"


PEERS = {"sb3": sb3, "pfrl": pfrl}


def main() -> None:
    """Measure once, and print one line of JSON."""
    import ale_py
    import gymnasium
    import torch
    from ale_py.registration import rom_id_to_name

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("--game", default="breakout", help="as in ale-py")
    parser.add_argument("--device", default="cpu", help="cpu or cuda:N")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=4_000)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    gymnasium.register_envs(ale_py)
    clock = Clock(options.steps)
    package = PEERS[options.peer](f"ALE/{rom_id_to_name(options.game)}-v5", options.device, clock)
    result: dict[str, Any] = {"steps": options.steps, "updates": clock.updates, "seconds": clock.seconds}
    print(json.dumps(result | {"package": package, "torch": torch.__version__, "threads": torch.get_num_threads()}))


if __name__ == "__main__":
    main()
