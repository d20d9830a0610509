"""The bare emulator, which is the upper limit of an actor; and the actor's side without inference and learner.

*Bare* means four `act` calls per step and the emulator's own resets. A lane of the default size plays in private memory
with immediate random answers, so nothing waits. Its envs alone and bare emulators replay its logged actions, block by
block, with the same no-ops at the same ticks. After every block the lane's slots are compared with the frames and
rewards of its envs, bit for bit. (Parity tests compare these with Gymnasium.)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from actors.envs.atari import AtariEnv, game_name, load_emulator
from actors.lane import Lane
from benchmarks.harness import Figure, WrongResult, measure_at_once, work_rate
from benchmarks.measured_run import plan_of
from shared.config.presets import PRESETS
from shared.config.protocols import PROTOCOLS
from shared.config.sections import FRAME_SKIP
from shared.frame_shape import FRAME_SIDE
from shared.memory.run_memory import Memory
from shared.prng import Stream, randint
from shared.text import words_of

RULES = PROTOCOLS["nature"]
BLOCK_TICKS = 250
"""Ticks between two reads of the clock."""
EPSILON = 0.1
"""Epsilon of most steps of a run."""


class Bare:
    """One emulator with the tick rule of a lane: the tick after an episode end resets, and its action is ignored.

    Attributes:
        steps: steps played, resets not counted.
        reset_seconds: CPU time of resets.
    """

    def __init__(self, game: str, seed: int, index: int = 0) -> None:
        """Load `game`, a name from `actors.envs.atari.game_name`, and reset as env `index` does at tick 0."""
        self._ale = load_emulator(game, RULES, window=False)
        self.steps = 0
        self.reset_seconds = 0.0
        self._numbers = [action.value for action in self._ale.getMinimalActionSet()]
        self._seed, self._index = seed, index
        self._noops = self._episodes = 0
        self._over = False
        self._reset(0)

    def _reset(self, tick: int) -> None:
        """Reset the emulator, and play the no-ops of this tick."""
        began = time.thread_time()
        self._ale.reset_game()
        noops = 1 + randint(RULES.noop_max, self._seed, Stream.NOOPS, self._index, tick)
        for _ in range(noops):
            self._ale.act(0)
        self._noops += noops
        self._episodes += 1
        self._over = False
        self.reset_seconds += time.thread_time() - began

    def play(self, tick: int, actions: Sequence[int]) -> None:
        """Play one tick for each action, starting with `tick`."""
        act, over, numbers = self._ale.act, self._ale.game_over, self._numbers
        resets = 0
        for offset, action in enumerate(actions):
            if self._over:
                self._reset(tick + offset)
                resets += 1
                continue
            number = numbers[action]
            act(number)
            act(number)
            act(number)
            act(number)
            self._over = over()
        self.steps += len(actions) - resets

    def play_for(self, seconds: float) -> float:
        """Play random actions for `seconds` of wall-clock time; return steps/s."""
        random = np.random.default_rng(self._seed)
        before, began, tick = self.steps, time.perf_counter(), self.steps
        while time.perf_counter() - began < seconds:
            self.play(tick, random.integers(len(self._numbers), size=BLOCK_TICKS).tolist())
            tick += BLOCK_TICKS
        speed = (self.steps - before) / (time.perf_counter() - began)
        self.check()
        return speed

    def check(self) -> None:
        """Raise `WrongResult` on a wrong frame count; the last step of an episode may lack up to three frames."""
        wanted, counted = FRAME_SKIP * self.steps + self._noops, self._ale.getFrameNumber()
        if not wanted - (FRAME_SKIP - 1) * self._episodes <= counted <= wanted:
            raise WrongResult(f"The emulator played {counted:,} frames instead of {wanted:,}.")


def bare_emulator(game: str, seed: int) -> Callable[[float], float]:
    """A worker's measurement: steps/s of a bare emulator."""
    bare = Bare(game, seed)
    bare.play(0, [0] * BLOCK_TICKS)
    return bare.play_for


def bare_speed(game: str, seconds: float, processes: int) -> float:
    """Steps/s of bare emulators in several processes at once, with different seeds. Raises as `measure_at_once`."""
    jobs = [(bare_emulator, game_name(game), seed) for seed in range(1, processes + 1)]
    return float(sum(measure_at_once(jobs, seconds)))


# --- lanes without inference


class RandomLane:
    """One lane of the default size in rounds of the default length, in private memory, with random answers."""

    def __init__(self, game: str, seed: int) -> None:
        play, learn = PRESETS["nature"].play, PRESETS["nature"].learn
        self.envs = play.lane_envs
        one_lane = {"envs": self.envs, "lane_envs": self.envs, "actors": 1, "inference_batch": self.envs}
        steps = {"round_steps": learn.round_steps * self.envs // play.envs, "replay_size": 20_000}
        explore = {"epsilon_start": EPSILON, "epsilon_end": EPSILON}
        never_asked = {"network": "small", "device": "cpu"}
        self.plan = plan_of(words_of(game=game, seed=seed, **one_lane, **steps, **explore, **never_asked))
        self.memory = Memory.create(self.plan)
        self.lane = Lane(self.memory.lane(0), self.plan, make_envs(game, seed, self.envs), actor=0)
        self.lane.start()
        self._random = np.random.default_rng(seed)

    def play(self, ticks: int) -> int:
        """Play `ticks` ticks as an actor does, with random actions in place of inference; return the steps."""
        mailbox = self.memory.mailbox
        for actions in self._random.integers(self.plan.actions, size=(ticks, self.envs), dtype=np.uint8):
            mailbox.actions[0] = actions
            mailbox.reply.publish(0, mailbox.request.at(0).read())
            if not self.lane.ready:
                raise WrongResult(f"The lane did not take the answer to tick {self.lane.tick}.")
            self.lane.step()
        return ticks * self.envs

    def slots(self, name: str, first: int) -> NDArray[np.generic]:
        """One field of the lane's slots in a block: [ticks, envs, ...]."""
        ticks = np.arange(first, first + BLOCK_TICKS) % self.memory.run_schedule.capacity
        return self.memory.ring.field[name][0, ticks]


def actors_at_random(game: str, processes: int, seconds: float) -> float:
    """Steps/s of Ringside's actors with random answers, in several processes at once."""
    jobs = [(random_lane, game, seed) for seed in range(1, processes + 1)]
    return float(sum(measure_at_once(jobs, seconds)))


def make_envs(game: str, seed: int, count: int) -> list[AtariEnv]:
    """The envs of a lane."""
    return [AtariEnv(game, RULES, seed, index, training=True) for index in range(count)]


def random_lane(game: str, seed: int) -> Callable[[float], float]:
    """A worker's measurement: steps/s of a lane, with its slots, snapshots and resets."""
    player = RandomLane(game, seed)
    player.play(2 * BLOCK_TICKS)

    return partial(work_rate, partial(player.play, BLOCK_TICKS))


# --- the actor's side, in CPU time of one thread


class Players:
    """Bare emulators, envs and a lane that play the same actions of one game, block by block."""

    def __init__(self, game: str, seed: int = 1) -> None:
        self.lane = RandomLane(game, seed)
        count = self.lane.envs
        self.envs = make_envs(game, seed, count)
        self.bare = [Bare(game, seed, index) for index in range(count)]
        self._ended = [False] * count
        self._frames = np.zeros((count, BLOCK_TICKS, FRAME_SIDE, FRAME_SIDE), np.uint8)
        self._rewards = np.zeros((count, BLOCK_TICKS), np.float32)
        for env in self.envs:
            env.reset(0, self._frames[0, 0])

    def play_block(self) -> NDArray[np.float64]:
        """Play one block. Raises `WrongResult` if the players differ.

        Returns for bare emulators, envs and lane: CPU seconds, the part spent on resets (0 for the lane), and steps.
        """
        first = self.lane.lane.tick
        began = time.thread_time()
        self.lane.play(BLOCK_TICKS)
        lane_seconds = time.thread_time() - began
        # A slot holds the action of its tick and the frame before it; `start` is set after a reset tick.
        steps = BLOCK_TICKS * len(self.envs) - int(self.lane.slots("start", first + 1).sum())
        actions: list[list[int]] = self.lane.slots("action", first).T.tolist()
        before = self._bare_counts()
        began = time.thread_time()
        for bare, numbers in zip(self.bare, actions, strict=True):
            bare.play(first, numbers)
        emulator = [time.thread_time() - began, *(self._bare_counts() - before)]
        began = time.thread_time()
        resets = sum(self._play_env(j, first, numbers) for j, numbers in enumerate(actions))
        envs = [time.thread_time() - began, resets, steps]
        self._check(first)
        return np.array([emulator, envs, [lane_seconds, 0.0, steps]])

    def _bare_counts(self) -> NDArray[np.float64]:
        return np.array([(bare.reset_seconds, bare.steps) for bare in self.bare]).sum(axis=0)

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

    def _check(self, first: int) -> None:
        """Raise `WrongResult` unless the lane's slots equal its envs' results and the emulators played every frame."""
        rewards, frames = self.lane.slots("raw_reward", first).T, self.lane.slots("frame", first + 1).swapaxes(0, 1)
        if not (np.array_equal(rewards, self._rewards) and np.array_equal(frames, self._frames)):
            raise WrongResult(f"In the ticks from {first} on, the lane's slots differ from what its envs give.")
        for bare in self.bare:
            bare.check()


def actor_side(game: str) -> Callable[[float], list[Figure]]:
    """A worker's measurement: envs and lane against the bare emulator, until each player has used the seconds.

    *Steps alone* excludes the real resets of the bare emulator and the restored starts of our envs, so that cheaper
    resets cannot hide the cost of frames.
    """
    players = Players(game)
    players.play_block()

    def measure(seconds: float) -> list[Figure]:
        total = np.zeros((3, 3))
        while total[:, 0].min() < seconds:
            total += players.play_block()
        spent, resets, steps = total.T
        bare, env, lane = steps / spent
        bare_alone, env_alone, _ = steps / (spent - resets)
        name, unit = f"{game}: bare emulator", "steps/CPU s"
        more = f"{1e6 / env_alone - 1e6 / bare_alone:.1f} us more"
        return [
            Figure(name, bare, unit),
            Figure(f"{game}: env", env, unit, name, note="with resets"),
            Figure(f"{game}: env, steps alone", env_alone, unit, name, env_alone / bare_alone, more),
            Figure(f"{game}: actor loop", lane, unit, name),
        ]

    return measure
