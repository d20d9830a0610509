"""Videos: every picture at its time, in its colors; files that cannot be written."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

from ringside.agents.video import GIF_SECONDS, Gif, Mp4, open_moving_picture, palette_of
from shared.errors import ConfigError

COLORS = [(200, 72, 72), (66, 72, 200), (236, 236, 236), (0, 0, 0), (144, 72, 17), (92, 186, 92)]


def picture(number: int) -> np.ndarray:
    """Pixels of 2x2, of colors that say the picture's number."""
    rows = [[COLORS[(number + 5 * y + x) % len(COLORS)] for x in range(16)] for y in range(8)]
    return np.repeat(np.repeat(np.array(rows, np.uint8), 2, axis=0), 2, axis=1)


def decoded(path: Path) -> list[np.ndarray]:
    with av.open(str(path)) as file:
        assert file.streams.video[0].average_rate == 60
        return [frame.to_ndarray(format="rgb24", interpolation="POINT") for frame in file.decode(video=0)]


def test_an_mp4_has_every_picture_in_its_colors(tmp_path: Path) -> None:
    with open_moving_picture(tmp_path / "a.mp4", 60) as file:
        for number in range(60):
            file.add(picture(number))
    frames = decoded(tmp_path / "a.mp4")
    assert (len(frames), file.frames, file.seconds) == (60, 60, 1.0)
    for number, frame in enumerate(frames):
        assert np.abs(frame.astype(int) - picture(number)).mean() < 6
        nearest = min(range(6), key=lambda other: float(np.abs(frame.astype(int) - picture(other)).mean()))
        assert nearest == number % 6


@pytest.mark.parametrize(("source", "given", "kept"), [(30, 10, 20), (120, 10, 5), (15, 4, 16)])
def test_other_rates_repeat_pictures_or_leave_some_out(tmp_path: Path, source: float, given: int, kept: int) -> None:
    with Mp4(tmp_path / "a.mp4", source) as file:
        for number in range(given):
            file.add(picture(number) if file.wanted else None)
    assert len(decoded(tmp_path / "a.mp4")) == kept


def test_a_gif_has_every_third_picture_in_its_very_colors(tmp_path: Path) -> None:
    with open_moving_picture(tmp_path / "a.GIF", 60) as file:
        for number in range(60):
            file.add(picture(number // 6))
    with Image.open(tmp_path / "a.GIF") as gif:
        assert (gif.n_frames, gif.info["loop"]) == (10, 0)
        for number in range(10):
            gif.seek(number)
            assert gif.info["duration"] == 100
            assert np.array_equal(np.asarray(gif.convert("RGB")), picture(number))


def test_a_gif_ends_after_a_minute(tmp_path: Path) -> None:
    with Gif(tmp_path / "a.gif", 20) as file:
        while not file.full:
            file.add(picture(file.frames % 2))
        file.add(picture(0))
    assert file.seconds == GIF_SECONDS
    assert file.frames == 1_200


def test_a_palette_has_the_frequent_colors() -> None:
    pixels = Counter({(40 * i) << 16 | i: 10_000 - i for i in range(5)}) + Counter(range(0, 0xFFFFFF, 20_011))
    palette = palette_of(pixels).getpalette()
    assert palette is not None
    listed = {tuple(palette[i : i + 3]) for i in range(0, len(palette), 3)}
    assert {(40 * i, 0, i) for i in range(5)} <= listed
    assert len(listed) > 200


def test_a_file_that_was_broken_off_is_whole(tmp_path: Path) -> None:
    def broken_off() -> None:
        with Mp4(tmp_path / "a.mp4", 60) as file:
            for number in range(7):
                file.add(picture(number))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken_off()
    assert len(decoded(tmp_path / "a.mp4")) == 7


@pytest.mark.parametrize("suffix", [".mp4", ".gif"])
def test_a_file_that_cannot_be_written(tmp_path: Path, suffix: str) -> None:
    with pytest.raises(ConfigError, match=f"a{suffix} cannot be written: No such file or directory"):
        open_moving_picture(tmp_path / "nowhere" / f"a{suffix}", 60)


@pytest.mark.parametrize("suffix", [".mp4", ".gif"])
def test_a_full_disk_is_a_sentence(tmp_path: Path, suffix: str) -> None:
    (tmp_path / f"a{suffix}").symlink_to("/dev/full")
    noise = np.random.default_rng(0)

    def write() -> None:
        with open_moving_picture(tmp_path / f"a{suffix}", 60) as file:
            for _ in range(100):
                file.add(noise.integers(0, 256, (64, 64, 3), np.uint8))

    with pytest.raises(ConfigError, match=f"a{suffix} cannot be written: No space left on device"):
        write()


def test_nothing_shown_is_no_fault(tmp_path: Path) -> None:
    for suffix in (".mp4", ".gif"):
        with open_moving_picture(tmp_path / f"a{suffix}", 60) as file:
            pass
        assert file.frames == 0


def test_without_its_package_a_video_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(ConfigError, match=r"package av.*run make install, which fills \.venv, or choose \.gif"):
        open_moving_picture(tmp_path / "a.mp4", 60)
