"""Displays of a run: a line every few seconds, or a live display in a terminal.

Both get a `Status` several times a second. If the terminal goes away, the display ends and the run continues.
"""

from __future__ import annotations

import io
import os
import stat
import sys
import time
from collections import deque
from contextlib import suppress
from typing import Any, Self, TextIO, cast

from rich.console import Console
from rich.live import Live
from rich.text import Text

from ringside.watch.line import line
from ringside.watch.screen import render
from ringside.watch.status import Status
from shared.text import printable

PLAIN_SECONDS = 5.0
"""Interval of the lines."""
MOST_NOTES = 1_000
"""Most notes kept while the reader does not read."""
END_SECONDS = 2.0
"""Time limit for such a reader at the end."""


class Outlet:
    """A stream that never blocks its writer: its reader may be a stopped terminal (Ctrl-S) or a full pipe.

    Write to the stream through the outlet only. What is no terminal and no pipe is written to directly.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._left = b""
        self._gone = False
        self._fd: int | None = None
        if not isinstance(stream, io.TextIOWrapper):
            return  # the descriptor of a notebook's stream leads past the cell
        with suppress(OSError):
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                stream.flush()
                # Opened anew: other processes share the flags of the descriptor.
                flags = os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
                self._fd = os.open(f"/proc/self/fd/{stream.fileno()}", flags)

    def __getattr__(self, name: str) -> Any:
        """Anything else of the stream."""
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Accept text; never blocks if the stream is a terminal or a pipe."""
        encoding = self._stream.encoding or "utf-8"
        encoded = text.encode(encoding, "replace")
        if self._fd is None:
            self._stream.write(encoded.decode(encoding))
            self._stream.flush()
        else:
            self._left += encoded
            self.drained()
        return len(text)

    def drained(self, seconds: float = 0.0) -> bool:
        """True if the reader has taken all text within `seconds`."""
        until = time.monotonic() + seconds
        while self._left and self._fd is not None:
            try:
                self._left = self._left[os.write(self._fd, self._left) :]
            except BlockingIOError:
                if time.monotonic() >= until:
                    return False
                time.sleep(0.01)
            except OSError:
                self._left, self._gone = b"", True
        return True

    def finish(self) -> None:
        """Write nothing more. If the reader is gone or blocked, redirect the descriptor to /dev/null for later
        writers."""
        if self._left or self._gone:
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
