"""Video files: .mp4 by PyAV, which includes its encoder, and .gif by Pillow."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from actors.h264 import ENCODER, H264File
from ringside.agents.picture import Painter, comfortable_scale
from ringside.agents.scene import Canvas, Scene
from shared.errors import ConfigError
from shared.root import INSTALL

VIDEO_RATE = 60.0
"""Pictures a second in a video: every frame of the emulator."""
GIF_RATE = 20.0
"""Pictures a second in a GIF, whose delays are hundredths of a second. Every third frame, so that objects that flicker
every other frame stay visible."""
GIF_SECONDS = 60.0
"""Longest GIF; it is assembled in memory."""
GIF_IS_FULL = "a GIF is not made longer, an .mp4 has no end"

SUFFIXES = (".mp4", ".gif")

QUALITY = 16
"""Rate factor of an .mp4, nearly lossless."""
_COLORS = 255
_EXACT = 191
"""Colors of a GIF that are exact; Atari shows 128 at most, the rest is antialiased text."""


class MovingPicture(ABC):
    """A video file that is written picture by picture, and complete after `__exit__` in any case."""

    rate: float
    """Pictures a second in the file."""

    def __init__(self, path: Path, source_rate: float) -> None:
        """For pictures at `source_rate` a second; the file repeats or drops some to reach its own rate."""
        try:
            self._out = path.open("wb")
        except OSError as error:
            raise _unwritable(path, error) from error
        self.path = path
        self.frames = 0
        self._given = 0
        self._source_rate = source_rate

    @property
    def seconds(self) -> float:
        """Duration of the video."""
        return self.frames / self.rate

    @property
    def full(self) -> bool:
        """True if the file accepts no more pictures."""
        return False

    @property
    def wanted(self) -> bool:
        """True if the file will include the next picture at its rate."""
        return self._due(self._given + 1) > self.frames and not self.full

    def _due(self, given: int) -> int:
        """Number of pictures in the file after `given` pictures."""
        return round(given * self.rate / self._source_rate)

    def add(self, picture: NDArray[np.uint8] | None) -> None:
        """Add a picture uint8[h, w, 3], of even height and width, all of one size; it is copied.

        It may be None unless it is `wanted`.
        """
        self._given += 1
        while self.frames < self._due(self._given) and not self.full:
            assert picture is not None
            try:
                self._write(picture)
            except OSError as error:
                raise _unwritable(self.path, error) from error
            self.frames += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            with self._out:
                self._end()
        except OSError as problem:
            raise _unwritable(self.path, problem) from problem

    @abstractmethod
    def _write(self, picture: NDArray[np.uint8]) -> None: ...

    @abstractmethod
    def _end(self) -> None: ...


def _unwritable(path: Path, error: OSError) -> ConfigError:
    return ConfigError(f"{path} cannot be written: {error.strerror or error}.")


class Mp4(MovingPicture):
    """H.264 in MP4, nearly lossless, in colors that every player shows."""

    rate = VIDEO_RATE

    def __init__(self, path: Path, source_rate: float) -> None:
        try:
            import av
        except ImportError as error:
            raise ConfigError(
                f"{path} needs the package av, which contains the video encoder: run {INSTALL}, or choose .gif."
            ) from error
        if ENCODER not in av.codecs_available:
            raise ConfigError(f"{path} needs an encoder that the installed package av lacks: choose .gif.")
        super().__init__(path, source_rate)
        self._file = H264File(self._out, round(self.rate), QUALITY)

    def _write(self, picture: NDArray[np.uint8]) -> None:
        self._file.add(picture)

    def _end(self) -> None:
        self._file.finish()


class Gif(MovingPicture):
    """A GIF with one palette of 255 colors. Equal pictures become one with a longer delay; each stores only changes."""

    rate = GIF_RATE

    def __init__(self, path: Path, source_rate: float) -> None:
        super().__init__(path, source_rate)
        self._shape: tuple[int, ...] = ()
        self._pictures: list[bytes] = []
        self._milliseconds: list[int] = []
        self._last = b""
        self._pixels: Counter[int] = Counter()

    @property
    def full(self) -> bool:
        return self.seconds >= GIF_SECONDS

    def _write(self, picture: NDArray[np.uint8]) -> None:
        content = picture.tobytes()
        if content != self._last:
            self._last, self._shape = content, picture.shape
            self._pictures.append(zlib.compress(content, 1))
            self._milliseconds.append(0)
            packed = picture.astype(np.uint32) @ np.array([1 << 16, 1 << 8, 1], np.uint32)
            colors, counts = np.unique(packed, return_counts=True)
            self._pixels.update(dict(zip(colors.tolist(), counts.tolist(), strict=True)))
        self._milliseconds[-1] += round(1000 / self.rate)

    def _end(self) -> None:
        if not self._pictures:
            return
        palette = palette_of(self._pixels)

        def images() -> Iterator[Image.Image]:
            for content in self._pictures:
                picture = np.frombuffer(zlib.decompress(content), np.uint8).reshape(self._shape)
                yield Image.fromarray(picture).quantize(palette=palette, dither=Image.Dither.NONE)

        first, *others = images()
        first.save(self._out, "GIF", save_all=True, append_images=others, duration=self._milliseconds, loop=0)


def palette_of(pixels: Counter[int]) -> Image.Image:
    """An image whose palette has the most frequent colors exactly, and close colors for the others.

    Args:
        pixels: count of each color, 0xRRGGBB.
    """
    ranked = np.array([color for color, _ in pixels.most_common()], np.uint32)
    colors = (ranked[:, None] >> np.array([16, 8, 0], np.uint32) & 0xFF).astype(np.uint8)
    exact, others = colors[:_EXACT], colors[_EXACT:]
    palette = exact.tobytes()
    if len(others):
        quantized = Image.fromarray(others[None]).quantize(_COLORS - _EXACT)
        palette += bytes(quantized.getpalette() or [])[: 3 * (_COLORS - _EXACT)]
    image = Image.new("P", (1, 1))
    image.putpalette(palette)
    return image


def open_moving_picture(path: Path, source_rate: float) -> MovingPicture:
    """Open a new file of the kind of its suffix, one of `SUFFIXES`.

    Raises `ConfigError` if the file cannot be written, or its encoder is not installed.
    """
    return (Gif if path.suffix.lower() == ".gif" else Mp4)(path, source_rate)


class VideoCanvas(Canvas):
    """A video file as a canvas: screens beside their panels."""

    def __init__(self, path: Path, source_rate: float, scale: int | None) -> None:
        """As `open_moving_picture`; `scale`: pixels per pixel of the screen, None: for about 500 lines."""
        self.file = open_moving_picture(path, source_rate)
        self._scale = scale
        self._painter: Painter | None = None

    @property
    def closed(self) -> bool:
        return self.file.full

    def show(self, screen: NDArray[np.uint8], scene: Scene) -> None:
        if self._painter is None:
            height, width = screen.shape[:2]
            self._painter = Painter(height, width, self._scale or comfortable_scale(height))
        self.file.add(self._painter.paint(screen, scene) if self.file.wanted else None)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.file.__exit__(kind, error, trace)
