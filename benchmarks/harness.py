"""The harness of all benchmarks: interleaved cases, rows with their share of a limit, a table and JSON.

Each repeat measures every case once, one after the other. So a change in the speed of the machine affects all alike,
and a share compares two values of one repeat. A case that cannot run here says why, and a case that computed a wrong
result shows no speed; the others continue.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import statistics
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from multiprocess import Pipe
from multiprocess.connection import Connection
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ringside.run.children import ChildProcess
from shared.errors import RingsideError
from shared.files.atomic import write_atomic
from shared.machine import facts
from shared.machine.subprocesses import REAP_SECONDS, read_output
from shared.process.library_env import choose_workspace
from shared.process.signals import enable_stack_dumps
from shared.root import ROOT
from shared.text import readable, refused, require_name

INTERRUPTED = "the rest"
"""Name of the cases that an interrupt left out."""
FILE_COLUMNS = 140
"""Width of a table printed to a file or a pipe."""
SLICE_SECONDS = 0.01
"""Length of a slice, which holds as many calls as fit, at least one."""
START_SECONDS = 600.0
"""Longest time that a worker may take beyond its measuring time: a round of `btr` takes minutes on a CPU."""
END_SECONDS = 10.0
"""Longest time that a worker may take to end by itself."""


class CannotRun(Exception):
    """A case cannot be measured here. The message is a sentence: what is missing."""


class WrongResult(Exception):
    """The timed code computed a wrong result, so its speed means nothing. The message is a sentence."""


class Options(argparse.Namespace):
    """Options of all benchmarks; each one reads those that its --help lists."""

    only: str
    names: list[str]
    """The names in `only`."""
    game: str
    seconds: float
    repeats: int
    json: Path | None
    words: list[str]
    """Flags of launch.py, after --."""
    end_to_end: bool
    cleanrl: Path | None
    peer_steps: int
    out: Path
    within: float


@dataclass(frozen=True)
class Figure:
    """One measured value of a row."""

    name: str
    value: float
    unit: str = "steps/s"
    limit: str | None = None
    """Name of the row that bounds this one."""
    ratio: float | None = None
    """Share of the limit; default: the value divided by that of the limit in the same repeat."""
    note: str = ""


class Found(dict[str, float]):
    """Values of a repeat so far, by row."""

    def __missing__(self, name: str) -> float:
        """Raise `CannotRun`."""
        raise CannotRun(f"It is measured against {name!r}, which is missing.")


@dataclass(frozen=True)
class Case:
    """One of the alternatives compared."""

    name: str
    """Unique name, under which a failure is listed."""
    measure: Callable[[Found], Iterable[Figure]]
    """Measures once. Raises `CannotRun` or `WrongResult`."""
    part: str = ""
    """Section of the table."""


def speed_case(
    name: str, measure: Callable[[], float], unit: str = "steps/s", limit: str | None = None, **labels: str
) -> Case:
    """A case with one row. `labels` may be the `note` of the row and the `part` of the case."""
    note, part = labels.get("note", ""), labels.get("part", "")
    return Case(name, lambda found: [Figure(name, measure(), unit, limit, note=note)], part)


@dataclass(frozen=True)
class Row:
    """One measured quantity."""

    part: str
    name: str
    unit: str
    values: tuple[float, ...]
    """One value for each repeat."""
    limit: str | None
    ratios: tuple[float, ...]
    """Share of the limit, one for each repeat; empty if there is none."""
    note: str

    @property
    def median(self) -> float:
        """Median of the values."""
        return statistics.median(self.values)

    @property
    def ratio(self) -> float | None:
        """Median of the ratios; None without a limit."""
        return statistics.median(self.ratios) if self.ratios else None


_Repeat = dict[str, tuple[Case, Figure]]
"""What a repeat measured, by row."""


def _share(name: str, repeat: _Repeat) -> float | None:
    """Share of a row's limit in one repeat; None without a limit."""
    figure = repeat[name][1]
    if figure.ratio is not None or figure.limit not in repeat:
        return figure.ratio
    return figure.value / repeat[figure.limit][1].value


@dataclass
class Report:
    """Rows of one benchmark, and the cases that could not be measured."""

    name: str
    title: str
    words: Sequence[str] = ()
    """Command-line arguments after `python -m benchmarks`."""
    rows: dict[str, Row] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    """Reasons by case that could not run."""
    wrong: dict[str, str] = field(default_factory=dict)
    """Errors by case whose results were wrong."""
    notes: dict[str, str] = field(default_factory=dict)
    """Sentences below the table, by their subject."""
    console: Console = field(default_factory=lambda: Console(stderr=True))
    machine: dict[str, Any] = field(default_factory=facts.describe)
    """State of the machine before the first measurement, with its load."""

    def run(self, cases: Sequence[Case], repeats: int) -> None:
        """Measure all cases, interleaved, and add their rows.

        A case that fails once has no rows. After an interrupt complete repeats count, or what there is of the first.
        """
        whole, figures = list[_Repeat](), _Repeat()
        try:
            while len(whole) < repeats:
                values, figures = Found(), {}
                for case in [each for each in cases if not self._failed(each)]:
                    with self.noting(case.name), self.console.status(f"{case.name} ..."):
                        measured = list(case.measure(values))
                        _require_finite(measured)
                        for figure in measured:
                            name = figure.name
                            assert name not in {*self.rows, *figures}, f"there are two rows named {name!r}"
                            figures[name], values[name] = (case, figure), figure.value
                whole.append(figures)
        finally:
            self._add(whole or [figures])

    def _failed(self, case: Case) -> bool:
        return case.name in self.missing or case.name in self.wrong

    def _add(self, repeats: Sequence[_Repeat]) -> None:
        """Add rows, with the shares of the repeats; those that some repeat lacks are left out."""
        for name, (case, last) in repeats[-1].items():
            if not self._failed(case) and all(name in each for each in repeats):
                values = tuple(each[name][1].value for each in repeats)
                shares = tuple(_share(name, each) for each in repeats)
                # A limit that failed in a later repeat has no row either.
                ratios = tuple(share for share in shares if share is not None and None not in shares)
                self.rows[name] = Row(case.part, name, last.unit, values, last.limit, ratios, last.note)

    @contextmanager
    def noting(self, case: str) -> Iterator[None]:
        """Note for `case` if the block cannot run or computes a wrong result."""
        try:
            yield
        except (CannotRun, RingsideError) as error:
            self.missing[case] = str(error)
        except WrongResult as error:
            self.wrong[case] = str(error)

    @property
    def code(self) -> int:
        """Exit code: 1 if a case computed a wrong result, 130 after an interrupt, 1 if nothing could be measured."""
        if not self.wrong and INTERRUPTED in self.missing:
            return 130
        return 0 if self.rows and not self.wrong else 1

    def publish(self, file: Path | None) -> None:
        """Print the table and write the file. Without a figure an earlier file stays as it is.

        Raises:
            ConfigError: the file cannot be written.
        """
        stays = file is not None and not self.rows and file.exists()
        if stays:
            self.notes["file"] = f"Nothing was measured, so --json {file} stays as it was."
        self.print()
        if file is not None and not stays:
            with refused(f"--json {file} cannot be written"):
                write_atomic(file, json.dumps(self.to_json(), indent=1).encode() + b"\n")

    def to_json(self) -> dict[str, Any]:
        """The whole report, with the machine and the command."""
        return {
            "benchmark": self.name,
            "command": " ".join(["python -m benchmarks", self.name, *self.words]),
            "commit": commit(),
            "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": self.machine,
            "rows": [asdict(row) | {"median": row.median, "ratio": row.ratio} for row in self.rows.values()],
            "missing": self.missing,
            "wrong": self.wrong,
            "notes": list(self.notes.values()),
        }

    def print(self) -> None:
        """Print the table, the notes, the failures and the machine."""
        console = Console()
        if not console.is_terminal and "COLUMNS" not in os.environ:
            console = Console(width=FILE_COLUMNS)
        table = Table(title=self.title, title_justify="left")
        for heading in ("", "median", "least", "most", "unit", "share", "of"):
            table.add_column(heading, justify="right" if heading in ("median", "least", "most", "share") else "left")
        part = None
        for row in self.rows.values():
            if row.part != part and part is not None:
                table.add_section()
            part = row.part
            figures = (row.median, min(row.values), max(row.values))
            of = ("", "") if row.ratio is None else (f"{row.ratio:.3f}", row.limit or "")
            name = Text(row.name).append(f"  {row.note}" if row.note else "", style="dim")
            table.add_row(name, *(readable(value) for value in figures), row.unit, *of)
        console.print(table)
        for sentence in self.notes.values():
            console.print(Text(sentence))
        for label, style, cases in (("not measured", "yellow", self.missing), ("wrong", "red", self.wrong)):
            for case, reason in cases.items():
                console.print(Text.assemble((label, style), f" {case}: {reason}"))
        machine = self.machine
        gpus, versions = machine["gpus"] or ["no GPU"], machine["libraries"]
        named = [machine["cpu"], f"{machine['usable_cores']} cores", *gpus, f"torch {versions['torch']}"]
        console.print(Text(f"{', '.join(named)}, load {machine['load_average'][0]:.1f} before", style="dim"))


def _require_finite(figures: Iterable[Figure]) -> None:
    """Raise `WrongResult` for a value that is NaN or infinite, which JSON cannot hold either."""
    for figure in figures:
        if not math.isfinite(figure.value) or not math.isfinite(figure.ratio or 0.0):
            raise WrongResult(f"{figure.name} came out as {figure.value:g} {figure.unit}.")


def commit() -> str | None:
    """Commit of the source, with "+" if files differ from it; None outside a repository."""
    try:
        return read_output(["git", "describe", "--always", "--dirty=+", "--exclude=*"], 10.0, cwd=ROOT).strip()
    except (OSError, subprocess.SubprocessError):
        return None


def names_in_list(words: str, known: Sequence[str]) -> list[str]:
    """Names in the comma-separated list of --only, in the order of `known`; "all" selects all. Raises `ConfigError`."""
    names = known if words == "all" else [word.strip() for word in words.split(",")]
    for name in names:
        require_name("--only", name, known)
    return [name for name in known if name in names]


def doublings(most: int) -> list[int]:
    """1, 2, 4, ... and `most` itself."""
    return sorted({*(1 << power for power in range(most.bit_length())), most})


def seconds_per_call(actions: Sequence[Callable[[], object]], seconds: float) -> list[float]:
    """Mean wall-clock seconds per call of each action, timed in interleaved slices until each had `seconds`.

    Two calls of each action warm up.
    """

    def took(action: Callable[[], object], calls: int) -> float:
        began = time.perf_counter()
        for _ in range(calls):
            action()
        return time.perf_counter() - began

    slices, spent, per_slice = 0, [0.0] * len(actions), []
    for action in actions:
        took(action, 1)
        per_slice.append(max(1, int(SLICE_SECONDS / max(1e-9, took(action, 1)))))
    while min(spent) < seconds:
        slices += 1
        for index, action in enumerate(actions):
            spent[index] += took(action, per_slice[index])
    return [total / (slices * calls) for total, calls in zip(spent, per_slice, strict=True)]


def work_rate(step: Callable[[], float], seconds: float, clock: Callable[[], float] = time.perf_counter) -> float:
    """Work in a second of the clock. `step` returns its work; it is called for so many seconds, and until it works."""
    began, done, took = clock(), 0.0, 0.0
    while not done or took < seconds:
        done += step()
        took = clock() - began
    return done / took


# --- processes that measure

Job = Sequence[Any]
"""A function of a module, then its arguments. In a worker it makes a measurement: a function of the seconds."""
Measure = Callable[[float], list[Any]]


@contextmanager
def workers(jobs: Sequence[Job], environment: Mapping[str, str] | None = None) -> Iterator[Measure]:
    """Processes with the setup of a role of a run, one for each job; they end with the block.

    Yields a function that has all of them measure at once, and returns their results. It raises `CannotRun` and
    `WrongResult`, and so does the start.
    """
    choose_workspace()
    pipes, processes, patience = list[Connection](), list[ChildProcess](), 0.0
    try:
        for job in jobs:
            ours, theirs = Pipe()
            process = ChildProcess(target=_serve, args=(theirs, job, dict(environment or {})), daemon=True)
            process.start()
            processes.append(process)
            theirs.close()
            pipes.append(ours)
        for pipe in pipes:
            _receive(pipe, START_SECONDS)

        def measure(seconds: float) -> list[Any]:
            for pipe in pipes:
                with suppress(OSError):  # it has ended, which the next call reports
                    pipe.send(seconds)
            return [_receive(pipe, seconds + START_SECONDS) for pipe in pipes]

        yield measure
        patience = END_SECONDS  # under MPS, killing one client might hang the others
    finally:
        for pipe in pipes:
            pipe.close()
        for process in processes:
            process.join(patience)
            process.kill()
            process.join(REAP_SECONDS)


def measure_at_once(jobs: Sequence[Job], seconds: float) -> list[Any]:
    """Results of all jobs, measured once at the same time. Raises as `workers`."""
    with workers(jobs) as measure:
        return measure(seconds)


def _receive(pipe: Connection, seconds: float) -> Any:
    """The next result of a worker. Raises the exception that it sends, or `CannotRun` if nothing arrives."""
    try:
        result = pipe.recv() if pipe.poll(seconds) else None
    except (EOFError, ConnectionResetError):
        result = None
    if result is None:
        raise CannotRun("Its process ended early, or did not answer.")
    if isinstance(result, Exception):
        raise result
    return result


def _serve(pipe: Connection, job: Job, environment: Mapping[str, str]) -> None:
    """Entry point of a worker: make the measurement, say so, then measure until the pipe is closed."""
    os.environ.update(environment)
    enable_stack_dumps()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent handles it
    setup, *arguments = job
    with suppress(EOFError, BrokenPipeError):
        try:
            measure = setup(*arguments)
            pipe.send("ready")
            while True:
                pipe.send(measure(pipe.recv()))
        except (CannotRun, WrongResult) as error:
            pipe.send(error)
        except RingsideError as error:
            pipe.send(CannotRun(str(error)))
        except (MemoryError, RuntimeError) as error:  # PyTorch's, of too little memory or a device, have many lines
            pipe.send(CannotRun(f"{type(error).__name__}: {error}".splitlines()[0]))
