"""Trained networks: found by the name that a user gives, asked in batches as evaluations ask, or used as a function.

Everything that makes a `learner.networks.policy.Policy` outside of training is here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringside.zoo.catalogue import find
from shared.config.protocols import EvalRules, eval_rules
from shared.config.settings import FRAME_SIDE, STACK, Config, Evaluate, Play
from shared.config.trust import compare_env, load_plugin, require_env, require_plugin
from shared.errors import ConfigError
from shared.process.library_env import choose_workspace

if TYPE_CHECKING:
    import gymnasium
    import numpy as np
    from numpy.typing import NDArray

    from learner.networks.policy import Policy
    from shared.checkpoint.weights_file import StoredWeights

ROWS = 8
"""Emulators that an evaluation plays together, which is also the batch of its network. Episode `i` is in row
`i % ROWS`, so that its numbers do not depend on how many episodes are played."""


def weights_at(load: str | Path, env: str | None = None, plugin: str | None = None) -> StoredWeights:
    """The weights of a run directory, a checkpoint, a file of weights, or of an agent in the zoo by its name.

    Args:
        load: as the user names it.
        env: the env that the user says the agent was trained on. An env that imports a module is required to be named
            here (shared/config/trust.py), so what was trained on may be made afterwards.
        plugin: the plug-in that the user says the agent was trained with, which is imported.

    Raises:
        ConfigError: there are none, or the file names an env that the user does not.
    """
    from actors.make_env import is_registered

    weights = _stored_weights(load, plugin)
    require_env(play_of(weights), env, what=_AGENT.format(load=load), is_registered=is_registered)
    return weights


_AGENT = "The agent of --load {load}"
"""Subject of sentences about an agent's env."""


def _stored_weights(load: str | Path, plugin: str | None) -> StoredWeights:
    """The weights that `load` names, whatever they were trained on, with their plug-in."""
    from shared.checkpoint.weights_file import load_weights
    from shared.errors import CheckpointError

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
    """Rules of an evaluation of the weights in `play`: those that are given, else those of the run that trained them.

    Raises `ConfigError` for a number out of its range.
    """
    from shared.config.field_checks import check_ranges

    given = Evaluate(
        eval_epsilon=weights.eval_epsilon if eval_epsilon is None else eval_epsilon,
        eval_max_frames=weights.eval_max_frames if eval_max_frames is None else eval_max_frames,
    )
    check_ranges(given)
    return eval_rules(play, given)


def play_of(weights: StoredWeights) -> Play:
    """What the weights say that they were trained on; a file keeps one name for a game of ale-py and any other env."""
    from actors.envs.atari import games

    named = "game" if weights.game in games() else "env"
    return Config().with_settings(protocol=weights.protocol, **{named: weights.game}).play


def require_actions(weights: StoredWeights, play: Play) -> None:
    """Raise `ConfigError` with a sentence unless the network chooses among just the actions of `play`."""
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
    """A network as evaluations ask it, and the arithmetic that its answers were made with."""

    policy: Policy
    device: str
    precision: str
    threads: int


def policy_of(weights: StoredWeights, device: str, rows: int = ROWS, *, captured: bool = True) -> EvaluationPolicy:
    """The network that answers `rows` stacks at once. Sets torch up for this process. `captured`: see `Policy`."""
    import torch

    from learner.engine.device import prepare_torch
    from learner.networks.policy import Policy
    from shared.config.resolve import device_of, precision_of

    name = device_of(device)
    precision = precision_of("auto", name)
    threads = 1  # a batch of eight is too small to share; threads that wait for each other made it four times slower
    choose_workspace()
    prepare_torch(torch.device(name), precision, threads)
    policy = Policy(weights.network, torch.device(name), precision, rows, captured=captured)
    policy.load(weights.flat)
    return EvaluationPolicy(policy, name, precision, threads)


def evaluation_of(
    weights: StoredWeights,
    network: EvaluationPolicy,
    rules: EvalRules,
    seed: int,
    returns: Sequence[float],
    steps: int,
    *,
    eval_steps: int | None = None,
) -> dict[str, Any]:
    """Episodes that were played by the rules of the protocol, judged: JSON values.

    `eval_steps`: the steps that the episodes were to fill; None: a number of episodes was played.
    """
    from ringside.recording.scores import SOURCE, summarize
    from shared.machine import facts

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
    """A trained policy as an ordinary function, in float32. It leaves the settings of torch as they are: on a GPU these
    let convolutions be computed in TF32 unless somebody changed them.

        agent = ringside.load_agent("zoo/pong")
        action = agent(observation)

    Observations are what Gymnasium's `AtariPreprocessing` and `FrameStackObservation(padding_type="zero")` give: the
    last four frames, uint8[4, 84, 84], oldest first; or those of several environments, uint8[n, 4, 84, 84].
    """

    def __init__(self, weights: StoredWeights, device: str) -> None:
        self.game = weights.game
        self.protocol = weights.protocol
        self.actions = weights.actions
        """How many actions there are; they are numbered as the environment of `env` numbers them."""
        self._weights = weights
        self._device = device
        self._policies: dict[int, Policy] = {}

    def __call__(self, observation: NDArray[np.uint8]) -> Any:
        """The greedy action, an int, of the last four frames, uint8[4, 84, 84], oldest first; the actions int64[n] of
        uint8[n, 4, 84, 84].

        Raises `ValueError` for an observation of another shape or kind.
        """
        from learner.networks.policy import greedy

        values = self.q_values(observation)
        return int(greedy(values[None])[0]) if values.ndim == 1 else greedy(values)

    def q_values(self, observation: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Q(s, .), float32[actions] or float32[n, actions], of what `__call__` takes."""
        import numpy as np

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
            return self._of(1).q_values(stacks[None])[0]
        policy, rows = self._of(len(stacks)), len(stacks)
        padded = np.zeros((policy.batch, *stacks.shape[1:]), np.uint8)
        padded[:rows] = stacks
        return policy.q_values(padded)[:rows]

    def _of(self, least: int) -> Policy:
        """The network for a batch of so many, or of the next power of two: environments may end one by one."""
        rows = 1 << (least - 1).bit_length()
        if rows not in self._policies:
            import torch

            from learner.networks.policy import Policy

            device = torch.device(self._device)
            self._policies[rows] = Policy(self._weights.network, device, "fp32", batch=rows, captured=False)
            self._policies[rows].load(self._weights.flat)
        return self._policies[rows]

    def env(self, **settings: Any) -> gymnasium.Env[Any, Any]:
        """A Gymnasium env of the agent's game, preprocessed as its protocol says.

        Args:
            settings: for `gymnasium.make`, as `render_mode="human"`.

        Raises:
            ConfigError: the agent was not trained on a game of ale-py.
        """
        from actors.envs.preprocessed import gymnasium_env

        play = play_of(self._weights)
        return gymnasium_env(play, rules_of(self._weights, play).max_frames, settings)


def load_agent(load: str | Path, *, env: str | None = None, plugin: str | None = None, device: str = "auto") -> Agent:
    """The agent of a run directory, a checkpoint, a file of weights or a name in the zoo.

    Args:
        load: the same as for `ringside.evaluate`.
        env: the env that the agent must have been trained on. It is compared and never imported: an agent is a function
            and plays no env by itself.
        plugin: the plug-in that the agent was trained with, which is imported.
        device: auto, cpu, cuda or cuda:N.

    Raises:
        ConfigError: there is no such agent or device, or it was trained on another env.
    """
    from shared.config.resolve import device_of

    weights = _stored_weights(load, plugin)
    if env is not None:
        compare_env(play_of(weights), env, what=_AGENT.format(load=load))
    return Agent(weights, device_of(device))
