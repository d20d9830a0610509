"""Steps/s of Stable-Baselines3's DQN on an Atari game, after learning has begun. Runs in the peers' own environment.

    .venv-peers/bin/python benchmarks/peer_sb3.py --game Breakout --threads 2 --steps 4000

Same batch, same ratio (32 samples every 4 steps), the same network and preprocessing as its own Atari recipes: one env,
AtariWrapper, four stacked frames, CnnPolicy. The buffer is smaller, which makes nothing slower.
"""

from __future__ import annotations

import argparse
import json
import time

import ale_py
import gymnasium
import stable_baselines3
import torch
from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.vec_env import VecFrameStack

WARM_STEPS = 400


class Clock(BaseCallback):
    """Notes the time at the first and the last measured step."""

    def __init__(self, first: int) -> None:
        super().__init__()
        self._first = first
        self.begun = 0.0

    def _on_step(self) -> bool:
        if self.num_timesteps == self._first:
            self.begun = time.perf_counter()
        return True


def main() -> None:
    """Measure once; one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--game", default="Breakout", help="as in ALE/<game>-v5")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=4000)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    gymnasium.register_envs(ale_py)
    learning_starts = 1_000
    env = VecFrameStack(make_atari_env(f"{options.game}NoFrameskip-v4", n_envs=1, seed=1), n_stack=4)
    model = DQN(
        "CnnPolicy",
        env,
        buffer_size=20_000,
        batch_size=32,
        train_freq=4,
        gradient_steps=1,
        target_update_interval=10_000,
        learning_starts=learning_starts,
        device="cpu",
        seed=1,
    )
    clock = Clock(learning_starts + WARM_STEPS)
    model.learn(learning_starts + WARM_STEPS + options.steps, callback=clock)
    took = time.perf_counter() - clock.begun
    updates = model._n_updates
    expected = (WARM_STEPS + options.steps) // 4
    if abs(updates - expected) > 2:
        raise RuntimeError(f"The peer did {updates} updates where {expected} were asked for.")
    versions = {"stable_baselines3": stable_baselines3.__version__, "torch": torch.__version__}
    print(json.dumps({"steps_per_second": options.steps / took, "threads": options.threads, **versions}))


if __name__ == "__main__":
    main()
