"""Steps/s of another package's vector of Atari environments under random actions. Runs in the peers' own environment.

    .venv-peers/bin/python -P ringside/bench/peers/peer_envs.py ale --game breakout --envs 8 --threads 2 --seconds 5

All return stacks of four gray frames of 84x84, with four emulator frames per step, up to 30 no-ops at a reset and no
sticky actions. They reset automatically, and the time of resets is included.

* `ale`: ale-py's `AtariVectorEnv`, in C++ threads.
* `sync`: Gymnasium's `SyncVectorEnv` over `AtariPreprocessing` and `FrameStackObservation`, in one process.
* `async`: Gymnasium's `AsyncVectorEnv` over the same, a process for each env.

The last line of the output is the result, as JSON.
"""

from __future__ import annotations

import argparse
import json
import time
from functools import partial
from importlib.metadata import version
from typing import Any

import ale_py
import gymnasium
import numpy as np
from ale_py.registration import rom_id_to_name
from ale_py.vector_env import AtariVectorEnv
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

NOOPS = 30
WARM_SECONDS = 1.0


def preprocessed(game: str) -> gymnasium.Env[Any, Any]:
    """One game with Gymnasium's preprocessing; registers the games, as it is called in child processes."""
    gymnasium.register_envs(ale_py)
    name = f"ALE/{rom_id_to_name(game)}-v5"
    env = gymnasium.make(name, frameskip=1, repeat_action_probability=0.0, disable_env_checker=True)
    return FrameStackObservation(AtariPreprocessing(env, noop_max=NOOPS, frame_skip=4, screen_size=84), 4)


def vector(kind: str, game: str, envs: int, threads: int) -> VectorEnv[Any, Any, Any]:
    """`envs` environments of a kind; `threads` is for `ale` alone."""
    if kind == "ale":
        return AtariVectorEnv(
            game,
            num_envs=envs,
            num_threads=threads,
            noop_max=NOOPS,
            use_fire_reset=False,
            reward_clipping=False,
            repeat_action_probability=0.0,
        )
    makers = [partial(preprocessed, game)] * envs
    return SyncVectorEnv(makers) if kind == "sync" else AsyncVectorEnv(makers)


def play(env: VectorEnv[Any, Any, Any], seconds: float, random: np.random.Generator) -> dict[str, float]:
    """Play random actions for `seconds`; count steps, episode ends, and checks that saw valid observations."""
    envs, actions = env.num_envs, int(env.single_action_space.n)  # type: ignore[attr-defined]
    steps = ends = seen = 0
    begun = time.perf_counter()
    while (took := time.perf_counter() - begun) < seconds:
        for choice in random.integers(actions, size=(32, envs)):
            observations, _, terminated, truncated, _ = env.step(choice)
            ends += int((terminated | truncated).sum())
        steps += 32 * envs
        seen += int(observations.shape == (envs, 4, 84, 84) and observations.dtype == np.uint8 and observations.any())
    return {"steps": steps, "seconds": took, "ends": ends, "looks": steps // (32 * envs), "seen": seen}


def main() -> None:
    """Measure once, and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("ale", "sync", "async"))
    parser.add_argument("--game", default="breakout", help="as in ale-py")
    parser.add_argument("--envs", type=int, default=8)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    env = vector(options.kind, options.game, options.envs, options.threads)
    env.reset(seed=1)
    random = np.random.default_rng(1)
    play(env, WARM_SECONDS, random)
    result: dict[str, Any] = play(env, options.seconds, random)
    env.close()
    packages = f"ale-py {version('ale-py')}, gymnasium {version('gymnasium')}"
    print(json.dumps(result | {"package": packages}))


if __name__ == "__main__":
    main()
