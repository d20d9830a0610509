"""Memory of the device, reused at once as PyTorch's allocator does, and pinned memory of the host."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

GRAIN = 512
"""Bytes of which every block is a multiple."""
UNWRITTEN = 255
"""Content of memory that was never used, or was freed; as float32 it is NaN."""


class Key(NamedTuple):
    """Blocks that may take the place of one another."""

    pool: int
    """0, or the pool of a graph."""
    stream: int
    """The stream whose allocations may reuse it, as long as no other stream is said to use it."""
    size: int


class Block:
    """Memory of one tensor and of the views of it. The next allocation of its stream has it when they are gone."""

    __slots__ = ("__weakref__", "_key", "_memory", "raw")

    def __init__(self, memory: Memory, key: Key, raw: Tensor) -> None:
        self._memory, self._key, self.raw = memory, key, raw

    def __del__(self) -> None:
        self._memory.give_back(self._key, self.raw)


class Memory:
    """An allocator.

    Attributes:
        size: of the device, in bytes.
        on_reuse: called with the blocks that were freed in a pool and stream, before the next allocation there.
        reserved: bytes that were ever taken from the device; freed blocks stay reserved.
        allocations: number of allocations so far.
        fails_at: the allocation, counted from 1, that fails for lack of memory; 0: none.
    """

    def __init__(self, size: int, on_reuse: Callable[[list[Tensor]], None]) -> None:
        self.size, self.on_reuse, self.reserved = size, on_reuse, 0
        self.allocations = self.fails_at = 0
        self._free: dict[Key, list[Tensor]] = {}
        self._freed: dict[tuple[int, int], list[Tensor]] = {}  # since the last allocation, by pool and stream

    def allocate(self, pool: int, stream: int, nbytes: int, *, may_grow: bool = True) -> Block:
        """Memory for `nbytes`.

        Args:
            may_grow: False while a graph is captured by another thread, when the device refuses.

        Raises:
            torch.OutOfMemoryError: the device has no more.
        """
        self.allocations += 1
        key = Key(pool, stream, max(GRAIN, -(-nbytes // GRAIN) * GRAIN))
        free = self._free.setdefault(key, [])
        if self.allocations == self.fails_at or (not free and self.reserved + key.size > self.size):
            has = f"GPU 0 has a total capacity of {self.size} bytes of which {self.size - self.reserved} bytes is free."
            raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {key.size} bytes. {has}")
        raw = free.pop() if free else None  # first: Python may collect garbage, and with it blocks, in any call
        # PyTorch's allocator divides and joins blocks, so the allocation may have any of the freed memory.
        if freed := self._freed.pop((pool, stream), None):
            self.on_reuse(freed)
        if raw is not None:
            return Block(self, key, raw)
        if not may_grow:
            raise torch.AcceleratorError("CUDA error: operation not permitted when stream is capturing")
        self.reserved += key.size
        with torch.inference_mode(False):
            return Block(self, key, torch.full((key.size,), UNWRITTEN, dtype=torch.uint8))

    def give_back(self, key: Key, raw: Tensor) -> None:
        """Take back the memory of a block, although queued operations may still use it."""
        self._free[key].append(raw)
        self._freed.setdefault((key.pool, key.stream), []).append(raw)


class PinnedMemory:
    """Main memory that the device reads and writes itself, when an operation runs."""

    def __init__(self) -> None:
        self._addresses: set[int] = set()

    def zeros(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Pinned zeros."""
        nbytes = int(np.prod(shape)) * dtype.itemsize
        array = np.zeros(max(1, nbytes), np.uint8)
        self._addresses.add(array.ctypes.data)
        weakref.finalize(array, self._addresses.discard, array.ctypes.data)
        with torch.inference_mode(False):
            return torch.from_numpy(array)[:nbytes].view(dtype).view(shape)

    def holds(self, tensor: Tensor) -> bool:
        """True if a tensor of the host lies in pinned memory."""
        return tensor.untyped_storage().data_ptr() in self._addresses
