"""Things that are compared, measured in turn, repeat by repeat: a machine that changes its pace changes it for all."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from ringside.bench.harness.tables import Report
from shared.errors import ConfigError
from shared.text import nearest

INTERRUPTED = "the rest"
"""Name of the missing part after an interrupt."""


@dataclass(frozen=True)
class Contender:
    """One of the things compared."""

    name: str
    """Name of its row, which is unique."""
    measure: Callable[[], Any]
    """Measures once: a speed, or all that is known of it. Raises `CannotRun` or `WrongResult`."""
    part: str = ""
    """Name of the part that is missing or wrong if it fails; default: its name."""


def measure_interleaved(report: Report, contenders: Sequence[Contender], repeats: int) -> dict[str, list[Any]]:
    """Measure all contenders, interleaved; return their values by name, one for each repeat.

    One that cannot run, or computes something wrong, is not asked again and not returned; the report says why. When it
    is interrupted, the whole repeats so far count, or what there is of the first; nothing is measured after that.
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
    """The names in a list with commas, in the order of `known`; "all" stands for all. Raises `ConfigError`."""
    names = known if words == "all" else [word.strip() for word in words.split(",")]
    for name in names:
        if name not in known:
            raise ConfigError(f"{flag} {name} is not one of {', '.join(known)}{nearest(name, known)}")
    return [name for name in known if name in names]
