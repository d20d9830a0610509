"""The interface of an environment, as an actor uses it; make_env.py makes one.

An env has no random generator: every random number is a function of the seed, the env's global index and the tick
(shared/prng.py). So a tick played again gives the same result.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shared.errors import ConfigError

Frame: TypeAlias = NDArray[np.uint8]
"""uint8[size, size], or [3, size, size] in color, C-contiguous: one ring slot's frame, written in place."""


class EnvError(ConfigError):
    """An environment that cannot be made or cannot continue. The message is a sentence for the user."""


class EnvDiffers(EnvError):
    """An episode that was played again with the same seed and actions, and came out otherwise."""


class Shot(NamedTuple):
    """One screen, as a person would see it. Training never asks for it, so it costs training nothing."""

    screen: NDArray[np.uint8]
    """uint8[height, width, 3], RGB, in the env's own size."""
    reward: float
    """Unclipped reward that came with it."""


class Outcome(NamedTuple):
    """Outcome of one step, without its frame."""

    raw_reward: float
    """Unclipped reward, summed over the step's emulator frames."""
    terminated: bool
    """The game is over."""
    truncated: bool
    """The episode was cut, by its longest length or by the environment."""
    life_lost: bool
    """A life was lost and the protocol ends the return there; only in training."""


class Env(ABC):
    """One environment with its preprocessing."""

    actions: int
    """Size of the action set; actions are 0 ... actions - 1."""
    action_names: tuple[str, ...]
    """Names of the actions, in their order."""
    screens_per_second: float
    """Screens a second when a person watches."""

    @abstractmethod
    def reset(self, tick: int, frame: Frame) -> None:
        """Begin an episode at `tick` and write its first frame."""

    @abstractmethod
    def step(self, tick: int, action: int, frame: Frame) -> Outcome:
        """Take one agent step and write the observation that follows it; at an end, the episode's last one."""

    @abstractmethod
    def snapshot(self) -> bytes:
        """State from which `restore` continues this episode bit for bit; `SNAPSHOT_BYTES` at most.

        That bound is in `shared.memory.snapshot`.
        """

    @abstractmethod
    def restore(self, data: bytes, heartbeat: Callable[[], None] = lambda: None) -> None:
        """Continue where `snapshot` was taken, in this or another process. Raises `EnvError` for foreign bytes.

        Some envs play the episode again, and call `heartbeat` after every step. These raise `EnvDiffers` if it comes
        out otherwise, or if there is no snapshot.
        """

    def close(self) -> None:  # noqa: B027  (most hold nothing)
        """Give back what the environment holds beside memory; it is not played again."""

    @abstractmethod
    def film(self, show: Callable[[Shot], None]) -> None:
        """Call `show` with every screen from now on."""
