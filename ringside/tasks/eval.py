"""The task `eval`: whole episodes with trained weights, judged by the rules of their protocol and run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from actors.envs.atari import games
from ringside import evaluating
from ringside.tasks.arguments import parse
from shared.config.protocols import acting_in_words
from shared.config.settings import FRAME_SKIP, EvalActions
from shared.files.result_files import require_writable, write_result
from shared.text import PROGRAM, count


@dataclass(frozen=True)
class Evaluation:
    """The options of `eval`."""

    load: Path
    """Run directory, checkpoint, file of weights, or name of an agent of the zoo."""
    env: str | None = None
    """The env that the agent was trained on, where that is module:factory or module:Id-v0; no file chooses code."""
    plugin: str | None = None
    """The plug-in that the agent was trained with (docs/extending.md); no file chooses code."""
    episodes: int | None = None
    """Episodes to play; default: as the protocol says, which may count steps instead."""
    json: Path | None = None
    """Write the result to this file, too."""
    seed: int = 1
    """Seed of no-ops, epsilon, sticky and sampled actions."""
    eval_epsilon: float | None = None
    """Chance of a random action; default: that of the run that trained the agent."""
    eval_max_frames: int | None = None
    """Emulator frames after which an episode is cut, no-ops not counted; default: as for --eval-epsilon."""
    eval_actions: Literal["auto", EvalActions] = "auto"
    """sample: actions drawn from the agent's policy; greedy: the best ones; auto: as in the evaluations of its run."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""


OPTIONS = Evaluation


def main(arguments: Sequence[str]) -> int:
    """Evaluate an agent: print the result, and write it as JSON if requested."""
    options = parse(
        Evaluation,
        arguments,
        f"{PROGRAM} eval",
        "Play whole episodes with trained weights, by the rules of their protocol and run.",
    )
    if options.json is not None:
        require_writable("--json", options.json)
    result = evaluating.evaluate(
        options.load,
        env=options.env,
        plugin=options.plugin,
        episodes=options.episodes,
        seed=options.seed,
        device=options.device,
        eval_epsilon=options.eval_epsilon,
        eval_max_frames=options.eval_max_frames,
        eval_actions=options.eval_actions,
    )
    print(
        f"{_rules_of(result)}: mean {result['mean']:.2f} +- {result['sd']:.2f}, median {result['median']:.2f}, "
        f"best {result['best']:.2f} of {count(result['episodes'], 'episode')}"
    )
    normalized = result["human_normalised"]
    if normalized is not None:
        print(f"human-normalized {normalized:.3f} (reference: {result['human_normalised_source']})")
    if options.json is not None:
        write_result("--json", options.json, result)
    return 0


def _rules_of(result: dict[str, Any]) -> str:
    """Game and rules as text; the rules of a protocol apply only to games."""
    rules = f"{acting_in_words(result['eval_actions'], result['eval_epsilon'])}, at most"
    if result["game"] in games():
        return f"{result['game']}, protocol {result['protocol']}, {rules} {result['eval_max_frames']:,} frames"
    return f"{result['game']}, {rules} {result['eval_max_frames'] // FRAME_SKIP:,} steps"
