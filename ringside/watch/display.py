"""Displays of a run: a line every few seconds, or a live display in a terminal.

Both get a `Status` several times a second. If the terminal goes away, the display ends and the run continues.

Colors are redundant: every state is also a word, and color-blind readers can tell blue, yellow and bold apart.
"""

from __future__ import annotations

import io
import os
import stat
import sys
import time
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Self, TextIO, cast

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from ringside.records.bottleneck import RoleStatus
from ringside.watch.status import (
    UNKNOWN,
    Status,
    clock,
    figures,
    kind,
    left,
    line,
    number,
    share,
    starting_sentence,
    stopping_words,
)
from shared.text import printable, short

FEW_ACTORS = 4
"""Most actors with a line each."""
_WIDEST = 100
_TWO_COLUMNS = 80
_LOW = 26
"""Terminal width for two columns of numbers, and height below which all actors share a line."""


def render(status: Status, width: int, height: int = 100) -> RenderableType:
    """Layout of a status, at most `width` columns wide; one line for all actors if `height` is small."""
    width = min(width, _WIDEST)
    title = Text.assemble(("Ringside  ", "bold"), (status.game, "bold blue"), f"  {kind(status)}")
    fold = sum(role.is_player for role in status.roles) > FEW_ACTORS or height < _LOW
    picture = Table.grid(padding=(0, 1), pad_edge=True)
    picture.add_column(width=width - 2)
    picture.add_row(Rule(title, align="left", style="blue", characters="─"))
    if status.changes:
        picture.add_row(Text(f"Changed: {', '.join(status.changes)}", style="dim"))
    if starting_sentence(status) is None:
        picture.add_row(ProgressBar(1.0, share(status), style="dim", complete_style="blue", finished_style="blue"))
        picture.add_row(_progress(status))
        picture.add_row()
        picture.add_row(_figures(status, width))
    picture.add_row()
    picture.add_row(_roles(status.roles, width, fold=fold))
    picture.add_row()
    if status.bottleneck:
        picture.add_row(Text(status.bottleneck.sentence, style="bold"))
    for warning in status.warnings:
        picture.add_row(Text(f"Warning: {warning}", style="bold yellow"))
    picture.add_row(Text(f"{status.run_dir}", style="dim", overflow="fold"))
    if status.roles and all(role.state == "done" for role in status.roles):
        return picture
    # Not in the table, which fills lines: a terminal would show ^C on a line of its own, and the next picture a line
    # too low.
    return Group(picture, Text(f" {_ends(status)}", style="dim"))


def _ends(status: Status) -> str:
    """Effect of Ctrl-C; after a request to stop, the step that the run waits for."""
    if (stopping := stopping_words(status)) is not None:
        return f"{stopping}. Ctrl-C once more stops at the newest snapshot."
    return "Ctrl-C finishes the round, saves and ends" if status.can_be_saved else "Ctrl-C ends; nothing is saved yet"


def _progress(status: Status) -> Text:
    """Share, steps, rounds, elapsed time and time left."""
    known = status.time_left is not None or status.only_evaluates
    time_left = f"{left(status)} left" if known else "time left unknown"
    return Text.assemble(
        (f"{share(status):.1%}", "bold"),
        f"  {short(status.steps)} of {short(status.total_steps)} steps",
        f"  round {number(status.committed, 0)} of {number(status.rounds, 0)}",
        f"  {clock(status.elapsed)} gone, ",
        (time_left, "bold"),
        "" if status.stop_at is None else f"  --stop-at {status.stop_at:g}",
    )


def _figures(status: Status, width: int) -> Table:
    """Table of numbers, in two columns if there is room."""
    cells, pairs = figures(status), 2 if width >= _TWO_COLUMNS else 1
    table = Table.grid(padding=(0, 1))
    for least in (26, 0)[:pairs]:
        table.add_column(style="dim", no_wrap=True, min_width=9)
        table.add_column(min_width=least if pairs == 2 else 0)
    for start in range(0, len(cells), pairs):
        table.add_row(*(word for cell in cells[start : start + pairs] for word in cell))
    return table


def _roles(roles: Sequence[RoleStatus], width: int, *, fold: bool) -> Table:
    """Table with a line for each role; with `fold`, one for all actors."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim", show_edge=False)
    bar = max(0, min(20, width - 52))
    for name, least in (("role", 9), ("state", 8), ("busy", None), ("restarts", None)):
        table.add_column(name, no_wrap=True, min_width=least)
    actors = [role for role in roles if role.is_player]
    for role in roles:
        if not (role.is_player and fold):
            table.add_row(_name(role), *_work(role.state, role.busy, role.restarts, bar))
    if fold and actors:
        known = [role.busy for role in actors if role.busy is not None]
        spread = f" ({min(known):.0%}-{max(known):.0%})" if known else ""
        state, _ = Counter(role.state for role in actors).most_common(1)[0]
        busy = sum(known) / len(known) if known else None
        cells = _work(state, busy, sum(role.restarts for role in actors), bar, spread)
        table.add_row(f"{actors[0].group} {len(actors)}", *cells)
    return table


def _name(role: RoleStatus) -> str:
    """Name of a process, and of the node that plays for it."""
    if role.node is None:
        return role.name
    return f"{role.name} on {role.node.name}" if role.node.name else f"{role.name} without a node"


def _work(state: str, busy: float | None, restarts: int, bar: int, more: str = "") -> tuple[Text, Text, Text]:
    """State, busy share with a bar of `bar` characters, and restarts."""
    filled = round(min(1.0, max(0.0, busy or 0.0)) * bar)
    empty = bar - filled if busy is not None else 0
    return (
        Text(state, style="yellow" if state in ("replaying", "ended", "starting") else ""),
        Text.assemble(
            ("█" * filled, "blue"),
            ("░" * empty, "dim"),
            f" {busy:4.0%}" if busy is not None else f"{UNKNOWN:>{bar + 5}}",
            more,
        ),
        Text(str(restarts), style="bold yellow" if restarts else "dim"),
    )


PLAIN_SECONDS = 5.0
"""Interval of the lines."""
MOST_NOTES = 1_000
"""Most notes kept while the reader does not read."""
END_SECONDS = 2.0
"""Time limit for such a reader at the end."""


class Outlet:
    """A stream that never blocks its writer: its reader may be a stopped terminal (Ctrl-S) or a full pipe.

    Write to the stream through the outlet only. A stream without a descriptor is written to directly.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._left, self._gone, self._is_file = b"", False, False
        self._fd: int | None = None
        if not isinstance(stream, io.TextIOWrapper):
            return  # the descriptor of a notebook's stream leads past the cell
        with suppress(OSError):
            fd, flags = stream.fileno(), os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
            self._is_file = stat.S_ISREG(os.fstat(fd).st_mode)
            # Opened anew: other processes share the flags of the descriptor. A file is continued.
            self._fd = os.dup(fd) if self._is_file else os.open(f"/proc/self/fd/{fd}", flags)
            stream.flush()

    def __getattr__(self, name: str) -> Any:
        """Anything else of the stream."""
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Accept text; never blocks if the stream is a terminal or a pipe."""
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        encoded = text.encode(encoding, "replace")
        if self._fd is None:
            try:
                self._stream.write(encoded.decode(encoding))
                self._stream.flush()
                self._gone = False
            except (OSError, ValueError):  # a terminal that is gone, or a stream that is closed
                self._gone = True
        else:
            if self._is_file:
                with suppress(OSError):  # what the program has printed comes first
                    self._stream.flush()
            self._left += encoded
            self.drained()
        return len(text)

    def drained(self, seconds: float = 0.0) -> bool:
        """True if the reader has taken all text within `seconds`."""
        until = time.monotonic() + seconds
        while self._left and self._fd is not None:
            try:
                self._left = self._left[os.write(self._fd, self._left) :]
                self._gone = False
            except BlockingIOError:
                if time.monotonic() >= until:
                    return False
                time.sleep(0.01)
            except OSError:  # also of a full disk, on which later text may fit
                self._left, self._gone = b"", True
        return True

    def finish(self) -> None:
        """Write nothing more. If the reader is gone or blocked, redirect the descriptor to /dev/null for later
        writers."""
        if (self._left or self._gone) and isinstance(self._stream, io.TextIOWrapper) and not self._stream.closed:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


class Display:
    """Shows statuses and notes between `__enter__` and `__exit__`: a line every few seconds."""

    def __init__(self, outlet: Outlet) -> None:
        self._outlet = outlet
        self._notes: deque[str] = deque(maxlen=MOST_NOTES)
        self._newest: Status | None = None
        """The newest status that was not shown."""
        self._next = -float("inf")
        self._limit = ""
        self._warned: set[str] = set()

    def show(self, status: Status) -> None:
        """Show the current status. Call it at any rate; a slow reader misses some."""
        self._newest = status
        self._flush()

    def note(self, message: str) -> None:
        """Print a message that stays on the screen."""
        self._notes.append(printable(message))
        self._flush()

    def _flush(self, seconds: float = 0.0) -> None:
        """Print pending notes and a status that is due, as far as the reader reads them within `seconds`."""
        while self._notes and self._outlet.drained(seconds):
            self._say(self._notes.popleft())
        if self._newest is not None and (seconds or self._is_due(self._newest)) and self._outlet.drained(seconds):
            status, self._newest = self._newest, None
            self._draw(status)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._outlet.drained(END_SECONDS):
            self._flush(END_SECONDS)  # the last line shows the end
            self._end()
            self._outlet.drained(END_SECONDS)
        self._outlet.finish()

    def _is_due(self, status: Status) -> bool:
        """True if it is time for a status, or it has a new warning, which may be short."""
        return time.monotonic() >= self._next or not self._warned.issuperset(status.warnings)

    def _say(self, message: str) -> None:
        print(message, file=self._outlet)

    def _draw(self, status: Status) -> None:
        self._next = time.monotonic() + PLAIN_SECONDS
        self._say(line(status))
        found = status.bottleneck
        if found and found.steps_per_second is not None and found.kind != self._limit:
            self._limit = found.kind
            self._say(found.sentence)
        for warning in status.warnings:
            if warning not in self._warned:
                self._warned.add(warning)
                self._say(f"Warning: {warning}")

    def _end(self) -> None:
        pass


class LiveDisplay(Display):
    """Display that redraws in place, for a terminal."""

    def __init__(self, outlet: Outlet) -> None:
        super().__init__(outlet)
        self._console = Console(file=cast(TextIO, outlet), highlight=False)
        # No refresh thread: it redraws on new data only, and the process stays single-threaded.
        self._live = Live(console=self._console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)

    def _is_due(self, status: Status) -> bool:
        return True

    def _say(self, message: str) -> None:
        self._console.print(Text(f"{time.strftime('%H:%M:%S')}  {message}"), soft_wrap=False)

    def _draw(self, status: Status) -> None:
        self._live.start()
        self._live.update(render(status, self._console.width, self._console.height), refresh=True)

    def _end(self) -> None:
        self._live.stop()


def open_display(*, plain: bool, stream: TextIO | None = None) -> Display:
    """Live display in a terminal unless `plain`; else lines."""
    outlet = Outlet(sys.stdout if stream is None else stream)
    if plain or not outlet.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        return Display(outlet)
    return LiveDisplay(outlet)
