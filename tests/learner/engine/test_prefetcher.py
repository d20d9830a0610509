"""Prefetching on a GPU, with a stand-in that writes down who waits for what; graphs, their warm-up and stream."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
import torch

from learner.engine.accelerator import ACCELERATORS
from learner.engine.prefetcher import Graphs, Prefetcher
from learner.engine.side_stream import CudaSideStream
from shared.machine.cores import NICENESS

CUDA = torch.device("cuda:0")


class _Cuda:
    """Recorded calls of an `Accelerator`; the current stream is kept by thread, as there."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self._here = threading.local()
        self._streams = 0

    def _note(self, call: str) -> None:
        self.calls.append(call)

    def current_stream(self, device: torch.device) -> Any:
        assert device == CUDA
        if not hasattr(self._here, "stream"):
            self._here.stream = _Stream(self, "main")
        return self._here.stream

    @contextmanager
    def use_stream(self, stream: Any) -> Iterator[None]:
        former, self._here.stream = self.current_stream(CUDA), stream
        yield
        self._here.stream = former

    @contextmanager
    def capture(self, graph: Any, pool: Any, stream: Any) -> Iterator[None]:
        self._note(f"{stream.name} begins a capture in pool {pool}")
        with self.use_stream(stream):
            try:
                yield
            except RuntimeError as error:
                raise RuntimeError("CUDA error: operation failed due to a previous error during capture") from error
        self._note("the capture ends")

    def make_stream(self, device: torch.device) -> Any:
        assert device == CUDA
        self._streams += 1
        return _Stream(self, f"side {self._streams}")

    def make_event(self, *, blocking: bool = False) -> Any:
        return _Event(self)

    def make_graph(self) -> Any:
        return _Graph(self)

    def make_graph_pool(self) -> int:
        return 7

    def set_device(self, device: torch.device) -> None:
        assert threading.current_thread() is not threading.main_thread()
        self._note(f"device {device}")


class _Stream:
    def __init__(self, cuda: _Cuda, name: str) -> None:
        self._cuda, self.name = cuda, name

    def wait_event(self, event: _Event) -> None:
        self._cuda._note(f"{self.name} waits for {event.name}")

    def wait_stream(self, other: _Stream) -> None:
        self._cuda._note(f"{self.name} waits for {other.name}")

    def synchronize(self) -> None:
        self._cuda._note(f"all wait for {self.name}")


class _Event:
    def __init__(self, cuda: _Cuda) -> None:
        self._cuda, self.name = cuda, ""

    def record(self) -> None:
        self.name = f"what {self._cuda.current_stream(CUDA).name} had at {len(self._cuda.calls)}"


class _Graph:
    def __init__(self, cuda: _Cuda) -> None:
        self._cuda = cuda

    def replay(self) -> None:
        self._cuda._note(f"a graph in {self._cuda.current_stream(CUDA).name}")


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> _Cuda:
    """A stand-in for a GPU."""
    stand_in = _Cuda()
    monkeypatch.setitem(ACCELERATORS, "cuda", stand_in)
    return stand_in


def test_on_a_gpu_events_keep_the_order_and_no_thread_waits(cuda: _Cuda) -> None:
    work = Prefetcher(CUDA)
    for number in range(2):
        work.submit(lambda number=number: cuda._note(f"work {number} in {cuda.current_stream(CUDA).name}"))
        assert work.busy
    work.settle()
    work.settle()
    assert not work.busy
    assert cuda.calls == [
        "device cuda:0",
        "side 1 waits for what main had at 0",
        "work 0 in side 1",
        "main waits for what side 1 had at 3",
        "side 1 waits for what main had at 4",
        "work 1 in side 1",
        "main waits for what side 1 had at 6",
    ]


def test_an_error_of_a_prefetch_is_raised_at_its_use() -> None:
    work = Prefetcher(torch.device("cpu"))
    work.submit(lambda: (_ for _ in ()).throw(ValueError("there is nothing")))
    with pytest.raises(ValueError, match="there is nothing"):
        work.settle()
    work.settle()  # the error was raised once, and not again here


def test_the_prefetch_thread_of_a_cpu_has_as_many_threads_and_no_gradients() -> None:
    seen: list[tuple[bool, bool, int]] = []
    work = Prefetcher(torch.device("cpu"))

    def look() -> None:
        here = threading.current_thread() is threading.main_thread()
        seen.append((here, torch.is_inference_mode_enabled(), torch.get_num_threads()))

    work.submit(look)
    work.settle()
    assert seen == [(False, True, torch.get_num_threads())]


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_on_a_cpu_the_prefetch_thread_gives_way(device: str, cuda: _Cuda) -> None:
    """Beside a GPU it does not: there it would have to wait for the actors, and the GPU for it."""
    here, there = os.getpriority(os.PRIO_PROCESS, 0), []
    work = Prefetcher(torch.device(device))
    work.submit(lambda: there.append(os.getpriority(os.PRIO_PROCESS, 0)))
    work.settle()
    assert there == [min(here + NICENESS, 19) if device == "cpu" else here]
    assert os.getpriority(os.PRIO_PROCESS, 0) == here


def test_graphs_are_warmed_up_and_captured_in_a_stream_of_their_own(cuda: _Cuda) -> None:
    graphs = Graphs(CUDA)
    done: list[str] = []
    graphs.capture("a", lambda: done.append(cuda.current_stream(CUDA).name))
    assert done == ["side 1", "side 1"]
    assert cuda.calls == [
        "side 1 waits for main",
        "all wait for side 1",
        "side 1 begins a capture in pool 7",
        "the capture ends",
    ]
    assert "a" in graphs
    assert "b" not in graphs
    graphs.replay("a")
    assert cuda.calls[-1] == "a graph in main"
    assert len(done) == 2


def test_an_error_in_a_capture_is_not_hidden_by_its_end(cuda: _Cuda) -> None:
    graphs, times = Graphs(CUDA), []

    def body() -> None:
        times.append(None)
        if len(times) > 1:
            raise RuntimeError("Cannot copy between CPU and CUDA tensors during CUDA graph capture")

    with pytest.raises(RuntimeError, match="Cannot copy between CPU and CUDA"):
        graphs.capture("a", body)
    assert "a" not in graphs


def test_a_side_stream_waits_for_inputs_and_keeps_them_until_it_is_settled(cuda: _Cuda) -> None:
    class Read:
        """A tensor that a job reads."""

    side_stream = CudaSideStream(CUDA)
    read = Read()
    kept = weakref.ref(read)
    side_stream.submit(partial(lambda read: cuda._note(f"job in {cuda.current_stream(CUDA).name}"), read))
    del read
    assert kept() is not None
    side_stream.settle()
    assert kept() is None
    side_stream.settle()
    assert cuda.calls == ["side 1 waits for main", "job in side 1", "main waits for side 1"]
