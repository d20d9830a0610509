"""A look at a user's env before a run: two fresh processes play it from the same seed, with the same actions.

It finds what would end the run, and whether the env repeats itself. The launcher itself never makes the env: its code
could keep the launcher from ending.
"""

from __future__ import annotations

import signal
import sys
import time
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import cache

import multiprocess

from actors import env_trial
from actors.env import EnvError
from actors.env_trial import EnvSample
from actors.make_env import action_names
from ringside.run.deaths import signal_name
from ringside.run.spawning import ChildProcess, require_main_guard
from shared.config.sections import Play
from shared.config.settings import ResolvedConfig
from shared.errors import ConfigError
from shared.frame_shape import FrameShape
from shared.machine.subprocesses import REAP_SECONDS, wait_for_end
from shared.process.library_env import pinned_thread_env
from shared.process.signals import STOP_SIGNALS
from shared.text import printable

LIMIT_SECONDS = 60.0
NOTE_SECONDS = 5.0
"""Time after which the user is told what the command waits for."""
_POLL_SECONDS = 0.2


@dataclass(frozen=True)
class EnvLook:
    """Findings of a look."""

    action_names: tuple[str, ...]
    repeats: bool
    """True if both processes saw equal frames, rewards and ends."""
    only_one: str | None
    """Sentence about the second env of a process, if it cannot be made; None: it can."""


def action_names_of(play: Play) -> tuple[str, ...]:
    """Names of the actions. Raises `EnvError` if the game is unknown, or the look refuses the env."""
    return action_names(play) if play.env is None else look_at(play.env, play.frames).action_names


def require_env_fits(config: ResolvedConfig) -> None:
    """Raise `ConfigError` if a process of the run would make several envs, and only one can be made."""
    play = config.play
    if play.env is None or (only_one := look_at(play.env, play.frames).only_one) is None:
        return
    evaluates = config.evaluate.eval_every_steps and config.evaluate.eval_envs > 1
    if evaluates or play.emulators > config.machine.actors:
        raise ConfigError(only_one)


@cache
def look_at(env: str, frames: FrameShape) -> EnvLook:
    """Look at an env, once in the life of this process.

    Raises:
        EnvError: the env cannot be used.
    """
    require_main_guard()
    begun = time.monotonic()
    with ExitStack() as held:
        trials = [held.enter_context(closing(_Trial(env, frames))) for _ in range(2)]
        first, second = (trial.sample(begun) for trial in trials)
    common = min(len(first.ticks), len(second.ticks))
    same = first.ticks[:common] == second.ticks[:common] and first.action_names == second.action_names
    return EnvLook(first.action_names, same, first.only_one)


class _Trial:
    """A process that plays an env for some time."""

    def __init__(self, env: str, frames: FrameShape) -> None:
        """Start it."""
        self._env, self._call = env, "its import, or its factory"
        self._connection, theirs = multiprocess.Pipe(duplex=False)
        self._process = ChildProcess(target=env_trial.main, args=(theirs, env, frames), daemon=True)
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)  # until it ignores them
        try:
            with pinned_thread_env():
                self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            theirs.close()

    def sample(self, begun: float) -> EnvSample:
        """Result of the process. Raises `EnvError` if the env cannot be used, or does not return."""
        noted = time.monotonic() > begun + NOTE_SECONDS  # by the other trial
        while True:
            ended = self._process.exitcode is not None  # processes that it has started may hold its pipe
            if self._connection.poll(_POLL_SECONDS):
                try:
                    message = self._connection.recv()
                except EOFError:
                    raise self._lost() from None
                if isinstance(message, EnvSample):
                    return message
                if not isinstance(message, str):
                    raise EnvError(str(message)) from message
                self._call = message
            elif ended:
                raise self._lost()
            elapsed, limit = time.monotonic() - begun, f"{LIMIT_SECONDS:.0f} s"
            if elapsed > NOTE_SECONDS and not noted:
                noted = True
                text = f"Playing --env {self._env} before the start, for {limit} at most ..."
                print(printable(text), file=sys.stderr)
            if elapsed > LIMIT_SECONDS:
                raise EnvError(f"--env {self._env} did not return from {self._call} within {limit}.")

    def _lost(self) -> EnvError:
        """The error of a process that ended without a result."""
        wait_for_end(self._process, REAP_SECONDS)
        code = self._process.exitcode or 0
        how = f"was killed by {signal_name(-code)}" if code < 0 else f"ended with code {code}"
        return EnvError(f"The process of --env {self._env} {how} in {self._call}: its code must not end the program.")

    def close(self) -> None:
        """Leave nothing of it behind."""
        self._process.kill()
        if wait_for_end(self._process, REAP_SECONDS):
            self._process.join()
        self._connection.close()
