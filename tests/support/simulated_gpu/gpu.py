"""The simulated device, a `learner.engine.accelerator.Accelerator`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from learner.engine import prefetcher
from learner.engine.accelerator import ACCELERATORS, Accelerator
from tests.support.simulated_gpu import streams
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
        self.left_out = set[str]()
        self.waits = set[str]()
        self.capturing: Capture | None = None
        self.lost = False
        self.is_current = True
        self._streams = [Stream(self, 0)]
        self._current: dict[int, Stream] = {}
        self._pools = 0

    # --- `Accelerator`

    def make_stream(self, device: torch.device) -> Stream:
        """A new stream."""
        self._check(device)
        self._raise_if_lost()
        self._streams.append(Stream(self, len(self._streams)))
        return self._streams[-1]

    def make_event(self, *, blocking: bool = False) -> Event:
        """A new event; all waits are alike here."""
        return Event(self)

    def current_stream(self, device: torch.device) -> Stream:
        """The stream into which this thread puts operations."""
        self._check(device)
        return self.stream_of_thread

    @contextmanager
    def use_stream(self, stream: Stream) -> Iterator[None]:
        """Put this thread's operations into `stream` within the context."""
        thread, former = self.turns.running, self.stream_of_thread
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
        self._pools += 1
        return self._pools

    def capture(self, graph: Graph, pool: int, stream: Stream) -> AbstractContextManager[Any]:
        """Put operations of the context into `graph` instead of running them."""
        return streams.capture(self, graph, pool, stream)

    def set_device(self, device: torch.device) -> None:
        """Do nothing: there is one device."""
        self._check(device)
        self._raise_if_lost()

    def synchronize(self, device: torch.device) -> None:
        """Wait for all operations of all streams."""
        self._check(device)
        if self.begin_call("synchronize", sys._getframe(1)):
            self.wait_for([each for stream in self._streams for each in stream.tail])

    def free_bytes(self, device: torch.device) -> int:
        """Memory that was never taken."""
        self._check(device)
        self._raise_if_lost()
        return self.memory.size - self.memory.reserved

    def reserved_bytes(self, device: torch.device) -> int:
        """Memory that was taken, freed or not."""
        self._check(device)
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
    def stream_of_thread(self) -> Stream:
        """The stream of the thread that runs."""
        return self._current.get(self.turns.running, self._streams[0])

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

    def pass_time(self) -> None:
        """Let the device go on a little."""
        self.scheduler.pass_time()

    def refuse_in_capture(self, what: str) -> None:
        """Raise if a graph is captured, during which no thread may wait for the device."""
        if self.capturing is not None:
            raise torch.AcceleratorError(
                f"CUDA error: operation not permitted when stream is capturing: {what} is no part of a graph"
            )

    def captured_end(self, stream: Stream) -> tuple[Capture, list[int]] | None:
        """Last nodes of a stream that takes part in a capture."""
        if self.capturing is None or stream.number not in self.capturing.ends:
            return None
        return self.capturing, list(self.capturing.ends[stream.number])

    def empty(self, size: Iterable[int], stride: Iterable[int], dtype: torch.dtype) -> SimulatedTensor:
        """A tensor with whatever its memory holds."""
        size, stride = tuple(size), tuple(stride)
        items = 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True)) if all(size) else 0
        stream, capturing = self.stream_of_thread, self.capturing
        captured = capturing is not None and stream.number in capturing.ends
        pool = capturing.pool if capturing is not None and captured else 0
        nbytes = items * dtype.itemsize
        block = self.memory.allocate(pool, stream.number, nbytes, may_grow=captured or capturing is None)
        with torch.inference_mode(False):
            host = block.raw[:nbytes].view(dtype).as_strided(size, stride)
        return SimulatedTensor.make(self, host, block)

    def enqueue(self, name: str, run: Callable[[], None], cost: Cost) -> None:
        """Queue an operation in the current stream, or capture it."""
        stream, capturing = self.stream_of_thread, self.capturing
        if capturing is not None and stream.number in capturing.ends:
            capturing.add(stream, name, run, cost)
            return
        self.cost += cost
        self._append(stream, Operation(name, stream.number, run))

    def queue(self, operation: Operation, before: Iterable[Operation]) -> None:
        """Queue an operation after those `before` it."""
        self.scheduler.queue(operation, before)

    def wait_for(self, operations: Iterable[Operation]) -> None:
        """Have the host wait."""
        self.refuse_in_capture("to wait for the device")
        self.scheduler.wait_for(operations)
        self._raise_if_lost()

    def _append(self, stream: Stream, operation: Operation) -> None:
        """Queue an operation at the end of a stream."""
        self.queue(operation, stream.tail)
        stream.tail = [operation]

    def _overwrite_freed(self, pool: int, stream_number: int, blocks: list[Tensor]) -> None:
        """Overwrite freed blocks in the order of their stream, so another stream that still reads them finds NaN."""
        stream = self._streams[stream_number]

        def overwrite() -> None:
            for raw in blocks:
                raw.fill_(UNWRITTEN)

        if pool:
            assert self.capturing is not None, "memory of a pool is allocated in a capture"
            self.capturing.add(stream, "freed", overwrite, Cost())
        else:
            self._append(stream, Operation("freed", stream_number, overwrite))

    # --- faults

    def lose_at(self, operation: int) -> None:
        """Lose the device at the operation with this number, counted from 1."""

        def fail() -> None:
            self.lost = True

        self.scheduler.fails_at, self.scheduler.on_failure = operation, fail

    def _raise_if_lost(self) -> None:
        if self.lost:
            raise torch.AcceleratorError("CUDA error: unspecified launch failure")

    def _check(self, device: torch.device) -> None:
        assert device.type == KIND, f"{device} is no simulated GPU"


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
