"""A game as an ordinary Gymnasium env, made of Gymnasium's own wrappers, with the preprocessing of a protocol."""

from __future__ import annotations

from typing import Any

import ale_py
import gymnasium
from ale_py.registration import rom_id_to_name
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

from actors.env import EnvError
from shared.config.protocols import PROTOCOLS
from shared.config.sections import FRAME_SKIP, Play


class FireOnReset(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Plays FIRE once after every reset: for an agent step of four frames, where a protocol plays it for one frame."""

    def reset(self, **settings: Any) -> tuple[Any, dict[str, Any]]:
        """Reset the env and play FIRE; return the observation after it."""
        self.env.reset(**settings)
        observation, _, _, _, info = self.env.step(_actions(self.env).index("FIRE"))
        return observation, info


def _actions(env: gymnasium.Env[Any, Any]) -> list[str]:
    """Names of the actions of a game."""
    return list(env.get_wrapper_attr("get_action_meanings")())


def gymnasium_env(play: Play, max_frames: int, settings: dict[str, Any]) -> gymnasium.Env[Any, Any]:
    """The game of `play` under its protocol, as in an evaluation: lost lives end nothing, rewards are raw.

    Args:
        max_frames: emulator frames after which an episode is cut; unlike in an evaluation, no-ops are counted.
        settings: more of them for `gymnasium.make`.

    Raises:
        EnvError: `play` is of another environment than ale-py's games.
    """
    if play.env is not None:
        raise EnvError(
            f"The agent was trained on {play.env}; make that environment yourself, with observations of {play.frames}."
        )
    gymnasium.register_envs(ale_py)
    protocol = PROTOCOLS[play.protocol]
    env = gymnasium.make(
        f"ALE/{rom_id_to_name(play.game)}-v5",
        frameskip=1,
        repeat_action_probability=protocol.sticky,
        full_action_space=protocol.action_set == "full",
        max_num_frames_per_episode=max_frames,
        **settings,
    )
    env = AtariPreprocessing(env, noop_max=protocol.noop_max, frame_skip=FRAME_SKIP, screen_size=play.frame_size)
    if protocol.fire_on_reset and "FIRE" in _actions(env):
        env = FireOnReset(env)
    return FrameStackObservation(env, play.frame_stack, padding_type="zero")
