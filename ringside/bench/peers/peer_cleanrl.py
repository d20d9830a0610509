"""Steps/s of CleanRL's dqn_atari.py or ppo_atari.py, unchanged, from a clone. Runs in the peers' own environment.

    .venv-peers/bin/python -P ringside/bench/peers/peer_cleanrl.py cleanrl-dqn --clone ~/cleanrl --game breakout

CleanRL was written for an older Gymnasium: the games of ale-py are registered for it, and two wrappers have their old
names. Steps are counted in the vector env, updates in PyTorch's optimizers, so that its files stay as they are. DQN
plays one env and learns from 32 samples every 4 steps, PPO has 8 envs x 128 steps and 4 passes in minibatches of 256.

The measured time begins and ends before a step: for PPO before the first step of a rollout. The last line of the output
is the result, as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ale_py
import gymnasium
import torch
from ale_py.registration import rom_id_to_name
from gymnasium.vector import SyncVectorEnv
from gymnasium.wrappers import FrameStackObservation, GrayscaleObservation
from torch.optim.optimizer import register_optimizer_step_post_hook

REWRITTEN = {"GrayScaleObservation": GrayscaleObservation, "FrameStack": FrameStackObservation}
"""Wrappers of today's Gymnasium by the names that CleanRL's files have for them."""


@dataclass(frozen=True)
class Script:
    """A file of CleanRL."""

    name: str
    words: tuple[str, ...]
    """Its arguments: numbers that change no speed, but shorten the time until it learns."""
    first: int
    """Measured steps begin behind this one."""
    rollout: int
    """Steps between two points where the measured time may end."""


SCRIPTS = {
    "cleanrl-dqn": Script(
        "dqn_atari",
        # The final epsilon from the start: random steps ask no network.
        ("--learning-starts", "1000", "--buffer-size", "10000", "--start-e", "0.05", "--end-e", "0.05"),
        first=1_400,
        rollout=4,
    ),
    "cleanrl-ppo": Script("ppo_atari", (), first=1_024, rollout=1_024),
}


class Measured(Exception):
    """The end of the measurement, which ends the script."""


class Clock:
    """Time and updates between two steps of the vector env."""

    def __init__(self, script: Script, steps: int) -> None:
        """`steps` is the least number of measured steps."""
        self._first = script.first
        self._last = script.first + -(-steps // script.rollout) * script.rollout
        self._begun = 0.0
        self._updates = self._updates_before = 0
        self._steps = 0
        self.result: dict[str, Any] = {}

    def count_update(self, *_: Any) -> None:
        """Count one step of an optimizer."""
        self._updates += 1

    def before_step(self, envs: int) -> None:
        """Look at the clock before `envs` more steps. Raises `Measured` at the end."""
        if self._steps == self._first:
            self._begun, self._updates_before = time.perf_counter(), self._updates
        if self._steps == self._last:
            seconds = time.perf_counter() - self._begun
            updates = self._updates - self._updates_before
            self.result = {"steps": self._last - self._first, "updates": updates, "seconds": seconds}
            raise Measured
        self._steps += envs


def prepare(clock: Clock) -> None:
    """Register the games, the old names of wrappers, and the places where steps and updates are counted."""
    gymnasium.register_envs(ale_py)
    for name, wrapper in REWRITTEN.items():
        setattr(gymnasium.wrappers, name, wrapper)
    register_optimizer_step_post_hook(clock.count_update)
    step = SyncVectorEnv.step

    def counted(self: SyncVectorEnv, actions: Any) -> Any:
        clock.before_step(self.num_envs)
        return step(self, actions)

    SyncVectorEnv.step = counted  # type: ignore[method-assign]


def main() -> None:
    """Measure once, and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", choices=SCRIPTS)
    parser.add_argument("--clone", type=Path, required=True, help="of CleanRL's repository")
    parser.add_argument("--game", default="breakout", help="as in ale-py")
    parser.add_argument("--device", default="cpu", help="cpu or cuda:N")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=4_096)
    options = parser.parse_args()
    script, clone = SCRIPTS[options.peer], options.clone.resolve()
    torch.set_num_threads(options.threads)
    if options.device != "cpu":
        torch.cuda.set_device(options.device)
    clock = Clock(script, options.steps)
    prepare(clock)
    cuda = "--no-cuda" if options.device == "cpu" else "--cuda"
    sys.path.insert(0, str(clone))
    sys.argv = [script.name, "--env-id", f"{rom_id_to_name(options.game)}NoFrameskip-v4", cuda, *script.words]
    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)  # CleanRL writes its curves into the present directory
        try:
            runpy.run_path(str(clone / "cleanrl" / f"{script.name}.py"), run_name="__main__")
        except Measured:
            threads = torch.get_num_threads()
            print(json.dumps(clock.result | {"package": script.name, "torch": torch.__version__, "threads": threads}))


if __name__ == "__main__":
    main()
