"""The task `suite`: the same training on many games and seeds, one run after another, and a report of all.

With `--ray` the runs are placed on the nodes of a cluster, many at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from ringside.cluster.placing import ClusterOptions, programs_in
from ringside.command.arguments import Choices, config_of, parse_choices
from ringside.command.suite_games import SUITES, games_of
from ringside.command.suite_runner import Suite, SuiteRunner, make_jobs
from shared.config import validate
from shared.errors import ConfigError
from shared.root import LAUNCHER

MOST_SEEDS = 1_000


@dataclass(frozen=True)
class SuiteOptions(ClusterOptions, Choices):
    """Train on many games and seeds, one run after another, evaluate each by its protocol, and report. The same command
    continues where it was stopped."""

    replaced: ClassVar[Mapping[str, str]] = {
        "game": "games",
        "env": "games",
        "env_kwargs": "games",
        "seed": "seeds",
        "run_dir": "out",
        "resume": "out",
    }
    games: str = "atari5"
    """atari5, atari26, atari57, or games separated by commas."""
    seeds: int = 3
    """Runs of each game, with seeds from 1 on."""
    out: Path | None = None
    """Directory of the runs and their report; default: runs/GAMES. The same directory and options continue it."""
    final_episodes: int | None = None
    """Episodes of the evaluation after each run; default: as the protocol says, which may count steps instead."""


OPTIONS = SuiteOptions


def main(arguments: Sequence[str]) -> int:
    """Run the suite. Return 1 if a run or an evaluation failed, or the suite was stopped."""
    options = parse_choices(SuiteOptions, arguments, "suite")
    suite = make_suite(options)
    with programs_in(suite.out, "a suite that is still going on", options, LAUNCHER) as programs:
        return SuiteRunner(suite, programs).run()


def make_suite(options: SuiteOptions) -> Suite:
    """The suite of the options. Raises `ConfigError` if one is wrong, or a directory holds another run."""
    validate.require_between("--seeds", options.seeds, MOST_SEEDS)
    if options.final_episodes is not None:
        validate.require_between("--final-episodes", options.final_episodes, validate.MOST_EPISODES)
    if not options.run.checkpoint_replay:
        raise ConfigError("--no-checkpoint-replay is not for suites: the runs of one that was stopped go on, exactly.")
    if options.run.stop_at is not None:
        raise ConfigError("--stop-at is not for suites, whose runs all have the same steps: omit it.")
    options.check()
    games = games_of(options.games)
    out = options.out or Path("runs") / (options.games if options.games in SUITES else "-".join(games)[:80])
    config = config_of(options)
    return Suite(
        config=config,
        preset=options.preset,
        jobs=make_jobs(config, games, options.seeds, out if options.ray is None else out.absolute()),
        out=out,
        final_episodes=options.final_episodes,
        # On a cluster the node decides: this machine may have another device.
        device=None if options.ray is None else options.machine.device,
    )
