"""A study: trials of settings, each a run of its own, chosen by Optuna and pruned by their evaluations.

The study lies in OUT/study.db (SQLite) and each run in OUT/trial-NUMBER, so the same call continues where it stopped: a
trial that was interrupted resumes its run.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringside.recording.follow import Follower
from ringside.tuning.space import Space, space_to_json
from shared.config.settings import METRICS_FILE, Config
from shared.errors import ConfigError
from shared.files.atomic import write_atomic
from shared.files.lock import locked
from shared.machine.subprocesses import die_with
from shared.process.ownership import SUITE_LOCK_FILE
from shared.process.signals import handle_stop_signals, stack_dumps_held_back
from shared.text import UNSET, words_of

if TYPE_CHECKING:
    import optuna

DATABASE = "study.db"
BEST_FILE = "best.toml"
"""Settings of the best trial, for --config."""
POLL_SECONDS = 0.5
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
    defaults: dict[str, Any]
    """Settings of that command by flat name; only others are passed."""
    space: Space
    out: Path
    trials: int
    prune: bool
    launcher: Sequence[str]
    """Command that trains, without its options."""


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
        raise ConfigError('tune needs the package optuna, which is not installed: say pip install "ringside[tune]".')


class Tuner:
    """Runs the trials of a study one after another."""

    def __init__(self, task: Task, note: Callable[[str], None]) -> None:
        """Open the study, or create it. Raises `ConfigError` if the directory holds a study of other settings.

        Args:
            note: called with a sentence about each trial.
        """
        import optuna

        self._optuna = optuna
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._task = task
        self._note = note
        self._child: subprocess.Popen[bytes] | None = None
        self.stopped = False
        """True once a signal has asked to stop."""
        storage = optuna.storages.RDBStorage(f"sqlite:///{(task.out / DATABASE).absolute()}")
        pruner: optuna.pruners.BasePruner = optuna.pruners.NopPruner()
        if task.prune:
            pruner = optuna.pruners.MedianPruner(n_startup_trials=FIRST_TRIALS, n_warmup_steps=1)
        self._study = optuna.create_study(
            storage=storage, study_name=_NAME, direction="maximize", load_if_exists=True, pruner=pruner
        )
        # A study that goes on must not draw its first values again.
        seed = task.config.run.seed + len(self._study.trials)
        self._study.sampler = optuna.samplers.TPESampler(seed=seed)
        self._require_same()

    def _require_same(self) -> None:
        plain = {"settings": self._task.config.experiment(), "space": space_to_json(self._task.space)}
        found = self._study.user_attrs.get("task")
        if found is None:
            self._study.set_user_attr("task", plain)
        elif found != plain:
            differ = " and ".join(name for name in plain if found.get(name) != plain[name])
            raise ConfigError(
                f"{self._task.out} holds a study with another {differ}: name another --out, or pass the same options."
            )

    # --- trials

    def run(self) -> None:
        """Run trials until there are as many as asked for, or a signal stops the study."""
        states = self._optuna.trial.TrialState
        with handle_stop_signals(self._stop):
            for frozen in self._study.get_trials(states=(states.RUNNING,)):
                if not self.stopped:
                    self._run_trial(self._optuna.Trial(self._study, frozen._trial_id))
            while not self.stopped and len(self._study.trials) < self._task.trials:
                self._run_trial(self._study.ask())

    def _run_trial(self, trial: optuna.Trial) -> None:
        """Train with the settings of a trial, and tell the study its result."""
        settings = {name: dimension.suggest(trial, name) for name, dimension in self._task.space.items()}
        run_dir = self.run_dir(trial.number)
        title = f"[{trial.number + 1}/{max(self._task.trials, trial.number + 1)}] trial {trial.number}"
        self._note(f"{title}: {_said(settings)}.")
        states = self._optuna.trial.TrialState
        values, pruned, code = self._train(trial, run_dir, settings)
        if self.stopped:
            return  # it stays unfinished, and the next call resumes it
        if pruned:
            self._study.tell(trial, state=states.PRUNED)
            self._note(f"{title}: pruned after {values[-1]:.2f}.")
        elif code or not values:
            self._study.tell(trial, state=states.FAIL)
            why = f"exit code {code}" if code else "it has no evaluation"
            self._note(f"{title}: failed ({why}); its logs are in {run_dir / 'logs'}.")
        else:
            self._study.tell(trial, values[-1])
            best = self._study.best_trial
            self._note(
                f"{title}: mean return {values[-1]:.2f}; the best so far is trial {best.number}, {best.value:.2f}."
            )
            self._write_best()

    def _train(self, trial: optuna.Trial, run_dir: Path, settings: dict[str, Any]) -> tuple[list[float], bool, int]:
        """Run a training to its end. Returns its evaluations, True if it was pruned, and its exit code."""
        follower, pruned = Follower(run_dir / METRICS_FILE), False
        values: list[float] = []
        child = self._child = self._spawn(self._words(run_dir, settings))
        over = False
        while not over:
            over = child.poll() is not None
            found = follower.read()
            values = [] if found.is_new_file else values
            for record in found.records:
                if record["kind"] == "evaluation":
                    values.append(float(record["mean_return"]))
                    trial.report(values[-1], record["evaluation"])
            if not pruned and not over and not self.stopped and trial.should_prune():
                pruned = True
                child.send_signal(signal.SIGTERM)
            if not over:
                time.sleep(POLL_SECONDS)
        self._child = None
        return values, pruned, child.returncode

    def _words(self, run_dir: Path, settings: dict[str, Any]) -> list[str]:
        """Options of `launch.py` for a trial."""
        config = self._task.config
        if any(run_dir.glob("checkpoints/checkpoint-*.json")):
            return ["--resume", str(run_dir), *words_of(env=config.play.env, plugin=config.run.plugin)]
        given = config.with_settings(**settings).to_flat() | {"run_dir": str(run_dir)}
        chosen = {
            name: UNSET if value is None else value
            for name, value in given.items()
            if value != self._task.defaults.get(name)
        }
        return ["--preset", self._task.preset, *words_of(**chosen)]

    def _spawn(self, words: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start a training that stops gracefully if this process is killed."""
        end = partial(die_with, os.getpid(), signal.SIGTERM)
        with stack_dumps_held_back():
            return subprocess.Popen(
                [*self._task.launcher, *words, "--plain"],
                stdout=subprocess.DEVNULL,
                start_new_session=True,
                preexec_fn=end,
            )

    def _stop(self, number: int) -> None:
        """Stop the current trial, which saves itself, and start no other."""
        self.stopped = True
        if self._child is not None:
            self._child.send_signal(signal.SIGTERM)

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
        config = self._task.config
        chosen = {name: value for name, value in config.to_flat().items() if value != self._task.defaults.get(name)}
        local = {"run_dir", "plain", "track", "resume", "init_from", "plugin"}
        lines = [
            f"# Trial {best.number} of a study: mean return {best.value:.2f} in its last evaluation.",
            f"preset = {json.dumps(self._task.preset)}",
            *(
                f"{name} = {json.dumps(UNSET if value is None else value)}"
                for name, value in (chosen | best.settings).items()
                if name not in local
            ),
        ]
        write_atomic(self._task.out / BEST_FILE, "\n".join([*lines, ""]).encode())


def own_study(out: Path) -> Any:
    """Make the directory of a study, and lock it against other studies during the block. Raises `ConfigError`."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--out {out} cannot be written: {error.strerror}.") from error
    return locked(out / SUITE_LOCK_FILE, "--out", "a study or suite that is still going on")


def default_launcher() -> list[str]:
    """Command that starts `launch.py` with this Python."""
    return [sys.executable, str(Path(__file__).resolve().parents[2] / "launch.py")]


def _said(settings: dict[str, Any]) -> str:
    return ", ".join(
        f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}" for name, value in settings.items()
    )
