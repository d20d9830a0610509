"""The task `suite`: the same training on many games and seeds, one run after another, and a report of all.

Each run is a separate process of `launch.py`, so that no state is carried from one run to the next. Progress is read
from the run directories alone, so the same command continues where it stopped. With `--ray` the runs are placed on the
nodes of a cluster, many at once (ringside/cluster).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from actors.env import EnvError
from actors.envs.atari import game_name
from ringside import planning
from ringside.cluster.hosts import NodeLost
from ringside.recording.scores import REFERENCE
from ringside.report.writing import write_report
from ringside.tasks.arguments import LAUNCHER, Choices, config_of, parse_choices
from shared.checkpoint.finding import find_checkpoint
from shared.checkpoint.manifest import BEST_FILE, CHECKPOINTS, plain_field
from shared.checkpoint.weights_file import read_weights_metadata
from shared.config.protocols import PROTOCOLS
from shared.config.run_schedule import make_run_schedule
from shared.config.settings import ARITHMETIC, CONFIG_FILE, JUDGED, MAY_CHANGE_ON_RESUME, SUMMARY_FILE, Config
from shared.errors import CheckpointError, ConfigError
from shared.files.atomic import read_object
from shared.files.lock import locked
from shared.machine.subprocesses import die_with
from shared.process.ownership import PART, REPORT, SUITE_LOCK_FILE, require_writable_run
from shared.process.signals import handle_stop_signals, stack_dumps_held_back
from shared.text import PROGRAM, command, flag_in, flag_of, nearest, words_of

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
NOT_HERE = {"--game": "--games", "--env": "--games", "--seed": "--seeds", "--run-dir": "--out", "--resume": "--out"}
"""Training options that a suite sets itself, with the suite option to use instead."""
MOST_LOSSES = 5
"""Losses of its node in a row, without a new checkpoint between them, after which a run is given up."""
_Item = TypeVar("_Item")


@dataclass(frozen=True)
class Suite(Choices):
    """The options of `suite`: those of training except `NOT_HERE`, and these."""

    games: str = "atari5"
    """atari5, atari26, atari57, or games separated by commas."""
    seeds: int = 3
    """Runs of each game, with the seeds 1, 2, ..."""
    out: Path | None = None
    """Directory of the runs and their report; default: runs/GAMES. The same directory and options go on with it."""
    final_episodes: int | None = None
    """Episodes of the evaluation after each run; default: as the protocol says, which may count steps instead."""
    ray: str | None = None
    """auto or HOST:PORT: place the runs on this Ray cluster, many at once (docs/clusters.md)."""
    cpus_per_run: int = 1
    """With --ray: CPUs of a node for each run."""
    gpus_per_run: float = 0.0
    """With --ray: GPUs of a node for each run; a fraction shares one."""
    ray_insecure: bool = False
    """With --ray: accept a cluster without a token, on which any program that reaches it can run code."""


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
        return self.newest_checkpoint is not None

    @property
    def newest_checkpoint(self) -> str | None:
        """Name of the newest checkpoint; None: there is none."""
        return max((path.name for path in self.directory.glob("checkpoints/checkpoint-*.json")), default=None)


OPTIONS = Suite


def main(arguments: Sequence[str]) -> int:
    """Run the suite. Return 1 if a run or an evaluation failed, or the suite was stopped."""
    for word in arguments:
        flag = flag_in(word)
        if flag in NOT_HERE:
            raise ConfigError(f"A suite says itself what {flag} is: omit it and use {NOT_HERE[flag]}.")
    options = parse_choices(
        Suite,
        arguments,
        f"{PROGRAM} suite",
        "Train on many games and seeds, one run after another, evaluate each by its protocol, and report. The same "
        "command goes on where it was stopped.",
    )
    if options.seeds < 1:
        raise ConfigError(f"--seeds {options.seeds} must be at least 1.")
    if options.final_episodes is not None and options.final_episodes < 1:
        raise ConfigError(f"--final-episodes {options.final_episodes} must be at least 1.")
    if not options.run.checkpoint_replay:
        raise ConfigError("--no-checkpoint-replay is not for suites: the runs of one that was stopped go on, exactly.")
    if options.run.stop_at is not None:
        raise ConfigError("--stop-at is not for suites, whose runs all have the same steps: omit it.")
    _require_places(options)
    games = games_of(options.games)
    out = options.out or Path("runs") / (options.games if options.games in SUITES else "-".join(games)[:80])
    jobs = jobs_of(options, games, out if options.ray is None else out.absolute())
    with _owned(out), _programs(options, out) as programs:
        return _SuiteRunner(options, jobs, out, programs).run()


def _require_places(options: Suite) -> None:
    """Raise `ConfigError` unless the options of a cluster are used with one, and can be met."""
    if options.cpus_per_run < 1:
        raise ConfigError(f"--cpus-per-run {options.cpus_per_run} must be at least 1.")
    if options.gpus_per_run < 0:
        raise ConfigError(f"--gpus-per-run {options.gpus_per_run} must be at least 0.")
    if options.ray is None and (options.cpus_per_run, options.gpus_per_run, options.ray_insecure) != (1, 0, False):
        raise ConfigError("--cpus-per-run, --gpus-per-run and --ray-insecure are for clusters: say --ray, too.")


def games_of(words: str) -> list[str]:
    """Games of a named list, or of names separated by commas. Raises `ConfigError`."""
    names = SUITES.get(words) or [name.strip() for name in words.split(",") if name.strip()]
    if not names:
        raise ConfigError(f"--games {words!r} names no game; say {', '.join(SUITES)}, or games separated by commas.")
    try:
        return list(dict.fromkeys(game_name(name) for name in names))
    except EnvError as error:
        if len(names) == 1:
            raise ConfigError(
                f"--games {words} is neither a list of games ({', '.join(SUITES)}) nor a game{nearest(words, SUITES)}"
            ) from error
        raise ConfigError(f"--games {words}: {error}") from error


def jobs_of(options: Suite, games: Sequence[str], out: Path) -> list[Job]:
    """All runs: every game with the first seed, then with the next.

    Raises:
        ConfigError: a setting is invalid, or a directory holds a run with other settings.
    """
    plain = config_of(options).with_settings(run_dir=out)
    resolved = planning.check(plain.with_settings(game=games[0])).config
    jobs = []
    for seed in range(1, options.seeds + 1):
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
            f"{job.directory} holds a run with other settings ({', '.join(differing)}): name another --out, or say the "
            "same options again."
        )


class JobPrograms(Protocol):
    """The programs of one job, one after another."""

    def run(self, words: Sequence[str], *, own_session: bool) -> int:
        """Run `launch.py` with these arguments to its end; return its exit code, negative for a signal.

        With `own_session` a Ctrl-C in the terminal does not reach it. Raises `NodeLost` if its node was lost.
        """

    def close(self) -> None:
        """Give back what the programs hold."""


class Programs(Protocol):
    """A place where the programs of a suite run."""

    def for_each(self, items: Iterable[_Item], work: Callable[[_Item], None]) -> None:
        """Call `work` for all items."""

    def open(self, title: str, directory: Path) -> JobPrograms:
        """The programs of one job."""

    def stop(self) -> None:
        """Ask all programs to save and end; a second time, to end at once."""


class _LocalPrograms:
    """Programs on this machine, one at a time."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._stopped = False

    def for_each(self, items: Iterable[_Item], work: Callable[[_Item], None]) -> None:
        """Call `work` for one item after another."""
        for item in items:
            work(item)

    def open(self, title: str, directory: Path) -> _LocalPrograms:
        """All jobs share this object."""
        return self

    def close(self) -> None:
        """Nothing is held between programs."""

    def stop(self) -> None:
        """Stop the present program, which saves itself, and start no other."""
        self._stopped = True
        if self._child is not None:
            self._child.send_signal(signal.SIGTERM)  # a run counts two signals within a second as one

    def run(self, words: Sequence[str], *, own_session: bool) -> int:
        """Run `launch.py` with these arguments. It stops gracefully if this process is killed."""
        if self._stopped:
            return -signal.SIGTERM
        end = partial(die_with, os.getpid(), signal.SIGTERM)
        command = [sys.executable, str(LAUNCHER), *words]
        with stack_dumps_held_back():
            self._child = subprocess.Popen(command, start_new_session=own_session, preexec_fn=end)
        try:
            if self._stopped:  # the signal came before the child existed
                self._child.terminate()
            return self._child.wait()
        finally:
            self._child = None


@contextmanager
def _programs(options: Suite, out: Path) -> Iterator[Programs]:
    """The programs of a suite: on this machine, or on a cluster during the block."""
    if options.ray is None:
        yield _LocalPrograms()
        return
    from ringside.cluster.connection import connect, disconnect

    connect(options.ray, insecure=options.ray_insecure)
    try:
        from ringside.cluster.placed_programs import ClusterPrograms
        from ringside.cluster.ray_hosts import RayHosts

        hosts = RayHosts(options.cpus_per_run, options.gpus_per_run)
        yield ClusterPrograms(hosts, options.cpus_per_run, out / SUITE_LOCK_FILE)
    finally:
        disconnect()


class _SuiteRunner:
    """Runs the jobs, and forwards stop signals to their programs."""

    def __init__(self, options: Suite, jobs: Sequence[Job], out: Path, programs: Programs) -> None:
        self._options = options
        self._jobs = jobs
        self._out = out
        self._programs = programs
        self._stopped = False
        self._failed: list[str] = []

    def run(self) -> int:
        """Run all jobs, and write the report. Return the exit code."""
        with handle_stop_signals(self._forward_stop):
            self._programs.for_each(enumerate(self._jobs, start=1), self._run_numbered)
        if self._stopped:
            print(
                f"Stopped. The same command goes on where it was; a report of what there is: {self._report_command()}"
            )
            return 1
        for sentence in self._failed:
            print(f"{PROGRAM}: {sentence}", file=sys.stderr)
        self._report()
        return 1 if self._failed else 0

    def _run_numbered(self, numbered: tuple[int, Job]) -> None:
        """Run one job, unless the suite was stopped."""
        number, job = numbered
        if not self._stopped:
            title = f"[{number}/{len(self._jobs)}] {job.name}"
            with closing(self._programs.open(title, job.directory)) as programs:
                self._run_job(job, title, programs)

    def _run_job(self, job: Job, title: str, programs: JobPrograms) -> None:
        """Run one job: the rest of its training, then its evaluations."""
        if job.finished:
            print(f"{title}: finished already.", flush=True)
        else:
            print(f"{title}: {'goes on' if job.begun else 'begins'} in {job.directory}.", flush=True)
            code = self._run(job, title, programs, lambda: self._training(job), own_session=False)
            if self._stopped or code is None:
                return
            if code != 0 or not job.finished:
                why = f"exit code {code}" if code else "it was stopped before its end"
                self._failed.append(f"{job.name} was not finished: {why}. Its logs are in {job.directory / 'logs'}.")
                return
        for kind, (load, version) in weights_of(job.directory).items():
            if not self._stopped:
                self._evaluate(job, title, programs, kind, load, version)

    def _run(
        self, job: Job, title: str, programs: JobPrograms, words: Callable[[], list[str]], *, own_session: bool
    ) -> int | None:
        """Run a program, again on another node as often as its node is lost.

        Return its exit code; None: it was given up, with a sentence.

        Args:
            words: makes the arguments of `launch.py`, which depend on how far the run is.
        """
        lost_in_row, newest = 0, job.newest_checkpoint
        while True:
            try:
                return programs.run(words(), own_session=own_session)
            except NodeLost as lost:
                lost_in_row = 1 if job.newest_checkpoint != newest else lost_in_row + 1
                newest = job.newest_checkpoint
                if self._stopped:
                    return 1
                if lost_in_row == MOST_LOSSES:
                    self._failed.append(
                        f"{job.name} was not finished: its node was lost {MOST_LOSSES} times in a row without a new "
                        "checkpoint. The same command goes on with it."
                    )
                    return None
                print(f"{title}: its node {lost}; it goes on elsewhere.", flush=True)

    def _training(self, job: Job) -> list[str]:
        """Arguments of `launch.py` for a run."""
        start = planning.starting_point(self._options.preset, None)
        given = config_of(self._options).to_flat()
        # As the command takes them: another method resets what has no effect on it, and refuses it as a flag.
        defaults = start.with_settings(method=given["method"]).to_flat() | {"method": start.algorithm.method}
        words = ["--resume", str(job.directory)] if job.begun else ["--preset", self._options.preset]
        own = {"game", "seed", "run_dir", "resume", *(["init_from"] if job.begun else [])}
        chosen = {name: value for name, value in given.items() if value != defaults.get(name) and name not in own}
        words += words_of(**chosen)
        play, run = job.config.play, job.config.run
        if job.begun:  # without --total-steps a resume keeps the recorded number
            return [*words, "--total-steps", str(job.config.learn.total_steps)]
        return [*words, "--game", play.game, "--seed", str(run.seed), "--run-dir", str(job.directory)]

    def _evaluate(self, job: Job, title: str, programs: JobPrograms, kind: str, load: Path, version: int) -> None:
        """Evaluate weights by the protocol, unless the same evaluation exists."""
        target = job.directory / JUDGED[kind]
        protocol = PROTOCOLS[job.config.play.protocol]
        steps = None if self._options.final_episodes else protocol.eval_steps
        episodes = self._options.final_episodes or protocol.eval_episodes
        existing = read_object(target)
        name, wanted = ("episodes", episodes) if steps is None else ("eval_steps", steps)
        if (existing.get("version"), existing.get(name)) == (version, wanted):
            return
        print(f"{title}: evaluation of the {kind} weights, {wanted:,} {name.removeprefix('eval_')}.", flush=True)
        unfinished = target.with_suffix(PART)
        chosen = {"episodes": None if steps else episodes, "plugin": job.config.run.plugin}
        words = [
            "eval",
            "--load",
            str(load),
            *words_of(**chosen),
            "--json",
            str(unfinished),
        ]
        # On a cluster the node decides: this machine may have another device.
        device = job.config.machine.device if self._options.ray is None else self._options.machine.device
        words += ["--device", device]
        code = self._run(job, title, programs, lambda: words, own_session=True)
        if code == 0:
            unfinished.replace(target)
        elif code is not None and not self._stopped:
            self._failed.append(f"The {kind} weights of {job.name} could not be evaluated: exit code {code}.")

    def _forward_stop(self, number: int) -> None:
        """Stop the present programs, which save themselves, and start no other."""
        self._stopped = True
        self._programs.stop()

    def _report(self) -> None:
        """Write the report of the finished runs, if any."""
        found = [job.directory for job in self._jobs if job.finished]
        if found:
            page, left_out = write_report(found, self._out / REPORT)
            for sentence in left_out:
                print(f"{PROGRAM}: {sentence}", file=sys.stderr)
            print(f"The report is in {page}.")

    def _report_command(self) -> str:
        return f"{command('report', str(self._out))}/*-*"


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


@contextmanager
def _owned(out: Path) -> Iterator[None]:
    """Make the directory of a suite, and lock it against other suites during the block."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--out {out} cannot be written: {error.strerror}.") from error
    require_writable_run(out, "--out")
    with locked(out / SUITE_LOCK_FILE, "--out", "a suite that is still going on"):
        yield
