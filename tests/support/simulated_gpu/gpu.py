"""The simulated device, a `learner.engine.accelerator.Accelerator`."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from types import FrameType
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from learner.engine import prefetcher
from learner.engine.accelerator import ACCELERATORS, Accelerator
from tests.support.simulated_gpu.memory import UNWRITTEN, Memory, PinnedMemory
from tests.support.simulated_gpu.schedule import Operation, Scheduler
from tests.support.simulated_gpu.streams import Capture, Cost, Event, Graph, Stream
from tests.support.simulated_gpu.tensor import DEVICE, KIND, SimulatedTensor, active
from tests.support.simulated_gpu.threads import Executor, Turns

SIZE = 1 << 30
"""Memory of the device unless a test chooses another."""


class SimulatedGpu(Accelerator):
    """A device with streams, events, graphs and memory, whose order of work depends on a seed.

    Attributes:
        cost: of all that was queued, replays of graphs included.
        left_out: waits that do nothing, as "function: method", such as "SideStream.settle: wait_stream".
        waits: those that were called, by the same names.
        lost: True if every call fails from now on.
        is_current: True if it is the current device; `torch.cuda.graph` waits for the current one alone.
    """

    def __init__(self, seed: int, size: int = SIZE) -> None:
        self.device = DEVICE
        self.scheduler = Scheduler(seed)
        self.turns = Turns(self.scheduler.random)
        self.memory, self.pinned = Memory(size, self._overwrite_freed), PinnedMemory()
        self.cost = Cost()
        self.left_out, self.waits = set[str](), set[str]()
        self.capturing: Capture | None = None
        self.lost, self.is_current = False, True
        self._streams, self._pools = [Stream(self, 0)], count(1)
        self._current: dict[int, Stream] = {}

    # --- `Accelerator`

    def make_stream(self, device: torch.device) -> Stream:
        """A new stream."""
        self._raise_if_lost()
        self._streams.append(Stream(self, len(self._streams)))
        return self._streams[-1]

    def make_event(self, *, blocking: bool = False) -> Event:
        """A new event; all waits are alike here."""
        return Event(self)

    def current_stream(self, device: torch.device) -> Stream:
        """The stream into which this thread puts operations."""
        return self._current.get(self.turns.running, self._streams[0])

    @contextmanager
    def use_stream(self, stream: Stream) -> Iterator[None]:
        """Put this thread's operations into `stream` within the context."""
        thread, former = self.turns.running, self.current_stream(self.device)
        self._current[thread] = stream
        try:
            yield
        finally:
            self._current[thread] = former

    def make_graph(self) -> Graph:
        """An empty graph."""
        self._raise_if_lost()
        return Graph(self)

    def make_graph_pool(self) -> int:
        """The number of a pool."""
        return next(self._pools)

    @contextmanager
    def capture(self, graph: Graph, pool: int, stream: Stream) -> Iterator[None]:
        """Put operations of the context into `graph`, as `torch.cuda.graph` does: it waits for the current device."""
        if self.is_current:
            self.synchronize(self.device)
        with self.use_stream(stream):
            self.capturing = capturing = Capture(graph, pool, stream)
            try:
                yield
            except RuntimeError as error:
                says = "CUDA error: operation failed due to a previous error during capture"
                raise torch.AcceleratorError(says) from error
            finally:
                self.capturing = None
            capturing.check_joined()

    def set_device(self, device: torch.device) -> None:
        """Do nothing: there is one device."""
        self._raise_if_lost()

    def synchronize(self, device: torch.device) -> None:
        """Wait for all operations of all streams."""
        if self.begin_call("synchronize", sys._getframe(1)):
            self.wait_for([each for stream in self._streams for each in stream.tail])

    def free_bytes(self, device: torch.device) -> int:
        """Memory that was never taken."""
        self._raise_if_lost()
        return self.memory.size - self.memory.reserved

    def reserved_bytes(self, device: torch.device) -> int:
        """Memory that was taken, freed or not."""
        return self.memory.reserved

    def pinned_zeros(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Zeros in pinned memory."""
        self._raise_if_lost()
        self.refuse_in_capture("pinned memory")
        return self.pinned.zeros(shape, dtype)

    def pin(self, tensor: Tensor) -> Tensor:
        """A copy in pinned memory."""
        return self.pinned_zeros(tuple(tensor.shape), tensor.dtype).copy_(tensor)

    # --- for operations

    @property
    def idle(self) -> bool:
        """True if nothing is queued."""
        return all(each.done for stream in self._streams for each in stream.tail)

    def begin_call(self, call: str, caller: FrameType | None) -> bool:
        """Begin a call of the host: other threads and the device may go on before it.

        Returns:
            True if the call is to be obeyed.

        Raises:
            torch.AcceleratorError: the device is lost.
        """
        self.turns.switch()
        self.scheduler.on_host_call()
        self._raise_if_lost()
        if caller is None:
            return True
        name = f"{caller.f_code.co_qualname}: {call}"
        self.waits.add(name)
        return name not in self.left_out

    def refuse_in_capture(self, what: str) -> None:
        """Raise if a graph is captured, during which no thread may wait for the device."""
        if self.capturing is not None:
            says = "CUDA error: operation not permitted when stream is capturing"
            raise torch.AcceleratorError(f"{says}: {what} is no part of a graph")

    def captured_end(self, stream: Stream) -> tuple[Capture, list[int]] | None:
        """Last nodes of a stream that takes part in a capture."""
        if self.capturing is None or stream.number not in self.capturing.ends:
            return None
        return self.capturing, list(self.capturing.ends[stream.number])

    def empty(self, size: Iterable[int], stride: Iterable[int], dtype: torch.dtype) -> SimulatedTensor:
        """A tensor with whatever its memory holds."""
        size, stride = tuple(size), tuple(stride)
        items = 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True)) if all(size) else 0
        stream, nbytes = self.current_stream(self.device), items * dtype.itemsize
        captured = self.captured_end(stream)
        pool, may_grow = captured[0].pool if captured else 0, bool(captured) or self.capturing is None
        block = self.memory.allocate(pool, stream.number, nbytes, may_grow=may_grow)
        with torch.inference_mode(False):
            host = block.raw[:nbytes].view(dtype).as_strided(size, stride)
        return SimulatedTensor.make(self, host, block)

    def enqueue(self, name: str, run: Callable[[], None], cost: Cost) -> None:
        """Queue an operation in the current stream, or capture it."""
        stream = self.current_stream(self.device)
        if captured := self.captured_end(stream):
            captured[0].add(stream, name, run, cost)
            return
        self.cost += cost
        operation = Operation(name, stream.number, run)
        self.scheduler.queue(operation, stream.tail)
        stream.tail = [operation]

    def wait_for(self, operations: Iterable[Operation]) -> None:
        """Have the host wait."""
        self.refuse_in_capture("to wait for the device")
        self.scheduler.wait_for(operations)
        self._raise_if_lost()

    def _overwrite_freed(self, blocks: list[Tensor]) -> None:
        """Overwrite freed blocks in the order of their stream, so another stream that still reads them finds NaN."""

        def overwrite() -> None:
            for raw in blocks:
                raw.fill_(UNWRITTEN)

        self.enqueue("freed", overwrite, Cost())

    # --- faults

    def lose_at(self, operation: int) -> None:
        """Lose the device at the operation with this number, counted from 1."""
        self.scheduler.fails_at, self.scheduler.on_failure = operation, lambda: setattr(self, "lost", True)

    def _raise_if_lost(self) -> None:
        if self.lost:
            raise torch.AcceleratorError("CUDA error: unspecified launch failure\nto enable device-side assertions\n")


@contextmanager
def simulated_gpu(seed: int, size: int = SIZE) -> Iterator[SimulatedGpu]:
    """A device of kind "simgpu" within the context, where the learner's second thread takes turns with this one."""
    gpu = SimulatedGpu(seed, size)

    def executor(workers: int, name: str, initializer: Callable[..., object], arguments: tuple[Any, ...]) -> Executor:
        assert workers == 1, "the learner's executors have one thread"
        return Executor(gpu.turns, initializer, arguments)

    active.append(gpu)
    try:
        with mock.patch.dict(ACCELERATORS, {KIND: gpu}), mock.patch.object(prefetcher, "ThreadPoolExecutor", executor):
            yield gpu
    finally:
        active.remove(gpu)
