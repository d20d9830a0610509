"""Breakdown of the time of an update by part of the engine.

On a CPU parts are timed as they run, some of them in parallel threads. On a GPU updates are launched from graphs, which
have no parts. There the parts are launched one by one with a wait after each, so shares are those of slower updates.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from learner.engine.engine import Engine

REST = "the rest"
BESIDE = "beside: "
"""Prefix of parts that run in another thread than the updates."""


class Shares:
    """Times the parts of an engine, as shares of the time of the creating thread; the timing cannot be removed."""

    def __init__(self, engine: Engine, settle: Callable[[], None], *, on_cpu: bool, on_policy: bool = False) -> None:
        """`settle` waits until the device has finished all submitted work."""
        self._settle = settle
        self._seconds: dict[str, float] = {}
        self._began = time.perf_counter()
        self._mine = threading.get_ident()
        self._within = threading.local()
        source: Any = engine._source
        learning: Any = engine._rule
        if not on_cpu:
            engine._graphs = source._graphs = None
        watched: list[tuple[Any, str, str]] = [
            (engine._online, "forward", "forward"),
            (learning, "learn", "loss"),
            (engine._online, "backward", "backward"),
            (engine._optimizer, "step", "optimizer"),
            (engine._side_stream, "settle", "waiting for the thread beside"),
        ]
        if on_policy:
            watched += [
                (source._reader, "gather", "frames"),
                (source, "begin_round", "targets of the round"),
                (source, "load", "minibatches"),
            ]
        else:
            watched += [
                (source._frames, "select", "frames"),
                (learning, "prepare", "target values"),
                (source._prefetcher, "settle", "waiting for the next chunk"),
                (source._sampler, "prefetch", "draw"),
                (source._sampler, "draw", "draw"),
                (source._sampler, "update_priorities", "new priorities"),
            ]
            if learning._algorithm.double:
                watched.append((learning, "targets", "target of the chosen action"))
        for holder, name, part in watched:
            self._watch(holder, name, part)

    def begin(self) -> None:
        """Start to measure."""
        self._seconds.clear()
        self._began = time.perf_counter()

    def end(self) -> dict[str, float]:
        """Shares of the time since `begin` by part, in decreasing order; parts of other threads come last.

        The parts of this thread sum to 1 together with `REST`, the time in no part.
        """
        took = time.perf_counter() - self._began
        parts = sorted(self._seconds.items(), key=lambda item: (item[0].startswith(BESIDE), -item[1]))
        shares = {part: seconds / took for part, seconds in parts}
        return {REST: 1.0 - sum(share for part, share in shares.items() if not part.startswith(BESIDE)), **shares}

    def _watch(self, holder: Any, name: str, part: str) -> None:
        """Time the calls of a method, less the time of other parts within it."""
        work, within = getattr(holder, name), self._within

        def timed(*arguments: Any, **options: Any) -> Any:
            self._settle()
            above, within.seconds = getattr(within, "seconds", 0.0), 0.0
            began = time.perf_counter()
            try:
                return work(*arguments, **options)
            finally:
                self._settle()
                took = time.perf_counter() - began
                named = part if threading.get_ident() == self._mine else BESIDE + part
                self._seconds[named] = self._seconds.get(named, 0.0) + took - within.seconds
                within.seconds = above + took

        setattr(holder, name, timed)
