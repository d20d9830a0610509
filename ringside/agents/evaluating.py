"""Evaluation of trained weights by the rules of their protocol and run."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from actors.evaluation import Evaluation, OnEpisode, play_episodes
from ringside.agents.evaluation_policy import ROWS, make_evaluation_policy
from ringside.agents.stored_weights import play_of, require_actions, rules_of, weights_at
from ringside.records.scores import SOURCE, summarize
from shared.config import validate
from shared.config.protocols import PROTOCOLS
from shared.config.sections import EvalActions
from shared.machine import facts


def evaluate(
    load: str | Path,
    *,
    env: str | None = None,
    plugin: str | None = None,
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
        plugin: the plug-in that the agent was trained with, likewise.
        episodes: number of episodes; by default that of the protocol, which may count steps instead.
        eval_epsilon: chance of a random action; by default that of the run that trained the weights.
        eval_max_frames: emulator frames after which an episode is cut; by default that of the run.
        eval_actions: sample, from the policy, or greedy; auto: as in the evaluations of the run.
        on_episode: called when an episode has ended, with its `number`, `total` and `steps`. Where the protocol counts
            steps, the last episodes may not count.
        video: an .mp4 file for a video of the first episode, one screen a step. An error of the disk ends the video,
            with a sentence on standard error, not the evaluation.

    Returns:
        JSON values: episodes, mean, sd (population), median, best, human_normalized, and the conditions.
    """
    validate.episodes(episodes, seed)
    weights = weights_at(load, env, plugin)
    play = play_of(weights)
    rules = rules_of(
        weights, play, eval_epsilon=eval_epsilon, eval_max_frames=eval_max_frames, eval_actions=eval_actions
    )
    require_actions(weights, play)
    protocol = PROTOCOLS[weights.protocol]
    network = make_evaluation_policy(weights, device, ROWS, captured=False)  # a user's threads may use the GPU
    stacks = np.zeros((ROWS, *play.frames.observation), np.uint8)
    state = network.policy.fresh_state()

    def ask(draws: NDArray[np.float64], starts: NDArray[np.bool_]) -> NDArray[np.uint8]:
        state[starts] = 0
        values = network.policy.values(stacks, state)
        state[:] = network.policy.next_state
        return network.choose(values, draws, rules).astype(np.uint8)

    steps = protocol.eval_steps if episodes is None else None
    played = play_episodes(
        Evaluation(play, rules, seed, 0),
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
        "seed": seed,
        "version": weights.version,
        "device": network.device,
        "precision": network.precision,
        "threads": network.threads,
        "machine": facts.describe(),
    }
