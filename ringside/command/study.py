"""A study: trials of settings, each a run of its own, chosen by Optuna and pruned by their evaluations.

The study lies in OUT/study.log, a journal of Optuna, and each run in OUT/trial-NUMBER. Several processes may work on
one study. So the same call continues where it stopped, and `--ray` starts the same command on the nodes of a cluster.
A trial whose process has died resumes its run.

A search space holds ranges and choices of settings, from a TOML file or by default, as distributions of Optuna.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from ringside.cluster.placing import ClusterOptions, programs_in
from ringside.report.records import load, newest
from ringside.report.report_page import write_report
from ringside.run import planning
from ringside.run.children import require_main_program
from ringside.run.config_file import DEFAULT_PRESET, config_of_call
from ringside.run.train_settings import TrainSettings
from ringside.run.training import Callbacks, run_plan
from shared.checkpoint.finding import newest_checkpoint
from shared.config import validate
from shared.config.method_declaration import method_declaration
from shared.config.sections import Evaluate
from shared.config.settings import Config
from shared.config.trust import NEVER_FROM_A_FILE
from shared.errors import ConfigError, FileError, RingsideError, require
from shared.files.lock import is_locked, locked
from shared.files.plain_files import open_to_read
from shared.files.result_files import make_result_directory
from shared.files.run_file_names import SUMMARY_FILE
from shared.files.strict_json import json_object, read_object, read_toml
from shared.process.ownership import LOCK_FILE, REPORT
from shared.process.signals import handle_stop_signals
from shared.text import count, flag_of, flags_of, refused, words_of

try:
    import optuna
    from optuna import distributions
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend
    from optuna.trial import FrozenTrial, Trial, TrialState
except ModuleNotFoundError:
    require("tune", "tune", "optuna")
    raise

LENGTH = ("total_steps", "eval_every_steps", "eval_episodes", "init_from", "stop_at")
"""Settings that a resume may change, but that make the evaluations of two trials incomparable."""
_EXCLUDED = {*NEVER_FROM_A_FILE, *LENGTH, *vars(Evaluate())}
_EXCLUDED |= {"env", "plugin", "game", "protocol", "seed", "checkpoint_replay"}
"""Settings that are the same in all trials."""

Space = dict[str, distributions.BaseDistribution]
GivenSpace = str | Path | Mapping[str, Any] | None
"""Name of a TOML file, or its tables; None: the default."""


def default_tables(config: Config) -> dict[str, dict[str, Any]]:
    """Settings that matter most with a method, over ranges that contain the published values."""
    tables = {"learning_rate": {"low": 1e-5, "high": 1e-3, "log": True}}
    if method_declaration(config.algorithm.method).on_policy:
        own = {
            "entropy_weight": {"low": 1e-4, "high": 0.05, "log": True},
            "clip_ratio": {"low": 0.05, "high": 0.3},
            "trace": {"low": 0.8, "high": 1.0},
        }
        return tables | {name: table for name, table in own.items() if hasattr(config.algorithm.settings, name)}
    tables["optimizer_epsilon"] = {"low": 1e-8, "high": 1e-2, "log": True}
    tables["n_step"] = {"low": 1 + config.algorithm.augment, "high": max(5, config.algorithm.n_step)}
    if config.explore.epsilon_start >= 0.1:  # the greatest end that is tried; noisy networks begin at 0
        tables["epsilon_end"] = {"low": 0.01, "high": 0.1, "log": True}
    return tables


def make_space(given: GivenSpace, config: Config) -> Space:
    """Space of a TOML file with a table for each setting, or of the same as a mapping; None: the default.

    The ends of every range, and all choices, are tried with the first values of the other settings.

    Raises:
        ConfigError: a table says nothing, or a trial cannot have one of its values.
    """
    source, space = "The space", dict[str, Any]()
    tables = default_tables(config) if given is None else given
    if not isinstance(tables, Mapping):
        source, tables = f"--space {tables}", read_toml("--space", Path(tables))
    with refused(f"{source} cannot be used:", ConfigError):
        for key, table in tables.items():
            name = key.replace("-", "_")
            if name in space:
                raise ConfigError(f"it names {name} twice: keep one table.")
            if name in _EXCLUDED:
                raise ConfigError(f"it names {name}, which is the same in all trials: omit it.")
            if name == "method" and isinstance(table, dict) and table.get("choices"):
                config = config.with_settings(method=table["choices"][0])  # what several methods have is of one type
            space[name] = _distribution(name, table, config)
        if not space:
            raise ConfigError("it names no setting: it needs a table for each, such as [learning_rate].")
        first = {name: values_of(each)[0] for name, each in space.items()}
        for name, each in space.items():
            for value in values_of(each):
                planning.check(config.with_settings(**(first | {name: value})))
    return space


def values_of(each: Any) -> tuple[Any, ...]:
    """Values to check: the ends of a range, or all choices. If they are valid, all are."""
    return tuple(each.choices) if isinstance(each, distributions.CategoricalDistribution) else (each.low, each.high)


def _distribution(name: str, table: Any, config: Config) -> distributions.BaseDistribution:
    """The distribution of a table; whole numbers exactly for a setting that is one. Raises `ConfigError`."""
    try:
        if set(table) == {"choices"}:
            return distributions.CategoricalDistribution(table["choices"])
        given = {each: table[each] for each in ("low", "high", "step") if each in table}
        numbers = {each: config.with_settings(**{name: number}).to_flat()[name] for each, number in given.items()}
        kind = distributions.IntDistribution if type(numbers["low"]) is int else distributions.FloatDistribution
        return kind(**(table | numbers))
    except ConfigError:
        raise
    except (TypeError, AttributeError, KeyError, ValueError, ArithmeticError) as error:
        raise ConfigError(
            f"the space of {name} is {table!r:.120} ({error}): write low and high, with log = true or a step, or "
            "choices = [...]."
        ) from error


MOST_TRIALS = 100_000
EVALUATIONS = 5
"""Evaluations of a trial where --eval-every-steps says nothing."""
FIRST_TRIALS = 5
"""Trials that are never pruned, since the others are compared with the median of those before."""
MOST_REPORTED = 6
"""Runs in the report, the best trials."""
JOURNAL = "study.log"
_STATES = {TrialState.COMPLETE: "complete", TrialState.PRUNED: "pruned", TrialState.FAIL: "failed"}


@dataclass(frozen=True)
class TrialResult:
    """One trial."""

    number: int
    state: str
    """complete, pruned, failed or running."""
    value: float | None
    """Mean return of its last evaluation, of a complete one."""
    settings: dict[str, Any]
    evaluations: list[tuple[int, float]]
    """Number of each evaluation, and its mean return."""
    run_dir: Path


@dataclass(frozen=True)
class StudyResult:
    """A study after its last trial, or after a signal has stopped it."""

    best: TrialResult | None
    """None: no trial is complete. Its `run_dir` serves as --config, and as `ringside.train(config=...)`."""
    trials: tuple[TrialResult, ...]
    report: Path | None
    """Page with the plots of the study; None: no trial is complete, or it could not be written."""
    stopped: bool
    """True if there are trials left that no process runs, as after a signal; the same call continues."""


def tune(
    *,
    trials: int = 20,
    space: GivenSpace = None,
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
        ray: "auto" or "HOST:PORT": run the trials on this Ray cluster, many at once; `space` is a file then.
        cpus_per_run, gpus_per_run: with `ray`: what a trial needs of a node.
        ray_insecure: with `ray`: accept a cluster without a token, on which any program that reaches it can run code.
        note: called with a sentence about each trial.

    Raises:
        ConfigError: Optuna is not installed, a setting or the space is wrong, or `out` holds another study.
    """
    for name in ("run_dir", "resume"):
        if settings.get(name) is not None:
            raise ConfigError(f"A study says itself what {flag_of(name)} is: omit it and use --out.")
    chosen = config_of_call(preset, config, settings)
    cluster = ClusterOptions(ray, cpus_per_run, gpus_per_run, ray_insecure)
    return Search(chosen, preset or DEFAULT_PRESET, trials, space, out, prune, cluster, note).run()


@dataclass
class Search:
    """A search with a configuration that all trials share; the space replaces some of its settings."""

    config: Config
    preset: str
    """Preset under it."""
    trials: int
    given_space: GivenSpace
    out: str | Path | None
    prune: bool
    cluster: ClusterOptions
    note: Callable[[str], None]

    def run(self) -> StudyResult:
        """Run trials until there are as many as asked for, or a signal stops one."""
        require("tune", "tune", "matplotlib")  # of the report at the end
        validate.require_between("--trials", self.trials, MOST_TRIALS)
        self.cluster.check()
        learn, played = self.config.learn, self.config.play.played
        if not self.config.evaluate.eval_every_steps:
            self.config = self.config.with_settings(eval_every_steps=max(1, learn.total_steps // EVALUATIONS))
        if self.config.evaluate.eval_every_steps > learn.total_steps:
            raise ConfigError("--eval-every-steps is more than --total-steps: a trial would have no evaluation.")
        planning.require_initial_weights(planning.check(self.config))
        self.space = make_space(self.given_space, self.config)
        self.directory = Path(self.out or f"runs/tune-{played.replace(':', '-').replace('/', '-')}")
        self.note(
            f"{count(self.trials, 'trial')} of {learn.total_steps:_} steps, judged by evaluations every "
            f"{self.config.evaluate.eval_every_steps:_} steps (--eval-every-steps)."
        )
        if self.cluster.ray is not None:
            self._run_on_cluster()
        else:
            require_main_program()
            make_result_directory("--out", self.directory)
            while (trial := self._next()) is not None and self._run_trial(trial):
                pass
        return self._results()

    def _run_on_cluster(self) -> None:
        """Run the same command on nodes of a cluster, as many at once as it has room for."""
        if isinstance(self.given_space, Mapping):
            raise ConfigError("On a cluster the space must be a file, which all nodes read: write it as TOML.")
        self.directory = self.directory.absolute()  # which nodes see under the same path
        given = flags_of(planning.settings_beside_preset(self.config, self.preset))
        own = words_of(trials=self.trials, space=self.given_space, out=self.directory, prune=self.prune)
        words = ["tune", "--preset", self.preset, *given, *own]
        with programs_in(self.directory, "a study or suite that is still going on", self.cluster) as programs:

            def work(number: int) -> None:
                with closing(programs.open()) as place:
                    place.run(lambda: words, f"worker {number}", self.directory)

            with handle_stop_signals(lambda number: programs.stop()):
                left = max(0, self.trials - len(self.study.trials)) + len(self._interrupted())
                programs.for_each(range(left), work)

    @cached_property
    def study(self) -> optuna.Study:
        """Optuna's study. Raises `ConfigError` if the directory holds one of other settings."""
        study = _open_journal(self.directory / JOURNAL, prune=self.prune)
        flat = self.config.to_flat()
        task = {
            "settings": self.config.experiment(),
            "space": {name: distributions.distribution_to_json(each) for name, each in self.space.items()},
            "length of trials": {name: str(flat[name]) for name in LENGTH},
        }
        found = study.user_attrs.get("task", task)
        if differing := [name for name in task if found.get(name) != task[name]]:
            raise ConfigError(
                f"{self.directory} holds a study with another {' and '.join(differing)}: name another --out, or pass "
                "the same options."
            )
        study.set_user_attr("task", task)
        return study

    def _results(self) -> StudyResult:
        """The trials, the best of them, and a report."""
        trials = tuple(self._result(each) for each in self.study.trials if each.params)
        stopped = bool(self._interrupted()) or len(self.study.trials) < self.trials  # what no process runs
        complete = sorted((each for each in trials if each.value is not None), key=lambda each: -(each.value or 0.0))
        if not complete:
            self.note("No trial is complete, so there is no best one.")
            return StudyResult(None, trials, None, stopped)
        report = None
        try:
            report = self._report([each.run_dir for each in complete[:MOST_REPORTED]])
        except (ConfigError, OSError) as error:
            self.note(f"There is no report: {error}")
        return StudyResult(complete[0], trials, report, stopped)

    # --- trials

    def _run_dir(self, number: int) -> Path:
        return self.directory / f"trial-{number:04}"

    def _lock(self, number: int) -> Path:
        """The lock of a trial, which its process holds until the study has its result."""
        return self.directory / f"trial-{number:04}.lock"

    def _result(self, trial: FrozenTrial) -> TrialResult:
        state, evaluations = _STATES.get(trial.state, "running"), sorted(trial.intermediate_values.items())
        value = trial.value if state == "complete" else None
        return TrialResult(trial.number, state, value, trial.params, evaluations, self._run_dir(trial.number))

    def _interrupted(self) -> list[FrozenTrial]:
        """Trials whose process has died."""

        def has_died(trial: FrozenTrial) -> bool:
            return not is_locked(self._lock(trial.number)) and not is_locked(self._run_dir(trial.number) / LOCK_FILE)

        return list(filter(has_died, self.study.get_trials(states=(TrialState.RUNNING,))))

    def _next(self) -> Trial | None:
        """A trial that was interrupted, or a new one; None: there are as many as asked for."""
        if interrupted := self._interrupted():
            trial = Trial(self.study, interrupted[0]._trial_id)
        elif len(self.study.trials) >= self.trials:
            return None
        elif (trial := self.study.ask()).number >= self.trials:  # another process has asked meanwhile
            self.study.tell(trial, state=TrialState.FAIL)
            return None
        # Its values follow from its number and the trials before it, whichever process draws them.
        self.study.sampler = optuna.samplers.TPESampler(seed=self.config.run.seed + trial.number)
        for name, distribution in self.space.items():
            trial._suggest(name, distribution)
        return trial

    def _run_trial(self, trial: Trial) -> bool:
        """Run a trial, unless another process does or has; return False if a signal stopped it."""
        with ExitStack() as held:
            try:
                held.enter_context(locked(self._lock(trial.number), "--out", "another process"))
            except ConfigError as error:
                if isinstance(error.__cause__, BlockingIOError):  # another process has it, or had
                    return True
                raise
            return self.study.trials[trial.number].state is not TrialState.RUNNING or self._train_and_tell(trial)

    def _train_and_tell(self, trial: Trial) -> bool:
        """Train with the settings of a trial, and tell the study its result; return False if a signal stopped it."""
        run_dir, title = self._run_dir(trial.number), f"[{trial.number + 1}/{self.trials}] trial {trial.number}"
        # What this machine refuses of any trial, as at a full disk, ends the study: this trial stays open.
        first = {name: values_of(each)[0] for name, each in self.space.items()}
        planning.plan(self.config.with_settings(**first, run_dir=self._run_dir(len(self.study.trials))))
        self.note(f"{title}: {', '.join(f'{name} {value}' for name, value in trial.params.items())}.")
        try:
            value = self._train(trial, run_dir)
            if value is None:
                self.note(f"{title}: it was stopped before its end; the same options continue it.")
                return False
            self.study.tell(trial, value)
            best = self.study.best_trial
            said = f"mean return {value:.2f}; the best so far is trial {best.number}, {best.value:.2f}."
        except optuna.TrialPruned as pruned:
            self.study.tell(trial, state=TrialState.PRUNED)
            said = f"pruned after {pruned}."
        except RingsideError as error:
            if is_locked(run_dir / LOCK_FILE):
                return True  # a run that was killed has not ended yet
            self.study.tell(trial, state=TrialState.FAIL)
            said = f"failed: {error}"
        self.note(f"{title}: {said}")
        return True

    def _train(self, trial: Trial, run_dir: Path) -> float | None:
        """Mean return of the last evaluation of a run with the settings of a trial; None: it was stopped.

        Raises:
            TrialPruned: an evaluation is below those of other trials. RingsideError: the run cannot work, or failed.
        """

        def judge(record: dict[str, Any]) -> None:
            with warnings.catch_warnings(action="ignore"):  # a run that is resumed may repeat an evaluation
                trial.report(record["mean_return"], record["evaluation"])
            if trial.should_prune():
                raise optuna.TrialPruned(f"{record['mean_return']:.2f}")

        summary = read_object(run_dir / SUMMARY_FILE)
        if summary.get("finished") is not True:  # else its process died after its end
            resumed = {} if newest_checkpoint(run_dir) is None else {"resume": run_dir, "init_from": None}
            ready = planning.plan(self.config.with_settings(**trial.params, run_dir=run_dir, **resumed))
            summary = run_plan(ready, lambda status: None, lambda sentence: None, Callbacks(on_evaluation=judge))
        if summary["finished"] is True:
            if not len(returns := load(run_dir).evaluations["mean_return"]):
                raise ConfigError("it has no evaluation.")
            return newest(returns)
        reported, stop_at = self._result(self.study.trials[trial.number]).evaluations, self.config.run.stop_at
        reached = stop_at is not None and any(mean >= stop_at for _, mean in reported)
        return reported[-1][1] if reached else None

    # --- results

    def _report(self, runs: list[Path]) -> Path:
        """Write the report: Optuna's plots of the study, and these runs."""
        from matplotlib import pyplot
        from optuna.visualization import matplotlib as plots

        from ringside.report.plots import save, style

        drawn: dict[str, tuple[Callable[[optuna.Study], Any], str]] = {
            "study-history": (plots.plot_optimization_history, "Result of each trial, and the best so far."),
            "study-evaluations": (plots.plot_intermediate_values, "Evaluations of each trial."),
            "study-settings": (plots.plot_slice, "Result by each setting of the space."),
        }
        directory, pictures = self.directory / REPORT, []
        make_result_directory("--out", directory)
        # Optuna calls its plots experimental, and the ticks of a logarithm are formulas.
        with style(), pyplot.rc_context({"text.parse_math": True}), warnings.catch_warnings(action="ignore"):
            for name, (plot, caption) in drawn.items():
                figure = np.ravel(plot(self.study))[0].figure
                pictures.append(save(figure, directory, name, caption))
                pyplot.close(figure)
        play, plugin = self.config.play, self.config.run.plugin
        return write_report(runs, directory, f"Settings for {play.played}", play.env, plugin, pictures)[0]


def _open_journal(path: Path, *, prune: bool) -> optuna.Study:
    """The study of a file, which is made where there is none. Raises `ConfigError` if the file holds something else."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    pruner = optuna.pruners.MedianPruner(n_startup_trials=FIRST_TRIALS, n_warmup_steps=1)
    try:
        if os.path.lexists(path):
            with open_to_read(path) as file:  # Optuna would append to any file
                if "op_code" not in (json_object(file.readline(1 << 20)) or {}):
                    raise FileError("it is no journal of Optuna")
        return optuna.create_study(
            storage=JournalStorage(JournalFileBackend(str(path))),
            study_name="ringside",
            direction="maximize",
            load_if_exists=True,
            pruner=pruner if prune else optuna.pruners.NopPruner(),
        )
    except (optuna.exceptions.OptunaError, OSError, ValueError, LookupError, TypeError, AssertionError) as error:
        raise ConfigError(f"{path} cannot be used as a study ({error!s:.200}): name another --out.") from error
