"""The programs of a suite: each run's training, then its evaluations; and the report of all."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from ringside.cluster.hosts import NodeLost
from ringside.planning import settings_beside_preset
from ringside.programs.former_runs import wait_for_former
from ringside.programs.lost_nodes import given_up, run_despite_losses
from ringside.programs.places import Place, Programs
from ringside.report.writing import write_report
from ringside.suites.jobs import Job, weights_of
from shared.config.protocols import PROTOCOLS
from shared.config.settings import Config
from shared.files.atomic import write_atomic
from shared.files.run_file_names import EVALUATION_FILES
from shared.files.strict_json import read_object
from shared.process.ownership import PART, REPORT, SUITE_FILE
from shared.process.signals import handle_stop_signals
from shared.text import PROGRAM, command, count, flags_of, words_of


@dataclass(frozen=True)
class Suite:
    """A suite to run."""

    config: Config
    """Settings that all runs share, as the user gave them."""
    preset: str
    """Preset under them."""
    jobs: Sequence[Job]
    out: Path
    final_episodes: int | None
    """Episodes of the evaluation after each run; None: as the protocol says."""
    device: str | None
    """Device of the evaluations; None: that of the run."""


class SuiteRunner:
    """Runs the jobs, and forwards stop signals to their programs."""

    def __init__(self, suite: Suite, programs: Programs) -> None:
        self._suite = suite
        self._programs = programs
        self._stopped = False
        self._failed: list[str] = []

    def run(self) -> int:
        """Run all jobs, and write the report. Return the exit code."""
        runs = {"runs": [job.directory.name for job in self._suite.jobs]}
        write_atomic(self._suite.out / SUITE_FILE, json.dumps(runs).encode())
        with handle_stop_signals(self._forward_stop):
            self._programs.for_each(enumerate(self._suite.jobs, start=1), self._run_numbered)
        if self._stopped:
            print(
                f"Stopped. The same command continues where it was; a report of what there is: {self._report_command()}"
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
            title = f"[{number}/{len(self._suite.jobs)}] {job.name}"
            with closing(self._programs.open()) as place:
                self._run_job(job, title, place)

    def _run_job(self, job: Job, title: str, place: Place) -> None:
        """Run one job: the rest of its training, then its evaluations."""

        def say(sentence: str) -> None:
            print(f"{title}: {sentence}", flush=True)

        wait_for_former(job.directory, lambda: self._stopped, say)  # in vain: then the program refuses with a sentence
        if job.finished:
            print(f"{title}: finished already.", flush=True)
        else:
            print(f"{title}: {'continues' if job.begun else 'begins'} in {job.directory}.", flush=True)
            code = self._run(job, title, place, lambda: words_to_train(self._suite, job), own_session=False)
            if self._stopped or code is None:
                return
            if code != 0 or not job.finished:
                why = f"exit code {code}" if code else "it was stopped before its end"
                self._failed.append(f"{job.name} was not finished: {why}. Its logs are in {job.directory / 'logs'}.")
                return
        for kind, (load, version) in weights_of(job.directory).items():
            if not self._stopped:
                self._evaluate(job, title, place, kind, load, version)

    def _run(
        self, job: Job, title: str, place: Place, words: Callable[[], list[str]], *, own_session: bool
    ) -> int | None:
        """Run a program, again on another node if its node is lost.

        Return its exit code; None: it was given up, with a sentence, or the suite was stopped.

        Args:
            words: makes the arguments of `launch.py`, which depend on how far the run is.
        """

        def say(lost: NodeLost) -> bool:
            if not self._stopped:
                print(f"{title}: its node {lost}; it continues elsewhere.", flush=True)
            return not self._stopped

        code = run_despite_losses(
            lambda: place.run(words(), title, job.directory, own_session=own_session), job.directory, say
        )
        if code is None and not self._stopped:
            self._failed.append(given_up(job.name))
        return code

    def _evaluate(self, job: Job, title: str, place: Place, kind: str, load: Path, version: int) -> None:
        """Evaluate weights by the protocol, unless the same evaluation exists."""
        target = job.directory / EVALUATION_FILES[kind]
        protocol = PROTOCOLS[job.config.play.protocol]
        steps = None if self._suite.final_episodes else protocol.eval_steps
        episodes = self._suite.final_episodes or protocol.eval_episodes
        existing = read_object(target)
        name, wanted = ("episodes", episodes) if steps is None else ("eval_steps", steps)
        if (existing.get("version"), existing.get(name)) == (version, wanted):
            return
        played = count(wanted, "step" if steps else "episode")
        print(f"{title}: evaluation of the {kind} weights, {played}.", flush=True)
        unfinished = target.with_suffix(PART)
        chosen = {"episodes": None if steps else episodes, "plugin": job.config.run.plugin}
        words = [
            *("eval", "--load", str(load)),
            *words_of(**chosen, json=unfinished, device=self._suite.device or job.config.machine.device),
        ]
        code = self._run(job, title, place, lambda: words, own_session=True)
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
        found = [job.directory for job in self._suite.jobs if job.finished]
        if found:
            page, left_out = write_report(found, self._suite.out / REPORT)
            for sentence in left_out:
                print(f"{PROGRAM}: {sentence}", file=sys.stderr)
            print(f"The report is in {page}.")

    def _report_command(self) -> str:
        return f"{command('report', str(self._suite.out))}/*-*"


def words_to_train(suite: Suite, job: Job) -> list[str]:
    """Arguments of `launch.py` for a run."""
    own = {"game", "seed", "run_dir", "resume", "total_steps", *(["init_from"] if job.begun else [])}
    given = settings_beside_preset(suite.config, suite.preset)
    words = flags_of({name: value for name, value in given.items() if name not in own})
    # Without --total-steps a resume keeps the recorded number.
    words += words_of(total_steps=job.config.learn.total_steps)
    if job.begun:
        return ["--resume", str(job.directory), *words]
    named = words_of(game=job.config.play.game, seed=job.config.run.seed, run_dir=job.directory)
    return ["--preset", suite.preset, *words, *named]
