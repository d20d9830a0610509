"""Streams, events and graphs of the simulated device: places in the order of its operations."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch

from tests.support.simulated_gpu.schedule import Operation

if TYPE_CHECKING:
    from tests.support.simulated_gpu.gpu import SimulatedGpu


class Cost(NamedTuple):
    """Kernels that operations start, and bytes that they copy between host and device."""

    kernels: int = 0
    uploaded: int = 0
    downloaded: int = 0

    def __add__(self, other: Cost) -> Cost:  # type: ignore[override]
        """The sum of both."""
        return Cost(*(a + b for a, b in zip(self, other, strict=True)))


class Node(NamedTuple):
    """A captured operation."""

    name: str
    stream: int
    run: Callable[[], None]
    cost: Cost
    before: tuple[int, ...]
    """Nodes of the graph, by number."""


class Stream:
    """A queue: each operation runs after the one before it, and after what the stream waits for."""

    def __init__(self, gpu: SimulatedGpu, number: int) -> None:
        self.gpu, self.number = gpu, number
        self.tail: list[Operation] = []

    def wait_event(self, event: Event) -> None:
        """See `learner.engine.accelerator.Stream`."""
        if self.gpu.begin_call("wait_event", sys._getframe(1)):
            self._wait(event.operations, event.captured)

    def wait_stream(self, stream: Stream) -> None:
        """See `learner.engine.accelerator.Stream`."""
        if self.gpu.begin_call("wait_stream", sys._getframe(1)):
            self._wait(stream.tail, self.gpu.captured_end(stream))

    def synchronize(self) -> None:
        """See `learner.engine.accelerator.Stream`."""
        if self.gpu.begin_call("synchronize", sys._getframe(1)):
            self.gpu.wait_for(self.tail)

    def _wait(self, operations: list[Operation], captured: tuple[Capture, list[int]] | None) -> None:
        capture = self.gpu.capturing
        if captured is not None:
            if captured[0] is not capture:
                raise torch.AcceleratorError("CUDA error: an event of a capture that is over was waited for")
            capture.join(self, captured[1])
        elif capture is not None and self.number in capture.ends:
            raise torch.AcceleratorError("CUDA error: dependency created on uncaptured work in another stream")
        else:
            self.tail = [each for each in self.tail if not each.done]
            self.tail += [each for each in operations if not each.done and each not in self.tail]


class Event:
    """A recorded end of a stream."""

    def __init__(self, gpu: SimulatedGpu) -> None:
        self._gpu = gpu
        self.operations: list[Operation] = []
        self.captured: tuple[Capture, list[int]] | None = None

    def record(self, stream: Stream | None = None) -> None:
        """See `learner.engine.accelerator.Event`."""
        self._gpu.begin_call("record", sys._getframe(1))
        stream = self._gpu.current_stream(self._gpu.device) if stream is None else stream
        self.operations, self.captured = list(stream.tail), self._gpu.captured_end(stream)

    def query(self) -> bool:
        """See `learner.engine.accelerator.Event`."""
        self._gpu.begin_call("query", sys._getframe(1))
        self._gpu.refuse_in_capture("query of an event")
        if not all(each.done for each in self.operations):
            self._gpu.scheduler.pass_time()
        return all(each.done for each in self.operations)

    def synchronize(self) -> None:
        """See `learner.engine.accelerator.Event`."""
        if self._gpu.begin_call("synchronize", sys._getframe(1)):
            self._gpu.wait_for(self.operations)


class Capture:
    """A graph that is being captured.

    Attributes:
        ends: last nodes by number of the streams that take part.
    """

    def __init__(self, graph: Graph, pool: int, origin: Stream) -> None:
        self.graph, self.pool, self.origin = graph, pool, origin
        self.ends: dict[int, list[int]] = {origin.number: []}

    def add(self, stream: Stream, name: str, run: Callable[[], None], cost: Cost) -> None:
        """Add a node to the end of a stream that takes part."""
        self.graph.nodes.append(Node(name, stream.number, run, cost, tuple(self.ends[stream.number])))
        self.ends[stream.number] = [len(self.graph.nodes) - 1]

    def join(self, stream: Stream, nodes: list[int]) -> None:
        """Have a stream take part, or wait, after some nodes."""
        end = self.ends.setdefault(stream.number, [])
        end += [each for each in nodes if each not in end]

    def check_joined(self) -> None:
        """Raise unless the origin's end comes after every node."""
        nodes, found, left = self.graph.nodes, set[int](), list(self.ends[self.origin.number])
        while left:
            if (node := left.pop()) not in found:
                found.add(node)
                left += nodes[node].before
        if len(found) < len(nodes):
            raise torch.AcceleratorError("CUDA error: capturing stream has unjoined work")


class Graph:
    """Captured operations, with the memory that they had."""

    def __init__(self, gpu: SimulatedGpu) -> None:
        self._gpu = gpu
        self.nodes: list[Node] = []
        self._last: list[Operation] = []

    def replay(self) -> None:
        """Queue all nodes in the current stream, in the order of the capture; replays follow one another."""
        self._gpu.begin_call("replay", sys._getframe(1))
        stream = self._gpu.current_stream(self._gpu.device)
        self._gpu.refuse_in_capture("replay of a graph")
        queued, has_follower = list[Operation](), set[int]()
        for node in self.nodes:
            operation = Operation(node.name, node.stream, node.run)
            has_follower.update(node.before)
            before = [queued[each] for each in node.before] or [*stream.tail, *self._last]
            self._gpu.scheduler.queue(operation, before)
            queued.append(operation)
            self._gpu.cost += node.cost
        if queued:
            self._last = [each for number, each in enumerate(queued) if number not in has_follower]
            stream.tail = list(self._last)
