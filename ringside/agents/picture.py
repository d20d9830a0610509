"""Picture of a moment of an episode: the screen, scaled by a whole number, beside the agent's values.

The colors are from Okabe & Ito's palette, which color-blind people tell apart; a mark repeats what a color says.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from ringside.agents.scene import Scene, ValueRange

GROUND = (22, 24, 29)
TEXT = (232, 232, 232)
DIM = (150, 155, 164)
TRACK = (44, 48, 56)
BAR = (86, 180, 233)
CHOSEN = (230, 159, 0)

COMFORTABLE_HEIGHT = 512
"""Default limit of the height of an enlarged screen: Atari's 210 lines become 420."""
_LEAST_HEIGHT = 200
_LINES = 24
"""Lines of text beside a screen."""
_COLUMNS = 13
"""Width of the panel, in heights of its letters."""
_SMALLEST = 8


def comfortable_scale(height: int, most: int = COMFORTABLE_HEIGHT) -> int:
    """Largest whole scale at which a screen of `height` lines stays within `most`."""
    return max(1, most // height)


def enlarge(screen: NDArray[np.uint8], scale: int) -> NDArray[np.uint8]:
    """Enlarge a screen uint8[h, w, 3]: every pixel becomes scale x scale pixels."""
    return np.repeat(np.repeat(screen, scale, axis=0), scale, axis=1)


@cache
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


def _even(length: float) -> int:
    """Round up to an even number: videos halve the resolution of color."""
    return math.ceil(length / 2) * 2


class Painter:
    """Painter of pictures of one size, uint8[height, width, 3]."""

    def __init__(self, height: int, width: int, scale: int) -> None:
        """For screens of `height` x `width`, each pixel `scale` pixels wide and high."""
        self._scale = scale
        self._screen_height, self._screen_width = height * scale, width * scale
        self.height = _even(max(self._screen_height, _LEAST_HEIGHT))
        self._letter = min(max(self.height // _LINES, _SMALLEST), 26)
        self.width = _even(self._screen_width + _COLUMNS * self._letter)
        self._picture = np.empty((self.height, self.width, 3), np.uint8)
        self._picture[:] = GROUND
        self._range = ValueRange()
        self._scene: Scene | None = None

    def paint(self, screen: NDArray[np.uint8], scene: Scene) -> NDArray[np.uint8]:
        """Picture of a moment; the next call overwrites it."""
        self._picture[: self._screen_height, : self._screen_width] = enlarge(screen, self._scale)
        if scene != self._scene:
            self._picture[:, self._screen_width :] = self._panel(scene)
            self._scene = scene
        return self._picture

    def _panel(self, scene: Scene) -> NDArray[np.uint8]:
        """Panel beside the screen: uint8[height, width - screen, 3]."""
        letter, width = self._letter, self.width - self._screen_width
        image = Image.new("RGB", (width, self.height), GROUND)
        draw = ImageDraw.Draw(image)
        margin, line = round(letter * 0.75), round(letter * 1.35)
        right = width - margin
        draw.text((margin, margin), scene.game.replace("_", " "), TEXT, _font(round(letter * 1.2)))
        y = margin + round(line * 1.4)
        for name, value in (
            ("return", f"{scene.total:,.10g}"),
            ("last reward", f"{scene.reward:+,.10g}" if scene.reward else "none"),
            ("step", f"{scene.steps:,}"),
            ("episode", f"{scene.episode:,}"),
        ):
            draw.text((margin, y), name, DIM, _font(letter))
            draw.text((right, y), value, TEXT, _font(letter), anchor="ra")
            y += line
        y += round(line * 0.5)
        chosen = "random" if scene.random else "game over" if scene.over else scene.value_name
        draw.text((margin, y), "action", DIM, _font(letter))
        draw.text((right, y), chosen if scene.values or scene.random or scene.over else "", DIM, _font(letter), "ra")
        self._bars(draw, scene, margin, y + line, right)
        return np.asarray(image)

    def _bars(self, draw: ImageDraw.ImageDraw, scene: Scene, left: int, top: int, right: int) -> None:
        """Draw a row for each action: its mark, name and value above its bar."""
        rows = len(scene.actions)
        row = min((self.height - top - left // 2) / rows, self._letter * 2.1)
        size = max(6, min(self._letter, int(row * 0.62)))
        bar = max(1, round(row * 0.16))
        fractions = self._range.fractions(scene)
        for i, (name, fraction) in enumerate(zip(scene.actions, fractions, strict=True)):
            y, played = top + i * row, i == scene.action
            color = CHOSEN if played else BAR
            if played:
                draw.polygon(
                    [(left - size * 0.55, y + 2), (left - 2, y + size * 0.6), (left - size * 0.55, y + size)], color
                )
            draw.text((left + 2, y), name, color if played else TEXT, _font(size))
            if scene.values:
                draw.text((right, y), f"{scene.values[i]:.3f}", color if played else TEXT, _font(size), anchor="ra")
                below = y + row - bar - max(1, row * 0.12)
                draw.rectangle((left + 2, below, right, below + bar), TRACK)
                draw.rectangle(
                    (left + 2, below, left + 2 + (right - left - 2) * max(fraction, 0.01), below + bar), color
                )


class Montage:
    """Mosaic of episodes, each with its return below: pictures uint8[height, width, 3]."""

    def __init__(self, height: int, width: int, scale: int, places: int) -> None:
        """For `places` screens of `height` x `width`, in a shape of about 16 : 9."""
        self._scale = scale
        self._letter = max(_SMALLEST + 2, height * scale // 18)
        self._screen_height = height * scale
        self._labels: dict[int, tuple[float, bool]] = {}
        self._tile = (self._screen_height + round(self._letter * 1.6), width * scale + 4)
        shape = 16 / 9 * self._tile[0] / self._tile[1]
        self.columns = min(places, max(1, round(math.sqrt(places * shape))))
        rows = math.ceil(places / self.columns)
        self.height, self.width = _even(rows * self._tile[0]), _even(self.columns * self._tile[1])
        self._picture = np.empty((self.height, self.width, 3), np.uint8)
        self._picture[:] = GROUND

    def place(self, place: int, screen: NDArray[np.uint8], scene: Scene) -> None:
        """Put a screen into a place; a screen whose episode is over stays, darkened."""
        top, left = (place // self.columns) * self._tile[0], (place % self.columns) * self._tile[1]
        large = enlarge(screen // 2 if scene.over else screen, self._scale)
        self._picture[top : top + large.shape[0], left + 2 : left + 2 + large.shape[1]] = large
        if self._labels.get(place) != (scene.total, scene.over):
            self._labels[place] = (scene.total, scene.over)
            label = self._label(scene, large.shape[1])
            bottom = top + large.shape[0]
            self._picture[bottom : bottom + label.shape[0], left + 2 : left + 2 + label.shape[1]] = label

    def _label(self, scene: Scene, width: int) -> NDArray[np.uint8]:
        """Label below a screen: number and return of the episode."""
        label = Image.new("RGB", (width, self._tile[0] - self._screen_height), GROUND)
        draw = ImageDraw.Draw(label)
        draw.text((2, 1), f"{scene.episode}", DIM, _font(self._letter))
        text, color = f"{scene.total:,.10g}" + " end" * scene.over, CHOSEN if scene.over else TEXT
        draw.text((width - 2, 1), text, color, _font(self._letter), anchor="ra")
        return np.asarray(label)

    @property
    def picture(self) -> NDArray[np.uint8]:
        """Current picture of all places."""
        return self._picture
