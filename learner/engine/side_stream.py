"""A second thread, or stream, for the parts of an update that its chain of layers does not wait for.

The gradient goes back through the layers in one chain. The gradients of the weights are computed in parallel. On a CPU
a second thread does this and also moves most of the weights. On a GPU a second stream does it, as a branch of the
captured graph. So two cores, or more of the GPU, share one update, and their threads need not wait for each other in
every operation. Each operation is the same in either place, so no number depends on it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import torch

from learner.engine.accelerator import accelerator_of, is_gpu


class SideStream:
    """Jobs, done in the order in which they are handed out."""

    def __init__(self, device: torch.device | None = None) -> None:
        """A separate stream of a GPU, or a separate thread for a CPU; without a device every job runs at once."""
        self._gpu = device if device is not None and is_gpu(device) else None
        self._stream = None if self._gpu is None else accelerator_of(self._gpu).make_stream(self._gpu)
        own_thread = device is not None and self._gpu is None
        threads = torch.get_num_threads()
        self._thread = ThreadPoolExecutor(1, "side stream", torch.set_num_threads, (threads,)) if own_thread else None
        self._jobs: list[Future[None]] = []
        # What a job in another stream reads must not be given back before it is done: its memory would be used again.
        self._kept: list[Callable[[], None]] = []

    def submit(self, job: Callable[[], None]) -> None:
        """Run `job` in parallel, or at once. It may only read data that the caller leaves unchanged until `settle`."""
        if self._thread is not None:
            self._jobs.append(self._thread.submit(torch.inference_mode()(job)))
        elif self._gpu is not None and self._stream is not None:
            accelerator = accelerator_of(self._gpu)
            self._stream.wait_stream(accelerator.current_stream(self._gpu))
            with accelerator.use_stream(self._stream):
                job()
            self._kept.append(job)
        else:
            job()

    def settle(self) -> None:
        """Wait for all jobs handed out so far (on a GPU, have its stream wait); raises what one of them raised."""
        jobs, self._jobs = self._jobs, []
        for job in jobs:
            job.result()
        if self._kept and self._gpu is not None:
            accelerator_of(self._gpu).current_stream(self._gpu).wait_stream(self._stream)
            self._kept.clear()
