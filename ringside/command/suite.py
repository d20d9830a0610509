"""The task `suite`: the same training on many games and seeds, one run after another, and a report of all.

A run that has ended keeps no replay. One model of CPU, with one version of each library, trains it from beginning to
end.

With `--ray` the runs are placed on the nodes of a cluster, many at once.

`SUITES` are lists of games that have a name. A `Job` is one run: its training, then its evaluations, as programs.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import ClassVar

from actors.env import EnvError
from actors.envs.atari import game_name
from ringside.cluster.placed_programs import MOST_LOSSES, say
from ringside.cluster.placing import ClusterOptions, Place, Programs, programs_in
from ringside.command.arguments import Choices, config_of, parse_choices
from ringside.records.scores import REFERENCE
from ringside.report.records import CELL_FILE, part
from ringside.report.report_page import write_report
from ringside.run import planning
from ringside.run.config_file import starting_point
from shared.checkpoint.finding import manifests_in, newest_checkpoint
from shared.checkpoint.manifest import encode_manifest, file_name, read_manifest
from shared.checkpoint.weights_file import describe_weights
from shared.config import validate
from shared.config.protocols import PROTOCOLS
from shared.config.run_schedule import make_run_schedule
from shared.config.settings import ARITHMETIC, MAY_CHANGE_ON_RESUME, Config, flat_of
from shared.config.trust import code_named
from shared.errors import CheckpointError, ConfigError, require
from shared.files.atomic import make_directory, write_atomic
from shared.files.lock import is_locked, wait_until_free
from shared.files.run_file_names import BEST_FILE, CHECKPOINTS, CONFIG_FILE, EVALUATION_FILES, LOGS, SUMMARY_FILE
from shared.files.strict_json import read_object
from shared.machine.facts import arithmetic, changes
from shared.process.ownership import LOCK_FILE, PART, REPORT, require_writable_run
from shared.process.signals import handle_stop_signals
from shared.text import PROGRAM, command, flag_of, flags_of, nearest, printable, refused, words_of

SUITES: dict[str, tuple[str, ...]] = {
    "atari5": ("battle_zone", "double_dunk", "name_this_game", "phoenix", "qbert"),
    "atari26": (
        *("alien", "amidar", "assault", "asterix", "bank_heist", "battle_zone", "boxing", "breakout"),
        *("chopper_command", "crazy_climber", "demon_attack", "freeway", "frostbite", "gopher", "hero", "jamesbond"),
        *("kangaroo", "krull", "kung_fu_master", "ms_pacman", "pong", "private_eye", "qbert", "road_runner"),
        *("seaquest", "up_n_down"),
    ),
    "atari57": tuple(REFERENCE),
}
"""atari5: Aitchison et al. 2023 (arXiv:2210.02019); atari26: Kaiser et al. 2020 (arXiv:1903.00374), the games of Atari
100k; atari57: the games of Wang et al. 2016 (arXiv:1511.06581), which have human reference scores."""


def games_of(words: str) -> list[str]:
    """Games of a named list, or of names separated by commas. Raises `ConfigError`."""
    names = SUITES.get(words) or [name.strip() for name in words.split(",") if name.strip()]
    lists = ", ".join(SUITES)
    if not names:
        raise ConfigError(f"--games {words!r} names no game; pass {lists}, or games separated by commas.")
    try:
        return list(dict.fromkeys(game_name(name) for name in names))
    except EnvError as error:
        if len(names) == 1:
            said = f"--games {words} is neither a list of games ({lists}) nor a game{nearest(words, SUITES)}"
            raise ConfigError(said) from error
        raise ConfigError(f"--games {words}: {error}") from error


FORMER_RUN_SECONDS = 200.0
"""Longest wait for a run of a launcher that was killed, which saves and ends by itself: longer than the lease of a node
and the saving after it."""


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
        summary, schedule = read_object(self.directory / SUMMARY_FILE), make_run_schedule(self.config)
        # The summary may be that of a shorter run which is being continued.
        return summary.get("finished") is True and summary.get("steps") == schedule.rounds * schedule.round_steps

    @property
    def begun(self) -> bool:
        """True if there is a checkpoint to continue from."""
        return newest_checkpoint(self.directory) is not None

    def drop_replay(self) -> None:
        """Delete the replay of the ended run, after its manifests: the weights stay."""
        segments = [*(self.directory / CHECKPOINTS).glob("*.ring")]
        for _, path in manifests_in(self.directory / CHECKPOINTS) if segments else ():
            with suppress(CheckpointError):  # an unreadable one stays as it is
                values = asdict(read_manifest(path))
                kept = [piece for piece in values["pieces"] if not piece["name"].endswith(".ring")]
                del values["path"], values["refused"]
                write_atomic(path, encode_manifest(values | {"has_replay": False, "pieces": kept}))
        for path in segments:
            path.unlink()

    def require_same(self) -> None:
        """Raise `ConfigError` unless the run in the directory, if there is one, can be continued as this one."""
        require_writable_run(self.directory, "--out")
        path = self.directory / CONFIG_FILE
        if not os.path.exists(path):
            return
        with refused(f"{self.directory} cannot be continued: name another --out.", ConfigError):
            recorded = Config.from_json(read_object(path))
        began = {path and os.path.abspath(path) for path in (recorded.run.init_from, self.config.run.init_from)}
        if len(began) > 1 or recorded.experiment() != self.config.experiment():
            wanted, found = self.config.to_flat(), recorded.to_flat()
            names = (wanted.keys() | found.keys()) - (MAY_CHANGE_ON_RESUME - {"init_from"}) - ARITHMETIC
            # A setting that only one of the methods has differs, too.
            differing = [flag_of(name) for name in sorted(names) if wanted.get(name) != found.get(name)]
            raise ConfigError(
                f"{self.directory} holds a run with other settings ({', '.join(differing)}): name another --out, or "
                "pass the same options again."
            )

    def weights(self) -> dict[str, tuple[Path, int]]:
        """Path and version of the weights to evaluate of a finished run, by kind."""
        checkpoints, rounds = self.directory / CHECKPOINTS, make_run_schedule(self.config).rounds
        found = {"final": (checkpoints / file_name("weights", rounds), rounds)}
        best = checkpoints / BEST_FILE
        with suppress(CheckpointError, OSError):
            found["best"] = (best, describe_weights(best).version)
        return found


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
            jobs[-1].require_same()
    return jobs


@dataclass(frozen=True)
class Options(ClusterOptions, Choices):
    """Train on many games and seeds, one run after another, evaluate each by its protocol, and report. The same command
    continues where it was stopped."""

    replaced: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("game", "env", "env_kwargs"), "games"),
        **{"seed": "seeds", "run_dir": "out", "resume": "out"},
    }
    games: str = "atari5"
    """atari5, atari26, atari57, or games separated by commas."""
    seeds: int = 3
    """Runs of each game, with seeds from 1 on."""
    out: Path | None = None
    """Directory of the runs and their report; default: runs/GAMES. The same directory and options continue it."""
    final_episodes: int | None = None
    """Episodes of the evaluation after each run; default: as the protocol says, which may count steps instead."""
    keep_replay: bool = False
    """Keep the replay of ended runs, so that a greater --total-steps can continue them."""
    repeat: str | None = None
    """GAME-SEED: train and evaluate that run again, beside it, and say if weights and returns are the same."""

    @property
    def directory(self) -> Path:
        """Directory of the runs and their report; on a cluster absolute, as all nodes see it."""
        named = self.games if self.games in SUITES else "-".join(games_of(self.games))[:80]
        out = self.out or Path("runs") / named
        return out if self.ray is None else out.absolute()

    def check(self) -> None:
        """Raise `ConfigError` for options that neither a suite nor a repetition can have."""
        super().check()
        if not self.run.checkpoint_replay:
            raise ConfigError(
                "--no-checkpoint-replay is not for suites: the runs of one that was stopped go on, exactly."
            )
        if self.run.stop_at is not None:
            raise ConfigError("--stop-at is not for suites, whose runs all have the same steps: omit it.")


def main(arguments: Sequence[str]) -> int:
    """Run the suite. Return 1 if a run or an evaluation failed or was not the same again, or the suite was stopped."""
    options = parse_choices(Options, arguments, "suite")
    require("suite", "report", "matplotlib")  # of the report at the end
    options, jobs = (options, jobs_of(options)) if options.repeat is None else repetition(options)
    with programs_in(options.directory, "a suite that is still going on", options) as programs:
        return SuiteRunner(options, jobs, programs).run()


def jobs_of(options: Options) -> list[Job]:
    """The runs of a suite. Raises `ConfigError` if an option is wrong, or a directory holds another run."""
    validate.require_between("--seeds", options.seeds, 1_000)
    if options.final_episodes is not None:
        validate.require_between("--final-episodes", options.final_episodes, validate.MOST_EPISODES)
    options.check()
    return make_jobs(config_of(options), games_of(options.games), options.seeds, options.directory)


def repetition(options: Options) -> tuple[Options, list[Job]]:
    """Options and run that repeat the run of --repeat. Raises `ConfigError` unless that has ended, and began alike."""
    options.check()
    first, again = (options.directory / f"{options.repeat}{more}" for more in ("", "-repeat"))
    judged, found = (read_object(first / name) for name in (EVALUATION_FILES["final"], CONFIG_FILE))
    config, given = None, config_of(options)
    if judged and found and first.name == options.repeat:
        config = starting_point(None, None, None, given.run.plugin, first, code_named(given)["network"])
    if config is None or not Job(config, first).finished:
        raise ConfigError(f"--repeat {options.repeat}: {first} is no evaluated run; pass GAME-SEED and its --out.")
    differing = planning.settings_beside_preset(given, options.preset).items() - flat_of(found).items()
    if others := {name for name, _ in differing} - MAY_CHANGE_ON_RESUME:
        raise ConfigError(f"--repeat takes its settings from {first}: omit {', '.join(map(flag_of, sorted(others)))}.")
    if ((began := found["run"]["init_from"]) is None) != (given.run.init_from is None):
        needed = f"pass --init-from {began}" if began else "omit --init-from"
        raise ConfigError(f"--repeat {options.repeat}: {needed}, as that run did.")
    config = config.with_settings(run_dir=again, init_from=given.run.init_from)
    (job := Job(planning.check(config).config, again)).require_same()
    return replace(options, final_episodes=None if judged.get("eval_steps") else judged.get("episodes")), [job]


def words_to_train(options: Options, job: Job) -> list[str]:
    """Arguments of `launch.py` for a run."""
    code = code_named(options)
    own = {"game", "seed", "run_dir", "resume", "total_steps", *(["init_from"] if job.begun else [])}
    own |= {name for name, value in code.items() if value is not None}
    given = planning.settings_beside_preset(config_of(options), options.preset)
    words = flags_of({name: value for name, value in given.items() if name not in own})
    # Without --total-steps a resume keeps the recorded number.
    words += words_of(total_steps=job.config.learn.total_steps, **code)
    if job.begun:
        return ["--resume", str(job.directory), *words]
    if options.repeat is not None:
        return ["--config", str(options.directory / options.repeat), *words, *words_of(run_dir=job.directory)]
    named = words_of(game=job.config.play.game, seed=job.config.run.seed, run_dir=job.directory)
    return ["--preset", options.preset, *words, *named]


def _changed(run_dir: Path, here: dict[str, str]) -> str:
    """Processor and libraries that a run has noted and that are others here, with both; empty: none."""
    found = changes(read_object(run_dir / CELL_FILE), here)
    return ", ".join(f"{name} {former} (now {value})" for name, former, value in found)


class SuiteRunner:
    """Runs the jobs, and forwards stop signals to their programs."""

    def __init__(self, options: Options, jobs: Sequence[Job], programs: Programs) -> None:
        self._options, self._jobs, self._programs = options, jobs, programs
        self._failed: list[str] = []

    def run(self) -> int:
        """Run all jobs, and write the report. Return the exit code."""
        out, left_out = self._options.directory, tuple[str, ...]()
        try:
            with handle_stop_signals(lambda number: self._programs.stop()):
                self._programs.for_each(enumerate(self._jobs, start=1), self._run_job)
            found = [job.directory for job in self._jobs if job.finished]
            if self._programs.stops:
                report = f"{command('report', str(out))}/*-*"
                print(f"Stopped. The same command continues where it was; a report of what there is: {report}")
            elif found and self._options.repeat is None:
                page, left_out = write_report(found, out / REPORT)
                print(f"The report is in {page}.")
            elif found and self._options.repeat is not None and not self._failed:
                self._compare(out / self._options.repeat, found[0])
        finally:
            for sentence in (*self._failed, *left_out):
                print(printable(f"{PROGRAM}: {sentence}"), file=sys.stderr)
        return 1 if self._failed or self._programs.stops else 0

    def _run_job(self, numbered: tuple[int, Job]) -> None:
        """Run one job, unless the suite was stopped: the rest of its training, then its evaluations."""
        number, job = numbered
        title = f"[{number}/{len(self._jobs)}] {job.name}"
        if self._programs.stops:
            return
        with closing(self._programs.open()) as place:
            if is_locked(job.directory / LOCK_FILE):
                say(title, f"{job.directory} is in use by a run that may still be saving; waiting for its end.")
                if not wait_until_free(job.directory / LOCK_FILE, FORMER_RUN_SECONDS, lambda: self._programs.stops > 0):
                    if not self._programs.stops:
                        self._failed.append(f"{job.name} was not finished: another run still uses its directory.")
                    return
            if job.finished:
                say(title, "finished already.")
            elif not self._train(job, title, place):
                return
            if not self._options.keep_replay:
                job.drop_replay()
            for kind, (load, version) in job.weights().items():
                if not self._programs.stops:
                    self._evaluate(job, title, place, kind, load, version)

    def _train(self, job: Job, title: str, place: Place) -> bool:
        """Do the rest of a training; return False if it was not finished."""
        say(title, f"{'continues' if job.begun else 'begins'} in {job.directory}.")
        code = place.run(lambda: self._words(job, title, place.processor), title, job.directory)
        if self._programs.stops:
            return False
        if code != 0 or not job.finished:
            lost = f"its node was lost {MOST_LOSSES} times in a row without a new checkpoint"
            why = lost if code is None else f"exit code {code}" if code else "it was stopped before its end"
            self._failed.append(f"{job.name} was not finished: {why}. Its logs are in {job.directory / LOGS}.")
        return code == 0 and job.finished

    def _words(self, job: Job, title: str, cpu: str) -> list[str]:
        """Arguments of a training, noted when it begins, on a model of CPU; what another began is renamed."""
        here = arithmetic("cpu") | {"cpu": cpu}
        if job.begun and (changed := _changed(job.directory, here)):
            job.directory.rename(old := job.directory.with_name(f"{job.config.play.game}.{time.time_ns()}"))
            say(title, f"begins anew, since it began with {changed}. {old} keeps the former run.")
        words = words_to_train(self._options, job)
        if not job.begun:
            make_directory(job.directory)
            write_atomic(job.directory / CELL_FILE, json.dumps({"arguments": words} | here).encode())
            if changed := _changed(self._options.directory / (self._options.repeat or ""), here):
                say(title, f"weights may differ: the first run had {changed}.")
        return words

    def _compare(self, first: Path, again: Path) -> None:
        """Say if a repetition has the weights and the returns of the first run; if not, it has failed."""
        for file, name in ((SUMMARY_FILE, "weights_sha256"), (EVALUATION_FILES["final"], "returns")):
            found = [read_object(run / file) for run in (first, again)]
            cpus = " and ".join(str(part(each, "machine").get("cpu")) for each in found)
            one, other = (str(each.get(name)) for each in found)
            if one == other:
                print(printable(f"The same {name}: {one:.80}"))
            else:
                self._failed.append(f"Not the same {name}: {one:.80} in {first}, {other:.80} in {again} (CPU: {cpus}).")

    def _evaluate(self, job: Job, title: str, place: Place, kind: str, load: Path, version: int) -> None:
        """Evaluate weights by the protocol, unless the same evaluation exists."""
        target, existing = job.directory / EVALUATION_FILES[kind], read_object(job.directory / EVALUATION_FILES[kind])
        protocol, episodes = PROTOCOLS[job.config.play.protocol], self._options.final_episodes
        wanted = {"version": version, "episodes": episodes or protocol.eval_episodes}
        if episodes is None and protocol.eval_steps is not None:
            wanted = {"version": version, "eval_steps": protocol.eval_steps}
        if existing.items() >= wanted.items():
            return
        say(title, f"evaluation of the {kind} weights.")
        # On a cluster the node decides: this machine may have another device.
        machine = job.config.machine if self._options.ray is None else self._options.machine
        unfinished, named = target.with_suffix(PART), code_named(self._options)
        options = words_of(episodes=episodes, **named, json=unfinished, device=machine.device)
        code = place.run(lambda: ["eval", "--load", str(load), *options], title, job.directory)
        if code == 0:
            unfinished.replace(target)
        elif not self._programs.stops:
            why = "its node was lost again and again" if code is None else f"exit code {code}"
            self._failed.append(f"The {kind} weights of {job.name} could not be evaluated: {why}.")
