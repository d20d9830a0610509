"""Interfaces of programs that run `launch.py`, wherever they run. A job is a run: its training, then what judges it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

_Item = TypeVar("_Item")


class Place(Protocol):
    """The place of one job, whose programs run there one after another."""

    def claim(self) -> bool:
        """Wait until there is room for the job; False if the programs were stopped before."""

    def run(
        self,
        words: Sequence[str],
        title: str,
        run_dir: Path,
        *,
        own_session: bool = False,
        quiet: bool = False,
        should_stop: Callable[[], bool] | None = None,
    ) -> int:
        """Run `launch.py` with these arguments to its end; return its exit code, negative for a signal.

        Args:
            words: the arguments.
            title: beginning of the lines about the job.
            run_dir: run directory of the job.
            own_session: a Ctrl-C in the terminal does not reach the program.
            quiet: its output is not shown.
            should_stop: called about once a second, and once it returns True, the program is asked to save and end.

        Raises:
            NodeLost: the node of the program was lost.
        """

    def close(self) -> None:
        """Give the room back."""


class Programs(Protocol):
    """Machines on which the programs of many jobs run."""

    def for_each(self, items: Iterable[_Item], work: Callable[[_Item], None]) -> None:
        """Call `work` for all items."""

    def open(self) -> Place:
        """The place of one job."""

    def stop(self) -> None:
        """Ask all programs to save and end; a second time, to end at once."""
