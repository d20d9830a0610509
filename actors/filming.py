"""Video files by PyAV, which includes its encoders, and the videos of evaluations."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from actors.env import Env, Shot
from shared.errors import ConfigError, require
from shared.files.atomic import make_directory
from shared.files.disk_trouble import log_line

MOST_RATE = {".mp4": 60.0, ".gif": 20.0}
"""Most pictures a second, by suffix. A GIF of a game has every third frame: what flickers every other one is seen."""
_H264 = {"crf": "16", "preset": "veryfast", "tune": "animation"}
_BT709, _LIMITED = 1, 1
SIDE = 320
"""Least height of the video of an evaluation, in whole multiples of the screen."""


def require_format(video: Path) -> None:
    """Refuse a video that has no suffix of `MOST_RATE`, with a `ConfigError`."""
    if video.suffix.lower() not in MOST_RATE:
        kinds = " and ".join(MOST_RATE)
        raise ConfigError(f"--video {video}: the suffix says the format; choose one of {kinds}.")


class VideoFile:
    """A video that is written picture by picture to a part file, which gets its name at the end.

    An .mp4 is H.264, nearly lossless, in colors that every player shows. A .gif has a palette for each picture. An
    error of the disk or the encoder raises `ConfigError`, and leaves no file.
    """

    def __init__(self, path: Path, rate: float) -> None:
        """Begin the file. Raises `ConfigError` also if PyAV is not installed.

        Args:
            path: with a suffix of `MOST_RATE`.
            rate: pictures a second of those that are added. The file leaves some out beyond its most.
        """
        require("A video", "video", "av")
        import av

        self._av, self._path, self._part = av, path, path.with_name(f"{path.name}.part")
        self._kind = path.suffix.lower()
        self._each = math.ceil(rate / MOST_RATE[self._kind])
        self._period = Fraction(1, max(1, round(rate / self._each)))
        self._stream: Any = None
        self._added, self._dropped = 0, False
        self.pictures = 0
        """Pictures in the file."""
        with self._dropped_on_error():
            self._part.unlink(missing_ok=True)  # of a process that was killed
            # FFmpeg's own file access crashes the process on a full disk (av 18.1). x follows no link.
            self._out = open(self._part, "xb")  # noqa: SIM115  (closed by `finish` or `drop`)
            self._file: Any = av.open(self._out, "w", format=self._kind[1:])

    @property
    def seconds(self) -> float:
        """Duration of the video."""
        return float(self.pictures * self._period)

    def add(self, picture: NDArray[np.uint8]) -> None:
        """Append a picture uint8[h, w, 3], of even height and width, all of one size; it is copied."""
        self._added += 1
        if (self._added - 1) % self._each:
            return
        with self._dropped_on_error():
            if self._stream is None:
                self._begin(*picture.shape[:2])
            frame = self._av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb24")
            frame.pts, frame.time_base = self.pictures, self._period
            self._encode(frame)
        self.pictures += 1

    def _begin(self, height: int, width: int) -> None:
        """Begin the stream, and the graph of filters from pictures to the pixels of its encoder."""
        self._stream = self._file.add_stream("gif" if self._kind == ".gif" else "libx264", rate=1 / self._period)
        context: Any = self._stream.codec_context
        context.height, context.width, context.time_base = height, width, self._period
        graph: Any = self._av.filter.Graph()
        source = graph.add_buffer(width=width, height=height, format="rgb24", time_base=self._period)
        if self._kind == ".gif":
            context.pix_fmt = "pal8"
            split, palette = graph.add("split"), graph.add("palettegen", "stats_mode=single")
            last = graph.add("paletteuse", "new=1:dither=none")
            graph.link_nodes(source, split, palette)
            split.link_to(last, 1, 0)
            palette.link_to(last, 0, 1)
        else:
            context.pix_fmt, context.options, context.thread_count = "yuv420p", _H264, 1
            context.colorspace = context.color_primaries = context.color_trc = _BT709
            context.color_range = _LIMITED
            # Two by two pixels share a color: that of one pixel of the game if the scale is even.
            last = graph.add("format", "yuv420p")
            graph.link_nodes(source, graph.add("scale", "flags=area:out_color_matrix=bt709:out_range=tv"), last)
        graph.link_nodes(last, graph.add("buffersink"))
        graph.configure()
        self._graph = graph

    def _encode(self, frame: Any) -> None:
        """Encode a frame, or with None the rest."""
        self._graph.vpush(frame)
        with suppress(self._av.BlockingIOError, self._av.EOFError):
            while True:
                self._file.mux(self._stream.encode(self._graph.vpull()))
        if frame is None:
            self._file.mux(self._stream.encode(None))

    def finish(self) -> None:
        """Write the rest and give the file its name; nothing, if the file was dropped."""
        if self._dropped:
            return
        with self._dropped_on_error():
            with closing(self._out), closing(self._file):
                if self._stream is not None:
                    self._encode(None)
            os.replace(self._part, self._path)

    def drop(self) -> None:
        """Remove the part file; whatever is written to it yet goes nowhere."""
        self._dropped = True
        with suppress(OSError):
            self._part.unlink(missing_ok=True)

    @contextmanager
    def _dropped_on_error(self) -> Iterator[None]:
        """Let an error of the disk or the encoder drop the file and become a sentence."""
        try:
            yield
        except (OSError, self._av.FFmpegError) as error:
            self.drop()
            raise ConfigError(f"The video {self._path} cannot be written: {error.strerror or error}.") from error


def enlarge(screen: NDArray[np.uint8], scale: int) -> NDArray[np.uint8]:
    """Enlarge a screen uint8[h, w, 3]: every pixel becomes scale x scale pixels."""
    return np.repeat(np.repeat(screen, scale, axis=0), scale, axis=1)


class FilmedEpisode:
    """The first episode of an env as a video, one screen a step: the evaluation actor writes it beside training.

    A video is for people. It changes no return, and a disk that refuses it disturbs no evaluation.
    """

    def __init__(self, env: Env, path: Path) -> None:
        """Film `env` into `path`, which exists once the episode is over."""
        self._path, self._rate = path, env.screens_per_second
        self._shots: list[Shot] = []
        self._video: VideoFile | None = None
        self._films = True
        env.film(self._shots.append)

    def after_step(self, *, over: bool) -> None:
        """Append the last screen of a step; a game shows every emulator frame, which may be several."""
        if self._films:
            self._films = not over
            try:
                if self._video is None:
                    make_directory(self._path.parent)
                    self._video = VideoFile(self._path, self._rate / len(self._shots))
                screen = self._shots[-1].screen
                self._video.add(enlarge(screen, 2 * -(-SIDE // (2 * screen.shape[0]))))  # even, as the format asks for
                if over:
                    self._video.finish()
            except (ConfigError, OSError) as error:
                self._films = False
                log_line(f"The evaluation continues without its video. {error}")
        self._shots.clear()

    def close(self) -> None:
        """Drop the video of an episode that is not over."""
        if self._films and self._video is not None:
            self._video.drop()
