"""The simulated GPU does what CUDA does, and refuses what CUDA refuses."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from learner.engine.faults import device_faults_named
from shared.errors import DeviceFault
from tests.support.simulated_gpu import DEVICE, SimulatedGpu, simulated_gpu
from tests.support.simulated_gpu.threads import Executor

LATE = 1
"""A seed with which the device works only when it is waited for."""


@pytest.fixture
def gpu() -> Iterator[SimulatedGpu]:
    """A device that works late."""
    with simulated_gpu(LATE) as simulated:
        yield simulated


def _filled(value: float, count: int = 4) -> Tensor:
    return torch.full((count,), value, device=DEVICE)


def test_operations_run_when_they_are_waited_for(gpu: SimulatedGpu) -> None:
    x = torch.zeros(4, device=DEVICE)
    x.fill_(3.0).mul_(2.0)
    assert not gpu.idle
    assert x.tolist() == [6.0] * 4
    assert gpu.idle


def test_a_copy_reads_pinned_memory_when_it_runs(gpu: SimulatedGpu) -> None:
    pinned, paged = gpu.pinned_zeros((4,), torch.float32), torch.zeros(4)
    x, y = (source.to(DEVICE, non_blocking=True) for source in (pinned, paged))
    pinned += 1.0
    paged += 1.0
    assert (x.tolist(), y.tolist()) == ([1.0] * 4, [0.0] * 4), "the driver stages what is not pinned"


def test_a_copy_writes_pinned_memory_when_it_runs(gpu: SimulatedGpu) -> None:
    x, pinned = _filled(5.0), gpu.pinned_zeros((4,), torch.float32)
    # PyTorch takes pinned memory for a copy that does not wait.
    copies = [pinned.copy_(x, non_blocking=True), x.to("cpu", non_blocking=True)]
    assert all(copy.tolist() != [5.0] * 4 for copy in copies)
    gpu.synchronize(DEVICE)
    assert all(copy.tolist() == [5.0] * 4 for copy in copies)
    assert torch.zeros(4).copy_(x, non_blocking=True).tolist() == [5.0] * 4


def test_pinned_memory_in_another_layout_is_read_at_the_call(gpu: SimulatedGpu) -> None:
    """PyTorch brings it into order first, in memory that is not pinned."""
    pinned, x = gpu.pinned_zeros((8,), torch.float32), _filled(1.0)
    x.copy_(pinned[::2], non_blocking=True)
    pinned += 1.0
    assert x.tolist() == [0.0] * 4


def test_freed_memory_goes_to_the_next_allocation_of_its_stream(gpu: SimulatedGpu) -> None:
    x = _filled(1.0)
    address = x.host.data_ptr()  # type: ignore[attr-defined]
    view = x[1:]
    del x
    other = _filled(2.0)
    assert other.host.data_ptr() != address, "a view keeps the memory"  # type: ignore[attr-defined]
    del view
    with gpu.use_stream(gpu.make_stream(DEVICE)):
        there = _filled(3.0)
    assert there.host.data_ptr() != address  # type: ignore[attr-defined]
    assert _filled(4.0).host.data_ptr() == address  # type: ignore[attr-defined]


@pytest.mark.parametrize(("count", "found"), [(4, 2.0), (1_000, float("nan"))])
def test_another_stream_reads_what_was_overwritten(gpu: SimulatedGpu, count: int, found: float) -> None:
    """By the next allocation of any size in the stream of the freed memory."""
    x, stream = _filled(1.0), gpu.make_stream(DEVICE)
    stream.wait_stream(gpu.current_stream(DEVICE))
    with gpu.use_stream(stream):
        y = x + 0.0
    del x
    assert _filled(2.0, count).tolist()[0] == 2.0  # the device runs this first, since nothing makes it wait
    stream.synchronize()
    torch.testing.assert_close(y.cpu(), torch.full((4,), found), equal_nan=True)


def test_freed_memory_stays_until_its_stream_allocates(gpu: SimulatedGpu) -> None:
    stream = gpu.make_stream(DEVICE)
    with gpu.use_stream(stream):
        x = _filled(1.0)
    gpu.current_stream(DEVICE).wait_stream(stream)
    y = x + 0.0
    del x
    assert y.tolist() == [1.0] * 4


def test_memory_that_is_freed_during_an_allocation_is_not_part_of_it(gpu: SimulatedGpu) -> None:
    """Python may collect garbage there."""
    x, garbage, overwrite = _filled(1.0), [_filled(2.0)], gpu.memory.on_reuse
    del x
    gpu.memory.on_reuse = lambda blocks: (garbage.clear(), overwrite(blocks))
    z = _filled(3.0)
    assert not garbage
    assert (z + _filled(4.0)).tolist() == [7.0] * 4


def test_a_graph_overwrites_the_memory_that_was_freed_in_its_capture(gpu: SimulatedGpu) -> None:
    x, seen, side = _filled(1.0), torch.zeros(4, device=DEVICE), gpu.make_stream(DEVICE)

    def body() -> None:
        twice = x * 2.0
        side.wait_stream(gpu.current_stream(DEVICE))
        with gpu.use_stream(side):
            seen.copy_(twice)
        del twice
        x.add_(torch.zeros(1_000, device=DEVICE)[0])
        gpu.current_stream(DEVICE).wait_stream(side)

    graph = _in_graph(gpu, body)
    found = []
    for _ in range(20):  # the device chooses which stream goes first
        graph.replay()
        found.append(bool(seen.isnan().any()))
    assert any(found)


def _in_graph(gpu: SimulatedGpu, body: Callable[[], object]) -> Any:
    graph = gpu.make_graph()
    with gpu.capture(graph, gpu.make_graph_pool(), gpu.make_stream(DEVICE)):
        body()
    return graph


def test_a_graph_repeats_its_operations_on_the_same_memory(gpu: SimulatedGpu) -> None:
    x, total = _filled(1.0), torch.zeros(4, device=DEVICE)
    side = gpu.make_stream(DEVICE)

    def body() -> None:
        twice = x * 2.0
        side.wait_stream(gpu.current_stream(DEVICE))
        with gpu.use_stream(side):
            more = twice + 1.0
        gpu.current_stream(DEVICE).wait_stream(side)
        total.add_(more)

    graph = _in_graph(gpu, body)
    assert total.tolist() == [0.0] * 4
    graph.replay()
    x.fill_(2.0)
    graph.replay()
    assert total.tolist() == [3.0 + 5.0] * 4


REFUSED: dict[str, Callable[[SimulatedGpu, Tensor, Tensor], object]] = {
    "list": lambda gpu, x, pinned: x.tolist(),
    "item": lambda gpu, x, pinned: x.sum().item(),
    "bool": lambda gpu, x, pinned: bool(x.sum()),
    "paged copy": lambda gpu, x, pinned: x.copy_(torch.ones(4), non_blocking=True),
    "copy that waits": lambda gpu, x, pinned: x.copy_(pinned[:4]),
    "copy in parts": lambda gpu, x, pinned: x.copy_(pinned[::2], non_blocking=True),
    "synchronize": lambda gpu, x, pinned: gpu.synchronize(DEVICE),
    "query": lambda gpu, x, pinned: gpu.make_event().query(),
    "number in where": lambda gpu, x, pinned: torch.where(x > 0.0, x, torch.tensor(1.0)),
    "pin": lambda gpu, x, pinned: gpu.pin(torch.ones(4)),
}


@pytest.mark.parametrize("body", REFUSED.values(), ids=REFUSED)
def test_a_capture_refuses(gpu: SimulatedGpu, body: Callable[[SimulatedGpu, Tensor, Tensor], object]) -> None:
    x, pinned = _filled(1.0), gpu.pinned_zeros((8,), torch.float32)
    gpu.synchronize(DEVICE)
    with pytest.raises(torch.AcceleratorError, match="capture"):
        _in_graph(gpu, lambda: body(gpu, x, pinned))
    assert _filled(1.0).tolist() == [1.0] * 4, "the device works on"


def test_a_capture_refuses_streams_that_have_not_joined_or_come_from_outside(gpu: SimulatedGpu) -> None:
    x, side = _filled(1.0), gpu.make_stream(DEVICE)

    def unjoined() -> None:
        x.mul_(2.0)
        side.wait_stream(gpu.current_stream(DEVICE))
        with gpu.use_stream(side):
            x.mul_(2.0)

    with pytest.raises(torch.AcceleratorError, match="unjoined"):
        _in_graph(gpu, unjoined)
    other = gpu.make_stream(DEVICE)
    with gpu.use_stream(other):
        x.add_(1.0)
    with pytest.raises(RuntimeError, match="previous error") as told:
        _in_graph(gpu, lambda: gpu.current_stream(DEVICE).wait_stream(other))
    assert "uncaptured work" in str(told.value.__cause__)


MISTAKES: list[tuple[Callable[[Tensor], object], str]] = [
    (lambda x: x + torch.ones(4), "same device"),
    (lambda x: torch.ones(4).add_(x), "same device"),
    (lambda x: torch.mm(torch.ones(4, 4), x.view(4, 1)), "same device"),
    (lambda x: x.nonzero(), "no aten.nonzero"),
    (lambda x: x.normal_(), "no aten.normal_"),
]


@pytest.mark.parametrize(("body", "message"), MISTAKES)
def test_an_operation_is_refused(gpu: SimulatedGpu, body: Callable[[Tensor], object], message: str) -> None:
    with pytest.raises((RuntimeError, NotImplementedError), match=message):
        body(_filled(1.0))


def test_numbers_are_not_read_without_a_copy(gpu: SimulatedGpu) -> None:
    with pytest.raises(TypeError, match="numpy"):
        _filled(1.0).numpy()
    assert (_filled(1.0) + torch.tensor(0.5)).tolist() == [1.5] * 4  # a number goes along with the kernel


def test_sums_of_no_fixed_order_are_refused_where_bits_matter(gpu: SimulatedGpu) -> None:
    x = _filled(1.0)
    torch.set_deterministic_debug_mode("default")  # tests before this one may have left another
    assert x.cumsum(0).tolist() == [1.0, 2.0, 3.0, 4.0]
    torch.set_deterministic_debug_mode("error")
    try:
        with pytest.raises(RuntimeError, match="deterministic"):
            x.cumsum(0)
    finally:
        torch.set_deterministic_debug_mode("default")


def test_memory_ends_and_an_allocation_can_fail() -> None:
    with simulated_gpu(LATE, size=1 << 20) as gpu:
        x = _filled(0.0, 1 << 17)
        assert gpu.free_bytes(DEVICE) == gpu.reserved_bytes(DEVICE) == 1 << 19
        with pytest.raises(DeviceFault, match="out of memory"), device_faults_named():
            _filled(0.0, 1 << 18)
        del x
        gpu.memory.fails_at = gpu.memory.allocations + 2
        _filled(1.0)
        with pytest.raises(DeviceFault, match="out of memory"), device_faults_named():
            _filled(1.0)


def test_a_lost_device_fails_every_call(gpu: SimulatedGpu) -> None:
    gpu.lose_at(2)
    x = _filled(1.0)
    x.add_(1.0)
    calls: list[Callable[[], object]] = [
        x.tolist,
        lambda: gpu.make_stream(DEVICE),
        lambda: gpu.make_event().record(),
        gpu.make_graph,
        lambda: gpu.free_bytes(DEVICE),
        lambda: gpu.pinned_zeros((4,), torch.float32),
        lambda: gpu.pin(torch.ones(4)),
        lambda: gpu.set_device(DEVICE),
        lambda: gpu.synchronize(DEVICE),
    ]
    for call in calls:
        with pytest.raises(DeviceFault, match="The GPU failed"), device_faults_named():
            call()


def test_threads_take_turns_by_the_seed() -> None:
    def order(seed: int) -> list[int]:
        with simulated_gpu(seed) as gpu:
            done: list[int] = []
            thread = Executor(gpu.turns, lambda: None, ())

            def count(first: int) -> None:
                for number in range(first, first + 5):
                    gpu.turns.switch()
                    done.append(number)

            job = thread.submit(count, 10)
            count(0)
            job.result()
            return done

    assert order(3) == order(3)
    assert len({tuple(order(seed)) for seed in range(5)}) > 1
    assert sorted(order(3)) == [*range(5), *range(10, 15)]
