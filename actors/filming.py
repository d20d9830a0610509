"""Videos of evaluations: the first episode of each, written beside training by the evaluation actor.

A video is for people. It changes no return, and a disk that refuses it disturbs no evaluation.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from actors.env import Env, Frame, Outcome
from actors.envs.film import Shot
from actors.h264 import H264File
from shared.files.atomic import make_directory
from shared.files.disk_trouble import log_line

QUALITY = 23
"""Small files rather than perfect ones."""
SIDE = 320
"""Least height of a video, in whole multiples of the screen."""


class FilmedEpisode(Env):
    """An env whose first episode becomes a video: one screen a step."""

    def __init__(self, env: Env, path: Path) -> None:
        """Film `env` into `path`, which exists once the episode is over.

        Call `end` for an episode that is cut before the env ends it.
        """
        self._env = env
        self.actions, self.action_names = env.actions, env.action_names
        self.screens_per_second = env.screens_per_second
        self._shots: list[Shot] = []
        self._video: _Video | None = None
        self._path = path
        self._films = False
        """True during the first episode."""
        self._begun = False

    def reset(self, tick: int, frame: Frame) -> None:
        """Reset the env; the second episode ends the film."""
        if self._begun:
            self.end()
        else:
            self._begun = self._films = True
            self._shots = self._env.film()
        self._env.reset(tick, frame)
        self._shots.clear()

    def step(self, tick: int, action: int, frame: Frame) -> Outcome:
        """Step the env, and film the step."""
        outcome = self._env.step(tick, action, frame)
        if self._films and self._shots:
            self._guarded(self._add)
        self._shots.clear()
        if outcome.terminated or outcome.truncated:
            self.end()
        return outcome

    def snapshot(self) -> bytes:
        """The env's snapshot."""
        return self._env.snapshot()

    def restore(self, data: bytes, heartbeat: Callable[[], None] = lambda: None) -> None:
        """Restore the env."""
        self._env.restore(data, heartbeat)

    def film(self) -> list[Shot]:
        """The env's own screens."""
        return self._env.film()

    def close(self) -> None:
        """Close the env, and drop the video of an episode that is not over."""
        if self._video is not None:
            video, self._video = self._video, None
            self._guarded(video.drop)
        self._env.close()

    def _add(self) -> None:
        """Append the last screen of a step; a game shows every emulator frame, which may be several."""
        if self._video is None:
            make_directory(self._path.parent)
            self._video = _Video(self._path, self.screens_per_second / len(self._shots))
        self._video.add(self._shots[-1].screen)

    def end(self) -> None:
        """End the episode: its video gets its name."""
        self._films = False
        if self._video is not None:
            video, self._video = self._video, None
            self._guarded(video.finish)

    def _guarded(self, write: Callable[[], None]) -> None:
        """Call `write`; an error of the disk or the encoder ends the film, not the evaluation."""
        import av

        try:
            write()
        except (OSError, av.FFmpegError) as error:
            self._films, self._video = False, None
            with suppress(OSError):
                part_of(self._path).unlink(missing_ok=True)
            log_line(f"{self._path} could not be written: {error}.")


class _Video:
    """A video that is written to a part file, which gets its name at the end."""

    def __init__(self, path: Path, rate: float) -> None:
        self._path = path
        self._part = part_of(path)
        self._part.unlink(missing_ok=True)  # of a process that was killed
        self._out = open(self._part, "xb")  # noqa: SIM115  (closed by `finish`; x follows no link)
        self._file = H264File(self._out, max(1, round(rate)), QUALITY)

    def add(self, screen: NDArray[np.uint8]) -> None:
        """Append a screen uint8[h, w, 3]."""
        scale = 2 * -(-SIDE // (2 * screen.shape[0]))  # even, as the format asks for
        self._file.add(np.repeat(np.repeat(screen, scale, axis=0), scale, axis=1))

    def finish(self) -> None:
        """Write the rest and give the file its name."""
        self._file.finish()
        self._out.close()
        os.replace(self._part, self._path)

    def drop(self) -> None:
        """Close and remove the part file."""
        self._out.close()
        self._part.unlink()


def part_of(path: Path) -> Path:
    """File of a video that is being written."""
    return path.with_suffix(".part")
