"""The slow, obvious way to play: Gymnasium's own wrapper over Gymnasium's own environment, told what we draw."""

from types import SimpleNamespace
from typing import Any

import numpy as np
from ale_py.env import AtariEnv as GymnasiumAtari
from gymnasium.wrappers import AtariPreprocessing
from numpy.typing import NDArray

from actors.envs.atari import AtariEnv
from shared.config.protocols import Protocol
from shared.config.sections import FRAME_SKIP
from shared.prng import Stream, bits, randint


class _Scripted(GymnasiumAtari):
    """Plays one emulator frame a step, with the no-ops, FIRE and sticky actions that the protocol and our draws say."""

    def __init__(self, game: str, protocol: Protocol) -> None:
        options: dict[str, Any] = {"frameskip": 1, "repeat_action_probability": 0.0, "full_action_space": True}
        options |= {"obs_type": "grayscale", "max_num_frames_per_episode": protocol.longest_episode_frames}
        super().__init__(game, **options)
        self._sticky, self._least = protocol.sticky, protocol.noop_min
        self.opening: list[int] = []
        self.draws = 0

    def reset(self, **arguments: Any) -> Any:
        result = super().reset(**arguments)
        noops = len(self.opening)

        def chosen(low: int, high: int) -> int:
            assert (low if self._least else 0) <= noops < high
            return noops

        self._np_random = SimpleNamespace(integers=chosen)
        return result

    def step(self, action: Any) -> Any:
        if self.opening:
            self._executed = self.opening.pop(0)
        elif self.draws % 65_536 >= self._sticky * 65_536:
            self._executed = action
        self.draws //= 65_536
        return super().step(self._executed)


class Reference:
    """Gymnasium under `protocol`, with the episodes that (seed, index, tick) say."""

    def __init__(self, env: AtariEnv, protocol: Protocol, seed: int, index: int, size: int) -> None:
        """The game and the actions are those of `env`."""
        self._protocol, self._counters = protocol, (seed, index)
        self._fires = protocol.fire_on_reset and 1 in env.numbers
        self._emulator = _Scripted(env.game, protocol)
        legal = [action.value for action in self._emulator.ale.getLegalActionSet()]
        self._indices = [legal.index(number) for number in env.numbers]
        noop_max = protocol.noop_max + self._fires
        self._env = AtariPreprocessing(self._emulator, noop_max=noop_max, frame_skip=FRAME_SKIP, screen_size=size)

    def reset(self, tick: int) -> tuple[NDArray[np.uint8], int]:
        """First frame and lives. After tick 0 the game is loaded anew, with another seed of the emulator's."""
        seed, index = self._counters
        least, most = self._protocol.noop_min, self._protocol.noop_max
        noops = least + randint(most + 1 - least, seed, Stream.NOOPS, index, tick) if most else 0
        self._emulator.opening = [0] * noops + [1] * self._fires
        self._emulator._executed = self._emulator.opening[-1] if self._emulator.opening else 0
        frame, _ = self._env.reset(seed=tick or None)
        return frame, self._emulator.ale.lives()

    def step(self, tick: int, action: int) -> tuple[NDArray[np.uint8], float, bool, bool, int]:
        """Frame, reward, terminated, truncated, lives."""
        seed, index = self._counters
        self._emulator.draws = bits(seed, Stream.STICKY, index, tick)
        frame, reward, terminated, truncated, info = self._env.step(self._indices[action])
        return frame, float(reward), terminated, truncated, info["lives"]


def compare(game: str, protocol: Protocol, steps: int, *, reset_every: int, size: int = 84) -> int:
    """Play `steps` random steps here and there, assert that nothing differs, and return how many episodes ended.

    The env also resets after `reset_every` steps of an episode, so that every game is seen to reset.
    """
    seed, index = 7, 3
    env = AtariEnv(game, protocol, seed, index, training=True, size=size)
    reference = Reference(env, protocol, seed, index, size)
    chooser = np.random.default_rng(seed)
    frame = np.zeros((size, size), np.uint8)
    ends, played, over = 0, 0, True
    for tick in range(steps):
        if over or played == reset_every:
            env.reset(tick, frame)
            expected, lives = reference.reset(tick)
            assert np.array_equal(frame, expected), f"{game}: the frame of the reset at tick {tick} differs."
            assert env.lives == lives
            over, played = False, 0
            continue
        action, before = int(chooser.integers(env.actions)), env.lives
        outcome = env.step(tick, action, frame)
        expected, reward, terminated, truncated, lives = reference.step(tick, action)
        place = f"{game}, tick {tick}, step {played} of the episode"
        assert (*outcome[:3], env.lives) == (reward, terminated, truncated, lives), place
        assert outcome.life_lost == (protocol.life_ends_return and lives < before), place
        assert np.array_equal(frame, expected), f"{place}: {(frame != expected).sum()} pixels differ."
        over = terminated or truncated
        ends += over
        played += 1
    return ends
