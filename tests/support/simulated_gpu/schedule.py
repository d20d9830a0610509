"""Queued operations, and a seeded scheduler that chooses among all orders that streams and events allow."""

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

import torch

REDRAWN = 40
"""Calls of the host, on average, after which streams get other priorities."""


class Operation:
    """Work of the device, which may run when all operations before it are done."""

    __slots__ = ("before", "done", "followers", "missing", "name", "run", "stream")

    def __init__(self, name: str, stream: int, run: Callable[[], None]) -> None:
        self.name, self.stream = name, stream
        self.run: Callable[[], None] | None = run
        self.before: list[Operation] = []
        self.followers: list[Operation] = []
        self.missing, self.done = 0, False


class Scheduler:
    """Runs operations in an order that depends on the seed and on the calls of the host.

    There are three kinds of schedules. With "late" the device runs only what the host waits for. With "random" any
    operation that may run is as likely as another, at any call of the host. With "starved" streams have priorities
    that are drawn anew at random calls (Burckhardt et al. 2010): the device has finished the work of one stream before
    it begins that of another.

    Attributes:
        random: source of all choices of a simulation.
        executed: number of operations that have run.
        fails_at: the operation, counted from 1, at which `on_failure` is called instead; 0: none.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._kind = ("starved", "late", "random")[seed % 3]
        self._ready: list[Operation] = []
        self._priority = defaultdict[int, float](self.random.random)
        self._starved = 0.5
        self._error: IndexError | None = None
        self.executed = self.fails_at = 0
        self.on_failure: Callable[[], None] = lambda: None

    def queue(self, operation: Operation, before: Iterable[Operation]) -> None:
        """Run `operation` some time after those `before` it."""
        operation.before = [each for each in before if not each.done]
        operation.missing = len(operation.before)
        for each in operation.before:
            each.followers.append(operation)
        if not operation.missing:
            self._ready.append(operation)

    def on_host_call(self) -> None:
        """Let the device run for a while."""
        if not self._ready or self._kind == "late":
            return
        if self._kind == "random":
            while self._ready and self.random.random() < 0.5:
                self._run(self.random.randrange(len(self._ready)))
            return
        if self.random.random() < 1 / REDRAWN:
            self._priority.clear()
            self._starved = self.random.random()
        while self._ready:
            place = self._greatest(range(len(self._ready)))
            if self._priority[self._ready[place].stream] < self._starved:
                return
            self._run(place)

    def pass_time(self) -> None:
        """Let the device run one operation, so that a host that asks again and again sees an end."""
        if self._ready:
            self._run(self.random.randrange(len(self._ready)))

    def wait_for(self, operations: Iterable[Operation]) -> None:
        """Run until these operations are done."""
        wanted = [each for each in operations if not each.done]
        if not wanted:
            return
        needed = _with_all_before(wanted)
        while any(not each.done for each in wanted):
            if self._error is not None:  # another thread has met it, and what waits for that operation never runs
                raise self._error
            places: Sequence[int] = range(len(self._ready))
            if self._kind != "random":
                places = [place for place in places if self._ready[place] in needed]
            self._run(self._greatest(places) if self._kind == "starved" else self.random.choice(places))

    def _greatest(self, places: Iterable[int]) -> int:
        return max(places, key=lambda place: self._priority[self._ready[place].stream])

    def _run(self, place: int) -> None:
        operation = self._ready[place]
        self._ready[place] = self._ready[-1]
        self._ready.pop()
        run, operation.run, operation.before = operation.run, None, []
        self.executed += 1
        if self.executed == self.fails_at:
            self.on_failure()
        assert run is not None, "an operation runs once"
        with torch.inference_mode(False), torch.no_grad():
            try:
                run()
            except IndexError as error:
                self._error = error
                raise
        operation.done = True
        for each in operation.followers:
            each.missing -= 1
            if not each.missing:
                self._ready.append(each)
        operation.followers.clear()


def _with_all_before(operations: list[Operation]) -> set[Operation]:
    found, left = set(operations), list(operations)
    while left:
        for each in left.pop().before:
            if each not in found and not each.done:
                found.add(each)
                left.append(each)
    return found
