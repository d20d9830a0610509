"""The search for settings from Python: `ringside.tune`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Unpack

from ringside import planning
from ringside.programs.placing import ClusterOptions, programs_in
from ringside.report.writing import write_report
from ringside.settings.config_file import DEFAULT_PRESET, config_of_call
from ringside.settings.train_settings import TrainSettings
from ringside.tuning.space import Space, checked_space, default_space, make_space, read_space
from ringside.tuning.study import BEST_FILE, Task, TrialResult, Tuner, require_optuna
from shared.config.checks import validate
from shared.config.settings import Config
from shared.errors import ConfigError
from shared.process.ownership import REPORT
from shared.root import LAUNCHER
from shared.text import count

DEFAULT_TRIALS = 20
MOST_TRIALS = 100_000
EVALUATIONS = 5
"""Evaluations of a trial where --eval-every-steps says nothing."""
MOST_REPORTED = 6
"""Runs in the report, the best trials."""


@dataclass(frozen=True)
class StudyResult:
    """A study after its last trial, or after a signal has stopped it."""

    best: TrialResult | None
    """None: no trial is complete."""
    trials: tuple[TrialResult, ...]
    report: Path | None
    """Page with the plots of the study; None: no trial is complete, or it could not be written."""
    best_config: Path | None
    """Settings of the best trial, for --config and `ringside.train(config=...)`."""
    stopped: bool
    """True if a signal stopped it; the same call continues."""


def tune(
    *,
    trials: int = DEFAULT_TRIALS,
    space: str | Path | Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    prune: bool = True,
    preset: str | None = None,
    config: str | Path | None = None,
    ray: str | None = None,
    cpus_per_run: int = 1,
    gpus_per_run: float = 0.0,
    ray_insecure: bool = False,
    note: Callable[[str], None] = print,
    **settings: Unpack[TrainSettings],
) -> StudyResult:
    """Search for settings by training one trial after another; the same call continues a study.

    Args:
        trials: number of trials, those of earlier calls included.
        space: a TOML file, or the same as a mapping: {"learning_rate": {"low": 1e-5, "high": 1e-3, "log": True}};
            default: what matters most with the method.
        out: directory of the study; default: runs/tune-GAME.
        prune: stop trials whose evaluations are below the median of those before.
        preset, config, settings: as for `ringside.train`.
        ray: "auto" or "HOST:PORT": run the trials on this Ray cluster, many at once.
        cpus_per_run, gpus_per_run: with `ray`: what a trial needs of a node.
        ray_insecure: with `ray`: accept a cluster without a token, on which any program that reaches it can run code.
        note: called with a sentence about each trial.

    Raises:
        ConfigError: Optuna is not installed, a setting or the space is wrong, or `out` holds another study.
    """
    for name, flag in (("resume", "--resume"), ("run_dir", "--run-dir")):
        if settings.get(name) is not None:
            raise ConfigError(f"A study says itself what {flag} is: omit it and use --out.")
    return run_study(
        config_of_call(preset, config, settings),
        preset or DEFAULT_PRESET,
        trials=trials,
        space=space,
        out=None if out is None else Path(out),
        prune=prune,
        note=note,
        cluster=ClusterOptions(ray, cpus_per_run, gpus_per_run, ray_insecure),
    )


def run_study(
    config: Config,
    preset: str,
    *,
    trials: int,
    space: str | Path | Mapping[str, Any] | None,
    out: Path | None,
    prune: bool,
    note: Callable[[str], None],
    cluster: ClusterOptions,
    launcher: Path = LAUNCHER,
) -> StudyResult:
    """As `tune`, with a configuration.

    Args:
        cluster: where the trials run.
        launcher: the program that trains, on this machine.
    """
    require_optuna()
    validate.require_between("--trials", trials, MOST_TRIALS)
    cluster.check()
    if not config.evaluate.eval_every_steps:
        config = config.with_settings(eval_every_steps=max(1, config.learn.total_steps // EVALUATIONS))
    ready = planning.check(config)
    source = f"--space {space}" if isinstance(space, str | Path) else "The space"
    wanted = checked_space(_space(space, config), config, source)
    planning.require_initial_weights(ready)
    out = out or Path("runs") / f"tune-{config.play.played.replace(':', '-').replace('/', '-')}"
    task = Task(config=config, preset=preset, space=wanted, out=out, trials=trials, prune=prune)
    if cluster.ray is not None:
        task = replace(task, out=out.absolute())  # which nodes see under the same path
    with programs_in(out, "a study or suite that is still going on", cluster, launcher) as programs:
        note(
            f"{count(trials, 'trial')} of {config.learn.total_steps:_} steps, judged by evaluations every "
            f"{config.evaluate.eval_every_steps:_} steps (--eval-every-steps)."
        )
        tuner = Tuner(task, programs, note)
        tuner.run()
        best, results = tuner.best(), tuple(tuner.results())
        report = None
        if best is None:
            note("No trial is complete, so there is no best one.")
        else:
            try:
                report = _report(task, tuner, results)
            except (ConfigError, OSError) as error:
                note(f"There is no report: {error}")
    best_config = None if best is None else task.out / BEST_FILE
    return StudyResult(best, results, report, best_config, tuner.stopped)


def _space(space: str | Path | Mapping[str, Any] | None, config: Config) -> Space:
    if space is None:
        return default_space(config)
    return make_space(space) if isinstance(space, Mapping) else read_space(Path(space))


def _report(task: Task, tuner: Tuner, results: Sequence[TrialResult]) -> Path:
    """Write the report: the plots of the study, and the runs of the best trials."""
    from ringside.tuning.study_plots import study_pictures  # which loads matplotlib

    directory = task.out / REPORT
    complete = sorted((trial for trial in results if trial.value is not None), key=lambda trial: -(trial.value or 0.0))
    pictures = study_pictures(results, task.space, tuner.importances(), directory)
    runs = [trial.run_dir for trial in complete[:MOST_REPORTED]]
    title = f"Settings for {task.config.play.played}"
    return write_report(runs, directory, title, task.config.play.env, task.config.run.plugin, pictures)[0]
