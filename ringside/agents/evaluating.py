"""Evaluation of trained weights by the rules of their protocol and run.

An `EvaluationPolicy` is a trained network as evaluations query it: in batches of a fixed size.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from actors.evaluation import Evaluation, OnEpisode, play_episodes
from actors.filming import require_format
from ringside.agents.stored_weights import method_of, play_of, require_actions, rules_of, weights_at
from ringside.records.scores import SOURCE, summarize
from shared.checkpoint.weights_file import StoredWeights
from shared.config import validate
from shared.config.protocols import PROTOCOLS, EvalRules
from shared.config.resolve import device_of
from shared.config.sections import EvalActions
from shared.machine import facts
from shared.process.library_env import choose_workspace
from shared.process.signals import killed_by_interrupt

ROWS = 8
"""Emulators of an evaluation, which is also the batch of its network. Episode `i` is in row `i % ROWS`, so that its
numbers do not depend on the number of episodes."""


class EvaluationPolicy:
    """A network for evaluations, and its arithmetic.

    Attributes:
        policy: the network, for batches of `ROWS` stacks.
        has_policy: True if the values of the network are the logits of a policy.
    """

    def __init__(self, weights: StoredWeights, device: str, *, captured: bool = True) -> None:
        """Configure torch for this process, and load the weights.

        Args:
            captured: see `Policy`.
        """
        import torch

        from learner.engine.device import prepare_torch
        from learner.networks.policy import Policy

        self.device = device_of(device)
        self.precision = "fp32"  # bf16 where a CPU has it would make scores depend on the machine
        self.threads = 1  # a batch of eight is too small for several threads: they were four times slower
        self.has_policy = method_of(weights.network).samples_actions
        choose_workspace()
        on = torch.device(self.device)
        prepare_torch(on, self.precision, self.threads)
        self.policy = Policy(weights.network, on, self.precision, ROWS, captured=captured)
        self.policy.load(weights.flat)

    def choose(self, values: NDArray[np.float32], draws: NDArray[np.float64], rules: EvalRules) -> NDArray[np.int64]:
        """Actions int64[n] for values [n, actions] by the rules of an evaluation: greedy, or sampled at the draws."""
        from learner.networks.categorical import sample_at
        from learner.networks.policy import greedy

        return sample_at(values, draws)[0].astype(np.int64) if rules.actions == "sample" else greedy(values)

    def shown(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Numbers that a viewer sees for values [n, actions]: the probabilities of a policy, or Q-values."""
        from learner.networks.categorical import probabilities

        return probabilities(values) if self.has_policy else values


def load_libraries() -> None:
    """Load PyTorch and the networks, for a command that uses them next: Ctrl-C kills it meanwhile."""
    with killed_by_interrupt():
        import torch  # noqa: F401

        from learner.networks import policy  # noqa: F401


def evaluate(
    load: str | Path,
    *,
    env: str | None = None,
    plugin: str | None = None,
    network: str | type | None = None,
    episodes: int | None = None,
    seed: int = 1,
    device: str = "auto",
    eval_epsilon: float | None = None,
    eval_max_frames: int | None = None,
    eval_actions: Literal["auto", EvalActions] = "auto",
    on_episode: OnEpisode = lambda episode: None,
    video: str | Path | None = None,
) -> dict[str, Any]:
    """Play whole episodes with trained weights by the rules of their protocol and run, and summarize the raw returns.

    Args:
        load: a run directory, a checkpoint, a file of weights or the name of an agent in the zoo.
        env: the `module:factory` or `module:Id-v0` that the agent was trained on. The name in the
            file is only compared with it, so that no file chooses code.
        plugin, network: the plug-in and the class of the network with which the agent was trained, likewise.
        episodes: number of episodes; by default that of the protocol, which may count steps instead.
        eval_epsilon: chance of a random action; by default that of the run that trained the weights.
        eval_max_frames: emulator frames after which an episode is cut; by default that of the run.
        eval_actions: sample, from the policy, or greedy; auto: as in the evaluations of the run.
        on_episode: called when an episode has ended, with its `number`, `total` and `steps`. Where the protocol counts
            steps, the last episodes may not count.
        video: an .mp4 or .gif file for a video of the first episode, one screen a step. An error of the disk ends the
            video, with a sentence on standard error, not the evaluation.

    Returns:
        JSON values: episodes, mean, sd (population), median, best, human_normalized, and the conditions.
    """
    validate.episodes(episodes, seed)
    if video is not None:
        require_format(Path(video))
    weights = weights_at(load, env, plugin, network)
    play = play_of(weights)
    rules = rules_of(
        weights, play, eval_epsilon=eval_epsilon, eval_max_frames=eval_max_frames, eval_actions=eval_actions
    )
    require_actions(weights, play)
    protocol = PROTOCOLS[weights.protocol]
    acting = EvaluationPolicy(weights, device, captured=False)  # a user's threads may use the GPU
    stacks = np.zeros((ROWS, *play.frames.observation), np.uint8)
    state = acting.policy.fresh_state()

    def ask(draws: NDArray[np.float64], starts: NDArray[np.bool_]) -> NDArray[np.uint8]:
        state[starts] = 0
        values = acting.policy.values(stacks, state)
        state[:] = acting.policy.next_state
        return acting.choose(values, draws, rules).astype(np.uint8)

    steps = protocol.eval_steps if episodes is None else None
    played = play_episodes(
        Evaluation(play, rules, int(seed), 0),
        stacks,
        ask,
        episodes=None if steps else episodes or protocol.eval_episodes,
        steps=steps or 0,
        drops_last=protocol.drops_last_episode,
        on_episode=on_episode,
        video=None if video is None else Path(video),
    )
    returns = [episode.total for episode in played]
    return {
        "game": weights.game,
        "protocol": weights.protocol,
        **asdict(summarize(weights.game, returns)),
        "human_normalized_source": SOURCE,
        "returns": returns,
        "steps": sum(episode.steps for episode in played),
        "eval_epsilon": rules.epsilon,
        "eval_max_frames": rules.max_frames,
        "eval_actions": rules.actions,
        "eval_steps": steps,
        "seed": int(seed),
        "version": weights.version,
        "device": acting.device,
        "precision": acting.precision,
        "threads": acting.threads,
        "machine": facts.describe(),
    }
