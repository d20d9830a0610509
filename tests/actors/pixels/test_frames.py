"""The frame kernel against OpenCV, on noise, ties and screens with equal rows; and its cache of compiled code."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest

from actors.pixels.frames import area_weights, make_shrinker, pair_table, shrink_area
from shared.frame_shape import SCREEN_WIDTH
from shared.root import ROOT

HEIGHTS = (210, 214, 220, 230, 250)
"""All that occur among the games of ale-py."""
IDENTITY = np.arange(256, dtype=np.uint8)
"""The grays of a screen that is gray already."""


def opencv(gray: np.ndarray) -> np.ndarray:
    """The frame of a pooled gray screen."""
    return np.asarray(cv2.resize(gray, (84, 84), interpolation=cv2.INTER_AREA))


def screens(height: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Two screens: noise of few or many colors, with repeated rows and the second differing in places."""
    rng = np.random.default_rng(seed)
    colors = (256, 2, 3, 17)[seed % 4]
    a = (rng.integers(0, colors, (height, SCREEN_WIDTH)) * (255 // (colors - 1))).astype(np.uint8)
    if seed % 3:
        a = np.repeat(a[:: seed % 7 + 1], seed % 7 + 1, axis=0)[:height].copy()
    b = a.copy()
    if seed % 5:
        b[rng.integers(height), rng.integers(SCREEN_WIDTH) :] = rng.integers(256)
    if seed % 11 == 0:
        b = rng.integers(0, 256, a.shape).astype(np.uint8)
    return a, b


class Emulator:
    """Four screens of some lines in these grays, and their kernel."""

    def __init__(self, height: int, grays: np.ndarray) -> None:
        self.screens = np.zeros((4, height, SCREEN_WIDTH), np.uint8)
        self._shrink = make_shrinker(self.screens, pair_table(grays))

    def frame(self, two: object) -> np.ndarray:
        """The frame of two screens; nothing is written beside its slot."""
        self.screens[:2] = two
        slots = np.full((3, 84, 84), 77, np.uint8)
        self._shrink(slots[1])
        assert (slots[[0, 2]] == 77).all()
        return slots[1]


@pytest.mark.parametrize("height", HEIGHTS)
def test_pooled_and_shrunk_as_opencv_does(height: int) -> None:
    grays = np.random.default_rng(height).permutation(256).astype(np.uint8)
    emulator = Emulator(height, grays)
    for seed in range(120):
        a, b = screens(height, seed)
        assert np.array_equal(emulator.frame((a, b)), opencv(np.maximum(grays[a], grays[b]))), f"seed {seed}"


@pytest.mark.parametrize("height", [210, 250])
def test_halves_fall_as_in_opencv(height: int) -> None:
    """Grays that make many exact halves: every difference of two rows and two columns near them."""
    emulator = Emulator(height, IDENTITY)
    rng = np.random.default_rng(1)
    halves = 0
    for _ in range(60):
        gray = (rng.integers(0, 5, (height, SCREEN_WIDTH)) * 5 + rng.integers(0, 200)).astype(np.uint8)
        exact = weights(height) @ gray.astype(np.float64) @ weights(SCREEN_WIDTH).T
        halves += int((np.abs(exact % 1 - 0.5) < 1e-4).sum())
        assert np.array_equal(emulator.frame(gray), opencv(gray))
    assert halves > 500


def weights(source: int) -> np.ndarray:
    """The exact matrix float64[84, source] of an area average."""
    matrix = area_weights(source, 84).astype(np.float64)
    return np.asarray(matrix / matrix.sum(axis=1, keepdims=True))


@pytest.mark.parametrize("height", HEIGHTS)
def test_unchanged_rows_are_kept_and_no_others(height: int) -> None:
    """Screens of which a little changes at a time: in both, in one, back again, where one row makes two lines."""
    grays = np.random.default_rng(height).permutation(256).astype(np.uint8)
    emulator = Emulator(height, grays)
    rng = np.random.default_rng(7)
    current = np.zeros((2, height, SCREEN_WIDTH), np.uint8)
    seen = [current.copy()]
    for step in range(400):
        match step % 8:
            case 0 | 1 | 2:  # one pixel of both screens
                current[:, rng.integers(height), rng.integers(SCREEN_WIDTH)] = rng.integers(256)
            case 3 | 4:  # one pixel of one screen
                current[rng.integers(2), rng.integers(height), rng.integers(SCREEN_WIDTH)] = rng.integers(256)
            case 5:  # the screens change places
                current = current[::-1].copy()
            case 6:  # nothing
                pass
            case 7:  # all, to what was seen before or to one color
                current = seen[rng.integers(len(seen))].copy() if step % 3 else np.full_like(current, rng.integers(256))
        seen.append(current.copy())
        pooled = np.maximum(*grays[current])
        assert np.array_equal(emulator.frame(current), opencv(pooled)), f"step {step}"
        assert np.array_equal(np.maximum(*grays[emulator.screens[2:]]), pooled)


@pytest.mark.parametrize("height", HEIGHTS)
def test_the_first_screens_may_be_of_one_color(height: int) -> None:
    """Nothing is stale then: the frame that a shrinker begins with must be the right one."""
    for color in (0, 9):
        assert (Emulator(height, IDENTITY[::-1].copy()).frame(color) == 255 - color).all()


@pytest.mark.parametrize("shape", [(84, 84), (96, 96), (400, 600), (100, 84), (210, 160), (42, 28)])
def test_images_of_other_sizes_shrink_as_in_opencv(shape: tuple[int, int]) -> None:
    """A small one is enlarged by area, as OpenCV does not."""
    gray = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    out = np.empty((84, 84), np.uint8)
    shrink_area(gray, out)
    assert np.array_equal(out, opencv(gray) if shape != (42, 28) else gray.repeat(2, axis=0).repeat(3, axis=1))


def test_kernels_are_cached_where_nothing_beside_the_code_or_at_home_can_be_written(tmp_path: Path) -> None:
    """A package folder and a home that cannot be written: the second process loads what the first compiled."""
    package, home, temporary = tmp_path / "package", tmp_path / "home", tmp_path / "temporary"
    for room in ("actors", "learner", "shared", "workers"):
        shutil.copytree(ROOT / room, package / room, ignore=shutil.ignore_patterns("__pycache__"))
    home.mkdir()
    temporary.mkdir()
    # Root may write anywhere, so the test says for `os.access` what an ordinary user would be told.
    program = (
        "import os, sys; real = os.access\n"
        f"os.access = lambda path, mode: str(path).startswith({str(temporary)!r}) and real(path, mode)\n"
        "import learner.replay.sum_tree\n"  # which numba would refuse
        "from actors.pixels.bilinear import compile_kernels\n"
        "from actors.pixels.frames import _pool_and_shrink, is_compiled\n"
        "print(is_compiled())\n"
        "compile_kernels()\n"
        "print(sum(_pool_and_shrink.stats.cache_hits.values()), sum(_pool_and_shrink.stats.cache_misses.values()))"
    )
    environment = {key: value for key, value in os.environ.items() if key not in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME")}
    environment |= {"HOME": str(home), "TMPDIR": str(temporary), "PYTHONPATH": str(package)}
    words, where = [sys.executable, "-B", "-c", program], {"env": environment, "cwd": tmp_path}
    counts = [subprocess.check_output(words, **where, text=True, timeout=100).split() for _ in range(2)]
    assert counts == [["False", "0", "1"], ["True", "1", "0"]]
    assert not list(home.iterdir())
    assert not list(package.rglob("*.nbi"))
