"""Episodes in a terminal: two pixels per character, by the upper half block with foreground and background color.

It sends only characters that changed, at most 30 times a second, and restores the terminal however the show ends.
"""

from __future__ import annotations

import os
from types import TracebackType
from typing import Self, TextIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ringside.agents.picture import BAR, CHOSEN, DIM, GROUND, TEXT
from ringside.agents.scene import Canvas, Pace, Scene, ValueRange

DRAWN_PER_SECOND = 30.0
_HALF = "\u2580"
_PLAIN = "\x1b[0m\x1b[48;2;{};{};{}m".format(*GROUND)
_CLEAR = _PLAIN + "\x1b[2J"
_ENTER = "\x1b[?1049h\x1b[?25l" + _CLEAR
_LEAVE = "\x1b[0m\x1b[?25h\x1b[?1049l"
_PANEL = 30
"""Columns of the panel beside the screen; a narrow terminal has a line below the screen instead."""
_NAME = 13

Row = list[tuple[str, tuple[int, int, int]]]
"""Parts of a line of text with their colors."""


class Terminal(Canvas):
    """A terminal as a canvas."""

    def __init__(self, stream: TextIO, rate: float) -> None:
        """On `stream`, a terminal, with `rate` screens a second."""
        self._stream = stream
        self._pace = Pace(rate, DRAWN_PER_SECOND)
        self._size = (0, 0)
        self._shown: NDArray[np.uint8] | None = None
        self._lines: list[str] = []
        self._range = ValueRange()

    def __enter__(self) -> Self:
        self._stream.write(_ENTER)
        self._stream.flush()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stream.write(_LEAVE)
        self._stream.flush()

    def show(self, screen: NDArray[np.uint8], scene: Scene) -> None:
        if not self._pace.wait() and not scene.over:
            return
        columns, lines = os.get_terminal_size(self._stream.fileno())
        out = []
        if (columns, lines) != self._size:
            self._size, self._shown, self._lines = (columns, lines), None, []
            out.append(_CLEAR)
        has_panel = columns >= 2 * _PANEL
        cells = halves(screen, columns - _PANEL - 1 if has_panel else columns, lines if has_panel else lines - 1)
        out.append(changes(cells, self._shown))
        self._shown = cells
        width = cells.shape[1]
        if has_panel:
            rows = self._panel(scene, lines)
            left, top = width + 3, 1
        else:
            rows, left, top = [brief(scene)], 1, cells.shape[0] + 1
        painted = [paint(row, columns - left + 1) for row in rows]
        for i, line in enumerate(painted):
            if i >= len(self._lines) or line != self._lines[i]:
                out.append(f"\x1b[{top + i};{left}H{_PLAIN}{line}")
        self._lines = painted
        self._stream.write("".join(out) + "\x1b[0m")
        self._stream.flush()

    def _panel(self, scene: Scene, lines: int) -> list[Row]:
        """Panel beside the screen, at most `lines` high."""
        rows: list[Row] = [
            [(scene.game.replace("_", " "), TEXT)],
            [(f"{'return':{_NAME}}", DIM), (f"{scene.total:,.10g}", TEXT)],
            [(f"{'last reward':{_NAME}}", DIM), (f"{scene.reward:+,.10g}" if scene.reward else "none", TEXT)],
            [(f"{'step':{_NAME}}", DIM), (f"{scene.steps:,}", TEXT)],
            [(f"{'episode':{_NAME}}", DIM), (f"{scene.episode:,}", TEXT)],
            [(f"{'action':{_NAME}}", DIM), ("random" if scene.random else "", TEXT)],
        ]
        fractions = self._range.fractions(scene)
        for i, name in enumerate(scene.actions):
            color = CHOSEN if i == scene.action else TEXT
            row: Row = [(f"{'>' if i == scene.action else ' '}{name:{_NAME - 1}}", color)]
            if scene.values:
                bar = "\u2588" * round(1 + 7 * fractions[i])
                row += [(f"{scene.values[i]:7.3f} ", color), (bar, CHOSEN if i == scene.action else BAR)]
            rows.append(row)
        return [*rows[: lines - 1], [("Ctrl-C ends", DIM)]]


def brief(scene: Scene) -> Row:
    """Return, action and step in one line."""
    name = scene.actions[scene.action]
    value_name = scene.value_name.removesuffix("-value")
    value = "" if scene.values is None else f" {value_name} {scene.values[scene.action]:.2f}"
    return [(f"return {scene.total:,.10g}  ", TEXT), (f"{name}{value}  ", CHOSEN), (f"step {scene.steps:,}", DIM)]


def paint(row: Row, width: int) -> str:
    """A line of colored words, truncated or padded to `width` columns."""
    out = []
    for words, (red, green, blue) in row:
        out.append(f"\x1b[38;2;{red};{green};{blue}m{words[: max(0, width)]}")
        width -= len(words)
    return "".join(out) + " " * width


def halves(screen: NDArray[np.uint8], columns: int, lines: int) -> NDArray[np.uint8]:
    """A screen uint8[h, w, 3] shrunk by area to fit: characters uint8[rows, width, 6], upper and lower color each."""
    height, width = screen.shape[:2]
    rows = max(1, min(lines, columns * height // width // 2))
    across = max(1, min(columns, round(2 * rows * width / height)))
    small = np.asarray(Image.fromarray(screen).resize((across, 2 * rows), Image.Resampling.BOX))
    return np.concatenate([small[0::2], small[1::2]], axis=2)


def changes(cells: NDArray[np.uint8], before: NDArray[np.uint8] | None) -> str:
    """Escape sequences that turn a terminal with `before` (None: empty) into one with `cells`, from the upper left."""
    changed = np.ones(cells.shape[:2], bool)
    if before is not None and before.shape == cells.shape:
        changed = (cells != before).any(axis=2)
    out = []
    for y in np.flatnonzero(changed.any(axis=1)).tolist():
        at, colors = -1, None
        for x in np.flatnonzero(changed[y]).tolist():
            if x != at:
                out.append(f"\x1b[{y + 1};{x + 1}H")
            cell = tuple(cells[y, x].tolist())
            if cell != colors:
                out.append("\x1b[38;2;{};{};{};48;2;{};{};{}m".format(*cell))
                colors = cell
            out.append(_HALF)
            at = x + 1
    return "".join(out)
