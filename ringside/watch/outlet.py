"""A stream that never blocks the writer: its reader may be a stopped terminal (Ctrl-S) or a full pipe."""

from __future__ import annotations

import io
import os
import threading
from collections import deque
from typing import TextIO


class Outlet(io.TextIOBase):
    """Accepts text at once; a thread writes it to the stream's descriptor.

    Write to the stream through the outlet only. A stream that is no file is written to directly.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._left: deque[bytes] = deque()
        self._changed = threading.Condition()
        self._gone = self._closed = False
        self._thread: threading.Thread | None = None
        if not isinstance(stream, io.TextIOWrapper):
            return  # the descriptor of a notebook's stream leads past the cell
        try:
            self._fd = stream.fileno()
        except OSError:
            return
        stream.flush()
        # A daemon: a blocked write must not delay the end of the process, and it holds no lock of Python.
        self._thread = threading.Thread(target=self._work, name="outlet", daemon=True)
        self._thread.start()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """Encoding of the stream."""
        return self._stream.encoding or "utf-8"

    def isatty(self) -> bool:
        """True if the stream is a terminal."""
        return self._stream.isatty()

    def fileno(self) -> int:
        """The stream's descriptor."""
        return self._stream.fileno()

    def write(self, text: str) -> int:
        """Accept text; never blocks if the stream has a descriptor."""
        if self._thread is None:
            return self._stream.write(text)
        with self._changed:
            if not self._gone:
                self._left.append(text.encode(self.encoding, "replace"))
                self._changed.notify_all()
        return len(text)

    def drained(self, seconds: float = 0.0) -> bool:
        """True if the reader has taken all text within `seconds`."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._left, seconds)

    def finish(self) -> None:
        """Write nothing more. If the reader is gone or blocked, redirect the descriptor to /dev/null for later
        writers."""
        if self._thread is None:
            return
        with self._changed:
            self._closed = True
            given_up = self._gone or bool(self._left)
            self._changed.notify_all()
        if given_up:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._fd)
            os.close(nowhere)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._left or self._closed)
                if self._closed or self._gone:
                    return
                piece = self._left[0]
            try:
                while piece:
                    piece = piece[os.write(self._fd, piece) :]
            except OSError:
                with self._changed:
                    self._gone = True
            with self._changed:
                if self._gone:
                    self._left.clear()
                else:
                    self._left.popleft()
                self._changed.notify_all()
