"""The task `tune`: a search for settings with Optuna, one training after another, or many at once with `--ray`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from ringside.programs.placing import ClusterOptions
from ringside.tasks.arguments import Choices, config_of, parse_choices
from ringside.tuning.search import DEFAULT_TRIALS, run_study
from shared.text import PROGRAM, command, printable, words_of


@dataclass(frozen=True)
class Tune(ClusterOptions, Choices):
    """The options of `tune`: those of training except `replaced`, and these."""

    replaced: ClassVar[Mapping[str, str]] = {"run_dir": "out", "resume": "out"}
    trials: int = DEFAULT_TRIALS
    """Trainings of the study, those of earlier calls included."""
    space: Path | None = None
    """TOML file with a table for each setting to search (docs/tuning.md); default: what matters most."""
    out: Path | None = None
    """Directory of the study, its runs and its report; default: runs/tune-GAME. The same directory continues it."""
    prune: bool = True
    """Stop a trial whose evaluation is below the median of the trials before."""


OPTIONS = Tune


def main(arguments: Sequence[str]) -> int:
    """Run the study. Return 1 if it was stopped, or no trial is complete."""
    options = parse_choices(
        Tune,
        arguments,
        f"{PROGRAM} tune",
        "Search for settings with Optuna: one training after another, judged and pruned by their evaluations. The same "
        "command continues where it was stopped. Without --eval-every-steps there are five evaluations in a trial.",
    )
    config = config_of(options)
    result = run_study(
        config,
        options.preset,
        trials=options.trials,
        space=options.space,
        out=options.out,
        prune=options.prune,
        note=lambda sentence: print(printable(sentence), flush=True),
        cluster=options,
    )
    if result.stopped:
        print("Stopped. The same command continues where it was.")
    if result.best is not None:
        best = result.best
        print(printable(f"The best is trial {best.number}, mean return {best.value:.2f}: {result.best_config}"))
        named = words_of(env=config.play.env, plugin=config.run.plugin)  # which no file decides
        if result.report is not None:
            print(printable(f"The report is in {result.report}."))
        print(printable(f"Train with these settings: {command('--config', str(result.best_config), *named)}"))
    return 1 if result.stopped or result.best is None else 0
