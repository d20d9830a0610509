"""Envs that break a promise of Gymnasium's API, by name: `tests.support.odd_envs:factory@wrong=reward_none`."""

import os
import signal
import sys
import threading
from typing import Any

import numpy as np

from tests.support.pixel_game import FALL, Catch


def _refuse(self: Any, other: object = None) -> Any:
    raise RuntimeError("A Tensor with 2 elements cannot be converted to Scalar")


TENSOR = type("Tensor", (), {"__eq__": _refuse, "__float__": _refuse})()
REWARDS = {"reward_none": None, "reward_text": "1", "reward_nan": float("nan"), "reward_big": np.float32(1.3e34)}
REWARDS |= {"reward_int": 10**400, "reward_tensor": TENSOR}
ENDS = {"end_none": None, "end_text": "no", "end_array": np.zeros(2, bool), "end_tensor": TENSOR}
FOREVER = threading.Event()


class Odd(Catch):
    """Catch with a fault. Its steps are counted over all episodes."""

    def __init__(self, wrong: str) -> None:
        super().__init__()
        self._wrong, self._steps = wrong, 0
        if wrong == "no_spaces":
            del self.observation_space
        if wrong == "bad_space":
            self.action_space = None  # type: ignore[assignment]
        if wrong == "threads":
            threading.Thread(target=FOREVER.wait, daemon=False).start()
        if wrong == "second":
            if FOREVER.is_set():
                raise RuntimeError("The device is taken.")
            FOREVER.set()
        if wrong == "hangs":
            FOREVER.wait()

    @property
    def metadata(self) -> Any:  # type: ignore[override]
        """Decoration."""
        if self._wrong == "metadata":
            raise RuntimeError("There is no metadata.")
        return {"render_fps": "many"} if self._wrong == "pace" else None

    def get_action_meanings(self) -> Any:
        """Decoration."""
        if self._wrong == "names":
            raise KeyError("names")
        return ["left", "stay", "right"]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Begin a fall."""
        observation, info = super().reset(seed=None if self._wrong == "seed" else seed)
        return observation if self._wrong == "old_reset" else (observation, info)

    def step(self, action: Any) -> Any:
        """Move."""
        observation, reward, end, cut, info = super().step(action)
        self._steps += 1
        if self._wrong == "old_step":
            return observation, reward, end, info
        if self._wrong == "ragged":
            return [[1, 2], [3]], reward, end, cut, info
        if self._steps == FALL + 4:
            self._fail()
        return observation, REWARDS.get(self._wrong, reward), ENDS.get(self._wrong, end), cut, info

    def _fail(self) -> None:
        if self._wrong == "raises":
            raise KeyError("no\nsuch key")
        if self._wrong == "exits":
            sys.exit(7)
        if self._wrong == "ends":
            os._exit(7)
        if self._wrong == "crashes":
            os.kill(os.getpid(), signal.SIGSEGV)

    def close(self) -> None:
        """Close, unless that is its fault."""
        if self._wrong == "close":
            threading.Event().wait()


def factory(wrong: str = "nothing") -> Odd:
    """The factory of `--env`."""
    return Odd(wrong)
