"""Interleaved A/B measurement: alternatives take turns, in whole repeats or in short slices.

So a change in the speed of the machine affects all alike.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from ringside.bench.harness.tables import Report
from shared.errors import ConfigError
from shared.text import nearest

SLICE_SECONDS = 0.01
"""Length of a slice, which holds as many calls as fit, at least one."""
MOST_LISTED = 1_000_000
"""Greatest number in a list of numbers."""


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
        while whole < repeats and not report.interrupted:
            for contender in contenders:
                values = reached[contender.name]
                if len(values) == whole:
                    with report.measuring(contender.part or contender.name):
                        values.append(contender.measure())
            whole += 1
    except KeyboardInterrupt:
        report.interrupt()
    count = max(1, whole)
    return {name: values[:count] for name, values in reached.items() if len(values) >= count}


def seconds_per_call(
    actions: Sequence[Callable[[], object]], seconds: float, settle: Callable[[], None] = lambda: None
) -> list[float]:
    """Mean wall-clock seconds per call of each action, timed in interleaved slices until each had `seconds`.

    One call of each action warms up. `settle` waits for asynchronous work, such as CUDA kernels, after each slice.
    """
    counts = [0] * len(actions)
    spent = [0.0] * len(actions)
    per_slice = []
    for action in actions:
        action()
        settle()
        began = time.perf_counter()
        action()
        settle()
        per_slice.append(max(1, int(SLICE_SECONDS / max(1e-9, time.perf_counter() - began))))
    while min(spent) < seconds:
        for index, action in enumerate(actions):
            began = time.perf_counter()
            for _ in range(per_slice[index]):
                action()
            settle()
            spent[index] += time.perf_counter() - began
            counts[index] += per_slice[index]
    return [total / count for total, count in zip(spent, counts, strict=True)]


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


def numbers_in_list(words: str, flag: str) -> list[int]:
    """Whole numbers in a comma-separated list, from the least on. Raises `ConfigError`."""
    for word in words.split(","):
        if not word.strip().isdecimal() or not 1 <= int(word) <= MOST_LISTED:
            raise ConfigError(f"{flag} {words}: {word!r} is not a number from 1 to {MOST_LISTED:_}.")
    return sorted({int(word) for word in words.split(",")})
