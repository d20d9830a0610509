"""An env whose frames say what they are, for tests of lanes without an emulator."""

import struct
from collections.abc import Callable
from typing import Any

from actors.env import Env, Outcome, Shot


class Counting(Env):
    """Ends after `length` steps, truncates every third episode; a frame's pixels are the steps so far, and `more`."""

    actions = 4
    action_names = ("A", "B", "C", "D")
    screens_per_second = 1.0

    def __init__(self, more: int = 0, length: int = 5) -> None:
        self.count = 0
        self.more, self.length = more, length

    def _draw(self, frame: Any) -> None:
        frame[:] = (self.count + self.more) % 251

    def reset(self, tick: int, frame: Any) -> None:
        self.count += 100 - self.count % 100
        self._draw(frame)

    def step(self, tick: int, action: int, frame: Any) -> Outcome:
        self.count += 1
        self._draw(frame)
        over = self.count % 100 == self.length
        truncated = over and self.count // 100 % 3 == 0
        return Outcome(float(action), over and not truncated, truncated, self.count % 100 == 2)

    def snapshot(self) -> bytes:
        return struct.pack("<q", self.count)

    def restore(self, data: bytes, heartbeat: Callable[[], None] = lambda: None) -> None:
        (self.count,) = struct.unpack("<q", data)

    def film(self, show: Callable[[Shot], None]) -> None:
        raise AssertionError("a lane has no viewer")
