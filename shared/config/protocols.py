"""The named protocols: rules of preprocessing and of episodes (docs/protocols.md).

A protocol is a name in the configuration, in every checkpoint and in every score, because two scores under
different rules cannot be compared.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from shared.config.method_declaration import MethodDeclaration
from shared.config.sections import FRAME_SKIP, EvalActions, Evaluate, Play, ProtocolName
from shared.errors import ConfigError


@dataclass(frozen=True)
class Protocol:
    """The rules under which a game is played, trained on and evaluated."""

    name: ProtocolName
    sticky: float
    """Chance, at each emulator frame, that the previous action is repeated instead of the chosen one."""
    noop_max: int
    """An episode opens with `noop_min` to `noop_max` emulator frames of no action; 0: with none."""
    life_ends_return: bool
    """True if, in training, a lost life ends the return. The emulator is not reset, and the stack is not cleared."""
    fire_on_reset: bool
    """True if one FIRE follows the no-ops of a reset, in games whose minimal action set has it."""
    action_set: Literal["minimal", "full"]
    """minimal: the actions that the game distinguishes; full: all 18 of the console."""
    longest_episode_frames: int
    """Emulator frames, no-ops included, after which an episode of training is truncated; 0: never."""
    eval_episodes: int
    """Episodes of one evaluation, unless told otherwise."""
    eval_epsilon: float
    """Chance of a random action in evaluation, unless told otherwise."""
    eval_max_frames: int
    """Emulator frames, no-ops not counted, after which an evaluation cuts an episode, unless told otherwise."""
    eval_steps: int | None = None
    """Steps of an evaluation of finished weights, unless a number of episodes is told; None: `eval_episodes` episodes.
    They are counted over the episodes in their order."""
    frames: Literal["area", "bilinear"] = "area"
    """area: the maximum of grays, shrunk by area averages; bilinear: the luma of the maximum of colors, by Pillow's
    bilinear filter, as in dqn_zoo."""
    drops_last_episode: bool = False
    """True if the episode that goes beyond `eval_steps` is left out; else it is played to its end, and counts."""
    noop_min: int = 1
    """Least number of no-ops, where `noop_max` is not 0."""


@dataclass(frozen=True)
class EvalRules:
    """The rules of an evaluation that are not those of its protocol's games."""

    epsilon: float
    """Chance of a random action."""
    max_frames: int
    """Emulator frames after which an episode is cut, counted from the first action of the agent."""
    actions: EvalActions = "greedy"
    """sample: drawn from the policy; greedy: the best action."""


_NATURE = Protocol(
    name="nature",
    sticky=0.0,
    noop_max=30,
    life_ends_return=True,
    fire_on_reset=False,
    action_set="minimal",
    longest_episode_frames=108_000,
    eval_episodes=30,
    eval_epsilon=0.05,
    eval_max_frames=18_000,
)
_ENVPOOL = replace(_NATURE, name="envpool", fire_on_reset=True, eval_max_frames=108_000)
_STICKY = replace(_ENVPOOL, sticky=0.25, noop_max=0, life_ends_return=False, fire_on_reset=False, eval_epsilon=0.001)
_DOPAMINE = replace(_STICKY, name="dopamine", eval_steps=125_000)
_MACHADO = replace(_STICKY, name="machado", action_set="full", eval_episodes=100)
_BY_STEPS = replace(_NATURE, eval_max_frames=108_000, eval_steps=125_000)
_DQN_ZOO = replace(_BY_STEPS, name="dqn_zoo", frames="bilinear", drops_last_episode=True)
_NO_STICKY = replace(_NATURE, eval_max_frames=108_000, eval_episodes=100, eval_epsilon=0.001)
_ATARI_100K = replace(_NO_STICKY, name="atari100k", noop_min=0, noop_max=29)
_ALL = _NATURE, _MACHADO, _ENVPOOL, _DOPAMINE, _DQN_ZOO, _ATARI_100K
PROTOCOLS: dict[str, Protocol] = {each.name: each for each in _ALL}
"""Protocols by name. Sources: nature, Mnih et al. 2015, Methods ("Evaluation procedure": 30 games of up to 5 minutes)
and Extended Data Table 1; machado, Machado et al. 2018, "Revisiting the Arcade Learning Environment", with epsilon and
episodes of evaluation as Dopamine's; envpool, the wrappers of Weng et al. 2022 (atari_env.h), which before FIRE play
one no-op less, play both again after a lost life, and begin a stack with copies; dopamine, the files
dopamine/discrete_domains/atari_lib.py and run_experiment.py with the configurations dopamine/jax/agents/*/configs;
dqn_zoo, the files dqn_zoo/gym_atari.py, processors.py, parts.py and dqn/run_atari.py; atari100k, Dopamine's
dopamine/labs/atari_100k, file by file below.

eval_run_experiment.py (`MaxEpisodeEvalRunner`): 0 to 29 no-ops, a frame each, in training and evaluation; 100 episodes.
configs/*.gin: no sticky actions, a lost life ends the return, 27,000 steps an episode, 0.001. Rewards are clipped, and
the action set is minimal (run_experiment.py, atari_lib.py). The present runner (atari_100k_runner.py) plays 0 to 29
no-ops of a whole step. Theirs also clears the stack at a lost life, in evaluations too, and ends the step there."""

LONGEST_EPISODE_STEPS = 27_000
"""Steps after which an episode of a Gymnasium environment is truncated, in training and in evaluation."""


def eval_rules(play: Play, evaluate: Evaluate, method: MethodDeclaration) -> EvalRules:
    """Rules of an evaluation of `play`: what `evaluate` says, else what method and protocol do.

    A protocol's epsilon is about agents that act greedily by action values: a policy is evaluated without one. A
    protocol's limit of frames is about Atari: another environment has its own ends.

    Raises:
        ConfigError: actions are to be sampled, and the method learns no policy.
    """
    protocol = PROTOCOLS[play.protocol]
    max_frames = protocol.eval_max_frames if play.env is None else FRAME_SKIP * LONGEST_EPISODE_STEPS
    epsilon = 0.0 if method.samples_actions else protocol.eval_epsilon
    usual: EvalActions = "sample" if method.samples_actions else "greedy"
    actions = usual if evaluate.eval_actions == "auto" else evaluate.eval_actions
    if actions == "sample" and not method.samples_actions:
        why = f"--method {method.name} learns action values"
        raise ConfigError(f"--eval-actions sample draws from a policy, and {why}: omit it, or pass greedy.")
    return EvalRules(
        epsilon if evaluate.eval_epsilon is None else evaluate.eval_epsilon,
        max_frames if evaluate.eval_max_frames is None else evaluate.eval_max_frames,
        actions,
    )


def acting_in_words(actions: str, epsilon: float) -> str:
    """Choice of actions in an evaluation: "greedy actions and epsilon 0.05", "sampled actions"."""
    if actions == "sample":
        return "sampled actions" + (f" and epsilon {epsilon:g}" if epsilon else "")
    return f"greedy actions and epsilon {epsilon:g}"
