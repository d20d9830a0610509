"""Gymnasium environments in the place of a game."""

import sys
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import Mock, patch

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiBinary

from actors.env import Env, EnvDiffers, EnvError
from actors.envs import gymnasium_env as module
from actors.envs.gymnasium_env import GymnasiumEnv
from actors.make_env import make_env, registered
from shared.config.sections import Play
from shared.frame_shape import DEFAULT_FRAMES, FRAME_SIDE, FrameShape
from shared.memory.snapshot import SNAPSHOT_BYTES
from tests.support.pixel_game import FALL, Catch

CATCH = "tests.support.pixel_game:factory"


def names(env: str) -> tuple[str, ...]:
    """Names of the actions of an env."""
    with closing(make_env(Play(env=env), 1, 0, training=True)) as made:
        return made.action_names


def test_the_games_of_ale_py_are_registered() -> None:
    with closing(make_env(Play(env="ALE/Pong-v5"), 1, 0, training=True)) as env:
        assert opened(env).any()
        assert env.action_names[:2] == ("NOOP", "FIRE")
    assert registered("ALE/Pong-v5")
    assert not registered("ALE/NoSuchGame-v5")


class Painted(gymnasium.Env[Any, Any]):
    """Shows noise drawn from the seed; every `wrong` breaks one promise."""

    def __init__(self, shape: tuple[int, ...] = (96, 96, 3), actions: Any = None, wrong: str = "") -> None:
        self.observation_space = Box(0, 255, shape, np.uint8)
        self.action_space = actions or Discrete(3, start=4)
        self.wrong, self.taken = wrong, list[int]()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=None if self.wrong == "seed" else seed)
        return self._image(), {}

    def step(self, action: Any) -> Any:
        self.taken.append(action)
        return self._image(), 1.5, False, False, {}

    def _image(self) -> Any:
        image = self.np_random.integers(0, 256, self.observation_space.shape).astype(np.uint8)
        return {"shape": image[1:], "dtype": image.astype(np.float32)}.get(self.wrong, image)


@pytest.fixture
def painted(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module whose functions `--env painted:NAME` may name."""
    monkeypatch.setitem(sys.modules, "painted", made := ModuleType("painted"))
    return made


def test_an_env_that_cannot_be_closed_hides_nothing(painted: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    with patch.object(Painted, "close", side_effect=RuntimeError("The window is gone.")):
        make(painted).close()
        with pytest.raises(EnvError, match="images are needed"):
            make(painted, shape=(96, 96, 2))
    said = "An environment could not be closed: RuntimeError: The window is gone.\n"
    assert capsys.readouterr().err == 2 * said


def opened(env: Env, tick: int = 0) -> np.ndarray:
    """The first frame of an env, in which later ones may be written."""
    frame = np.zeros((FRAME_SIDE, FRAME_SIDE), np.uint8)
    env.reset(tick, frame)
    return frame


def make(painted: ModuleType, frames: FrameShape = DEFAULT_FRAMES, **arguments: Any) -> GymnasiumEnv:
    painted.factory = lambda: Painted(**arguments)  # type: ignore[attr-defined]
    return GymnasiumEnv("painted:factory", seed=1, index=2, frames=frames)


def test_the_pixel_game_plays_and_ends() -> None:
    frame = opened(env := make_env(Play(env=CATCH), 1, 0, training=True))
    assert set(np.unique(frame)) == {0, 255}
    outcomes = [env.step(tick, 1, frame) for tick in range(1, FALL + 1)]
    assert [outcome.terminated for outcome in outcomes] == [False] * (FALL - 1) + [True]
    assert not any(outcome.truncated or outcome.life_lost for outcome in outcomes)


def test_actions_have_the_names_that_the_environment_gives_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert names(CATCH) == ("0", "1", "2")
    for given, taken in ((["left", "stay", "right"], ("left", "stay", "right")), (["left"], ("0", "1", "2"))):
        monkeypatch.setattr(Catch, "get_action_meanings", lambda self, given=given: given, raising=False)
        assert names(CATCH) == taken


def test_episodes_differ_by_seed_tick_and_index_and_by_nothing_else() -> None:
    def first(seed: int, index: int, tick: int) -> bytes:
        return opened(make_env(Play(env=CATCH), seed, index, training=True), tick).tobytes()

    assert first(1, 3, 7) == first(1, 3, 7)
    assert len({first(1, index, tick) for index in range(5) for tick in range(5)}) > 10
    assert len({first(seed, 3, 7) for seed in range(10)}) > 4


def first_frame(painted: ModuleType, frames: FrameShape, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """First frame of a painted env, and the image that it is made of."""
    env, frame = make(painted, frames, shape=shape), np.zeros(frames.frame, np.uint8)
    image = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    env._env._image = lambda: image  # type: ignore[attr-defined]
    env.reset(0, frame)
    return frame, image


def test_colors_become_luma_or_stay_where_frames_have_some(painted: ModuleType) -> None:
    frame, image = first_frame(painted, DEFAULT_FRAMES, (84, 84, 3))
    assert np.abs(frame - image.astype(float) @ [0.299, 0.587, 0.114]).max() <= 0.5 + 1e-9
    frame, image = first_frame(painted, FrameShape(48, 2, 3), (48, 48, 3))
    assert np.array_equal(frame, image.transpose(2, 0, 1))


def test_each_color_is_shrunk_as_a_gray_image(painted: ModuleType) -> None:
    env, frame = make(painted, FrameShape(36, 4, 3)), np.zeros((3, 36, 36), np.uint8)
    image = np.zeros((96, 96, 3), np.uint8)
    image[:, :48, 0], image[:, :, 2] = 255, 90
    env._write(image, frame)
    assert [plane.mean() for plane in frame] == [127.5, 0, 90]
    assert np.array_equal(frame[0, :, :18], np.full((36, 18), 255))


@pytest.mark.parametrize("shape", [(84, 84), (60, 50), (120, 130, 1), (96, 96, 3)])
def test_image_shapes(painted: ModuleType, shape: tuple[int, ...]) -> None:
    frame = opened(env := make(painted, shape=shape))
    assert frame.std() > 0
    assert env.step(1, 2, frame) == (1.5, False, False, False)
    assert env._env.taken == [6]  # type: ignore[attr-defined]  # the action space begins at 4


UNFIT_SPACES: list[tuple[dict[str, Any], int, str]] = [
    ({"shape": (10,)}, 1, "images are needed"),
    ({"shape": (84, 84, 4)}, 1, "images are needed"),
    ({"actions": MultiBinary(3)}, 1, "a Discrete of 2 to 256 actions is needed"),
    ({"actions": Discrete(300)}, 1, "a Discrete of 2 to 256 actions is needed"),
    ({"shape": (96, 96)}, 3, r"--frame-color rgb needs observations of shape \(h, w, 3\); those of painted"),
    ({"shape": (96, 96, 1)}, 3, r"--frame-color rgb needs observations of shape \(h, w, 3\); those of painted"),
]


@pytest.mark.parametrize(("spaces", "channels", "says"), UNFIT_SPACES)
def test_unfit_spaces_are_refused_and_envs_closed(painted: ModuleType, spaces: Any, channels: int, says: str) -> None:
    with patch.object(Painted, "close") as close, pytest.raises(EnvError, match=says):
        make(painted, FrameShape(channels=channels), **spaces)
    assert close.call_count == 1


UNFIT_NAMES = [
    ("NoSuchGame-v0", "Gymnasium cannot make the environment 'NoSuchGame-v0'"),
    ("CartPole-v1", "images are needed"),
    ("no.such.module:factory", "The module 'no.such.module' of --env .* is not found: put it beside launch.py"),
    (":factory", "names no module"),
    (".pixel_game:factory", "names no module"),
    ("json:loads", "json:loads could not make an environment: TypeError: loads"),
    ("tests.support.pixel_game:nothing", "has no function 'nothing'"),
    ("builtins:dict", "it must return a gymnasium.Env"),
    ("mistaken:factory", "cannot be imported: NameError: name 'no_such_name' is not defined"),
    ("script:factory", "cannot be imported: SystemExit: 0"),  # it would end the program with success
    ("needy:factory", "could not make an environment: ModuleNotFoundError: No module named"),
    ("lacking:factory", "cannot be imported: ModuleNotFoundError: No module named"),
]


@pytest.mark.parametrize(("name", "sentence"), UNFIT_NAMES)
def test_unfit_names_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, sentence: str) -> None:
    (tmp_path / "mistaken.py").write_text("no_such_name\n")
    (tmp_path / "script.py").write_text("raise SystemExit(0)\n")
    (tmp_path / "needy.py").write_text("def factory(): import no_such_jax\n")
    (tmp_path / "lacking.py").write_text("import no_such_jax\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(EnvError, match=sentence):
        names(name)


def test_a_module_may_register_the_id_behind_its_colon(painted: ModuleType) -> None:
    gymnasium.register("Painted-v0", entry_point=Painted)
    try:
        assert names("painted:Painted-v0") == names("Painted-v0")
    finally:
        gymnasium.registry.pop("Painted-v0")
    with pytest.raises(EnvError, match="The module 'painted' has no function 'Painted-v0'"):
        names("painted:Painted-v0")


@pytest.mark.parametrize("wrong", ["shape", "dtype"])
def test_an_observation_that_breaks_its_promise_is_refused(painted: ModuleType, wrong: str) -> None:
    with pytest.raises(EnvError, match="its observation space promises uint8"):
        opened(make(painted, wrong=wrong))


@pytest.mark.parametrize("shape", [DEFAULT_FRAMES, FrameShape(36, 4, 3)])
def test_a_snapshot_replays_the_episode(painted: ModuleType, shape: FrameShape) -> None:
    env, other = (make(painted, shape) for _ in range(2))
    frames, heartbeat = np.zeros((2, *shape.frame), np.uint8), Mock()
    env.reset(30, frames[0])
    for tick in range(31, 36):
        env.step(tick, tick % 3, frames[0])
    data = env.snapshot()
    assert len(data) <= SNAPSHOT_BYTES
    other.restore(data, heartbeat)
    assert heartbeat.call_count == 5, "every step that is played again is a heartbeat"
    for tick in range(36, 40):
        assert env.step(tick, 2, frames[0]) == other.step(tick, 2, frames[1])
        assert np.array_equal(*frames)


def test_an_environment_that_does_not_repeat_itself_is_found_out(painted: ModuleType) -> None:
    env, other = make(painted, wrong="seed"), make(painted, wrong="seed")
    opened(env)
    for snapshot in (env.snapshot(), b""):  # a lane of such an env keeps none
        with pytest.raises(EnvDiffers, match="repeat"):
            other.restore(snapshot)


def test_foreign_bytes_are_refused(painted: ModuleType) -> None:
    with pytest.raises(EnvError, match="not a snapshot of painted:factory"):
        make(painted).restore(b"RSA1 and so on, long enough to hold a header")


def test_endless_episodes_are_cut(painted: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    assert module.LONGEST_EPISODE_STEPS == 27_000
    monkeypatch.setattr(module, "LONGEST_EPISODE_STEPS", 4)
    frame = opened(env := make(painted))
    assert [env.step(tick, 0, frame).truncated for tick in range(1, 5)] == [False, False, False, True]
