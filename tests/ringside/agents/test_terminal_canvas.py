"""Episodes in a terminal, as a terminal of a given size would show them."""

from __future__ import annotations

import fcntl
import os
import re
import struct
import termios
import threading
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

from ringside.agents.scene import Scene
from ringside.agents.terminal import Terminal, brief, changes, halves, paint

NAMES = ("NOOP", "FIRE", "RIGHT", "LEFT")
SCENE = Scene("breakout", 3, 120, 7.0, 1.0, NAMES, 2, False, (0.1, 0.2, 0.4, 0.3))
SCREEN = np.random.default_rng(0).integers(0, 256, (210, 160, 3), np.uint8)
_TOKEN = re.compile(r"\x1b\[([?\d;]*)([A-Za-z])|(.)", re.DOTALL)


class Glass:
    """Contents of a terminal: characters, and the colors of half blocks."""

    def __init__(self, lines: int, columns: int) -> None:
        self.words = [[" "] * columns for _ in range(lines)]
        self.cells = np.zeros((lines, columns, 6), np.uint8)
        self._y = self._x = 0
        self._colors = [0] * 6

    def write(self, text: str) -> None:
        for match in _TOKEN.finditer(text):
            numbers, command, letter = match.groups()
            if letter:
                self.words[self._y][self._x] = letter
                self.cells[self._y, self._x] = self._colors
                self._x += 1
            elif command == "H":
                y, x = map(int, numbers.split(";"))
                self._y, self._x = y - 1, x - 1
            elif command == "J":
                self.words = [[" "] * len(row) for row in self.words]
            elif command == "m":
                self._color(numbers)

    def _color(self, numbers: str) -> None:
        parts = [int(number or 0) for number in numbers.split(";")]
        while parts and parts[0] in (38, 48):
            place = 0 if parts[0] == 38 else 3
            self._colors[place : place + 3] = parts[2:5]
            parts = parts[5:]

    @property
    def text(self) -> list[str]:
        return ["".join(row).rstrip() for row in self.words]


class Person:
    """Reads a terminal as fast as it is written, and changes its size."""

    def __init__(self) -> None:
        self._mine, self._program = os.openpty()
        self.stream = os.fdopen(self._program, "w", encoding="utf-8")
        self._read = b""
        self._reader = threading.Thread(target=self._look, daemon=True)
        self._reader.start()

    def _look(self) -> None:
        with suppress(OSError):  # the program has closed it
            while data := os.read(self._mine, 1 << 16):
                self._read += data

    def resize(self, lines: int, columns: int) -> None:
        fcntl.ioctl(self._program, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def seen(self) -> str:
        """All that was written, when the program has closed its end."""
        self.stream.close()
        self._reader.join(20)
        assert not self._reader.is_alive()
        os.close(self._mine)
        return self._read.decode()


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (30, 50), (200, 60), (5, 3), (1, 1)])
def test_a_screen_fits_into_the_characters(columns: int, lines: int) -> None:
    cells = halves(SCREEN, columns, lines)
    rows, across, colors = cells.shape
    assert (rows <= lines, across <= columns, colors) == (True, True, 6)
    if columns >= 30:
        assert 2 * rows / across == pytest.approx(210 / 160, rel=0.1)
    assert cells[..., :3].mean() == pytest.approx(SCREEN.mean(), abs=20)


def test_halves_are_upper_and_lower_colors() -> None:
    screen = np.zeros((4, 2, 3), np.uint8)
    screen[0], screen[3] = (255, 0, 0), (0, 0, 255)
    assert halves(screen, 2, 2).tolist() == [[[255, 0, 0, 0, 0, 0]] * 2, [[0, 0, 0, 0, 0, 255]] * 2]


def test_only_what_changed_is_sent_and_that_suffices() -> None:
    rng = np.random.default_rng(1)
    glass = Glass(12, 20)
    before = None
    cells = rng.integers(0, 256, (12, 20, 6), np.uint8)
    for share in (1.0, 0.3, 0.01, 0.0, 1.0):
        where = rng.random((12, 20)) < share
        cells = np.where(where[..., None], rng.integers(0, 256, cells.shape, np.uint8), cells)
        sent = changes(cells, before)
        glass.write(sent)
        assert np.array_equal(glass.cells, cells)
        before = cells
        assert (sent.count("\u2580") < 240) == (share < 1)
    assert changes(cells, cells) == ""


def test_words_are_cut_to_the_width() -> None:
    assert re.sub(r"\x1b\[[\d;]*m", "", paint([("return ", (1, 2, 3)), ("1,234", (4, 5, 6))], 9)) == "return 1,"
    assert re.sub(r"\x1b\[[\d;]*m", "", paint(brief(SCENE), 60)).rstrip() == "return 7  RIGHT Q 0.40  step 120"
    sampled = paint(brief(replace(SCENE, has_policy=True)), 60)
    assert re.sub(r"\x1b\[[\d;]*m", "", sampled).rstrip() == "return 7  RIGHT probability 0.40  step 120"


def test_it_follows_the_size_of_the_terminal_and_leaves_it_as_it_was() -> None:
    person = Person()
    with Terminal(person.stream, 1e9) as canvas:
        person.resize(24, 80)
        canvas.show(SCREEN, SCENE)
        person.resize(10, 40)
        canvas.show(SCREEN, replace(SCENE, over=True))
    written = person.seen()
    assert written.startswith("\x1b[?1049h\x1b[?25l")
    assert written.endswith("\x1b[?25h\x1b[?1049l")
    _, large, small = written.removesuffix("\x1b[?25h\x1b[?1049l").split("\x1b[2J")[-3:]

    glass = Glass(24, 80)
    glass.write(large)
    text = "\n".join(glass.text)
    assert "breakout" in text
    assert re.search(r"return +7\n", text)
    assert re.search(r">RIGHT +0\.400 \u2588+", text)
    assert glass.text[0].count("\u2580") == halves(SCREEN, 49, 24).shape[1]

    glass = Glass(10, 40)
    glass.write(small)
    assert glass.text[9].startswith("return 7  RIGHT Q 0.40")
    assert all(line.count("\u2580") == 14 for line in glass.text[:9])
