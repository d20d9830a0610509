"""Storms: processes of a real run are killed or frozen, over and over, and the run must end as if nothing had been."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import psutil

from shared.machine.proc_files import stat_fields
from shared.memory.board import Phase
from tests.support.runs import evaluations, finish, fork_server_of, memory_of, spawning, start, summary, wait_until

FLAGS = {
    "env": "tests.support.pixel_game:factory",
    "eval_every_steps": "960",
    "eval_episodes": "6",
    "eval_envs": "4",
}
"""Every role there is, the evaluator too."""
FORKED = 2
"""Processes that the fork server has forked: learner and inference."""
EARLY_SECONDS = 1.0
SOON_SECONDS, LONGEST_SECONDS = 120.0, 900.0
"""Seconds in which a role works again and a run ends, or the test gives up; for a machine under load."""


@dataclass
class Tally:
    """Kills of one storm."""

    name: str
    kills: int = 0
    early: int = 0
    """Kills in the first second of a life."""

    def __str__(self) -> str:
        return f"{self.name}: {self.kills:,} kills, {self.early:,} of them in the first second of a life, same weights"


TALLIES: list[Tally] = []
"""Tallies of the storms that ended with the same weights; printed at the end of the tests (conftest.py)."""


@dataclass(frozen=True)
class Result:
    """Results of a run, independent of where it ran."""

    weights_sha256: str
    episodes: int
    evaluations: list[dict[str, Any]]


class Undisturbed(Protocol):
    """Results of an undisturbed run of so many steps, with changed flags (conftest.py)."""

    def __call__(self, total_steps: str, **changes: str) -> Result: ...


def result_of(run_dir: Path) -> Result:
    last = summary(run_dir)
    return Result(last["weights_sha256"], last["episodes"], evaluations(run_dir))


def age(pid: int) -> float:
    """Seconds since the start of a process."""
    started = int(stat_fields(Path(f"/proc/{pid}/stat"))[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started


class Storm:
    """Kills and freezes processes of one run. All that is random follows from the seed."""

    def __init__(self, process: subprocess.Popen[str], run_dir: Path, name: str, seed: int) -> None:
        self.process = process
        self.run_dir = run_dir
        self.random = random.Random(seed)
        self.memory = memory_of(process, run_dir, actions=3)
        self.board = self.memory.board
        self.tally = Tally(name)
        self._struck: set[int] = set()
        self.server_kills = 0

    def rages(self) -> bool:
        """True until the last commit of the run."""
        return self.process.poll() is None and not self.board.complete

    def living(self) -> dict[int, int | None]:
        """Ids of the run's processes that were not killed yet, with their positions on the board.

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
                elif spawning(candidate):
                    found[candidate.pid] = None
        return found

    def kill(self, *wanted: int) -> int:
        """Kill the processes at these positions, or else a random one; returns how many there were to be killed."""
        living = self.living()
        victims = [pid for pid, number in living.items() if number in wanted]
        if not wanted and living:
            victims = [self.random.choice(sorted(living))]
        for pid in victims:
            self._strike(pid, signal.SIGKILL)
        return len(victims)

    def kill_server(self) -> None:
        """Kill the fork server, and so all that it forked, once it is there."""
        self.watch_for(lambda: fork_server_of(self.process) is not None)
        server = fork_server_of(self.process)
        if server is not None:
            self.server_kills += 1
            server.kill()

    def freeze(self, *wanted: int) -> None:
        """Stop the processes at these positions, once they have said who they are; each is to be killed for it."""
        for number in wanted:
            self.watch_for(lambda number=number: number in self.living().values())
            pid = next(pid for pid, position in self.living().items() if position == number)
            self._strike(pid, signal.SIGSTOP)

    def _strike(self, pid: int, number: signal.Signals) -> None:
        """Send a deadly signal, and count it."""
        self.tally.early += age(pid) < EARLY_SECONDS
        os.kill(pid, number)
        self._struck.add(pid)
        self.tally.kills += 1

    def kill_one_starting(self) -> None:
        """Kill a random process that has not come to work yet, if there is one."""
        self._kill_one_of(pid for pid, n in self.living().items() if n is None or self.board.phase[n] == Phase.STARTING)

    def kill_one_early(self) -> bool:
        """Kill a random process in the first second of its life; False: there is none."""
        return self._kill_one_of(pid for pid in self.living() if age(pid) < EARLY_SECONDS)

    def _kill_one_of(self, pids: Iterable[int]) -> bool:
        """Kill a random one of these; False: there is none."""
        found = sorted(pids)
        if found:
            self._strike(self.random.choice(found), signal.SIGKILL)
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
        working = (self.board.phase != Phase.STARTING).all()
        return bool(self.all_restarted() and working)

    def all_restarted(self) -> bool:
        """True if every killed process was replaced, and no other but those that a fork server had forked."""
        kills, restarts = self.tally.kills, int(self.board.restarts.sum())
        return kills <= restarts <= kills + self.server_kills * FORKED if self.server_kills else restarts == kills

    def breathe(self) -> None:
        """Wait until all are at work and a round is committed."""
        self.until(self.all_at_work)
        committed = self.board.committed
        self.until(lambda: self.board.committed > committed)

    def end(self, expected: Result) -> None:
        """Let the run end, compare, and count the storm."""
        finish(self.process, LONGEST_SECONDS)
        assert result_of(self.run_dir) == expected
        assert self.all_restarted()
        self.tally.kills += self.server_kills
        TALLIES.append(self.tally)


def begin(run_dir: Path, name: str, seed: int = 1, **changes: str) -> Storm:
    """Start a run for a storm, as soon as it has its memory."""
    return Storm(start(run_dir, **(FLAGS | changes)), run_dir, name, seed)
