"""Prefetching for a GPU, in a second thread with a second stream, and CUDA graphs captured at the start.

Only `Graphs.capture` waits for a GPU. Events keep the order, and only the GPU waits for them. Submitted work runs after
all work that the main stream has been given, or only after earlier submitted work. After `settle`, new work of the main
stream runs after the submitted work.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor

import torch

from learner.engine.accelerator import Event, Graph, accelerator_of


class Prefetcher:
    """Runs one submitted function at a time, in parallel with the caller's thread and its stream."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._accelerator = accelerator_of(device)
        self.stream = self._accelerator.make_stream(device)
        self._thread = ThreadPoolExecutor(1, "prefetch", self._enter, (torch.get_num_threads(),))
        self._next: Future[Event] | None = None

    def submit(self, work: Callable[[], None], *, after_main_stream: bool = True) -> None:
        """Run `work` in the second thread, after all that the GPU was asked for so far. Settles the former work.

        Without `after_main_stream`, only after earlier work of this thread: it must touch nothing that the caller's
        stream uses.

        Raises:
            BaseException: the former work raised it.
        """
        self.settle()
        before = None
        if after_main_stream:
            before = self._accelerator.make_event()
            before.record()
        self._next = self._thread.submit(self._run, work, before)

    def settle(self) -> None:
        """Wait for the work to be submitted, if there is any. Later work of the main stream waits for the GPU.

        Raises:
            BaseException: the work raised it. A second call raises nothing.
        """
        if self._next is None:
            return
        work, self._next = self._next, None  # its exception is raised once
        self._accelerator.current_stream(self._device).wait_event(work.result())

    def _enter(self, threads: int) -> None:
        """Set what is kept by thread: PyTorch's number of threads and CUDA's device."""
        torch.set_num_threads(threads)
        self._accelerator.set_device(self._device)

    @torch.inference_mode()
    def _run(self, work: Callable[[], None], before: Event | None) -> Event:
        with self._accelerator.use_stream(self.stream):
            if before is not None:
                self.stream.wait_event(before)
            work()
            done = self._accelerator.make_event()
            done.record()
        return done


class Graphs:
    """CUDA graphs of functions whose tensors stay at their addresses.

    All graphs of one object share temporary memory, so they may run in any order, but never two at a time. Each stream
    has a separate object. The graphs must be dropped together: with the first one PyTorch frees cuBLAS's workspace of
    their stream, which the others still use. Capture them before other threads work, since a capture forbids many
    operations to other threads.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device  # which need not be the current one
        self._graphs: dict[Hashable, Graph] = {}
        self._accelerator = accelerator_of(device)
        self._pool = self._accelerator.make_graph_pool()
        # A stream of its own, because libraries keep their workspace by stream, and a graph refers to it for ever.
        self._stream = self._accelerator.make_stream(device)

    @torch.inference_mode()
    def capture(self, name: Hashable, body: Callable[[], object]) -> None:
        """Capture `body`. It is done once before: libraries set themselves up in a first pass, which no graph holds.

        Raises:
            RuntimeError: `body` raised it, or it did something that no graph can hold.
        """
        self._stream.wait_stream(self._accelerator.current_stream(self._device))
        with self._accelerator.use_stream(self._stream):
            body()
        self._stream.synchronize()
        graph, failed = self._accelerator.make_graph(), None
        try:
            with self._accelerator.capture(graph, self._pool, self._stream):
                try:
                    body()
                except RuntimeError as error:
                    failed = error
                    raise
        except RuntimeError as error:
            # To end a capture in which something failed is an error, too, and would hide the one that says what.
            raise (failed or error) from None
        self._graphs[name] = graph

    def __contains__(self, name: Hashable) -> bool:
        return name in self._graphs

    def replay(self, name: Hashable) -> None:
        """Do what the body of this name does, in the current stream. Under `inference_mode`, as it was captured.

        Raises:
            KeyError: no body of this name was captured.
        """
        self._graphs[name].replay()
