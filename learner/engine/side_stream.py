"""A second stream of a GPU for the parts of an update that its chain of layers does not wait for.

The gradient goes back through the layers in one chain. A second stream computes the gradients of the weights in
parallel, as a branch of the captured graph. Each operation is the same in either place, so no number depends on it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from learner.engine.accelerator import accelerator_of


class SideStream:
    """Jobs that run at once, where they are submitted, as on a CPU; base of the stream that runs them in parallel."""

    def submit(self, job: Callable[[], None]) -> None:
        """Run `job` in parallel, or at once. It may only read data that the caller leaves unchanged until `settle`."""
        job()

    def settle(self) -> None:
        """Wait for all jobs submitted so far (on a GPU, have its stream wait); raises what one of them raised."""


class CudaSideStream(SideStream):
    """Jobs that run in order in a second stream of a GPU."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = accelerator_of(device).make_stream(device)
        # Memory that a job reads is kept until the job is done. The allocator would give it to the next operation.
        self._kept: list[Callable[[], None]] = []

    def submit(self, job: Callable[[], None]) -> None:
        """See `SideStream`."""
        accelerator = accelerator_of(self._device)
        self._stream.wait_stream(accelerator.current_stream(self._device))
        with accelerator.use_stream(self._stream):
            job()
        self._kept.append(job)

    def settle(self) -> None:
        """See `SideStream`."""
        if self._kept:
            accelerator_of(self._device).current_stream(self._device).wait_stream(self._stream)
            self._kept.clear()
