"""The runs of a suite: the settings and the directory of each, and how far it is."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ringside import planning
from ringside.programs.lost_nodes import newest_checkpoint
from shared.checkpoint.finding import find_checkpoint
from shared.checkpoint.manifest import BEST_FILE, CHECKPOINTS, plain_field
from shared.checkpoint.weights_file import read_weights_metadata
from shared.config.digest import ARITHMETIC, MAY_CHANGE_ON_RESUME
from shared.config.run_schedule import make_run_schedule
from shared.config.settings import Config
from shared.errors import CheckpointError, ConfigError
from shared.files.run_file_names import CONFIG_FILE, SUMMARY_FILE
from shared.files.strict_json import read_object
from shared.process.ownership import require_writable_run
from shared.text import flag_of


@dataclass(frozen=True)
class Job:
    """One run of the suite."""

    config: Config
    """Resolved configuration of the run."""
    directory: Path

    @property
    def name(self) -> str:
        """Name in messages."""
        return f"{self.config.play.game}, seed {self.config.run.seed}"

    @property
    def finished(self) -> bool:
        """True if the run has reached the configured number of steps."""
        summary, recorded = read_object(self.directory / SUMMARY_FILE), read_object(self.directory / CONFIG_FILE)
        learn, steps = recorded.get("learn"), summary.get("steps")
        wanted, planned = self.config.learn.total_steps, learn.get("total_steps") if isinstance(learn, dict) else None
        if summary.get("finished") is not True or type(planned) is not int or type(steps) is not int:
            return False
        # Totals that round up to the same boundary are equal: a resume would have nothing to play.
        last = {make_run_schedule(self.config.with_settings(total_steps=total)).rounds for total in (wanted, planned)}
        # The summary may be that of a shorter run which is being continued.
        return steps >= wanted and len(last) == 1

    @property
    def begun(self) -> bool:
        """True if there is a checkpoint to continue from."""
        return newest_checkpoint(self.directory) is not None


def make_jobs(config: Config, games: Sequence[str], seeds: int, out: Path) -> list[Job]:
    """All runs: every game with the first seed, then with the next.

    Args:
        config: what all runs share, unchecked.
        games: their names.
        seeds: number of seeds.
        out: directory of the suite.

    Raises:
        ConfigError: a setting is invalid, or a directory holds a run with other settings.
    """
    resolved = planning.check(config.with_settings(run_dir=out, game=games[0])).config
    if resolved.run.init_from is not None:
        planning.require_initial_weights(*(planning.check(resolved.with_settings(game=game)) for game in games))
    jobs = []
    for seed in range(1, seeds + 1):
        for game in games:
            directory = out / f"{game}-{seed}"
            jobs.append(Job(resolved.with_settings(game=game, seed=seed, run_dir=directory), directory))
    for job in jobs:
        require_writable_run(job.directory, "--out")
        if os.path.exists(job.directory / CONFIG_FILE):
            _require_same(job)
    return jobs


def _require_same(job: Job) -> None:
    """Raise `ConfigError` unless the run in the directory can be continued as that of the job."""
    sections = read_object(job.directory / CONFIG_FILE)
    if not sections:
        raise ConfigError(f"{job.directory / CONFIG_FILE} is damaged: it holds no JSON object. Name another --out.")
    try:
        recorded = Config.from_json(sections)
    except ConfigError as error:
        raise ConfigError(f"{job.directory} cannot be continued: {error} Name another --out.") from error
    if recorded.experiment() != job.config.experiment():
        wanted, found = job.config.to_flat(), recorded.to_flat()
        names = (wanted.keys() | found.keys()) - MAY_CHANGE_ON_RESUME - ARITHMETIC
        # A setting that only one of the methods has differs, too.
        differing = [flag_of(name) for name in sorted(names) if wanted.get(name) != found.get(name)]
        raise ConfigError(
            f"{job.directory} holds a run with other settings ({', '.join(differing)}): name another --out, or pass "
            "the same options again."
        )


def weights_of(run_dir: Path) -> dict[str, tuple[Path, int]]:
    """Path and version of the weights to evaluate of a finished run, by kind."""
    found: dict[str, tuple[Path, int]] = {}
    try:
        found["final"] = (run_dir, find_checkpoint(run_dir).boundary)
        best = run_dir / CHECKPOINTS / BEST_FILE
        if os.path.lexists(best):
            found["best"] = (best, plain_field(read_weights_metadata(best), "version", int, BEST_FILE))
    except (CheckpointError, OSError):
        found.setdefault("final", (run_dir, -1))  # the evaluation itself reports the error
    return found
