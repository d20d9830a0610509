"""Copies between the host's memory and a GPU, through pinned memory, which the GPU reads and writes itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from learner.engine.accelerator import accelerator_of, host_zeros, is_gpu


def upload(field: Tensor, device: torch.device) -> Tensor:
    """A tensor on a device. The copy to a GPU is in its stream; the pinned memory that it reads is kept until then."""
    return accelerator_of(device).pin(field).to(device, non_blocking=True) if is_gpu(device) else field.to(device)


class Pinned:
    """A buffer of bytes that a device copies from while the CPU continues; on a CPU an ordinary buffer."""

    def __init__(self, shape: Sequence[int], device: torch.device) -> None:
        self._buffer = host_zeros(tuple(shape), torch.uint8, device)
        # A wait that sleeps: its core is an actor's.
        self._copied = accelerator_of(device).make_event(blocking=True) if is_gpu(device) else None

    def send(self, fill: Callable[[Tensor], object], out: Tensor) -> None:
        """Have `fill` write the first `len(out)` rows of the buffer, and copy them to `out`, uint8[n, *row].

        `fill` is called at once, after a wait for the former copy out of the buffer and for nothing else. The copy is
        in the current stream: `out` is whole for later work of this stream alone, and must live until then.
        """
        host = self._buffer[: len(out)]
        if self._copied is not None:
            self._copied.synchronize()
        fill(host)
        out.copy_(host, non_blocking=True)
        if self._copied is not None:
            self._copied.record(accelerator_of(out.device).current_stream(out.device))


class HostTransfer:
    """Copies of vectors of `count` float32 from numpy to a device and back; its buffers are made at first use."""

    def __init__(self, count: int, device: torch.device) -> None:
        self._count, self._device = count, device
        self._upload_buffer: Pinned | None = None
        self._device_vector = self._download_buffer = torch.zeros(0)

    def to_device(self, values: NDArray[np.float32]) -> Tensor:
        """The values float32[count] on the device; good until the next ones, in the current stream.

        On a CPU they are `values` themselves.
        """
        source = torch.from_numpy(values)
        if not is_gpu(self._device):
            return source
        if self._upload_buffer is None:
            self._device_vector = torch.zeros(self._count, device=self._device)
            self._upload_buffer = Pinned([self._device_vector.nbytes], self._device)
        fill = partial(Tensor.copy_, other=source.view(torch.uint8))
        self._upload_buffer.send(fill, self._device_vector.view(torch.uint8))
        return self._device_vector

    def to_host(self, vector: Tensor, out: NDArray[np.float32]) -> None:
        """Write a vector of the device into float32[count], when the current stream has come to it."""
        if not is_gpu(self._device):
            torch.from_numpy(out).copy_(vector)
            return
        if not len(self._download_buffer):
            self._download_buffer = host_zeros((self._count,), torch.float32, self._device)
        self._download_buffer.copy_(vector, non_blocking=True)
        accelerator_of(self._device).current_stream(self._device).synchronize()
        out[:] = self._download_buffer.numpy()
