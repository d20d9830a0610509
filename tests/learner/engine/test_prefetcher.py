"""The prefetch thread, graphs and the side stream; test_gpu_waits.py shows that each of their waits is needed."""

import threading
import weakref
from collections.abc import Iterator
from functools import partial
from unittest.mock import Mock

import pytest
import torch

from learner.engine.prefetcher import Graphs, Prefetcher
from learner.engine.side_stream import CudaSideStream
from tests.support.simulated_gpu import DEVICE, SimulatedGpu, simulated_gpu


@pytest.fixture
def gpu() -> Iterator[SimulatedGpu]:
    with simulated_gpu(0) as simulated:
        yield simulated


def test_an_error_of_a_prefetch_is_raised_at_its_use(gpu: SimulatedGpu) -> None:
    work = Prefetcher(DEVICE)
    work.submit(Mock(side_effect=ValueError("there is nothing")))
    with pytest.raises(ValueError, match="there is nothing"):
        work.settle()
    work.settle()  # the error was raised once, and not again here


def test_the_prefetch_thread_has_as_many_threads_its_gpu_and_no_gradients(gpu: SimulatedGpu) -> None:
    seen, devices = [], list[torch.device]()
    gpu.set_device = devices.append
    work = Prefetcher(DEVICE)

    def look() -> None:
        here = threading.current_thread() is threading.main_thread()
        seen.append((here, torch.is_inference_mode_enabled(), torch.get_num_threads()))

    work.submit(look)
    work.settle()
    assert seen == [(False, True, torch.get_num_threads())]
    assert devices == [DEVICE], "CUDA's device is kept by thread"


def test_graphs_are_warmed_up_and_captured_in_a_stream_of_their_own(gpu: SimulatedGpu) -> None:
    graphs, streams, main = Graphs(DEVICE), [], gpu.current_stream(DEVICE)
    graphs.capture("a", lambda: streams.append(gpu.current_stream(DEVICE)))
    assert "a" in graphs
    assert "b" not in graphs
    graphs.replay("a")
    assert len(streams) == 2
    assert streams[0] is streams[1] is not main


def test_an_error_in_a_capture_is_not_hidden_by_its_end(gpu: SimulatedGpu) -> None:
    graphs, says = Graphs(DEVICE), "Cannot copy between CPU and CUDA tensors during CUDA graph capture"
    with pytest.raises(RuntimeError, match=says):
        graphs.capture("a", Mock(side_effect=[None, RuntimeError(says)]))
    assert "a" not in graphs


def test_a_side_stream_keeps_inputs_until_it_is_settled(gpu: SimulatedGpu) -> None:
    side_stream, read, streams = CudaSideStream(DEVICE), torch.zeros(1), []
    kept = weakref.ref(read)
    side_stream.submit(partial(lambda read: streams.append(gpu.current_stream(DEVICE)), read))
    del read
    assert kept() is not None
    side_stream.settle()
    assert kept() is None
    assert streams[0] is not gpu.current_stream(DEVICE)
