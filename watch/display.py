"""What a person sees while a run goes on: a live display in a terminal, or a line every few seconds.

Both are given a `Status` several times a second. A terminal that goes away ends the display, never the run.

Colours help, and nothing hangs on them: blue, yellow and bold are told apart by the colour-blind too, and every state
is also a word.
"""

from __future__ import annotations

import os
import sys
import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self, TextIO, cast

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from watch.outlet import Outlet
from watch.status import CheckpointStatus, RoleStatus, Status

PLAIN_SECONDS = 5.0
"""Between two lines of the plain display."""
MOST_UNTOLD = 1_000
"""Notes that are kept for a reader who takes none."""
END_SECONDS = 2.0
"""How long such a reader is waited for at the end."""
FEW_ACTORS = 4
"""Up to so many actors have a line each."""
_WIDEST = 100
_TWO_COLUMNS = 80
_LOW = 26
"""Columns from which numbers stand side by side, and lines below which actors share one."""
_UNKNOWN = "–"


# Words for numbers


def count(value: float | None) -> str:
    """A whole number with separators: 1,234,567."""
    return _UNKNOWN if value is None else f"{value:,.0f}"


def short(value: float) -> str:
    """A large number in few characters: 950, 9.98k, 6.15M."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g}{unit}" if abs(value) < 999.5 * limit else f"{value / limit:,.0f}{unit}"
    return f"{value:.0f}"


def duration(seconds: float | None) -> str:
    """A span of time: 0:00:07, 12:34:56, 3 d 04:05."""
    if seconds is None:
        return _UNKNOWN
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    return f"{days} d {hour:02}:{minute:02}" if days else f"{hour}:{minute:02}:{second:02}"


def number(value: float | None, digits: int = 1) -> str:
    """A number with a fixed count of decimals."""
    return _UNKNOWN if value is None else f"{value:,.{digits}f}"


def figure(value: float | None) -> str:
    """A number of unknown size, with three significant digits."""
    return _UNKNOWN if value is None else f"{value:.3g}"


# Displays


class Display(ABC):
    """Shows statuses and notes between `__enter__` and `__exit__`."""

    def __init__(self, outlet: Outlet) -> None:
        self._outlet = outlet
        self._untold: deque[str] = deque(maxlen=MOST_UNTOLD)
        self._unseen: Status | None = None

    def show(self, status: Status) -> None:
        """Show the run as it is now. Call it as often as you like; who reads too slowly misses some."""
        self._tell()
        self._unseen = status
        if self._outlet.taken():
            self._show(status)
            self._unseen = None

    def note(self, message: str) -> None:
        """Tell the person something that happened: it stays to be read."""
        self._untold.append(message)
        self._tell()

    def _tell(self) -> None:
        """The notes that there are, as far as they are taken."""
        while self._untold and self._outlet.taken():
            self._note(self._untold.popleft())

    def __enter__(self) -> Self:
        self._begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._outlet.taken(END_SECONDS):
            while self._untold:
                self._note(self._untold.popleft())
            if self._unseen is not None:
                self._show(self._unseen)
            self._end()
            self._outlet.taken(END_SECONDS)
        self._outlet.finish()

    @abstractmethod
    def _begin(self) -> None: ...

    @abstractmethod
    def _show(self, status: Status) -> None: ...

    @abstractmethod
    def _note(self, message: str) -> None: ...

    @abstractmethod
    def _end(self) -> None: ...


class LiveDisplay(Display):
    """A display that is drawn again in its place, for a terminal."""

    def __init__(self, outlet: Outlet) -> None:
        super().__init__(outlet)
        self._console = console = Console(file=cast(TextIO, outlet), highlight=False)
        # No thread of its own: it is drawn when there is something new, and the process stays as it was.
        self._live = Live(console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)

    def _begin(self) -> None:
        self._live.start()

    def _show(self, status: Status) -> None:
        self._live.update(render(status, self._console.width, self._console.height), refresh=True)

    def _note(self, message: str) -> None:
        self._console.print(Text(f"{time.strftime('%H:%M:%S')}  {message}"), soft_wrap=False)

    def _end(self) -> None:
        self._live.stop()


class PlainDisplay(Display):
    """A line every few seconds, for files, pipes and `--plain`."""

    def __init__(self, outlet: Outlet, seconds: float = PLAIN_SECONDS, clock: Callable[[], float] = time.monotonic):
        """Write a line every `seconds` of `clock`."""
        super().__init__(outlet)
        self._seconds = seconds
        self._clock = clock
        self._next = -float("inf")
        self._unshown: Status | None = None
        self._said = ""
        self._warned: set[str] = set()

    def _begin(self) -> None:
        pass

    def _show(self, status: Status) -> None:
        self._unshown = status
        if self._clock() >= self._next or not self._warned.issuperset(status.warnings):  # which may be gone soon
            self._next = self._clock() + self._seconds
            self._write()

    def _note(self, message: str) -> None:
        print(message, file=self._outlet)

    def _end(self) -> None:
        # What happened since the last line, so that the last one tells the end.
        self._write()

    def _write(self) -> None:
        status, self._unshown = self._unshown, None
        if status is None:
            return
        print(line(status), file=self._outlet)
        found = status.verdict
        if found and found.limit not in (self._said, "starting"):
            self._said = found.limit
            self._note(found.sentence)
        for warning in status.warnings:
            if warning not in self._warned:
                self._warned.add(warning)
                self._note(f"Warning: {warning}")


def open_display(*, plain: bool, stream: TextIO | None = None) -> Display:
    """The display that fits where the output goes: live in a terminal, unless `plain`; else lines."""
    outlet = Outlet(sys.stdout if stream is None else stream)
    if plain or not outlet.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        return PlainDisplay(outlet)
    return LiveDisplay(outlet)


# The plain line


def line(status: Status) -> str:
    """Everything that matters in one line, the same words in the same order every time."""
    parts = [
        duration(status.elapsed),
        f"{share(status):.1%}",
        f"{count(status.steps)} steps",
        f"{count(status.steps_per_second)} steps/s ({count(status.frames_per_second)} frames/s)",
        f"{count(status.updates_per_second)} updates/s",
        f"samples/step {number(status.samples_per_step, 2)} of {number(status.samples_asked, 2)}",
        f"epsilon {number(status.epsilon, 3)}",
        f"return {number(status.mean_return_100)} (best {number(status.best_return, 0)}, "
        f"{count(status.episodes)} episodes)",
        f"loss {figure(status.loss)}",
        f"Q {figure(status.mean_q)}",
    ]
    if status.evaluation:
        parts.append(f"evaluation {number(status.evaluation.mean_return)} at {short(status.evaluation.steps)}")
    if status.checkpoint:
        parts.append(f"checkpoint {_saved(status.checkpoint)}")
    if status.verdict and status.verdict.share is not None:
        parts.append(f"limit {status.verdict.limit} ({status.verdict.share:.0%})")
    restarts = sum(role.restarts for role in status.roles)
    if restarts:
        parts.append(f"restarts {restarts}")
    parts.append(f"left {duration(status.time_left)}")
    return "  ".join(parts)


def share(status: Status) -> float:
    """How much of the run is done, in [0, 1]."""
    return min(1.0, status.steps / status.total_steps) if status.total_steps else 0.0


# The live picture


def render(status: Status, width: int, height: int = 100) -> RenderableType:
    """The picture of a status, at most `width` columns wide; one line for all actors if `height` is small."""
    width = min(width, _WIDEST)
    title = Text.assemble(("Ringside  ", "bold"), (status.game, "bold blue"))
    title.append(f"  {status.protocol}, {status.schedule}")
    fold = sum(role.is_actor for role in status.roles) > FEW_ACTORS or height < _LOW
    picture = Table.grid(padding=(0, 1), pad_edge=True)
    picture.add_column(width=width - 2)
    picture.add_row(Rule(title, align="left", style="blue", characters="─"))
    picture.add_row(
        ProgressBar(
            total=max(1, status.total_steps),
            completed=min(status.steps, status.total_steps),
            style="dim",
            complete_style="blue",
            finished_style="blue",
        )
    )
    picture.add_row(_progress(status))
    picture.add_row()
    picture.add_row(_figures(status, width))
    picture.add_row()
    picture.add_row(_roles(status.roles, width, fold=fold))
    picture.add_row()
    if status.verdict:
        picture.add_row(Text(status.verdict.sentence, style="bold"))
    for warning in status.warnings:
        picture.add_row(Text(f"Warning: {warning}", style="bold yellow"))
    picture.add_row(Text(f"{status.run_dir}", style="dim", overflow="fold"))
    picture.add_row(Text("Ctrl-C saves and stops", style="dim"))
    return picture


def _progress(status: Status) -> Text:
    """Share, steps, rounds, and times gone and left."""
    left = f"{duration(status.time_left)} left" if status.time_left is not None else "time left unknown"
    return Text.assemble(
        (f"{share(status):.1%}", "bold"),
        f"  {short(status.steps)} of {short(status.total_steps)} steps",
        f"  round {count(status.committed)} of {count(status.rounds)}",
        f"  {duration(status.elapsed)} gone, ",
        (left, "bold"),
    )


def _figures(status: Status, width: int) -> Table:
    """The numbers, two columns of them where there is room."""
    evaluation = status.evaluation
    evaluated = _UNKNOWN
    if evaluation:
        evaluated = (
            f"{number(evaluation.mean_return)} at {short(evaluation.steps)} (best {number(evaluation.best_mean)})"
        )
    cells = [
        ("playing", f"{count(status.steps_per_second)} steps/s, {count(status.frames_per_second)} frames/s"),
        ("return", f"{number(status.mean_return_100)} (mean of 100)"),
        ("learning", f"{count(status.updates_per_second)} updates/s"),
        ("episodes", f"{count(status.episodes)} (best {number(status.best_return, 0)})"),
        ("samples", f"{number(status.samples_per_step, 2)} a step of {number(status.samples_asked, 2)} asked"),
        ("loss", f"{figure(status.loss)}, mean Q {figure(status.mean_q)}"),
        ("epsilon", number(status.epsilon, 3)),
        ("evaluated", evaluated),
        ("saved", _saved(status.checkpoint) if status.checkpoint else _UNKNOWN),
    ]
    pairs = 2 if width >= _TWO_COLUMNS else 1
    table = Table.grid(padding=(0, 1))
    for _ in range(pairs):
        table.add_column(style="dim", no_wrap=True, min_width=9)
        table.add_column(no_wrap=True, min_width=31 if pairs == 2 else 0)
    for start in range(0, len(cells), pairs):
        table.add_row(*(word for cell in cells[start : start + pairs] for word in cell))
    return table


def _saved(checkpoint: CheckpointStatus) -> str:
    """Clock, size and duration of a checkpoint."""
    return f"at {short(checkpoint.steps)} ({checkpoint.bytes / 1e6:,.1f} MB in {checkpoint.seconds:.1f} s)"


def _roles(roles: Sequence[RoleStatus], width: int, *, fold: bool) -> Table:
    """A line for each role; with `fold`, one for all actors."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim", show_edge=False)
    table.add_column("role", no_wrap=True, min_width=9)
    table.add_column("state", no_wrap=True, min_width=8)
    table.add_column("busy", no_wrap=True)
    table.add_column("restarts", no_wrap=True)
    bar = max(0, min(20, width - 52))
    actors = [role for role in roles if role.is_actor]
    for role in roles:
        if not (role.is_actor and fold):
            table.add_row(role.name, _state(role.state), _busy(role.busy, bar), _restarts(role.restarts))
    if fold and actors:
        known = [role.busy for role in actors if role.busy is not None]
        busy = _busy(sum(known) / len(known) if known else None, bar)
        if known:
            busy.append(f" ({min(known):.0%}-{max(known):.0%})")
        states = Counter(role.state for role in actors)
        restarts = sum(role.restarts for role in actors)
        table.add_row(f"actors {len(actors)}", _state(states.most_common(1)[0][0]), busy, _restarts(restarts))
    return table


def _state(state: str) -> Text:
    return Text(state, style="yellow" if state in ("redoing", "ended", "starting") else "")


def _restarts(restarts: int) -> Text:
    return Text(str(restarts), style="bold yellow" if restarts else "dim")


def _busy(busy: float | None, cells: int) -> Text:
    """A bar of `cells` characters, and the share in words."""
    if busy is None:
        return Text(" " * (cells + bool(cells)) + f"{_UNKNOWN:>4}", style="dim")
    filled = round(min(1.0, max(0.0, busy)) * cells)
    text = Text()
    if cells:
        text.append("█" * filled, style="blue").append("░" * (cells - filled), style="dim").append(" ")
    return text.append(f"{busy:4.0%}")
