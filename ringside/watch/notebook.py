"""The live display of a run in a notebook, redrawn in the output of the cell that trains."""

from __future__ import annotations

import html
import sys
import time
from collections import deque
from importlib import import_module
from io import StringIO
from typing import Any, Self

from rich.console import Console
from rich.terminal_theme import TerminalTheme

from ringside.watch.screen import render
from ringside.watch.status import Status

WIDTH = 100
"""Columns of the display."""
REDRAW_SECONDS = 1.0
"""Least time between two redraws of a status."""
MOST_NOTES = 20
"""Newest notes that stay above the status."""
_GRAY = (119, 119, 119)
COLORS = TerminalTheme(
    background=(238, 238, 238),
    foreground=(0, 0, 0),
    normal=[_GRAY, (213, 70, 70), (32, 140, 60), (163, 113, 0), (47, 127, 219), (176, 80, 190), (14, 138, 150), _GRAY],
)
"""Colors that are readable on light and on dark pages: the notebook's theme is not known. Dim text is half of
foreground and background; other text has the color of the page."""
_TERMINAL: Any = {"force_terminal": True, "force_jupyter": False, "color_system": "truecolor"}
_PAGE = '<pre style="line-height:1.2;font-family:Menlo,Consolas,monospace">{code}</pre>'


def in_notebook() -> bool:
    """True if the process is the kernel of a notebook, which shows HTML."""
    if "IPython" not in sys.modules:
        return False
    shell = import_module("IPython").get_ipython()
    return shell is not None and hasattr(shell, "kernel")


class NotebookDisplay:
    """Shows statuses and notes in the output of a cell."""

    def __init__(self) -> None:
        self._display: Any = import_module("IPython.display")
        self._notes: deque[str] = deque(maxlen=MOST_NOTES)
        self._status: Status | None = None
        self._drawn_at = -float("inf")
        self._handle = self._display.display(self._page(), display_id=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.redraw()

    def show(self, status: Status) -> None:
        """Show the current status. Call it at any rate; it is redrawn once in `REDRAW_SECONDS`."""
        self._status = status
        if time.monotonic() - self._drawn_at >= REDRAW_SECONDS:
            self.redraw()

    def note(self, message: str) -> None:
        """Show a message above the status."""
        self._notes.append(f"{time.strftime('%H:%M:%S')}  {message}")
        self.redraw()

    def redraw(self) -> None:
        """Show the newest status."""
        self._drawn_at = time.monotonic()
        self._handle.update(self._page())

    def _page(self) -> Any:
        """HTML of notes and status."""
        console = Console(file=StringIO(), record=True, width=WIDTH, **_TERMINAL)
        if self._status is not None:
            console.print(render(self._status, WIDTH))
        told = "".join(f"{html.escape(note)}\n" for note in self._notes)
        screen = console.export_html(theme=COLORS, inline_styles=True, code_format="{code}")
        return self._display.HTML(_PAGE.format(code=told + screen))
