"""The factory of environments: games of ale-py, ids of Gymnasium, and functions of a user's module."""

from __future__ import annotations

import re
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from actors.env import Env, EnvError
from shared.config.protocols import PROTOCOLS
from shared.config.sections import Play
from shared.env_name import parse_env_name, with_kwargs

if TYPE_CHECKING:
    from gymnasium.envs.registration import EnvSpec

_BARE_ID = re.compile(r"([A-Za-z0-9_-]+/)?[A-Za-z0-9_.-]+")
"""Ids of Gymnasium that name no module: a colon would have Gymnasium import what stands before it."""


def registered(env: str) -> EnvSpec | None:
    """Entry of an id among those that Gymnasium and ale-py have registered; None: the id names a module, or is unknown.

    To make an env that has one imports no module that the id names.
    """
    import gymnasium

    from actors.envs.gymnasium_env import register_games

    register_games()
    return gymnasium.registry.get(env) if _BARE_ID.fullmatch(env) else None


def require_no_game(env: str) -> None:
    """Refuse ids of games that scripts of the field wrap: "Breakout", "PongNoFrameskip-v4", "Pong-v4".

    `ALE/Pong-v5` has rules of its own.

    Raises:
        EnvError: the env is such an id.
    """
    base, _ = parse_env_name(env)
    if not _BARE_ID.fullmatch(base) or base.startswith("ALE/"):
        return
    from actors.envs.atari import game_name

    spec = registered(base)
    if spec is not None and not str(spec.entry_point).startswith("ale_py"):
        return
    try:
        game = game_name(base)
    except EnvError:
        return
    raise EnvError(
        f"--env {env} is a game by other rules than those of published agents, such as four frames a step: pass "
        f"--game {game}."
    )


def make_env(play: Play, seed: int, index: int, *, training: bool, window: bool = False) -> Env:
    """The env of global index `index` under the rules of `play`; an evaluation cuts its episodes itself.

    With `window` the env shows itself in a window of its own, as Gymnasium's `render_mode="human"` does.

    Raises `EnvError` when the game or environment is unknown or of the wrong kind.
    """
    if play.env is not None:
        from actors.envs.gymnasium_env import GymnasiumEnv

        name = with_kwargs(play.env, {"render_mode": "human"}) if window else play.env
        return GymnasiumEnv(name, seed, index, play.frames)
    from actors.envs.atari import AtariEnv

    if play.frame_color != "gray":  # of an agent's weights: for training, the settings are checked
        raise EnvError(f"The agent sees {play.frames}, and games of Atari are played in gray: choose another agent.")
    protocol = PROTOCOLS[play.protocol]
    if not training:
        protocol = replace(protocol, longest_episode_frames=0)
    return AtariEnv(play.game, protocol, seed, index, training=training, size=play.frame_size, window=window)


def action_names(play: Play) -> tuple[str, ...]:
    """Names of the actions of `play`'s game or environment, in their order. Raises `EnvError` as `make_env` does."""
    with closing(make_env(play, seed=0, index=0, training=True)) as env:
        return env.action_names
