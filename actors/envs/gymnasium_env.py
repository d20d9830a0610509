"""Any Gymnasium environment with image observations, in place of a game.

One agent step is one step of the environment: no frame skip, pooling, sticky actions or no-ops. The observation is
uint8 of shape [h, w], [h, w, 1] or [h, w, 3]. It becomes gray (luma 0.299 R + 0.587 G + 0.114 B, rounded), or keeps its
colors with `--frame-color rgb`. Its area average, by default of 84x84, is the frame. The environment decides rewards,
ends and truncation; 27,000 steps truncate an episode.

A snapshot holds the tick of the seed with which the episode began, and the actions since: an environment that is
deterministic after `reset(seed=...)` is restored by playing them again. Of another one a lane plays no tick again
(actors/lane.py).

Its code is the user's: each result is checked, and each error becomes a sentence.
"""

from __future__ import annotations

import importlib
import math
import os
import traceback
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

from actors.env import Env, EnvDiffers, EnvError, Frame, Outcome, Shot
from actors.envs.action_log import ActionLog, replay
from actors.pixels.frames import shrink_area
from shared.config.protocols import LONGEST_EPISODE_STEPS
from shared.env_name import parse_env_name
from shared.errors import EnvFault
from shared.files.disk_trouble import log_line
from shared.frame_shape import DEFAULT_FRAMES, FrameShape
from shared.prng import Stream, bits

MOST_ACTIONS = 256
"""The ring keeps an action in one byte."""
SCREENS_PER_SECOND = 15.0
"""Shown where the environment does not say; as many as a game of Atari has steps."""

MOST_REWARD = float(np.finfo(np.float32).max) / LONGEST_EPISODE_STEPS
"""Rewards up to this give a return that the ring can hold."""
_API = (
    " Gymnasium's API: reset(seed=...) returns an observation and a dict; step(action) returns observation, reward, "
    "terminated, truncated and a dict."
)


@cache
def register_games() -> None:
    """Register the games of ale-py with Gymnasium: ALE/Pong-v5 and their like."""
    import ale_py

    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # no banner in the terminal
    gymnasium.register_envs(ale_py)


FOREIGN = (Exception, SystemExit)
"""Errors of the code of an environment; a script that is named by mistake ends the program when it is imported."""


@contextmanager
def _foreign_code(sentence: str) -> Iterator[None]:
    """Let an error of the environment's code end as `EnvError`: the sentence, and the error in words."""
    try:
        yield
    except FOREIGN as error:
        raise EnvError(f"{sentence}: {_in_words(error)}") from error


def _make(name: str, arguments: Mapping[str, Any]) -> gymnasium.Env[Any, Any]:
    """The environment of a Gymnasium id, which may be registered by a module that is named before it (`module:Env-v0`),
    or what `module:factory` returns. Raises `EnvError` with a sentence."""
    module_name, colon, factory_name = name.partition(":")
    if not colon:
        register_games()
        with _foreign_code(f"Gymnasium cannot make the environment {name!r}"):
            return gymnasium.make(name, disable_env_checker=True, **arguments)
    module = _imported(module_name, name)
    if factory_name in gymnasium.registry:  # `module:Env-v0`, as Gymnasium itself takes it
        return _make(factory_name, arguments)
    factory = getattr(module, factory_name, None)
    if not callable(factory):
        raise EnvError(f"The module {module_name!r} has no function {factory_name!r} that makes an environment.")
    with _foreign_code(f"{name} could not make an environment"):
        env = factory(**arguments)
    if not isinstance(env, gymnasium.Env):
        raise EnvError(f"{name} returned a {type(env).__name__}; it must return a gymnasium.Env.")
    return env


def _imported(module_name: str, name: str) -> ModuleType:
    """A module that an env names. Raises `EnvError` with a sentence."""
    if not module_name or module_name.startswith("."):
        raise EnvError(f"--env {name!r} names no module: it is `module:factory`, or an id of Gymnasium.")
    try:
        return importlib.import_module(module_name)
    except FOREIGN as error:  # foreign code runs while it is imported
        if isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(f"{error.name}."):
            raise EnvError(
                f"The module {module_name!r} of --env {name!r} is not found: put it beside launch.py, install it, or "
                "put its folder into PYTHONPATH."
            ) from error
        raise EnvError(f"The module of --env {name!r} cannot be imported: {_in_words(error)}.") from error


def _in_words(error: BaseException) -> str:
    """An error of the environment's code in one line, with its type: the text alone may say little."""
    text = " ".join(str(error).split())
    return text if isinstance(error, gymnasium.error.Error) else f"{type(error).__name__}: {text}"


def _checked_spaces(name: str, env: gymnasium.Env[Any, Any], frames: FrameShape) -> tuple[Box, Discrete]:
    """The spaces; raises `EnvError` unless observations are images in bytes and actions a few numbered ones.

    Frames in color need observations in color.
    """
    with _foreign_code(
        f"{name} needs a Box of uint8 images and a Discrete, and does not tell its observation_space and action_space"
    ):
        observations, actions = env.observation_space, env.action_space
    shape = getattr(observations, "shape", None) or ()
    is_image = shape[2:] in ((), (1,), (3,)) and len(shape) >= 2 and min(shape) > 0
    if not isinstance(observations, Box) or observations.dtype != np.uint8 or not is_image:
        raise EnvError(
            f"The observations of {name} are {observations}; "
            "images are needed: a Box of uint8 with shape (h, w), (h, w, 1) or (h, w, 3)."
        )
    if frames.channels == 3 and shape[2:] != (3,):
        raise EnvError(
            f"--frame-color rgb needs observations of shape (h, w, 3); those of {name} are {shape}: omit it."
        )
    if not isinstance(actions, Discrete) or not 2 <= actions.n <= MOST_ACTIONS:
        raise EnvError(f"The actions of {name} are {actions}; a Discrete of 2 to {MOST_ACTIONS} actions is needed.")
    return observations, actions


def _decoration(env: gymnasium.Env[Any, Any], actions: Discrete) -> tuple[tuple[str, ...], float]:
    """Names of the actions and screens a second: the environment's own, where it has any."""
    numbers = tuple(str(action) for action in range(actions.start, actions.start + actions.n))
    names, pace = numbers, 0.0
    with suppress(*FOREIGN):
        names = tuple(map(str, env.unwrapped.get_action_meanings()))  # type: ignore[attr-defined]
    with suppress(*FOREIGN):
        pace = float(env.metadata["render_fps"])
    return names if len(names) == len(numbers) else numbers, pace if 0 < pace < math.inf else SCREENS_PER_SECOND


def _is_truth(value: Any) -> bool:
    """True if a value of the environment is a truth value: a bool of any library, 0 or 1."""
    try:
        return value in (False, True)
    except FOREIGN:  # an array or a tensor of several
        return False


class GymnasiumEnv(Env):
    """One Gymnasium environment with its preprocessing.

    Attributes:
        screen: height and width of its observations.
    """

    def __init__(self, name: str, seed: int, index: int, frames: FrameShape = DEFAULT_FRAMES) -> None:
        """Make the environment; raises `EnvError` when that fails or its spaces do not fit.

        Args:
            name: a Gymnasium id, `module:Id-v0` or `module:factory`.
            seed: of the run.
            index: global index of the env; with seed and tick it decides the seed of each episode.
            frames: shape of its frames.
        """
        self._name = name
        self._env = _make(*parse_env_name(name))
        try:
            observations, actions = _checked_spaces(name, self._env, frames)
        except EnvError:
            self.close()
            raise
        self._shape, self.screen, self._frames = observations.shape, observations.shape[:2], frames
        self._first_action, self.actions = int(actions.start), int(actions.n)
        self.action_names, self.screens_per_second = _decoration(self._env, actions)
        self._seed, self._index = seed, index
        self._log, self._check = ActionLog(), 0
        self._show: Callable[[Shot], None] | None = None

    def reset(self, tick: int, frame: Frame) -> None:
        """Begin an episode with the seed of (seed, index, tick)."""
        episode_seed = bits(self._seed, Stream.ENV_SEED, self._index, tick) & 0x7FFF_FFFF
        try:
            observation, _ = self._env.reset(seed=episode_seed)
        except FOREIGN as error:
            raise self._fault("reset", tick, error) from error
        self._log.begin(tick)
        self._write(observation, frame)

    def step(self, tick: int, action: int, frame: Frame) -> Outcome:
        """One step of the environment; truncates after `LONGEST_EPISODE_STEPS`."""
        self._log.append(tick, action)
        try:
            observation, given, terminated, truncated, _ = self._env.step(action + self._first_action)
        except FOREIGN as error:
            raise self._fault("step", tick, error) from error
        reward = self._checked_reward(given)
        if not (_is_truth(terminated) and _is_truth(truncated)):
            raise EnvError(
                f"{self._name} gave {terminated!r:.40} and {truncated!r:.40} as ends of an episode; terminated and "
                "truncated must be True or False."
            )
        self._write(observation, frame)
        if self._show is not None:
            image = np.array(observation).reshape(*self.screen, -1)
            self._show(Shot(np.repeat(image, 3 // image.shape[2], axis=2), reward))
        too_long = len(self._log) >= LONGEST_EPISODE_STEPS
        return Outcome(reward, bool(terminated), bool(truncated) or too_long, False)

    def _checked_reward(self, given: Any) -> float:
        """The reward as a number. Raises `EnvError` if it is none, or too large for returns in float32."""
        reward = math.nan
        if not isinstance(given, str | bytes):
            with suppress(*FOREIGN):
                reward = float(given)
        if not abs(reward) <= MOST_REWARD:
            raise EnvError(
                f"{self._name} gave the reward {given!r:.80}; rewards must be finite numbers up to {MOST_REWARD:.0e}."
            )
        return reward

    def _fault(self, call: str, tick: int, error: BaseException) -> EnvFault:
        """The error of the environment's code, which the same seed and actions may repeat."""
        place = traceback.extract_tb(error.__traceback__)[-1]
        said = f"{_in_words(error)} ({os.path.basename(place.filename)}, line {place.lineno})."
        api = _API if "unpack" in str(error) or "'seed'" in str(error) else ""
        return EnvFault(f"{self._name} failed in {call}() of env {self._index} at tick {tick}: {said}{api}")

    def close(self) -> None:
        """Close the environment; what it raises is only written to standard error."""
        try:
            self._env.close()
        except FOREIGN as error:
            log_line(f"An environment could not be closed: {_in_words(error)}")

    def film(self, show: Callable[[Shot], None]) -> None:
        """Show the observation of every step from now on, in color where it has any."""
        self._show = show

    def _write(self, observation: Any, frame: Frame) -> None:
        """Gray, unless frames are in color, and shrink an observation into `frame`."""
        with _foreign_code(f"{self._name} gave an observation that is no array"):
            image: NDArray[np.uint8] = np.asarray(observation)
        if image.dtype != np.uint8 or image.shape != self._shape:
            raise EnvError(
                f"{self._name} gave an observation of {image.dtype}{list(image.shape)}; "
                f"its observation space promises uint8{list(self._shape)}."
            )
        if self._frames.channels == 3:
            for plane, out in zip(np.moveaxis(image, 2, 0), frame, strict=True):
                shrink_area(np.ascontiguousarray(plane), out)
        else:
            if image.ndim == 3 and image.shape[2] == 3:
                luma = image.astype(np.uint32) @ np.array([299, 587, 114], np.uint32)
                image = ((luma + 500) // 1000).astype(np.uint8)
            shrink_area(image.reshape(image.shape[:2]), frame)
        self._check = zlib.crc32(frame.tobytes())

    def snapshot(self) -> bytes:
        """The tick of the reset, the actions since, and a checksum of the newest frame, which the replay must match."""
        return self._log.snapshot(self._check)

    def restore(self, data: bytes, heartbeat: Callable[[], None] = lambda: None) -> None:
        """Play the episode again. Raises `EnvError` for foreign bytes, `EnvDiffers` without any or at another end."""
        if not data:
            raise EnvDiffers(f"There is no snapshot of {self._name}, which does not repeat itself.")
        try:
            check = replay(self, self._name, self._frames.frame, data, heartbeat)
        except EnvFault as error:
            raise EnvDiffers(f"{self._name} failed where it had not before: {error}") from error
        if self._check != check:
            raise EnvDiffers(f"{self._name} did not repeat its episode: the same seed and actions gave another frame.")
