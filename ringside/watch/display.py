"""Displays of a run: a live display in a terminal, or a line every few seconds.

Both get a `Status` several times a second. If the terminal goes away, the display ends and the run continues.
"""

from __future__ import annotations

import os
import sys
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Self, TextIO, cast

from rich.console import Console
from rich.live import Live
from rich.text import Text

from ringside.watch.line import line
from ringside.watch.outlet import Outlet
from ringside.watch.screen import render
from ringside.watch.status import Status
from shared.text import printable

PLAIN_SECONDS = 5.0
"""Interval of the lines of the plain display."""
MOST_NOTES = 1_000
"""Most notes kept while the reader does not read."""
END_SECONDS = 2.0
"""Time limit for such a reader at the end."""


class Display(ABC):
    """Shows statuses and notes between `__enter__` and `__exit__`."""

    def __init__(self, outlet: Outlet) -> None:
        self._outlet = outlet
        self._pending_notes: deque[str] = deque(maxlen=MOST_NOTES)
        self._unseen: Status | None = None

    def show(self, status: Status) -> None:
        """Show the current status. Call it at any rate; a slow reader misses some."""
        self._flush_notes()
        self._unseen = status
        if self._outlet.drained():
            self._show(status)
            self._unseen = None

    def note(self, message: str) -> None:
        """Print a message that stays on the screen."""
        self._pending_notes.append(printable(message))
        self._flush_notes()

    def _flush_notes(self) -> None:
        """Print pending notes while the reader reads."""
        while self._pending_notes and self._outlet.drained():
            self._note(self._pending_notes.popleft())

    def __enter__(self) -> Self:
        self._begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._outlet.drained(END_SECONDS):
            while self._pending_notes:
                self._note(self._pending_notes.popleft())
            if self._unseen is not None:
                self._show(self._unseen)
            self._end()
            self._outlet.drained(END_SECONDS)
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
    """Display that redraws in place, for a terminal."""

    def __init__(self, outlet: Outlet) -> None:
        super().__init__(outlet)
        self._console = console = Console(file=cast(TextIO, outlet), highlight=False)
        # No refresh thread: it redraws on new data only, and the process stays single-threaded.
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
        """Print a line every `seconds` of `clock`."""
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
        if self._clock() >= self._next or not self._warned.issuperset(status.warnings):  # a warning may be short
            self._next = self._clock() + self._seconds
            self._write()

    def _note(self, message: str) -> None:
        print(message, file=self._outlet)

    def _end(self) -> None:
        # The last line shows the end.
        self._write()

    def _write(self) -> None:
        status, self._unshown = self._unshown, None
        if status is None:
            return
        print(line(status), file=self._outlet)
        found = status.bottleneck
        if found and found.steps_per_second is not None and found.kind != self._said:
            self._said = found.kind
            self._note(found.sentence)
        for warning in status.warnings:
            if warning not in self._warned:
                self._warned.add(warning)
                self._note(f"Warning: {warning}")


def open_display(*, plain: bool, stream: TextIO | None = None) -> Display:
    """Live display in a terminal unless `plain`; else lines."""
    outlet = Outlet(sys.stdout if stream is None else stream)
    if plain or not outlet.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        return PlainDisplay(outlet)
    return LiveDisplay(outlet)
