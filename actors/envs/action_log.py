"""The actions of an episode, for envs that only a replay of the actions can restore."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from actors.env import Env, EnvError


class ActionLog:
    """One byte an action, of consecutive ticks.

    Attributes:
        reset_tick: the tick at which the episode began.
        first_tick: the tick of its first action.
        actions: the actions so far.
    """

    def __init__(self) -> None:
        self.reset_tick = 0
        self.first_tick = 0
        self.actions = bytearray()

    def __len__(self) -> int:
        return len(self.actions)

    def begin(self, tick: int) -> None:
        """Begin an episode at `tick`."""
        self.reset_tick = tick
        self.actions.clear()

    def append(self, tick: int, action: int) -> None:
        """Note the action of `tick`. Raises `ValueError` when a tick was left out: the replay would be another."""
        if not self.actions:
            self.first_tick = tick
        elif tick != self.first_tick + len(self.actions):
            raise ValueError(
                f"Tick {tick} does not follow tick {self.first_tick + len(self.actions) - 1} of the episode."
            )
        self.actions.append(action)


def replay(
    env: Env,
    frame_shape: tuple[int, ...],
    reset_tick: int,
    first_tick: int,
    actions: bytes,
    heartbeat: Callable[[], None],
) -> None:
    """Have an env play an episode again.

    Args:
        frame_shape: shape of its frames.
        reset_tick, first_tick, actions: as in `ActionLog`.
        heartbeat: called after every step.

    Raises:
        EnvError: the env has no such action.
    """
    if (most := max(actions, default=0)) >= env.actions:
        raise EnvError(f"The episode to play again has the action {most}; there are {env.actions}.")
    frame = np.empty(frame_shape, np.uint8)
    env.reset(reset_tick, frame)
    for tick, action in enumerate(actions, start=first_tick):
        env.step(tick, action, frame)
        heartbeat()
