"""A ring in which random episodes were played, their history, to compare gathered transitions with, and its engine."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from learner.engine.engine import Engine
from learner.make_engine import make_engine
from shared.config.run_schedule import RunSchedule, make_run_schedule
from shared.config.sections import Algorithm, Learn, Play
from shared.config.settings import Config
from shared.frame_shape import FRAME_SIDE
from shared.memory.arena import Arena
from shared.memory.layout import Layout
from shared.memory.ring import Ring, ring_fields
from shared.memory.snapshot import state_lengths
from shared.network_parameters import parameters_of
from shared.network_spec import network_of

ACTIONS = 4


class Transition(NamedTuple):
    """Expected view of a learner on one tick."""

    state: NDArray[np.uint8]
    next_state: NDArray[np.uint8]
    action: int
    reward: float
    """Discounted sum of the steps' clipped rewards."""
    ends: bool
    """True if no value follows the rewards."""
    length: int
    """Steps in the sum."""


def patches(random: np.random.Generator, *count: int, size: int = FRAME_SIDE) -> NDArray[np.uint8]:
    """Random frames uint8[*count, size, size] of 6x6 even patches.

    Frames of white noise all look alike to a network: what they differ by then drowns in bfloat16.
    """
    small = random.integers(0, 256, (*count, 6, 6), dtype=np.uint8)
    return small.repeat(size // 6, axis=-1).repeat(size // 6, axis=-2)


class PlayedRing:
    """Episodes of random length, frame by frame; nothing is forgotten here, whatever the ring overwrites."""

    def __init__(self, config: Config, seed: int = 0, *, both: bool = False, ticks: int = 0) -> None:
        """Play so many ticks; `both`: some are truncated and lose a life."""
        self._both = both
        self.run_schedule: RunSchedule = make_run_schedule(config)
        self.ring = Ring(Arena.create(Layout(ring_fields(self.run_schedule).values())), self.run_schedule)
        self.ticks = 0
        self._random = np.random.default_rng(seed)
        self.shape = self.run_schedule.frames
        self._frames: list[NDArray[np.uint8]] = []  # by tick: [envs, *frame]
        self._slots: list[dict[str, NDArray[np.generic]]] = []  # by tick: fields [envs]
        # Unwritten memory shows: what was never played looks valid and bright.
        for field in self.ring.field.values():
            field[:] = 201
        self.play(ticks)

    def play(self, ticks: int) -> None:
        """Play the next ticks of all envs."""
        envs, random = self.run_schedule.envs, self._random
        for tick in range(self.ticks, self.ticks + ticks):
            last = self._slots[-1] if tick else None
            start = ~last["valid"] if last else np.ones(envs, bool)
            valid = ~(last["terminated"] | last["truncated"]) if last else np.ones(envs, bool)
            if tick == 0:
                self._write_frame(0)
            kind = random.random(envs)
            slot = {
                "action": random.integers(0, ACTIONS, envs),
                "raw_reward": random.choice(np.array([-7.0, -1.0, 0.0, 0.5, 3.0]), envs),
                "terminated": valid & (kind < 0.1),
                "truncated": valid & (kind >= 0.1) & (kind < 0.2),
                "life_lost": valid & (kind >= (0.17 if self._both else 0.2)) & (kind < 0.3),
                "start": start,
                "valid": valid,
            }
            self._slots.append(slot)
            for name, values in slot.items():
                self._of(name, tick)[:] = values.reshape(self.run_schedule.lanes, -1)
            # As lanes do: the slot that follows knows its frame, and whether an episode begins with it.
            self._of("start", tick + 1)[:] = ~valid.reshape(self.run_schedule.lanes, -1)
            self._write_frame(tick + 1)
        self.ticks += ticks

    def _of(self, name: str, tick: int) -> NDArray[np.generic]:
        return self.ring.field[name][:, tick % self.run_schedule.capacity]

    def _write_frame(self, tick: int) -> None:
        frames = patches(self._random, self.run_schedule.envs, *self.shape.frame[:-2], size=self.shape.size)
        self._frames.append(frames)
        self._of("frame", tick)[:] = frames.reshape(self.run_schedule.lanes, -1, *self.shape.frame)

    def samplable(self, window_end: int) -> list[tuple[int, int]]:
        """(tick, env) of every transition of the window, in order; slow and obvious."""
        oldest = max(0, window_end - self.run_schedule.window_ticks)
        found = []
        for tick in range(oldest, window_end - self.run_schedule.n_step + 1):
            for env in range(self.run_schedule.envs):
                inside = all(t < 0 or t >= oldest for t in range(tick - self.shape.stack + 1, tick + 1))
                if inside and self._slots[tick]["valid"][env]:
                    found.append((tick, env))
        return found

    def transition(self, tick: int, env: int, discount: float = 0.99, *, clip: bool = True) -> Transition:
        """The transition that starts at a valid tick; slow and obvious."""
        slot = self._slots[tick]
        assert slot["valid"][env]
        begin = tick
        while not self._slots[begin]["start"][env]:
            begin -= 1
        rewards, ends = [], False
        for step in range(tick, tick + self.run_schedule.n_step):
            reward = float(self._slots[step]["raw_reward"][env])
            rewards.append(float((reward > 0) - (reward < 0)) if clip else reward)
            ends = bool(self._slots[step]["terminated"][env] or self._slots[step]["life_lost"][env])
            if ends or self._slots[step]["truncated"][env]:
                break
        episode = [self._frames[t][env] for t in range(begin, tick + len(rewards) + 1)]
        stack = self.shape.stack
        blank = [np.zeros(self.shape.frame, np.uint8)] * stack
        return Transition(
            state=np.stack((blank + episode[: tick - begin + 1])[-stack:]),
            next_state=np.stack((blank + episode)[-stack:]),
            action=int(slot["action"][env]),
            reward=sum(discount**i * reward for i, reward in enumerate(rewards)),
            ends=ends,
            length=len(rewards),
        )


def make_algorithm(**settings: object) -> Algorithm:
    """An algorithm of flat settings, those of its method too."""
    return Config().with_settings(**settings).algorithm


def small_config(algorithm: Algorithm | None = None, **learn: object) -> Config:
    """Four envs in two lanes, rounds of 6 ticks, a window of 18 ticks."""
    settings: dict[str, object] = {"total_steps": 10_000, "round_steps": 24, "train_every": 2, "batch_size": 8}
    settings |= {"replay_size": 80, "learning_starts": 24, "network": "small", **learn}
    learning = Learn(**settings)  # type: ignore[arg-type]
    return Config(play=Play(envs=4, lane_envs=2), learn=learning, algorithm=algorithm or Algorithm())


def make_test_engine(played: PlayedRing, config: Config, precision: str = "fp32", replay_on: str = "auto") -> Engine:
    """An engine on the ring, on the CPU, that begins."""
    settings = config.with_settings(seed=3, device="cpu", precision=precision, replay_on=replay_on)
    engine = make_engine(settings, network_of(config, ACTIONS), played.ring)
    engine.load(None)
    return engine


def stored_state(engine: Engine, *others: str) -> dict[str, NDArray[np.float32]]:
    """The vectors of a snapshot, and others that have the length of the parameters."""
    count = parameters_of(engine._online.network).count
    lengths = state_lengths(engine._run_schedule, count) | dict.fromkeys(others, count)
    state = {name: np.zeros(length, np.float32) for name, length in lengths.items()}
    engine.store(state)
    return state
