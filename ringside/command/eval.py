"""The task `eval`: whole episodes with trained weights, judged by the rules of their protocol and run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from actors.envs.atari import games
from actors.evaluation import Episode
from ringside.agents import evaluating
from ringside.agents.evaluating import load_libraries
from ringside.agents.stored_weights import weights_at, with_protocol
from ringside.command.arguments import PlayingOptions, parse
from shared.config.protocols import acting_in_words
from shared.config.sections import FRAME_SKIP
from shared.files.result_files import require_writable, write_result
from shared.text import count


@dataclass(frozen=True, kw_only=True)
class Options(PlayingOptions):
    """Play whole episodes with trained weights, by the rules of their protocol and run."""

    episodes: int | None = None
    """Episodes to play; default: as the protocol says, which may count steps instead."""
    json: Path | None = None
    """Write the result to this file, too."""


def main(arguments: Sequence[str]) -> int:
    """Evaluate an agent: print the result, and write it as JSON if requested."""
    options = parse(Options, arguments, "eval")
    if options.json is not None:
        require_writable("--json", options.json, beside=options.load)
    weights_at(options.load, **options.named)  # which is refused before seconds of loading
    load_libraries()
    rules = options.given_rules | {"episodes": options.episodes, "seed": options.seed, "device": options.device}
    result = evaluating.evaluate(options.load, on_episode=_print_episode, **options.named, **rules)
    print(
        f"{_rules_of(result)}: mean {result['mean']:.2f} +- {result['sd']:.2f}, median {result['median']:.2f}, "
        f"best {result['best']:.2f} of {count(result['episodes'], 'episode')}"
    )
    if (normalized := result["human_normalized"]) is not None:
        print(f"human-normalized {normalized:.3f} (reference: {result['human_normalized_source']})")
    if options.json is not None:
        write_result("--json", options.json, result)
    return 0


def _print_episode(episode: Episode) -> None:
    print(f"episode {episode.number} returned {episode.total:,.10g} after {count(episode.steps, 'step')}", flush=True)


def _rules_of(result: dict[str, Any]) -> str:
    """Game and rules as text; the rules of a protocol apply only to games."""
    acting, most = acting_in_words(result["eval_actions"], result["eval_epsilon"]), result["eval_max_frames"]
    length = f"{most:,} frames" if result["game"] in games() else f"{most // FRAME_SKIP:,} steps"
    return f"{with_protocol(result['game'], result['protocol'])}, {acting}, at most {length}"
