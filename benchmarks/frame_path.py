"""How near an env comes to the emulator alone: `python -m benchmarks.frame_path`.

Two players take turns in blocks, with the same actions and as many no-ops: one calls `act` four times a step and
looks at nothing, the other calls `env.step`, which gives frames, rewards and ends. Both clocks count the CPU time of
this thread. Two ratios come of it: *with resets* holds everything that each needs to go on playing, the emulator's
real resets against our restored starts; *steps alone* leaves both kinds of resets out, so that what we save on resets
cannot hide what a frame costs.

Before anything is timed, frames and rewards are compared with the slow way (two `getScreenGrayscale`, their maximum,
`cv2.resize` with INTER_AREA), which must give the same bits. Needs the `dev` extra for OpenCV.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import geometric_mean, median

import cv2
import numpy as np
import tyro
from ale_py import ALEInterface, LoggerMode, roms
from rich.console import Console
from rich.table import Table

from actors.atari import AtariEnv
from actors.env import Frame
from shared.config import FRAME_SIDE, FRAME_SKIP
from shared.machine import describe
from shared.protocols import PROTOCOLS
from shared.random import Stream, below

BLOCK_STEPS = 250
CHECKED_STEPS = 300


@dataclass(frozen=True)
class Arguments:
    """Compare an env's speed with that of the bare emulator."""

    games: tuple[str, ...] = (
        "breakout",
        "pong",
        "space_invaders",
        "seaquest",
        "beam_rider",
        "enduro",
        "qbert",
        "ms_pacman",
        "montezuma_revenge",
        "asteroids",
    )
    """Games, as in ale-py."""
    seconds: float = 6.0
    """CPU seconds of measuring for each game."""
    seed: int = 1
    """Seed of actions and no-ops."""
    json: Path | None = None
    """Also write the figures to this file."""


@dataclass(frozen=True)
class Figures:
    """What one game gave; speeds are resets included."""

    game: str
    bare_steps_per_second: float
    env_steps_per_second: float
    ratio_with_resets: float
    ratio_steps_alone: float
    env_overhead_us: float
    """Microseconds that a step costs beyond the emulator's."""
    episodes: int
    blocks: int


class Bare:
    """The emulator alone: four `act` calls a step, real resets."""

    def __init__(self, game: str, numbers: tuple[int, ...], seed: int) -> None:
        self.ale = ALEInterface()
        self.ale.setFloat("repeat_action_probability", 0.0)
        self.ale.setInt("max_num_frames_per_episode", PROTOCOLS["nature"].longest_episode_frames)
        path = roms.get_rom_path(game)
        assert path is not None, f"ale-py ships no {game}"
        self.ale.loadROM(path)
        self._numbers = numbers
        self._seed = seed
        self.reset_seconds = 0.0
        self.reset(0)

    def reset(self, tick: int) -> None:
        """Reset and play the no-ops that `AtariEnv` would have drawn."""
        began = time.thread_time()
        self.ale.reset_game()
        for _ in range(1 + below(PROTOCOLS["nature"].noop_max, self._seed, Stream.NOOPS, 0, tick)):
            self.ale.act(0)
        self.reset_seconds += time.thread_time() - began

    def play(self, tick: int, actions: list[int]) -> None:
        """One block of steps."""
        act, over, numbers = self.ale.act, self.ale.game_over, self._numbers
        for offset, action in enumerate(actions):
            number = numbers[action]
            act(number)
            act(number)
            act(number)
            act(number)
            if over():
                self.reset(tick + offset)


class Ours:
    """The env, writing each frame into the next slot of a small ring."""

    def __init__(self, env: AtariEnv) -> None:
        self.env = env
        self.slots = np.zeros((64, FRAME_SIDE, FRAME_SIDE), np.uint8)
        self.reset_seconds = 0.0
        self.episodes = 0
        self.env.reset(0, self.slots[0])

    def play(self, tick: int, actions: list[int]) -> None:
        """One block of steps."""
        env, slots = self.env, self.slots
        for offset, action in enumerate(actions):
            outcome = env.step(tick + offset, action, slots[offset & 63])
            if outcome.terminated or outcome.truncated:
                self.episodes += 1
                began = time.thread_time()
                env.reset(tick + offset, slots[offset & 63])
                self.reset_seconds += time.thread_time() - began


def slow_step(ale: ALEInterface, number: int) -> tuple[Frame, float]:
    """The frame and the reward of a step that does not end the game, the obvious way."""
    reward = 0.0
    screens = []
    for _ in range(FRAME_SKIP):
        reward += ale.act(number)
        screens.append(ale.getScreenGrayscale())
    pooled = np.maximum(screens[-2], screens[-1])
    frame: Frame = cv2.resize(pooled, (FRAME_SIDE, FRAME_SIDE), interpolation=cv2.INTER_AREA).astype(np.uint8)
    return frame, reward


def check_frames(game: str, seed: int) -> None:
    """Raise `AssertionError` unless the first steps of an episode are what the slow way gives."""
    env = AtariEnv(game, PROTOCOLS["nature"], seed, 0, training=True)
    bare = Bare(env.game, env.numbers, seed)
    frame = np.zeros((FRAME_SIDE, FRAME_SIDE), np.uint8)
    env.reset(0, frame)
    for tick, action in enumerate(np.random.default_rng(seed).integers(env.actions, size=CHECKED_STEPS)):
        outcome = env.step(tick, int(action), frame)
        expected, reward = slow_step(bare.ale, env.numbers[action])
        if outcome.terminated or outcome.truncated:
            return
        assert outcome.raw_reward == reward, f"{game}: the reward of step {tick} is {outcome.raw_reward}, not {reward}."
        assert np.array_equal(frame, expected), f"{game}: the frame of step {tick} differs from the slow way's."


def measure(game: str, seconds: float, seed: int) -> Figures:
    """Blocks in turns until `seconds` of CPU time are spent; ratios are medians over the blocks."""
    env = AtariEnv(game, PROTOCOLS["nature"], seed, 0, training=True)
    bare, ours = Bare(env.game, env.numbers, seed), Ours(env)
    generator = np.random.default_rng(seed)
    spent: list[tuple[float, float]] = []
    alone: list[float] = []
    tick = 0
    while sum(map(sum, spent)) < seconds or len(spent) < 5:
        actions = generator.integers(env.actions, size=BLOCK_STEPS).tolist()
        block = []
        without = []
        for player in (bare, ours) if len(spent) % 2 else (ours, bare):
            resets, began = player.reset_seconds, time.thread_time()
            player.play(tick, actions)
            took = time.thread_time() - began
            block.append(took)
            without.append(took - (player.reset_seconds - resets))
        if not len(spent) % 2:
            block.reverse()
            without.reverse()
        spent.append((block[0], block[1]))
        alone.append(without[0] / without[1])
        tick += BLOCK_STEPS
    bare_seconds, env_seconds = (sum(side) for side in zip(*spent, strict=True))
    overhead = (env_seconds - ours.reset_seconds - (bare_seconds - bare.reset_seconds)) / tick
    return Figures(
        game=env.game,
        bare_steps_per_second=tick / bare_seconds,
        env_steps_per_second=tick / env_seconds,
        ratio_with_resets=bare_seconds / env_seconds,
        ratio_steps_alone=median(alone),
        env_overhead_us=overhead * 1e6,
        episodes=ours.episodes,
        blocks=len(spent),
    )


def main(arguments: Arguments) -> None:
    """Check, measure, print and write down."""
    ALEInterface.setLoggerMode(LoggerMode.Error)
    table = Table(title="An env against four bare act calls a step")
    for heading in ("game", "bare steps/s", "env steps/s", "with resets", "steps alone", "us a step", "episodes"):
        table.add_column(heading, justify="left" if heading == "game" else "right")
    found = []
    for game in arguments.games:
        check_frames(game, arguments.seed)
        figures = measure(game, arguments.seconds, arguments.seed)
        found.append(figures)
        table.add_row(
            figures.game,
            f"{figures.bare_steps_per_second:,.0f}",
            f"{figures.env_steps_per_second:,.0f}",
            f"{figures.ratio_with_resets:.3f}",
            f"{figures.ratio_steps_alone:.3f}",
            f"{figures.env_overhead_us:.1f}",
            f"{figures.episodes}",
        )
    with_resets = geometric_mean(figures.ratio_with_resets for figures in found)
    alone = geometric_mean(figures.ratio_steps_alone for figures in found)
    table.add_section()
    table.add_row("geometric mean", "", "", f"{with_resets:.3f}", f"{alone:.3f}", "", "")
    Console().print(table)
    if arguments.json is not None:
        result = {
            "machine": describe(),
            "ratio_with_resets": with_resets,
            "ratio_steps_alone": alone,
            "games": [asdict(figures) for figures in found],
        }
        arguments.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main(tyro.cli(Arguments))
