"""Video files, and videos of evaluations: the first episode, the same returns, and no harm by a disk that refuses."""

import errno
import os
from contextlib import redirect_stderr
from pathlib import Path
from unittest.mock import Mock, patch

import av
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from actors.evaluation import Ask
from actors.filming import VideoFile
from shared.config.protocols import EvalRules
from shared.config.sections import Play
from shared.errors import ConfigError
from shared.process.ownership import evaluation_video, require_writable_run
from tests.actors import test_evaluation
from tests.actors.test_evaluation import CATCH
from tests.support.pixel_game import Catch

PONG = Play(game="pong")
COLORS = [(200, 72, 72), (66, 72, 200), (236, 236, 236), (0, 0, 0), (144, 72, 17), (92, 186, 92)]


def picture(number: int) -> NDArray[np.uint8]:
    """Pixels of 2x2, of colors that say the picture's number."""
    rows = [[COLORS[(number + 5 * y + x) % len(COLORS)] for x in range(16)] for y in range(8)]
    return np.repeat(np.repeat(np.array(rows, np.uint8), 2, axis=0), 2, axis=1)


def decoded(path: Path, rate: int = 60) -> list[NDArray[np.uint8]]:
    with av.open(str(path)) as file:
        assert file.streams.video[0].average_rate == rate
        return [frame.to_ndarray(format="rgb24", interpolation="POINT") for frame in file.decode(video=0)]


def written(path: Path, rate: float, pictures: int) -> VideoFile:
    """A finished file of so many pictures."""
    file = VideoFile(path, rate)
    for number in range(pictures):
        file.add(picture(number))
    file.finish()
    return file


def test_an_mp4_has_every_picture_in_its_colors(tmp_path: Path) -> None:
    file = written(tmp_path / "a.mp4", 60, 60)
    frames = decoded(tmp_path / "a.mp4")
    assert (len(frames), file.pictures, file.seconds) == (60, 60, 1.0)
    for number, frame in enumerate(frames):
        assert np.abs(frame.astype(int) - picture(number)).mean() < 6
        nearest = min(range(6), key=lambda other: float(np.abs(frame.astype(int) - picture(other)).mean()))
        assert nearest == number % 6


@pytest.mark.parametrize(("source", "kept", "rate"), [(30, 10, 30), (120, 5, 60), (240, 3, 60), (90, 5, 45)])
def test_a_file_has_60_pictures_a_second_at_most(tmp_path: Path, source: float, kept: int, rate: int) -> None:
    written(tmp_path / "a.mp4", source, 10)
    assert len(decoded(tmp_path / "a.mp4", rate)) == kept


def test_a_gif_has_every_third_picture_in_its_very_colors(tmp_path: Path) -> None:
    file = written(tmp_path / "a.GIF", 60, 60)
    with Image.open(tmp_path / "a.GIF") as gif:
        assert (gif.n_frames, gif.info["loop"], file.seconds) == (20, 0, 1.0)
        for number in range(20):
            gif.seek(number)
            assert gif.info["duration"] == 50
            assert np.array_equal(np.asarray(gif.convert("RGB")), picture(3 * number))


@pytest.mark.parametrize("suffix", [".mp4", ".gif"])
def test_nothing_shown_is_no_fault(tmp_path: Path, suffix: str) -> None:
    written(tmp_path / f"a{suffix}", 60, 0)
    assert [path.name for path in tmp_path.iterdir()] == [f"a{suffix}"]


def ones(draws: NDArray[np.float64], starts: NDArray[np.bool_]) -> NDArray[np.uint8]:
    return np.ones(2, np.uint8)


def play(video: Path | None, ask: Ask = ones, game: Play = PONG) -> list[tuple[float, int]]:
    """Returns and lengths of three episodes in two envs, by default all actions 1."""
    played = test_evaluation.play(EvalRules(0.5, 240), 3, game, 2, ask, video=video)
    return [(episode.total, episode.steps) for episode in played]


@pytest.mark.parametrize(("game", "height", "width"), [(PONG, 420, 320), (CATCH, 336, 336)])
def test_the_first_episode_is_filmed_and_returns_stay(tmp_path: Path, game: Play, height: int, width: int) -> None:
    path = evaluation_video(tmp_path, 7)
    plain, filmed = play(None, game=game), play(path, game=game)
    assert path == tmp_path / "videos" / "evaluation-00007.mp4"
    assert plain == filmed
    frames = decoded(path, 15)
    assert (len(frames), frames[0].shape) == (filmed[0][1], (height, width, 3))
    assert len({frame.tobytes() for frame in frames}) > 1
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_an_env_of_few_screens_a_second_is_filmed_at_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Catch, "metadata", {"render_fps": 0.2})
    play(path := evaluation_video(tmp_path, 0), game=CATCH)
    assert decoded(path, 1)


def test_a_disk_that_refuses_disturbs_no_evaluation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nor does a log on the same full disk."""
    (tmp_path / "videos").touch()
    expected = play(None)
    assert play(evaluation_video(tmp_path, 0)) == expected
    assert capsys.readouterr().err.count("continues without its video") == 1
    with open("/dev/full", "w") as full:
        with redirect_stderr(full):
            assert play(evaluation_video(tmp_path, 0)) == expected
        with pytest.raises(OSError, match="No space left"):
            full.close()  # what was to be said is in its buffer


def test_no_link_in_the_place_of_a_video_is_followed(tmp_path: Path) -> None:
    path, other = evaluation_video(tmp_path, 0), tmp_path / "other"
    other.write_text("mine")
    path.parent.mkdir()
    for link in (path, path.with_name(f"{path.name}.part")):
        link.symlink_to(other)
    with pytest.raises(ConfigError, match="is not a plain file but a symbolic link"):
        require_writable_run(tmp_path, "--resume")
    play(path)
    assert other.read_text() == "mine"
    assert path.is_file()
    assert not path.is_symlink()


def test_a_video_that_cannot_be_finished_leaves_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    encode = VideoFile._encode

    def full(file: VideoFile, frame: object) -> None:
        if frame is None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        encode(file, frame)

    with patch.object(VideoFile, "_encode", full):
        play(path := evaluation_video(tmp_path, 0))
    assert list(path.parent.iterdir()) == []
    assert "No space left" in capsys.readouterr().err


def test_an_episode_that_is_broken_off_leaves_no_video(tmp_path: Path) -> None:
    path, ask = evaluation_video(tmp_path, 0), Mock(side_effect=[np.ones(2, np.uint8)] * 3)
    with pytest.raises(StopIteration):  # at the fourth call
        play(path, ask)
    assert list(path.parent.iterdir()) == []
