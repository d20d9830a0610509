"""The short play of a user's env before a run, in a process that may be lost (ringside/run/checks.py)."""

from __future__ import annotations

import os
import signal
import time
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from setproctitle import setproctitle

from actors.env import EnvError
from shared.errors import EnvFault
from shared.frame_shape import FrameShape
from shared.prng import Stream, randint
from shared.process.signals import STOP_SIGNALS, ignore_requests

if TYPE_CHECKING:  # the launcher, which starts this process, loads no Gymnasium
    from actors.envs.gymnasium_env import GymnasiumEnv

TICKS = 300
PLAY_SECONDS = 10.0
"""Time after which an env that is slow is played no further."""
_ONLY_ONE = (
    "It is not the first one in its process; if that is the reason, pass --lane-envs 1, as many --actors as --envs, "
    "and --eval-envs 1."
)


class EnvSample(NamedTuple):
    """Results of the play in one process."""

    action_names: tuple[str, ...]
    ticks: tuple[int, ...]
    """Checksums of frame, reward and ends of each tick."""
    only_one: str | None
    """Sentence about the second env of this process, if it cannot be made; None: it can."""


def main(connection: Any, env: str, frames: FrameShape) -> None:
    """Play the env. Send the name of each call before it, at last the `EnvSample` or the error that refuses the env.

    The process ends at once, whatever threads the env has left.
    """
    ignore_requests()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    setproctitle("ringside look at the env")
    silent = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(silent, descriptor)
    from actors.envs.gymnasium_env import GymnasiumEnv

    made: list[GymnasiumEnv] = []
    try:
        made.append(GymnasiumEnv(env, seed=1, index=0, frames=frames))
        ticks = _play(made[0], frames, connection.send)
        connection.send("its factory, when called again")
        result = EnvSample(made[0].action_names, ticks, None)
        try:
            made.append(GymnasiumEnv(env, seed=1, index=1, frames=frames))
        except EnvError as error:
            result = result._replace(only_one=f"{error} {_ONLY_ONE}")
        connection.send("close()")
        for each in made:
            each.close()
        connection.send(result)
    except (EnvError, EnvFault) as error:
        connection.send(error)
    os._exit(0)


def _play(env: GymnasiumEnv, frames: FrameShape, tell: Callable[[str], None]) -> tuple[int, ...]:
    """Play for some time from a fixed seed; return the checksums."""
    # A frame of the size of the observations is copied: no kernel needs to be compiled.
    frame = np.empty(env.screen if frames.channels == 1 else (3, *env.screen), np.uint8)
    ticks: list[int] = []
    begun, over = time.monotonic(), True
    while len(ticks) < TICKS and time.monotonic() - begun < PLAY_SECONDS:
        tick, results = len(ticks), ""
        tell("reset()" if over else "step()")
        if over:
            env.reset(tick, frame)
            over = False
        else:
            outcome = env.step(tick, randint(env.actions, 1, Stream.EXPLORE_ACTION, tick), frame)
            results, over = repr(outcome), outcome.terminated or outcome.truncated
        ticks.append(zlib.crc32(frame.tobytes() + results.encode()))
    return tuple(ticks)
