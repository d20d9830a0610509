"""Storms: processes of a real run are killed or frozen, over and over, and the run must end as if nothing had been."""

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil

from shared.memory.board import Phase
from shared.memory.process_table import Role
from tests.support import runs
from tests.support.runs import Process, evaluations, finish, memory_of, shared_names, start, summary, wait_until

FLAGS = {"env": "tests.support.pixel_game:factory", "eval_every_steps": "960", "eval_episodes": "6", "eval_envs": "4"}
"""Every role there is, the evaluator too."""
ACTORS = (Role.ACTOR, Role.ACTOR + 1)
ALL_ROLES = (Role.INFERENCE, Role.LEARNER, Role.SCRIBE, Role.EVALUATOR, *ACTORS)
SERVER = -1
"""Stands for the fork server, which has no position on the board."""
SOON_SECONDS, LONGEST_SECONDS = 120.0, 900.0
"""Seconds in which a role works again and a run ends, or the test gives up; for a machine under load."""


TALLIES: list[tuple[str, int]] = []
"""Names and kills of the storms that ended with the same weights; printed at the end of the tests (conftest.py)."""


class Result(NamedTuple):
    """Results of a run, independent of where it ran."""

    weights_sha256: str
    episodes: int
    evaluations: list[dict[str, Any]]


Undisturbed = Callable[..., Result]
"""`undisturbed(total_steps, **changes)`: the result of an undisturbed run with changed flags (conftest.py)."""


def result_of(run_dir: Path) -> Result:
    last = summary(run_dir)
    return Result(last["weights_sha256"], last["episodes"], evaluations(run_dir))


class Storm:
    """Kills and freezes processes of one run. All that is random follows from the seed."""

    def __init__(self, process: Process, run_dir: Path, name: str, seed: int, names: set[str]) -> None:
        self.process, self.run_dir, self._names_before = process, run_dir, names
        self.random = random.Random(seed)
        self.memory = memory_of(process, run_dir, actions=3)
        self.board = self.memory.board
        self.name, self.kills = name, 0
        self._struck: set[int] = set()
        self._learners = list(self.memory.plan.processes.learners)
        self._forked = [Role.INFERENCE, *self._learners]
        """Processes of the fork server."""
        self._kills = Counter[bool | None]()
        """Kills of forked processes (True), of others (False), and of the fork server (None)."""
        self._least = np.zeros_like(self.board.restarts)
        """Restarts of each process that its kills lead to, at least."""

    def rages(self) -> bool:
        """True until the last commit of the run."""
        return self.process.poll() is None and not self.board.complete

    def living(self) -> dict[int, int | None]:
        """Ids of the run's processes that were not killed yet, with their positions on the board, or `SERVER`.

        None: a process that has not said yet who it is, since it is only just starting.
        """
        processes = self.memory.plan.processes
        roles = {f"ringside {processes.name_of(index)}": index for index in range(len(processes))}
        found: dict[int, int | None] = {}
        for candidate in psutil.Process(self.process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                words = candidate.cmdline()
                if candidate.pid in self._struck or candidate.status() == psutil.STATUS_ZOMBIE:
                    continue
                if words[:1] and words[0] in roles:
                    found[candidate.pid] = roles[words[0]]
                elif runs.spawning(candidate):
                    found[candidate.pid] = None
                elif runs.is_fork_server(candidate):
                    found[candidate.pid] = SERVER
        return found

    def kill(self, *wanted: int) -> int:
        """Kill the processes at these positions, or else a random one; returns how many there were to be killed."""
        living = self.living()
        if not wanted:
            return int(self._kill_one_of(living))
        victims = {pid: number for pid, number in living.items() if number in wanted}
        for pid, number in victims.items():
            self._strike(pid, number)
        return len(victims)

    def freeze(self, *wanted: int) -> None:
        """Stop the processes at these positions, once they have said who they are; each is to be killed for it."""
        for number in wanted:
            self.watch_for(lambda number=number: number in self.living().values())
            pid = next(pid for pid, position in self.living().items() if position == number)
            self._strike(pid, number, signal.SIGSTOP)

    def _strike(self, pid: int, number: int | None, signal_: signal.Signals = signal.SIGKILL) -> None:
        """Send a deadly signal to the process at a position, and count it, unless its server has taken it along."""
        with suppress(ProcessLookupError, psutil.NoSuchProcess):
            forked = number in self._forked or (number is None and runs.is_fork_server(psutil.Process(pid)))
            hit = self._forked if number == SERVER else [] if number is None else [number]
            least = self.board.restarts[hit] + 1
            os.kill(pid, signal_)
            self._struck.add(pid)
            self._least[hit] = least
            self._kills[None if number == SERVER else forked] += 1
            self.kills += 1

    def kill_one_starting(self) -> None:
        """Kill a random process that has not come to work yet, if there is one."""
        phase = self.board.phase
        starts = {n: phase[n] == Phase.STARTING for n in range(len(phase))} | {None: True, SERVER: False}
        self._kill_one_of({pid: n for pid, n in self.living().items() if starts[n]})

    def _kill_one_of(self, found: dict[int, int | None]) -> bool:
        """Kill a random one of these; False: there is none."""
        if found:
            self._strike(*self.random.choice(sorted(found.items(), key=itemgetter(0))))
        return bool(found)

    def watch_for(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition, also after the last commit."""
        wait_until(self.process, condition, SOON_SECONDS)

    def until(self, condition: Callable[[], bool], seconds: float = SOON_SECONDS) -> None:
        """Wait until a condition, or the last commit."""
        wait_until(self.process, lambda: condition() or bool(self.board.complete), seconds)

    def pause(self, seconds: float) -> None:
        """Let the run go on for a while: the storm's own measure of time, not a wait for anything."""
        end = time.monotonic() + seconds
        self.until(lambda: time.monotonic() >= end, seconds + SOON_SECONDS)

    def all_at_work(self) -> bool:
        """True if no process is starting and every killed process was replaced."""
        return bool(self.all_restarted() and (self.board.phase != Phase.STARTING).all())

    def all_restarted(self) -> bool:
        """True if every killed process was replaced, and no other but those that a killed one took along.

        Members of the learner restart together. A killed fork server takes all that it forked along, and it is killed
        for a member that it has not forked yet.
        """
        restarts, kills, team = self.board.restarts, self._kills, len(self._learners)
        forked = restarts[self._forked]
        others = restarts.sum() - forked.sum() == kills[False]
        together = (restarts[self._learners] == restarts[Role.LEARNER]).all()
        most = kills[True] * (len(forked) if team > 1 else 1) + kills[None] * len(forked)
        explained = kills[True] <= forked.sum() <= most and forked.max() <= kills[True] + kills[None]
        return bool(others and together and explained and (restarts >= self._least).all())

    def breathe(self) -> None:
        """Wait until all are at work and a round is committed."""
        self.until(self.all_at_work)
        committed = self.board.committed
        self.until(lambda: self.board.committed > committed)

    def end(self, expected: Result | None = None) -> None:
        """Let the run end, compare, and count the storm."""
        finish(self.process, LONGEST_SECONDS)
        assert expected is None or result_of(self.run_dir) == expected
        assert self.all_restarted()
        assert shared_names() <= self._names_before
        TALLIES.append((self.name, self.kills))


Moment = Callable[[Storm], bool]
"""A condition of a run."""


def begin(run_dir: Path, name: str, seed: int = 1, **changes: str) -> Storm:
    """Start a run for a storm, as soon as it has its memory."""
    before = shared_names()
    return Storm(start(run_dir, **(FLAGS | changes)), run_dir, name, seed, before)
