"""The actions of an episode, for envs that only a replay of the actions can restore."""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np

from actors.env import Env, EnvError

_HEAD = struct.Struct("<4sqqI")
_MAGIC = b"RSA3"


class ActionLog:
    """One byte an action, of consecutive ticks from a reset on."""

    def __init__(self) -> None:
        self._reset_tick = self._first_tick = 0
        self._actions = bytearray()

    def __len__(self) -> int:
        return len(self._actions)

    def begin(self, tick: int) -> None:
        """Begin an episode at `tick`."""
        self._reset_tick = tick
        self._actions.clear()

    def append(self, tick: int, action: int) -> None:
        """Note the action of `tick`, which follows that of the tick before."""
        if not self._actions:
            self._first_tick = tick
        self._actions.append(action)

    def snapshot(self, check: int = 0) -> bytes:
        """Bytes for `replay`, with a checksum of the end."""
        return _HEAD.pack(_MAGIC, self._reset_tick, self._first_tick, check) + self._actions


def replay(env: Env, name: str, frame_shape: tuple[int, ...], snapshot: bytes, heartbeat: Callable[[], None]) -> int:
    """Have an env play the episode of a snapshot again, and return the checksum of its end.

    Args:
        name: of the env, for sentences.
        frame_shape: shape of its frames.
        heartbeat: called after every step.

    Raises:
        EnvError: the bytes are no snapshot, or the env has no such action.
    """
    if len(snapshot) < _HEAD.size or snapshot[:4] != _MAGIC:
        raise EnvError(f"The {len(snapshot)} bytes to restore are not a snapshot of {name}.")
    _, reset_tick, first_tick, check = _HEAD.unpack_from(snapshot)
    actions = snapshot[_HEAD.size :]
    if (most := max(actions, default=0)) >= env.actions:
        raise EnvError(f"The episode to play again has the action {most}; there are {env.actions}.")
    frame = np.empty(frame_shape, np.uint8)
    env.reset(reset_tick, frame)
    for tick, action in enumerate(actions, start=first_tick):
        env.step(tick, action, frame)
        heartbeat()
    return check
