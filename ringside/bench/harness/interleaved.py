"""Interleaved A/B measurement: each repeat measures every contender, so a change in machine speed affects all alike."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from ringside.bench.harness.tables import Report
from shared.errors import ConfigError
from shared.text import nearest

INTERRUPTED = "the rest"
"""Name under which the report lists what an interrupt left out."""


@dataclass(frozen=True)
class Contender:
    """One of the alternatives compared."""

    name: str
    """Unique name of its row."""
    measure: Callable[[], Any]
    """Takes one measurement: a speed, or a record that holds one. Raises `CannotRun` or `WrongResult`."""
    part: str = ""
    """Name under which the report lists a failure; default: its name."""


def measure_interleaved(report: Report, contenders: Sequence[Contender], repeats: int) -> dict[str, list[Any]]:
    """Measure all contenders, interleaved; return their values by name, one for each repeat.

    A contender that cannot run or computes a wrong result is dropped and not returned; the report says why. After an
    interrupt nothing more is measured: complete repeats count, or the values of the first if it was incomplete.
    """
    reached: dict[str, list[Any]] = {contender.name: [] for contender in contenders}
    whole = 0
    try:
        while whole < repeats and INTERRUPTED not in report.missing:
            for contender in contenders:
                values = reached[contender.name]
                if len(values) == whole:
                    with report.measuring(contender.part or contender.name):
                        values.append(contender.measure())
            whole += 1
    except KeyboardInterrupt:
        report.missing[INTERRUPTED] = "It was interrupted."
    count = max(1, whole)
    return {name: values[:count] for name, values in reached.items() if len(values) >= count}


def doublings(most: int) -> list[int]:
    """1, 2, 4, ... and `most` itself."""
    return sorted({*(1 << power for power in range(most.bit_length())), most})


def names_in_list(words: str, known: Collection[str], flag: str) -> list[str]:
    """Names in a comma-separated list, in the order of `known`; "all" selects all. Raises `ConfigError`."""
    names = known if words == "all" else [word.strip() for word in words.split(",")]
    for name in names:
        if name not in known:
            raise ConfigError(f"{flag} {name} is not one of {', '.join(known)}{nearest(name, known)}")
    return [name for name in known if name in names]
