"""The actor's side: `env.step` against the bare emulator, and the whole loop of a lane against `env.step`.

A lane of the default size plays in private memory. It gets random answers immediately, so nothing waits, and explores
as in most of a run. Its envs alone and bare emulators then replay its logged actions, block by block, with the same
no-ops at the same ticks. All three are timed in CPU time of this thread. *With resets* includes the real resets of the
bare emulator and the restored starts of our envs. *Steps alone* excludes both, so that cheaper resets cannot hide the
cost of frames.

Before anything is timed, frames and rewards are compared with a reference: the maximum of two `getScreenGrayscale`,
then `cv2.resize` with INTER_AREA. After every block the lane's slots are compared with the frames of its envs. All
comparisons are bit for bit.
"""

from __future__ import annotations

import importlib.util
import time
from pathlib import Path
from statistics import geometric_mean

import numpy as np
from ale_py import ALEInterface
from numpy.typing import NDArray

from actors.env import Frame
from actors.envs.atari import AtariEnv
from actors.lane import Lane
from ringside.bench.harness.tables import CannotRun, Report, WrongResult
from ringside.bench.limits import Options
from ringside.bench.system_parts.actors_alone import play_at_random
from ringside.bench.system_parts.emulator import BLOCK_TICKS, RULES, Bare
from shared.config.resolve import resolve
from shared.config.sections import FRAME_SKIP
from shared.config.settings import Config
from shared.frame_shape import FRAME_SIDE
from shared.memory.plan import Plan
from shared.memory.run_memory import Memory

SEED = 1
CHECKED_STEPS = 300
EPSILON = 0.1
"""Epsilon of most steps of a run."""


class Players:
    """Bare emulators, envs and a lane that play the same actions of one game, block by block.

    Attributes:
        seconds: CPU seconds of bare emulators, envs and lane in the last block.
        resets: the part of `seconds` spent on resets; 0 for the lane, where it is not measured.
        steps: steps of each in the last block.
    """

    def __init__(self, game: str) -> None:
        config = Config().with_settings(
            game=game,
            envs=Config().play.lane_envs,
            actors=1,
            round_steps=10 * BLOCK_TICKS * Config().play.lane_envs,
            replay_size=10 * BLOCK_TICKS * Config().play.lane_envs,
            epsilon_start=EPSILON,
            epsilon_end=EPSILON,
            network="small",
            device="cpu",
            inference_batch=Config().play.lane_envs,
            seed=SEED,
            run_dir=Path(),
        )
        indices = range(config.play.lane_envs)
        self.envs = [AtariEnv(game, RULES, SEED, index, training=True) for index in indices]
        self.bare = [Bare(game, SEED, index) for index in indices]
        self._memory = Memory.create(Plan(resolve(config), self.envs[0].actions))
        envs = [AtariEnv(game, RULES, SEED, i, training=True) for i in indices]
        self._lane = Lane(self._memory.lane(0), self._memory.plan, envs, actor=0)
        self._lane.start()
        self._ended = [False for _ in indices]
        self._random = np.random.default_rng(SEED)
        shape = len(indices), BLOCK_TICKS, FRAME_SIDE, FRAME_SIDE
        self._frames = np.zeros(shape, np.uint8)
        self._rewards = np.zeros(shape[:2], np.float32)
        for env in self.envs:
            env.reset(0, self._frames[0, 0])
        self._tick = 0
        self.seconds, self.resets, self.steps = [0.0] * 3, [0.0] * 3, [0] * 3

    def close(self) -> None:
        """Release the memory."""
        self._memory.arena.close()

    def play_block(self) -> None:
        """Play one block of ticks with each. Raises `WrongResult` if they differ."""
        first, self._tick = self._tick, self._tick + BLOCK_TICKS
        began = time.thread_time()
        play_at_random(self._lane, self._memory, BLOCK_TICKS, self._random)
        lane_seconds = time.thread_time() - began
        slots = {name: self._slots(name, first) for name in ("action", "raw_reward", "start", "frame")}
        # A slot holds the action of its tick and the frame before it; `start` is set after a reset tick.
        lane_steps = BLOCK_TICKS * len(self.envs) - int(self._slots("start", first + 1).sum())
        actions: list[list[int]] = slots["action"].T.tolist()

        began, before = time.thread_time(), sum(bare.reset_seconds for bare in self.bare)
        steps = sum(bare.steps for bare in self.bare)
        for bare, numbers in zip(self.bare, actions, strict=True):
            bare.play(first, numbers)
        bare_seconds = time.thread_time() - began
        bare_resets = sum(bare.reset_seconds for bare in self.bare) - before

        began = time.thread_time()
        env_resets = sum(self._play_env(j, first, numbers) for j, numbers in enumerate(actions))
        env_seconds = time.thread_time() - began

        self.seconds = [bare_seconds, env_seconds, lane_seconds]
        self.resets = [bare_resets, env_resets, 0.0]
        self.steps = [sum(bare.steps for bare in self.bare) - steps, lane_steps, lane_steps]
        self._check(first)

    def _play_env(self, j: int, first: int, actions: list[int]) -> float:
        """Play a block of env `j` without a lane; return the CPU seconds of its resets."""
        env, frames, rewards, resets = self.envs[j], self._frames[j], self._rewards[j], 0.0
        for offset, action in enumerate(actions):
            if self._ended[j]:
                began = time.thread_time()
                env.reset(first + offset, frames[offset])
                resets += time.thread_time() - began
                rewards[offset] = 0.0
                self._ended[j] = False
                continue
            outcome = env.step(first + offset, action, frames[offset])
            rewards[offset] = outcome.raw_reward
            self._ended[j] = outcome.terminated or outcome.truncated
        return resets

    def _slots(self, name: str, first: int) -> NDArray[np.generic]:
        """One field of the lane's slots in a block: [ticks, envs, ...]."""
        ticks = np.arange(first, first + BLOCK_TICKS) % self._memory.run_schedule.capacity
        return self._memory.ring.field[name][0, ticks]

    def _check(self, first: int) -> None:
        """Raise `WrongResult` unless the lane's slots equal its envs' results and the emulators played every frame."""
        same = np.array_equal(self._slots("raw_reward", first).T, self._rewards) and np.array_equal(
            self._slots("frame", first + 1).swapaxes(0, 1), self._frames
        )
        if not same:
            raise WrongResult(f"In the ticks from {first} on, the lane's slots differ from what its envs give.")
        for bare in self.bare:
            bare.check()


def slow_step(ale: ALEInterface, number: int) -> tuple[Frame, float]:
    """Reference for the frame and the reward of a step that does not end the game."""
    import cv2

    reward = 0.0
    screens = []
    for _ in range(FRAME_SKIP):
        reward += ale.act(number)
        screens.append(ale.getScreenGrayscale())
    pooled = np.maximum(screens[-2], screens[-1])
    frame: Frame = cv2.resize(pooled, (FRAME_SIDE, FRAME_SIDE), interpolation=cv2.INTER_AREA).astype(np.uint8)
    return frame, reward


def check_frames(game: str) -> None:
    """Raise `WrongResult` unless the first steps of an episode equal those of `slow_step`."""
    env = AtariEnv(game, RULES, SEED, 0, training=True)
    bare = Bare(env.game, SEED)
    frame = np.zeros((FRAME_SIDE, FRAME_SIDE), np.uint8)
    env.reset(0, frame)
    for tick, action in enumerate(np.random.default_rng(SEED).integers(env.actions, size=CHECKED_STEPS)):
        outcome = env.step(tick, int(action), frame)
        expected, reward = slow_step(bare.ale, env.numbers[action])
        if outcome.terminated or outcome.truncated:
            return
        if outcome.raw_reward != reward:
            raise WrongResult(f"The reward of step {tick} is {outcome.raw_reward}, not {reward}.")
        if not np.array_equal(frame, expected):
            raise WrongResult(f"The frame of step {tick} differs from that of the slow way.")


def measure(options: Options, report: Report) -> None:
    """The part `actors` of `launch.py bench limits`."""
    shares: dict[str, list[float]] = {}
    for game in options.game_names:
        with report.measuring(f"actors, {game}"):
            if importlib.util.find_spec("cv2") is None:
                raise CannotRun("Frames are verified with OpenCV, which is not installed: make install.")
            check_frames(game)
            for name, share in _measure_game(game, options, report).items():
                shares.setdefault(name, []).append(share)
    for name, found in shares.items():
        if len(found) > 1:
            mean, least = geometric_mean(found), min(found)
            report.note(
                f"{name}: {mean:.3f} of the bare emulator (geometric mean of {len(found)} games), {least:.3f} at least."
            )


def _measure_game(game: str, options: Options, report: Report) -> dict[str, float]:
    """Play blocks until each player has used `options.seconds` in every repeat; return its shares of the bare speed."""
    players = Players(game)
    seconds, resets, steps = (np.zeros((options.repeats, 3)) for _ in range(3))
    try:
        players.play_block()
        for repeat in range(options.repeats):
            while seconds[repeat].min() < options.seconds:
                players.play_block()
                seconds[repeat] += players.seconds
                resets[repeat] += players.resets
                steps[repeat] += players.steps
    finally:
        players.close()
    bare, env, lane = (steps / seconds).T
    bare_alone, env_alone, _ = (steps / (seconds - resets)).T
    limit, unit = f"{game}: bare emulator", "steps/CPU s"
    more = f"{np.median(1e6 / env_alone - 1e6 / bare_alone):.1f} us more"
    report.add(f"{game}: env", unit, env.tolist(), limit=limit, ratios=(env / bare).tolist(), note="with resets")
    report.add(
        f"{game}: env, steps alone",
        unit,
        env_alone.tolist(),
        limit=limit,
        ratios=(env_alone / bare_alone).tolist(),
        note=more,
    )
    whole = float(np.median(lane / bare))
    report.add(
        f"{game}: actor loop",
        unit,
        lane.tolist(),
        limit=f"{game}: env",
        ratios=(lane / env).tolist(),
        note=f"{whole:.3f} of bare",
    )
    return {
        "env": float(np.median(env / bare)),
        "env, steps alone": float(np.median(env_alone / bare_alone)),
        "actor loop": whole,
    }
