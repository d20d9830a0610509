"""Interleaved timing of alternatives in short slices, so that other load on the machine affects all alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

SLICE_SECONDS = 0.01
"""Length of a slice, which holds as many calls as fit, at least one."""


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
