"""The actions of an episode, kept where only playing them again brings an env back."""

from __future__ import annotations


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
        """An episode begins at `tick`."""
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
