"""Trained networks: loaded by a user's name for them, queried in batches by evaluations, or used as a function.

All code that makes a `learner.networks.policy.Policy` outside of training is here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ringside.recording.scores import SOURCE, summarize
from ringside.zoo.catalogue import find
from shared.checkpoint.weights_file import StoredWeights, load_weights
from shared.config.field_checks import check_ranges
from shared.config.protocols import EvalRules, eval_rules
from shared.config.resolve import device_of, precision_of
from shared.config.settings import FRAME_SIDE, STACK, Config, Evaluate, Play
from shared.config.trust import compare_env, load_plugin, require_env, require_plugin
from shared.errors import CheckpointError, ConfigError
from shared.machine import facts
from shared.process.library_env import choose_workspace

if TYPE_CHECKING:
    import gymnasium

    from learner.networks.policy import Policy

ROWS = 8
"""Emulators of an evaluation, which is also the batch of its network. Episode `i` is in row `i % ROWS`, so that its
numbers do not depend on the number of episodes."""


def weights_at(load: str | Path, env: str | None = None, plugin: str | None = None) -> StoredWeights:
    """Weights of a run directory, a checkpoint, a file of weights, or a zoo agent by its name.

    Args:
        load: the user's name for it.
        env: the env on which the agent was trained, by the user's word. An env that imports a module must be named here
            (shared/config/trust.py), so the caller may make it afterwards.
        plugin: the plug-in with which the agent was trained, by the user's word; it is imported.

    Raises:
        ConfigError: there are none, or the file names an env that the user did not.
    """
    from actors.make_env import is_registered

    weights = _stored_weights(load, plugin)
    require_env(play_of(weights), env, what=_AGENT.format(load=load), is_registered=is_registered)
    return weights


_AGENT = "The agent of --load {load}"
"""Subject of error messages about an agent's env."""


def _stored_weights(load: str | Path, plugin: str | None) -> StoredWeights:
    """Weights that `load` names, with their plug-in, without a check of their env."""
    path = find(load)
    load_plugin(plugin)
    try:
        weights = load_weights(path)
    except CheckpointError as error:
        raise ConfigError(f"--load {load} cannot be used. {error}") from error
    require_plugin(weights.plugin, plugin, what=_AGENT.format(load=load))
    return weights


def rules_of(
    weights: StoredWeights, play: Play, *, eval_epsilon: float | None = None, eval_max_frames: int | None = None
) -> EvalRules:
    """Rules of an evaluation of the weights in `play`: the given ones, else those of the training run.

    Raises `ConfigError` for a number out of its range.
    """
    given = Evaluate(
        eval_epsilon=weights.eval_epsilon if eval_epsilon is None else eval_epsilon,
        eval_max_frames=weights.eval_max_frames if eval_max_frames is None else eval_max_frames,
    )
    check_ranges(given)
    return eval_rules(play, given)


def play_of(weights: StoredWeights) -> Play:
    """Game or env on which the weights were trained; a file has one name for either."""
    from actors.envs.atari import games

    named = "game" if weights.game in games() else "env"
    return Config().with_settings(protocol=weights.protocol, **{named: weights.game}).play


def require_actions(weights: StoredWeights, play: Play) -> None:
    """Raise `ConfigError` unless the actions of the network are those of `play`."""
    from actors.make_env import action_names

    names, trained = action_names(play), play_of(weights)
    known = names if play == trained else action_names(trained)
    if known != names:
        raise ConfigError(
            f"--game {play.game} has the actions {' '.join(names)}, but the agent was trained on {weights.game}, whose "
            f"actions are {' '.join(known)}; omit --game, or choose a game with the same actions."
        )
    if weights.actions != len(names):
        raise ConfigError(
            f"The weights choose among {weights.actions} actions; {weights.game} with the protocol {play.protocol} has "
            f"{len(names)}."
        )


@dataclass(frozen=True)
class EvaluationPolicy:
    """A network for evaluations, and its arithmetic."""

    policy: Policy
    device: str
    precision: str
    threads: int
    value_name: str = "Q-value"
    """Name of what it answers for each action."""


def make_evaluation_policy(
    weights: StoredWeights, device: str, rows: int = ROWS, *, captured: bool = True
) -> EvaluationPolicy:
    """Network for batches of `rows` stacks. Configures torch for this process. `captured`: see `Policy`."""
    import torch

    from learner.engine.device import prepare_torch
    from learner.networks.policy import Policy

    name = device_of(device)
    precision = precision_of("auto", name)
    threads = 1  # a batch of eight is too small for several threads: they were four times slower
    choose_workspace()
    prepare_torch(torch.device(name), precision, threads)
    policy = Policy(weights.network, torch.device(name), precision, rows, captured=captured)
    policy.load(weights.flat)
    value_name = "logit" if weights.network.value_output else "Q-value"
    return EvaluationPolicy(policy, name, precision, threads, value_name)


def evaluation_result(
    weights: StoredWeights,
    network: EvaluationPolicy,
    rules: EvalRules,
    seed: int,
    returns: Sequence[float],
    steps: int,
    *,
    eval_steps: int | None = None,
) -> dict[str, Any]:
    """Result of an evaluation as JSON values.

    `eval_steps`: the steps that the episodes had to fill; None: the number of episodes was given.
    """
    return {
        "game": weights.game,
        "protocol": weights.protocol,
        **asdict(summarize(weights.game, returns)),
        "human_normalised_source": SOURCE,
        "returns": list(returns),
        "steps": steps,
        "eval_epsilon": rules.epsilon,
        "eval_max_frames": rules.max_frames,
        "eval_steps": eval_steps,
        "seed": seed,
        "version": weights.version,
        "device": network.device,
        "precision": network.precision,
        "threads": network.threads,
        "machine": facts.describe(),
    }


class Agent:
    """A trained policy as an ordinary function, in float32. It does not change the settings of torch: by default these
    allow TF32 in convolutions on a GPU.

        agent = ringside.load_agent("zoo/pong")
        action = agent(observation)

    Observations are those of Gymnasium's `AtariPreprocessing` and `FrameStackObservation(padding_type="zero")`: the
    last four frames, uint8[4, 84, 84], oldest first; or those of several environments, uint8[n, 4, 84, 84].
    """

    def __init__(self, weights: StoredWeights, device: str) -> None:
        self.game = weights.game
        self.protocol = weights.protocol
        self.actions = weights.actions
        """Number of actions, in the order of the environment of `env`."""
        self._weights = weights
        self._device = device
        self._policies: dict[int, Policy] = {}

    def __call__(self, observation: NDArray[np.uint8]) -> Any:
        """Greedy action, an int, for the last four frames, uint8[4, 84, 84], oldest first; actions int64[n] for
        uint8[n, 4, 84, 84].

        Raises `ValueError` for an observation of another shape or kind.
        """
        from learner.networks.policy import greedy

        values = self.q_values(observation)
        return int(greedy(values[None])[0]) if values.ndim == 1 else greedy(values)

    def q_values(self, observation: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Q(s, .), float32[actions] or float32[n, actions], of the observations of `__call__`."""
        stacks = np.asarray(observation)
        if (
            stacks.dtype != np.uint8
            or stacks.shape[-3:] != (STACK, FRAME_SIDE, FRAME_SIDE)
            or stacks.ndim not in (3, 4)
            or not stacks.size
        ):
            raise ValueError(
                f"An observation is uint8[4, 84, 84], or uint8[n, 4, 84, 84] for several environments; this one is "
                f"{stacks.dtype}{list(stacks.shape)}."
            )
        if stacks.ndim == 3:
            return self._policy_for(1).q_values(stacks[None])[0]
        policy, rows = self._policy_for(len(stacks)), len(stacks)
        padded = np.zeros((policy.batch, *stacks.shape[1:]), np.uint8)
        padded[:rows] = stacks
        return policy.q_values(padded)[:rows]

    def _policy_for(self, least: int) -> Policy:
        """Network for a batch of `least`, rounded up to a power of two: environments may end one by one."""
        rows = 1 << (least - 1).bit_length()
        if rows not in self._policies:
            import torch

            from learner.networks.policy import Policy

            device = torch.device(self._device)
            self._policies[rows] = Policy(self._weights.network, device, "fp32", batch=rows, captured=False)
            self._policies[rows].load(self._weights.flat)
        return self._policies[rows]

    def env(self, **settings: Any) -> gymnasium.Env[Any, Any]:
        """A Gymnasium env of the agent's game with the preprocessing of its protocol.

        Args:
            settings: for `gymnasium.make`, such as `render_mode="human"`.

        Raises:
            ConfigError: the agent was not trained on a game of ale-py.
        """
        from actors.envs.preprocessed import gymnasium_env

        play = play_of(self._weights)
        return gymnasium_env(play, rules_of(self._weights, play).max_frames, settings)


def load_agent(load: str | Path, *, env: str | None = None, plugin: str | None = None, device: str = "auto") -> Agent:
    """Agent of a run directory, a checkpoint, a file of weights or a zoo name.

    Args:
        load: as for `ringside.evaluate`.
        env: the env on which the agent must have been trained. It is compared, not imported: an agent is a function and
            plays no env by itself.
        plugin: the plug-in with which the agent was trained; it is imported.
        device: auto, cpu, cuda or cuda:N.

    Raises:
        ConfigError: there is no such agent or device, or it was trained on another env.
    """
    weights = _stored_weights(load, plugin)
    if env is not None:
        compare_env(play_of(weights), env, what=_AGENT.format(load=load))
    return Agent(weights, device_of(device))
