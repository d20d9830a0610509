"""Weights of trained agents by a user's name for them, and what follows from them: method, env and rules."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from actors.make_env import action_names, registered
from ringside.run.torso_look import look_at_torso
from ringside.zoo.catalogue import find_weights
from shared.checkpoint.weights_file import StoredWeights, load_weights
from shared.config.field_checks import check_ranges
from shared.config.method_declaration import MethodDeclaration, method_declaration, method_names
from shared.config.protocols import EvalRules, eval_rules
from shared.config.sections import EvalActions, Play
from shared.config.settings import Config
from shared.config.trust import compare_env, load_plugin, require_env, require_network, require_plugin
from shared.errors import CheckpointError, ConfigError
from shared.network_spec import Network
from shared.text import class_name, refused


def weights_at(
    load: str | Path,
    env: str | None = None,
    plugin: str | None = None,
    network: str | type | None = None,
    flag: str = "--load",
    *,
    plays: bool = True,
) -> StoredWeights:
    """Weights of a run directory, a checkpoint, a file of weights, or a zoo agent by its name.

    Args:
        load: the user's name for it.
        env: the env on which the agent was trained, by the user's word. An env that imports a module must be named here
            (shared/config/trust.py), so the caller may make it afterwards.
        plugin: the plug-in with which the agent was trained, by the user's word; it is imported.
        network: its network, likewise, if that is a class of the user.
        flag: the option that named it, for sentences.
        plays: False if the agent plays no env by itself: `env`, if given, is only compared.

    Raises:
        ConfigError: there are none, the file names code that the user did not, or its network has changed since.
    """
    path, what = find_weights(load, flag), f"The agent of {flag} {load}"
    load_plugin(plugin)
    with refused(f"{flag} {load} cannot be used.", CheckpointError):
        weights = load_weights(path)
    require_plugin(weights.plugin, plugin, what=what)
    require_network(weights.network.name, class_name(network), what=what)
    own = weights.network.own
    if own is not None and own != look_at_torso(weights.network.name, weights.network.frames):
        raise ConfigError(f"{what} has other parameters than --network {weights.network.name} now: restore that class.")
    if plays:
        require_env(play_of(weights), env, what=what, registered=registered)
    elif env is not None:
        compare_env(play_of(weights), env, what=what)
    return weights


def rules_of(
    weights: StoredWeights,
    play: Play,
    *,
    eval_epsilon: float | None = None,
    eval_max_frames: int | None = None,
    eval_actions: Literal["auto", EvalActions] = "auto",
) -> EvalRules:
    """Rules of an evaluation of the weights in `play`: the given ones, else those of the training run.

    Raises:
        ConfigError: a rule is of another type or out of its range, or actions are to be sampled without a policy.
    """
    config = Config().with_settings(
        eval_epsilon=weights.eval_epsilon if eval_epsilon is None else eval_epsilon,
        eval_max_frames=weights.eval_max_frames if eval_max_frames is None else eval_max_frames,
        eval_actions=weights.eval_actions if eval_actions == "auto" else eval_actions,
    )
    check_ranges(config.evaluate)
    return eval_rules(play, config.evaluate, method_of(weights.network))


def method_of(network: Network) -> MethodDeclaration:
    """Declaration of the method that trained a network. Raises `ConfigError` unless it is registered."""
    if network.method not in method_names():  # a file may name any
        raise ConfigError(f"There is no method {network.method!r:.40} here: name its plug-in with --plugin.")
    return method_declaration(network.method)


def play_of(weights: StoredWeights) -> Play:
    """Game or env on which the weights were trained; a file has one name for either."""
    from actors.envs.atari import games

    named = "game" if weights.game in games() else "env"
    return play_named(weights, **{named: weights.game})


def play_named(weights: StoredWeights, **named: str) -> Play:
    """Game or env that the user names, under the protocol of the weights and with their frames."""
    frames = weights.network.frames
    seen = {"frame_size": frames.size, "frame_color": frames.color, "frame_stack": frames.stack}
    return Config().with_settings(protocol=weights.protocol, **seen, **named).play


def require_actions(weights: StoredWeights, play: Play) -> None:
    """Raise `ConfigError` unless the actions of the network are those of `play`."""
    names, trained = action_names(play), play_of(weights)
    known = names if play == trained else action_names(trained)
    if known != names:
        raise ConfigError(
            f"--game {play.game} has the actions {' '.join(names)}, but the agent was trained on {weights.game}, whose "
            f"actions are {' '.join(known)}; omit --game, or choose a game with the same actions."
        )
    if weights.network.actions != len(names):
        raise ConfigError(
            f"The weights choose among {weights.network.actions} actions; {weights.game} with the protocol "
            f"{play.protocol} has {len(names)}."
        )


def with_protocol(game: str, protocol: str) -> str:
    """A game with its protocol in a sentence; other envs have no protocol."""
    from actors.envs.atari import games  # which loads the emulator

    return f"{game}, protocol {protocol}" if game in games() else game
