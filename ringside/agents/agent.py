"""Trained agents as ordinary functions, from observations to actions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from ringside.agents.stored_weights import method_of, play_of, rules_of, weights_at
from shared.checkpoint.weights_file import StoredWeights
from shared.config.resolve import device_of
from shared.config.sections import EvalActions, Play
from shared.prng import Stream, uniform

if TYPE_CHECKING:
    import gymnasium

    from learner.networks.policy import Policy


class Agent:
    """A trained agent as an ordinary function, in float32. It does not change the settings of torch: by default these
    allow TF32 in convolutions on a GPU.

        agent = ringside.load_agent("zoo/pong")
        action = agent(observation)

    An agent that learned a policy samples its actions, unless it was loaded or evaluated with greedy ones. The same
    seed and the same calls give the same actions.

    Observations are those of Gymnasium's `AtariPreprocessing` and `FrameStackObservation(padding_type="zero")`: the
    newest frames, by default uint8[4, 84, 84], oldest first, or those of several environments, uint8[n, 4, 84, 84].
    `observation_shape` says the shape of this agent's, which depends on --frame-size, --frame-color and --frame-stack.

    An agent of a recurrent network remembers what it was called with. Call `reset` when an episode begins.
    """

    def __init__(self, weights: StoredWeights, device: str, actions: EvalActions, seed: int) -> None:
        """`actions` of each call are greedy ones, or sampled from the policy by `seed`."""
        self.game = weights.game
        self.protocol = weights.protocol
        self.actions = weights.network.actions
        """Number of actions, in the order of the environment of `env`."""
        self.observation_shape = weights.network.frames.observation
        """Shape of an observation: (stack, size, size), or (stack, 3, size, size) in color."""
        self._weights, self._device = weights, device
        self._policies: dict[int, Policy] = {}
        self._method = method_of(weights.network)
        self._samples, self._seed, self._calls = actions == "sample", seed, 0
        self._state: NDArray[np.float32] | None = None  # of the environments of the newest call
        self._next_state = np.zeros((0, 2, 0), np.float32)

    @property
    def has_policy(self) -> bool:
        """True if the agent learned a policy, False if it learned action values."""
        return self._method.samples_actions

    @property
    def recurrent(self) -> bool:
        """True if the agent remembers earlier observations of an episode."""
        return self._weights.network.recurrent > 0

    def reset(self, which: NDArray[np.bool_] | None = None) -> None:
        """Forget what came before, at the beginning of episodes. An agent that is not recurrent remembers nothing.

        Args:
            which: bool[n], of the environments of the newest call; default: all, and the next call may have others.

        Raises:
            ValueError: the newest call had another number of environments.
        """
        if which is None:
            self._state = None
        elif self._state is not None:
            begins = np.asarray(which, bool)
            self._require_rows(len(np.atleast_1d(begins)))
            self._state[begins] = 0

    def __call__(self, observation: NDArray[np.uint8]) -> Any:
        """Action, an int, for an observation uint8[*observation_shape]; actions int64[n] for n of them, uint8[n, ...].

        Raises `ValueError` for an observation of another shape or kind; of a recurrent agent also for another number of
        environments than before.
        """
        return self._act(observation, sampled=self._samples)

    def predict(
        self, observation: NDArray[np.uint8], state: Any = None, episode_start: Any = None, deterministic: bool = False
    ) -> tuple[NDArray[np.int64], NDArray[np.float32] | None]:
        """Action and next state, with arguments and results of Stable-Baselines3's `predict`.

        Args:
            observation: as for `__call__`.
            state: what the call before returned, for a recurrent agent; None: every episode begins. Other agents ignore
                it, and return None.
            episode_start: bool[n], of the environments in which an episode begins.
            deterministic: True for the best action of an agent that samples.
        """
        self._state = np.array(state) if self.recurrent and state is not None else None
        if episode_start is not None:
            self.reset(episode_start)
        return np.asarray(self._act(observation, sampled=self._samples and not deterministic)), self._state

    def _act(self, observation: NDArray[np.uint8], *, sampled: bool) -> Any:
        from learner.networks.categorical import sample_at
        from learner.networks.policy import greedy

        values, _ = self._answer(observation)
        rows = np.atleast_2d(values)
        if self.recurrent:
            self._state = self._next_state
        if sampled:
            self._calls += 1
            draws = [uniform(self._seed, Stream.POLICY, row, self._calls) for row in range(len(rows))]
            chosen = sample_at(rows, np.array(draws))[0].astype(np.int64)
        else:
            chosen = greedy(rows)
        return int(chosen[0]) if values.ndim == 1 else chosen

    def q_values(self, observation: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Q(s, .), float32[actions] or float32[n, actions], of the observations of `__call__`.

        Raises:
            ValueError: the agent learned a policy, or as `__call__` does.
        """
        if self.has_policy:
            raise ValueError(
                f"An agent of --method {self._method.name} has no Q-values: ask for probabilities(observation) or "
                "value(observation)."
            )
        return self._answer(observation)[0]

    def probabilities(self, observation: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Probability of each action, float32[actions] or float32[n, actions], of the observations of `__call__`.

        Raises:
            ValueError: the agent learned action values, or as `__call__` does.
        """
        from learner.networks.categorical import probabilities

        if not self.has_policy:
            raise ValueError(
                f"An agent of --method {self._method.name} has no policy with probabilities: ask for "
                "q_values(observation)."
            )
        values, _ = self._answer(observation)
        return probabilities(np.atleast_2d(values)).reshape(values.shape)

    def value(self, observation: NDArray[np.uint8]) -> Any:
        """Value of the state, a float, or float32[n] of the observations of `__call__`.

        It is V(s) where the agent learned a policy, else the greatest Q(s, a).
        """
        values, state_values = self._answer(observation)
        found = values.max(axis=-1) if state_values is None else state_values
        return float(found) if values.ndim == 1 else found

    def _answer(self, observation: NDArray[np.uint8]) -> tuple[NDArray[np.float32], NDArray[np.float32] | None]:
        """Q-values or logits of observations, and V(s) where the network has that output."""
        stacks, shape = np.asarray(observation), self.observation_shape
        single = stacks.shape == shape
        if stacks.dtype != np.uint8 or not (single or stacks.shape[1:] == shape) or not stacks.size:
            lengths = ", ".join(map(str, shape))
            raise ValueError(
                f"An observation is uint8[{lengths}], or uint8[n, {lengths}] for several environments; this one is "
                f"{stacks.dtype}{list(stacks.shape)}."
            )
        rows = 1 if single else len(stacks)
        policy = self._policy_for(rows)
        padded = np.zeros((policy.batch, *shape), np.uint8)
        padded[:rows] = stacks
        state = policy.fresh_state()
        if self._state is not None:
            self._require_rows(rows)
            state[:rows] = self._state
        values = policy.values(padded, state)
        self._next_state = policy.next_state[:rows]
        state_values = policy.state_values if self._weights.network.value_output else None
        asked = 0 if single else slice(rows)
        return values[asked], None if state_values is None else state_values[asked]

    def _require_rows(self, rows: int) -> None:
        if self._state is not None and rows != len(self._state):
            raise ValueError(
                f"This recurrent agent remembers {len(self._state)} environments, and was called with {rows}: call "
                "reset() before another number of them."
            )

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


def load_agent(
    load: str | Path,
    *,
    env: str | None = None,
    plugin: str | None = None,
    network: str | type | None = None,
    device: str = "auto",
    seed: int = 1,
    eval_actions: Literal["auto", EvalActions] = "auto",
) -> Agent:
    """Agent of a run directory, a checkpoint, a file of weights or a zoo name.

    Args:
        load: as for `ringside.evaluate`.
        env: the env on which the agent must have been trained. It is compared, not imported: an agent is a function and
            plays no env by itself.
        plugin: the plug-in with which the agent was trained; it is imported.
        network: the class of its network, or `module:Class`, if that is none of Ringside's.
        device: auto, cpu, cuda or cuda:N.
        seed: of the actions that are sampled.
        eval_actions: sample, from the policy, or greedy; auto: as in the evaluations of the run.

    Raises:
        ConfigError: there is no such agent or device, it was trained on another env, or it has no policy to sample.
    """
    weights = weights_at(load, env, plugin, network, plays=False)
    rules = rules_of(weights, Play(), eval_actions=eval_actions)  # no rule of a game matters
    return Agent(weights, device_of(device), rules.actions, int(seed))
