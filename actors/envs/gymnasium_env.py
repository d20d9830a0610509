"""Any Gymnasium environment with image observations, in place of a game.

One agent step is one step of the environment: no frame skip, pooling, sticky actions or no-ops. The observation is
uint8 of shape [h, w], [h, w, 1] or [h, w, 3]. It becomes gray (luma 0.299 R + 0.587 G + 0.114 B, rounded), or keeps its
colors with `--frame-color rgb`. Its area average, by default of 84x84, is the frame. The environment decides rewards,
ends and truncation; 27,000 steps truncate an episode.

The environment must be deterministic after the `reset(seed=...)` that begins each episode. So a snapshot holds the tick
of the seed and the actions since.
"""

from __future__ import annotations

import importlib
import math
import struct
import zlib
from collections.abc import Callable, Mapping
from functools import cache
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

from actors.env import Env, EnvError, Frame, Outcome
from actors.envs.action_log import ActionLog, replay
from actors.envs.film import Shot, in_color
from actors.pixels.frames import shrink_area
from shared.config.protocols import LONGEST_EPISODE_STEPS
from shared.env_name import parse_env_name
from shared.files.disk_trouble import log_line
from shared.frame_shape import DEFAULT_FRAMES, FrameShape
from shared.prng import Stream, bits

MOST_ACTIONS = 256
"""The ring keeps an action in one byte."""
SCREENS_PER_SECOND = 15.0
"""Shown where the environment does not say; as many as a game of Atari has steps."""

_HEAD = struct.Struct("<4sqqI")
_MAGIC = b"RSG1"


@cache
def register_games() -> None:
    """Register the games of ale-py with Gymnasium: ALE/Pong-v5 and their like."""
    import ale_py

    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # no banner in the terminal
    gymnasium.register_envs(ale_py)


FOREIGN = (Exception, SystemExit)
"""Errors of the code of an environment; a script that is named by mistake ends the program when it is imported."""


def _make(name: str) -> gymnasium.Env[Any, Any]:
    """The environment of a name, with its arguments and wrappers. Raises `EnvError` with a sentence."""
    parsed = parse_env_name(name)
    env = _make_base(parsed.base, parsed.arguments)
    for wrapper in parsed.wrappers:
        try:
            env = _wrapped(env, wrapper, name)
        except EnvError:
            _close(env)
            raise
    return env


def _close(env: gymnasium.Env[Any, Any]) -> None:
    """Close an environment that nobody needs any more; what it raises is only written to standard error."""
    try:
        env.close()
    except FOREIGN as error:
        log_line(f"An environment could not be closed: {_in_words(error)}")


def _wrapped(env: gymnasium.Env[Any, Any], wrapper: str, name: str) -> gymnasium.Env[Any, Any]:
    """The environment in a wrapper `module:class` of the name. Raises `EnvError` with a sentence."""
    module_name, _, class_name = wrapper.partition(":")
    make = getattr(_imported(module_name, name), class_name, None)
    if not callable(make):
        raise EnvError(f"The module {module_name!r} has no wrapper {class_name!r} for --env {name!r}.")
    try:
        made = make(env)
    except FOREIGN as error:  # the user's wrapper, which may raise anything
        raise EnvError(f"{wrapper} could not wrap the environment: {_in_words(error)}") from error
    if not isinstance(made, gymnasium.Env):
        raise EnvError(f"{wrapper} returned a {type(made).__name__}; it must return a gymnasium.Env.")
    return made


def _make_base(name: str, arguments: Mapping[str, Any]) -> gymnasium.Env[Any, Any]:
    """The environment of a Gymnasium id, which may be registered by a module that is named before it (`module:Env-v0`),
    or what `module:factory` returns. Raises `EnvError` with a sentence."""
    module_name, colon, factory_name = name.partition(":")
    if not colon:
        register_games()
        try:
            return gymnasium.make(name, disable_env_checker=True, **arguments)
        except FOREIGN as error:  # the code of the environment, which may raise anything
            raise EnvError(f"Gymnasium cannot make the environment {name!r}: {_in_words(error)}") from error
    module = _imported(module_name, name)
    if factory_name in gymnasium.registry:  # `module:Env-v0`, as Gymnasium itself takes it
        return _make_base(factory_name, arguments)
    factory = getattr(module, factory_name, None)
    if not callable(factory):
        raise EnvError(f"The module {module_name!r} has no function {factory_name!r} that makes an environment.")
    try:
        env = factory(**arguments)
    except FOREIGN as error:  # the user's factory, which may raise anything
        raise EnvError(f"{name} could not make an environment: {_in_words(error)}") from error
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
    """An error of the environment's code, with its type: the text alone may say little."""
    return str(error) if isinstance(error, gymnasium.error.Error) else f"{type(error).__name__}: {error}"


def _checked_spaces(name: str, env: gymnasium.Env[Any, Any], frames: FrameShape) -> tuple[Box, Discrete]:
    """The spaces; raises `EnvError` unless observations are images in bytes and actions a few numbered ones.

    Frames in color need observations in color.
    """
    observations, actions = env.observation_space, env.action_space
    if not isinstance(observations, Box) or observations.dtype != np.uint8 or not _is_image(observations.shape):
        raise EnvError(
            f"The observations of {name} are {observations}; "
            "images are needed: a Box of uint8 with shape (h, w), (h, w, 1) or (h, w, 3)."
        )
    if frames.channels == 3 and observations.shape[2:] != (3,):
        raise EnvError(
            f"--frame-color rgb needs observations of shape (h, w, 3); those of {name} are {observations.shape}: omit "
            "it."
        )
    if not isinstance(actions, Discrete) or not 2 <= actions.n <= MOST_ACTIONS:
        raise EnvError(f"The actions of {name} are {actions}; a Discrete of 2 to {MOST_ACTIONS} actions is needed.")
    return observations, actions


def _names(env: gymnasium.Env[Any, Any], first: int, actions: int) -> tuple[str, ...]:
    """The environment's own names of its actions, where it has any; else their numbers, from `first` on."""
    numbers = tuple(str(first + action) for action in range(actions))
    meanings = getattr(env.unwrapped, "get_action_meanings", None)
    names = tuple(str(name) for name in meanings()) if callable(meanings) else numbers
    return names if len(names) == actions else numbers


def _is_image(shape: tuple[int, ...]) -> bool:
    return len(shape) == 2 or (len(shape) == 3 and shape[2] in (1, 3))


class GymnasiumEnv(Env):
    """One Gymnasium environment with its preprocessing."""

    def __init__(self, name: str, seed: int, index: int, frames: FrameShape = DEFAULT_FRAMES) -> None:
        """Make the environment; raises `EnvError` when that fails or its spaces do not fit.

        Args:
            name: a Gymnasium id, `module:Id-v0` or `module:factory`.
            seed: of the run.
            index: global index of the env; with seed and tick it decides the seed of each episode.
            frames: shape of its frames.
        """
        self._name = name
        self._env = _make(name)
        try:
            observations, actions = _checked_spaces(name, self._env, frames)
        except EnvError:
            _close(self._env)
            raise
        self._shape = observations.shape
        self._frames = frames
        self._first_action = int(actions.start)
        self.actions = int(actions.n)
        self.action_names = _names(self._env, self._first_action, self.actions)
        self.screens_per_second = float(self._env.metadata.get("render_fps") or SCREENS_PER_SECOND)
        self._seed = seed
        self._index = index
        self._log = ActionLog()
        self._check = 0
        self._shots: list[Shot] | None = None

    def reset(self, tick: int, frame: Frame) -> None:
        """Begin an episode with the seed of (seed, index, tick)."""
        episode_seed = bits(self._seed, Stream.ENV_SEED, self._index, tick) & 0x7FFF_FFFF
        observation, _ = self._env.reset(seed=episode_seed)
        self._log.begin(tick)
        self._write(observation, frame)

    def step(self, tick: int, action: int, frame: Frame) -> Outcome:
        """One step of the environment; truncates after `LONGEST_EPISODE_STEPS`."""
        self._log.append(tick, action)
        observation, reward, terminated, truncated, _ = self._env.step(action + self._first_action)
        if not math.isfinite(reward):
            raise EnvError(f"{self._name} gave the reward {reward}; rewards must be finite numbers.")
        self._write(observation, frame)
        if self._shots is not None:
            self._shots.append(Shot(in_color(np.array(observation)), float(reward)))
        too_long = len(self._log) >= LONGEST_EPISODE_STEPS
        return Outcome(float(reward), bool(terminated), bool(truncated) or too_long, False)

    def close(self) -> None:
        """Close the environment."""
        _close(self._env)

    def film(self) -> list[Shot]:
        """The observation of every step from now on, in color where it has any."""
        self._shots = []
        return self._shots

    def _write(self, observation: Any, frame: Frame) -> None:
        """Gray, unless frames are in color, and shrink an observation into `frame`."""
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
        return _HEAD.pack(_MAGIC, self._log.reset_tick, self._log.first_tick, self._check) + self._log.actions

    def restore(self, data: bytes, heartbeat: Callable[[], None] = lambda: None) -> None:
        """Play the episode again. Raises `EnvError` for foreign bytes and when the replay ends in another frame."""
        if len(data) < _HEAD.size or data[:4] != _MAGIC:
            raise EnvError(f"The {len(data)} bytes to restore are not a snapshot of {self._name}.")
        _, reset_tick, first_tick, check = _HEAD.unpack_from(data)
        replay(self, self._frames.frame, reset_tick, first_tick, data[_HEAD.size :], heartbeat)
        if self._check != check:
            raise EnvError(
                f"{self._name} did not repeat its episode: the same seed and actions gave another frame. "
                "Only deterministic environments can be restored."
            )
