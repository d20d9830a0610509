"""A GPU's runtime as this program uses it: streams, events, graphs, pinned memory and memory figures.

`torch.cuda` implements it for devices "cuda:N". Tests add a simulated device to `ACCELERATORS`
(tests/support/simulated_gpu/).
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch
from torch import Tensor


class Stream(Protocol):
    """A queue of operations, which run in the order in which they are queued."""

    def wait_event(self, event: Any) -> None:
        """Run later operations of this stream after those that `event` has recorded. The CPU does not wait."""

    def wait_stream(self, stream: Any) -> None:
        """Run later operations of this stream after all that are in `stream`. The CPU does not wait."""

    def synchronize(self) -> None:
        """Wait for all operations of this stream."""


class Event(Protocol):
    """A place in a stream."""

    def record(self, stream: Any = None) -> None:
        """Take the present end of `stream`, by default of the current one."""

    def query(self) -> bool:
        """True if all operations before that place are done."""

    def synchronize(self) -> None:
        """Wait for the operations before that place; return at once if nothing was recorded."""


class Graph(Protocol):
    """Captured operations, with the addresses that they had."""

    def replay(self) -> None:
        """Run them in the current stream."""


class Accelerator:
    """The runtime of one kind of GPU, here that of `torch.cuda`. `device` may be another than the current one."""

    def make_stream(self, device: torch.device) -> Stream:
        """A new stream."""
        return torch.cuda.Stream(device)

    def make_event(self, *, blocking: bool = False) -> Event:
        """A new event; if `blocking`, a thread that waits for it sleeps."""
        return torch.cuda.Event(blocking=blocking)

    def current_stream(self, device: torch.device) -> Stream:
        """The stream into which this thread puts operations."""
        return torch.cuda.current_stream(device)

    def use_stream(self, stream: Any) -> AbstractContextManager[Any]:
        """Put this thread's operations into `stream` within the context."""
        return torch.cuda.stream(stream)

    def make_graph(self) -> Graph:
        """An empty graph."""
        return torch.cuda.CUDAGraph()

    def make_graph_pool(self) -> Any:
        """Temporary memory that graphs share."""
        return torch.cuda.graph_pool_handle()

    def capture(self, graph: Any, pool: Any, stream: Any) -> AbstractContextManager[Any]:
        """Put operations of the context into `graph` instead of running them."""
        return torch.cuda.graph(graph, pool=pool, stream=stream)

    def set_device(self, device: torch.device) -> None:
        """Make `device` this thread's current one."""
        torch.cuda.set_device(device)

    def synchronize(self, device: torch.device) -> None:
        """Wait for all operations of all streams."""
        torch.cuda.synchronize(device)

    def free_bytes(self, device: torch.device) -> int:
        """Memory that no process has taken."""
        return torch.cuda.mem_get_info(device)[0]

    def reserved_bytes(self, device: torch.device) -> int:
        """Memory that PyTorch holds in this process, without the context."""
        return torch.cuda.memory_reserved(device)

    def pinned_zeros(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Zeros in main memory that the GPU reads and writes itself."""
        return torch.zeros(shape, dtype=dtype, pin_memory=True)

    def pin(self, tensor: Tensor) -> Tensor:
        """A copy of a CPU tensor in such memory."""
        return tensor.pin_memory()


ACCELERATORS: dict[str, Accelerator] = {"cuda": Accelerator()}
"""Runtimes by type of device."""


def is_gpu(device: torch.device) -> bool:
    """True if operations on `device` are queued in streams, and its memory is not main memory."""
    return device.type in ACCELERATORS


def accelerator_of(device: torch.device) -> Accelerator:
    """The runtime of a GPU. Raises `KeyError` for another device."""
    return ACCELERATORS[device.type]


def host_zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Zeros in main memory, pinned if `device` is a GPU."""
    return accelerator_of(device).pinned_zeros(shape, dtype) if is_gpu(device) else torch.zeros(shape, dtype=dtype)
