"""The task `tune`: a search for settings with Optuna, one training after another, or many at once with `--ray`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from ringside.cluster.placing import ClusterOptions
from ringside.command.arguments import Choices, config_of, parse_choices
from shared.config.trust import code_named
from shared.text import command, printable, words_of


@dataclass(frozen=True)
class Options(ClusterOptions, Choices):
    """Search for settings with Optuna: one training after another, judged and pruned by their evaluations. The same
    command continues where it was stopped. Without --eval-every-steps there are five evaluations in a trial."""

    replaced: ClassVar[Mapping[str, str]] = {"run_dir": "out", "resume": "out"}
    trials: int = 20
    """Trainings of the study, those of earlier calls included."""
    space: Path | None = None
    """TOML file with a table for each setting to search (docs/tuning.md); default: what matters most."""
    out: Path | None = None
    """Directory of the study, its runs and its report; default: runs/tune-GAME. The same directory continues it."""
    prune: bool = True
    """Stop a trial whose evaluation is below the median of the trials before."""


def main(arguments: Sequence[str]) -> int:
    """Run the study. Return 1 if it was stopped, or no trial is complete."""
    options = parse_choices(Options, arguments, "tune")
    from ringside.command.study import Search  # which loads Optuna

    def say(sentence: str) -> None:
        print(printable(sentence), flush=True)

    own = (options.trials, options.space, options.out, options.prune)
    result = Search(config_of(options), options.preset, *own, options, say).run()
    if result.stopped:
        say("Stopped. The same command continues where it was.")
    if result.best is None:
        return 1
    say(f"The best is trial {result.best.number}, mean return {result.best.value:.2f}: {result.best.run_dir}")
    if result.report is not None:
        say(f"The report is in {result.report}.")
    again = ["--config", str(result.best.run_dir), *words_of(**code_named(options))]  # no file decides what code runs
    say(f"Train with these settings: {command(*again)}")
    return 1 if result.stopped else 0
