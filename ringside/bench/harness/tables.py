"""Benchmark reports: rows with their spread and their ratio to a limit, as a table and as JSON.

Each report records the machine and the command that reproduces it. Each timed part also checks its results. A part that
cannot run here says why, and the other parts continue.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from shared.errors import DeviceFault
from shared.files.atomic import write_atomic
from shared.machine import facts
from shared.machine.subprocesses import read_output
from shared.root import ROOT
from shared.text import readable

_INTERRUPTED = "the rest"
"""Name of the parts that an interrupt left out."""
FILE_COLUMNS = 140
"""Width of a table printed to a file or a pipe."""


class CannotRun(Exception):
    """A part of a benchmark cannot be measured here. The message is a sentence: what is missing."""


class WrongResult(Exception):
    """The timed code computed a wrong result, so its speed means nothing. The message is a sentence."""


@dataclass(frozen=True)
class Row:
    """One measured quantity."""

    part: str
    """Part of the benchmark to which the row belongs."""
    name: str
    unit: str
    values: tuple[float, ...]
    """One value for each repeat."""
    limit: str | None = None
    """Name of the row that bounds this one."""
    ratios: tuple[float, ...] = ()
    """Share of the limit reached, one for each repeat; a ratio above 1 exceeds the limit."""
    note: str = ""

    @property
    def median(self) -> float:
        """Median of the values."""
        return statistics.median(self.values)

    @property
    def ratio(self) -> float | None:
        """Median of the ratios; None without a limit."""
        return statistics.median(self.ratios) if self.ratios else None


@dataclass
class Report:
    """Rows of one benchmark, and the parts that could not be measured."""

    name: str
    title: str
    words: Sequence[str] = ()
    """Command-line arguments after `launch.py bench`."""
    rows: list[Row] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    """Reasons by part that could not run."""
    wrong: dict[str, str] = field(default_factory=dict)
    """Errors by part whose results were wrong."""
    notes: list[str] = field(default_factory=list)
    console: Console = field(default_factory=lambda: Console(stderr=True))
    machine: dict[str, Any] = field(default_factory=facts.describe)
    """State of the machine before the first measurement, with its load."""
    commit: str | None = field(default_factory=lambda: commit())
    """Commit of the measured code."""
    part: str = ""

    @contextmanager
    def measuring(self, part: str) -> Iterator[None]:
        """Assign rows added in the block to `part`; if it cannot run or is wrong, note that and continue."""
        previous, self.part = self.part, part
        try:
            with self.noting(part), self.console.status(f"{part} ..."):
                yield
        finally:
            self.part = previous

    @contextmanager
    def noting(self, part: str) -> Iterator[None]:
        """Note for `part` if the block cannot run or computes a wrong result."""
        try:
            yield
        except (CannotRun, DeviceFault) as error:
            self.missing[part] = str(error)
        except (MemoryError, RuntimeError) as error:
            # On a CPU PyTorch raises RuntimeError; its CUDA class is a subclass, and torch is not imported here.
            words = ("can't allocate memory", "out of memory")
            if not isinstance(error, MemoryError) and not any(each in str(error) for each in words):
                raise
            self.missing[part] = f"There is too little memory for it. {str(error).partition(chr(10))[0]}".strip()
        except WrongResult as error:
            self.rows = [row for row in self.rows if row.part != part]
            self.wrong[part] = str(error)

    def add(
        self,
        name: str,
        unit: str,
        values: Sequence[float],
        *,
        limit: str | None = None,
        ratios: Sequence[float] = (),
        note: str = "",
    ) -> Row:
        """Add a row. With a `limit` and no `ratios`, divide the values by those of the limit, repeat by repeat.

        In that case the values of both rows must be speeds, one for each repeat.

        Raises:
            WrongResult: a value is NaN or infinite.
        """
        if any(row.name == name for row in self.rows):
            raise ValueError(f"There are two rows named {name!r}; a limit could be either.")
        if limit is not None and not ratios:
            above = self.row(limit)
            ratios = [value / most for value, most in zip(values, above.values, strict=True)]
        if not all(math.isfinite(value) for value in (*values, *ratios)):
            raise WrongResult(f"{name} came out as {', '.join(f'{value:g}' for value in values)} {unit}.")
        row = Row(self.part, name, unit, tuple(values), limit, tuple(ratios), note)
        self.rows.append(row)
        return row

    def row(self, name: str) -> Row:
        """Return the row of this name. Raises `CannotRun` if it is missing, as a ratio to it cannot be computed."""
        for row in self.rows:
            if row.name == name:
                return row
        raise CannotRun(f"It is measured against {name!r}, which is missing.")

    def note(self, sentence: str) -> None:
        """Add a sentence below the table."""
        self.notes.append(sentence)

    def interrupt(self) -> None:
        """Note that an interrupt ended the measurements."""
        self.missing[_INTERRUPTED] = "It was interrupted."

    @property
    def interrupted(self) -> bool:
        """True after `interrupt`."""
        return _INTERRUPTED in self.missing

    @property
    def code(self) -> int:
        """Exit code: 1 if a part computed a wrong result, 130 after an interrupt, 1 if nothing could be measured."""
        if self.wrong:
            return 1
        if self.interrupted:
            return 130
        return 0 if self.rows else 1

    def to_json(self) -> dict[str, Any]:
        """The whole report, with the machine and the command."""
        return {
            "benchmark": self.name,
            "command": " ".join(["python launch.py bench", *self.words]),
            "commit": self.commit,
            "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": self.machine,
            "rows": [asdict(row) | {"median": row.median, "ratio": row.ratio} for row in self.rows],
            "missing": self.missing,
            "wrong": self.wrong,
            "notes": self.notes,
        }

    def write(self, path: Path) -> None:
        """Write `to_json` to a file. Raises `OSError`."""
        write_atomic(path, json.dumps(self.to_json(), indent=1).encode() + b"\n")

    def print(self) -> None:
        """Print the table, the notes, the failures and the machine."""
        console = Console()
        if not console.is_terminal and "COLUMNS" not in os.environ:
            console = Console(width=FILE_COLUMNS)
        table = Table(title=self.title, title_justify="left")
        for heading in ("", "median", "least", "most", "unit", "share", "of"):
            table.add_column(heading, justify="right" if heading in ("median", "least", "most", "share") else "left")
        part = None
        for row in self.rows:
            if row.part != part and part is not None:
                table.add_section()
            part = row.part
            figures = (row.median, min(row.values), max(row.values))
            share = "" if row.ratio is None else f"{row.ratio:.3f}"
            name = Text(row.name).append(f"  {row.note}", style="dim") if row.note else Text(row.name)
            table.add_row(name, *(readable(value) for value in figures), row.unit, share, row.limit or "")
        console.print(table)
        for sentence in self.notes:
            console.print(Text(sentence))
        for part, reason in self.missing.items():
            console.print(Text.assemble(("not measured", "yellow"), f" {part}: {reason}"))
        for part, reason in self.wrong.items():
            console.print(Text.assemble(("wrong", "red"), f" {part}: {reason}"))
        console.print(Text(machine_line(self.machine), style="dim"))


def machine_line(described: dict[str, Any]) -> str:
    """One line for a machine described by `shared.machine.facts.describe`."""
    threads = described["threads_per_core"]
    libraries = ", ".join(f"{name} {number}" for name, number in described["libraries"].items() if number)
    return (
        f"{described['cpu']}, {described['usable_cores']} of {described['cpus']} processors"
        + (f" ({threads} to a core)" if threads else "")
        + "".join(f", {flag}" for flag in described["bf16_flags"][:1])
        + f"; {', '.join(described['gpus']) or 'no GPU'}; Python {described['python']}, {libraries}; "
        f"load {described['load_average'][0]:.1f} before"
    )


def commit() -> str | None:
    """Commit of the source, with "+" if files differ from it; None outside a repository."""
    try:
        return read_output(["git", "describe", "--always", "--dirty=+", "--exclude=*"], 10.0, directory=ROOT).strip()
    except (OSError, subprocess.SubprocessError):
        return None
