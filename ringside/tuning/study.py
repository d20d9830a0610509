"""A study: trials of settings, each a run of its own, chosen by Optuna and pruned by their evaluations.

The study lies in OUT/study.db (SQLite) and each run in OUT/trial-NUMBER, so the same call continues where it stopped: a
trial that was interrupted resumes its run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from ringside.cluster.hosts import NodeLost
from ringside.planning import settings_beside_preset
from ringside.programs.former_runs import wait_for_former
from ringside.programs.lost_nodes import given_up, newest_checkpoint, run_despite_losses
from ringside.programs.places import Place, Programs
from ringside.recording.follow import Follower
from ringside.tuning.space import LENGTH, Space, space_to_json
from shared.config.digest import MAY_CHANGE_ON_RESUME
from shared.config.settings import Config
from shared.config.trust import NEVER_FROM_A_FILE
from shared.errors import ConfigError, missing_package
from shared.files.atomic import write_atomic
from shared.files.run_file_names import LOGS, METRICS_FILE, SUMMARY_FILE
from shared.files.strict_json import read_object
from shared.process.signals import handle_stop_signals
from shared.text import UNSET, flags_of

if TYPE_CHECKING:
    import optuna

DATABASE = "study.db"
BEST_FILE = "best.toml"
"""Settings of the best trial, for --config."""
FIRST_TRIALS = 5
"""Trials that are never pruned, since the others are compared with the median of those before."""
_NAME = "ringside"


@dataclass(frozen=True)
class Task:
    """The work of a study."""

    config: Config
    """Settings that all trials share; the space replaces some."""
    preset: str
    """Preset of the command that starts a trial."""
    space: Space
    out: Path
    trials: int
    prune: bool


@dataclass(frozen=True)
class TrialResult:
    """One trial, as plots and reports need it."""

    number: int
    state: str
    """complete, pruned, failed or running."""
    value: float | None
    """Mean return of its last evaluation."""
    settings: dict[str, Any]
    evaluations: list[tuple[int, float]]
    """Number of each evaluation, and its mean return."""
    run_dir: Path


def require_optuna() -> None:
    """Raise `ConfigError` unless Optuna is installed."""
    if find_spec("optuna") is None:
        raise missing_package("tune", "optuna", "tune")


class _Evaluations:
    """The evaluations of a trial, read while its run records them."""

    def __init__(self, trial: optuna.Trial, reported: Iterable[int], run_dir: Path, lock: Lock) -> None:
        """Read from the beginning.

        Args:
            trial: which gets their means.
            reported: numbers of those that it has already.
            run_dir: of its run.
            lock: held while the study is used.
        """
        self.values: list[float] = []
        """Mean return of each."""
        self.pruned = False
        """True once the trial is to be stopped."""
        self._trial, self._reported, self._lock = trial, set(reported), lock
        self._follower = Follower(run_dir / METRICS_FILE)

    def read(self) -> None:
        """Report new evaluations to the study."""
        has_more = True
        while has_more:
            records, is_new_file, has_more = self._follower.read()
            if is_new_file:
                self.values.clear()
            with self._lock:
                self._report(record for record in records if record["kind"] == "evaluation")

    def _report(self, evaluations: Iterable[dict[str, Any]]) -> None:
        """Keep the mean return of each, and report those that the study lacks."""
        for record in evaluations:
            self.values.append(float(record["mean_return"]))
            if record["evaluation"] not in self._reported:
                self._trial.report(self.values[-1], record["evaluation"])
                self._reported.add(record["evaluation"])

    def should_prune(self) -> bool:
        """Read, and return True if the newest evaluation is below those of other trials."""
        self.read()
        with self._lock:
            self.pruned = self._trial.should_prune()
        return self.pruned


class Tuner:
    """Runs the trials of a study, each as a program of its own."""

    def __init__(self, task: Task, programs: Programs, note: Callable[[str], None]) -> None:
        """Open the study, or create it. Raises `ConfigError` if the directory holds a study of other settings.

        Args:
            task: the work.
            programs: where the trials run.
            note: called with a sentence about each trial.
        """
        import optuna

        self._optuna = optuna
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._task = task
        self._programs = programs
        self._note = note
        self._lock = Lock()
        """Held by a thread that uses the study: trials may run at the same time."""
        self.stopped = False
        """True once a signal has asked to stop."""
        self._study = _open_study(task.out / DATABASE, prune=task.prune)
        # A study that continues must not draw its first values again.
        seed = task.config.run.seed + len(self._study.trials)
        self._study.sampler = optuna.samplers.TPESampler(seed=seed)
        self._require_same()

    def _require_same(self) -> None:
        config = self._task.config
        plain: dict[str, Any] = {
            "settings": config.experiment(),
            "space": space_to_json(self._task.space),
            "length of trials": {name: str(config.to_flat()[name]) for name in LENGTH},
        }
        if (found := self._study.user_attrs.get("task")) is not None:
            # A study of an earlier version does not say all of LENGTH.
            stored = found | {"length of trials": {**plain["length of trials"], **found["length of trials"]}}
            if differing := [name for name in plain if not _same_json(stored.get(name), plain[name])]:
                raise ConfigError(
                    f"{self._task.out} holds a study with another {' and '.join(differing)}: name another --out, or "
                    "pass the same options."
                )
        if found != plain:
            self._study.set_user_attr("task", plain)

    # --- trials

    def run(self) -> None:
        """Run trials until there are as many as asked for, or a signal stops the study."""
        states = self._optuna.trial.TrialState
        interrupted = self._study.get_trials(states=(states.RUNNING,))
        new = max(0, self._task.trials - len(self._study.trials))
        with handle_stop_signals(self._stop):
            self._programs.for_each([*interrupted, *[None] * new], self._run_trial)

    def _run_trial(self, interrupted: optuna.trial.FrozenTrial | None) -> None:
        """Train with the settings of a new trial, or of one that was interrupted, and tell the study its result."""
        if self.stopped:
            return
        with closing(self._programs.open()) as place:
            # The settings are drawn once there is room, so that they profit from the trials that ended before.
            if not place.claim():
                return
            with self._lock:
                if interrupted is None:
                    trial = self._study.ask()
                else:
                    trial = self._optuna.Trial(self._study, interrupted._trial_id)
                settings = {name: dimension.suggest(trial, name) for name, dimension in self._task.space.items()}
            title = f"[{trial.number + 1}/{max(self._task.trials, trial.number + 1)}] trial {trial.number}"
            self._note(f"{title}: {_said(settings)}.")
            reported = () if interrupted is None else tuple(interrupted.intermediate_values)
            evaluations = _Evaluations(trial, reported, self.run_dir(trial.number), self._lock)
            code = self._train(place, title, self.run_dir(trial.number), settings, evaluations.should_prune)
            if self.stopped:
                return  # it stays unfinished, and the next call resumes it
            if code is None:
                self._note(f"{title}: {given_up('It')}")
                return
            evaluations.read()
            if not (code or evaluations.pruned or self._is_done(trial.number, evaluations.values)):
                self._note(f"{title}: it was stopped before its end; the same options continue it.")
                return
            with self._lock:
                self._tell(trial, title, evaluations, code)

    def _is_done(self, number: int, values: Sequence[float]) -> bool:
        """True if a trial with these evaluations has played its last step, or has reached --stop-at."""
        score = self._task.config.run.stop_at
        reached = score is not None and len(values) > 0 and values[-1] >= score
        return reached or read_object(self.run_dir(number) / SUMMARY_FILE).get("finished") is True

    def _train(
        self,
        place: Place,
        title: str,
        run_dir: Path,
        settings: dict[str, Any],
        should_stop: Callable[[], bool],
    ) -> int | None:
        """Run a training to its end, again on another node if its node is lost.

        Return its exit code; None: it was given up, or the study was stopped.
        """

        def say(lost: NodeLost) -> bool:
            if not self.stopped:
                self._note(f"{title}: its node {lost}; it continues elsewhere.")
            return not self.stopped

        def note(sentence: str) -> None:
            self._note(f"{title}: {sentence}")

        def run() -> int:
            if not wait_for_former(run_dir, lambda: self.stopped, note) and not self.stopped:
                raise ConfigError(
                    f"{run_dir} is in use by another run: end that one, then pass the same options again."
                )
            if read_object(run_dir / SUMMARY_FILE).get("finished") is True:
                return 0  # the study was stopped after its end, and a resume would be refused
            words = [*self._words(run_dir, settings), "--plain"]
            return place.run(words, title, run_dir, own_session=True, quiet=True, should_stop=should_stop)

        return run_despite_losses(run, run_dir, say)

    def _tell(self, trial: optuna.Trial, title: str, evaluations: _Evaluations, code: int) -> None:
        """Tell the study the result of a trial whose program has ended with an exit code."""
        states, values = self._optuna.trial.TrialState, evaluations.values
        if evaluations.pruned:
            self._study.tell(trial, state=states.PRUNED)
            self._note(f"{title}: pruned after {values[-1]:.2f}.")
        elif code or not values:
            self._study.tell(trial, state=states.FAIL)
            why = f"exit code {code}" if code else "it has no evaluation"
            logs = self.run_dir(trial.number) / LOGS
            self._note(f"{title}: failed ({why})" + (f"; its logs are in {logs}." if logs.is_dir() else "."))
        else:
            self._study.tell(trial, values[-1])
            best = self._study.best_trial
            self._note(
                f"{title}: mean return {values[-1]:.2f}; the best so far is trial {best.number}, {best.value:.2f}."
            )
            self._write_best()

    def _words(self, run_dir: Path, settings: dict[str, Any]) -> list[str]:
        """Options of `launch.py` for a trial."""
        config = self._task.config.with_settings(**settings, run_dir=run_dir)
        given = settings_beside_preset(config, self._task.preset)
        if newest_checkpoint(run_dir) is None:
            return ["--preset", self._task.preset, *flags_of(given)]
        kept = (MAY_CHANGE_ON_RESUME | {"env"}) - {"run_dir", "resume", "init_from"}
        return ["--resume", str(run_dir), *flags_of({name: given[name] for name in given if name in kept})]

    def _stop(self, number: int) -> None:
        """Stop the current trials, which save themselves, and start no other."""
        self.stopped = True
        self._programs.stop()

    # --- results

    def run_dir(self, number: int) -> Path:
        """Directory of the run of a trial."""
        return self._task.out / f"trial-{number:04}"

    def results(self) -> list[TrialResult]:
        """All trials in their order."""
        words = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed"}
        return [
            TrialResult(
                number=trial.number,
                state=words.get(trial.state.name, "running"),
                value=trial.value if trial.state.name == "COMPLETE" else None,
                settings=dict(trial.params),
                evaluations=sorted(trial.intermediate_values.items()),
                run_dir=self.run_dir(trial.number),
            )
            for trial in self._study.trials
        ]

    def importances(self) -> dict[str, float]:
        """Share of the variance of the results that each setting explains; empty where that cannot be known yet."""
        values = {trial.value for trial in self.results() if trial.value is not None}
        if len(values) < 2 * FIRST_TRIALS or len(self._task.space) < 2:
            return {}
        evaluator = self._optuna.importance.PedAnovaImportanceEvaluator()
        return dict(self._optuna.importance.get_param_importances(self._study, evaluator=evaluator))

    def best(self) -> TrialResult | None:
        """The complete trial with the greatest result."""
        complete = [trial for trial in self.results() if trial.value is not None]
        return max(complete, key=lambda trial: trial.value or 0.0, default=None)

    def _write_best(self) -> None:
        """Write the settings of the best trial as a file for --config."""
        best = self.best()
        assert best is not None, "a trial is complete"
        config = self._task.config.with_settings(**best.settings)
        searched = {name: value for name, value in config.to_flat().items() if name in best.settings}
        chosen = settings_beside_preset(config, self._task.preset) | searched
        local = NEVER_FROM_A_FILE | {"plugin"}
        lines = [
            f"# Trial {best.number} of a study: mean return {best.value:.2f} in its last evaluation.",
            f"preset = {json.dumps(self._task.preset)}",
            *(
                f"{name} = {json.dumps(UNSET if value is None else value)}"
                for name, value in chosen.items()
                if name not in local
            ),
        ]
        write_atomic(self._task.out / BEST_FILE, "\n".join([*lines, ""]).encode())


def _open_study(path: Path, *, prune: bool) -> optuna.Study:
    """The study of a file, which is made where there is none. Raises `ConfigError` if the file holds something else."""
    import optuna
    from sqlalchemy.exc import SQLAlchemyError

    if os.path.lexists(path) and (path.is_symlink() or not path.is_file()):
        raise ConfigError(f"{path} is not a plain file: move it away, or name another --out.")
    pruner: optuna.pruners.BasePruner = optuna.pruners.NopPruner()
    if prune:
        pruner = optuna.pruners.MedianPruner(n_startup_trials=FIRST_TRIALS, n_warmup_steps=1)
    try:
        storage = optuna.storages.RDBStorage(f"sqlite:///{path.absolute()}")
        return optuna.create_study(
            storage=storage, study_name=_NAME, direction="maximize", load_if_exists=True, pruner=pruner
        )
    except (SQLAlchemyError, optuna.exceptions.OptunaError, RuntimeError) as error:
        # It is no database, a damaged one, or one of another version of Optuna.
        reason = str(error).partition("\n")[0].rstrip(".")
        raise ConfigError(f"{path} cannot be used as a study ({reason:.200}): name another --out.") from error


def _same_json(one: Any, other: Any) -> bool:
    """True if two values are the same JSON; to Python 1 and 1.0 are equal, but a range from 1 has whole numbers."""
    return json.dumps(_with_like_ends(one), sort_keys=True) == json.dumps(_with_like_ends(other), sort_keys=True)


def _with_like_ends(stored: Any) -> Any:
    """A value in which a range with one real end has two: earlier revisions stored ends as they were written."""
    if not isinstance(stored, dict):
        return stored
    alike = {name: _with_like_ends(value) for name, value in stored.items()}
    ends = [alike.get("low"), alike.get("high")]
    if any(isinstance(end, float) for end in ends):
        alike |= {name: float(alike[name]) for name in ("low", "high", "step") if isinstance(alike.get(name), int)}
    return alike


def _said(settings: dict[str, Any]) -> str:
    return ", ".join(
        f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}" for name, value in settings.items()
    )
