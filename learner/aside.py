"""A second thread for the parts of an update that its chain of layers does not wait for.

On a CPU the gradient goes back through the layers in one thread, while another computes the gradients of the weights
and moves most of them: two cores share one update, without threads that wait for each other in every operation. Each
operation is the same in either thread, so no number depends on it. On a GPU, and where numbers are compared,
everything is done at once, in the caller's thread.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import torch


class Aside:
    """Jobs, done in the order in which they are handed out."""

    def __init__(self, *, own_thread: bool = False) -> None:
        self._thread = ThreadPoolExecutor(1, "aside", torch.set_num_threads, (torch.get_num_threads(),))
        self._own_thread = own_thread
        self._jobs: list[Future[None]] = []

    def do(self, job: Callable[[], None]) -> None:
        """Do `job` beside the caller, or at once. It may read what the caller leaves alone until `settle`."""
        if self._own_thread:
            self._jobs.append(self._thread.submit(torch.inference_mode()(job)))
        else:
            job()

    def settle(self) -> None:
        """Wait for all jobs handed out so far; raises what one of them raised."""
        jobs, self._jobs = self._jobs, []
        for job in jobs:
            job.result()
