"""Every wait and order of the learner and the policy is needed: without it a simulated GPU gives wrong numbers."""

import ast
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import pytest
import torch
from torch import Tensor

import learner
from learner.engine.accelerator import accelerator_of
from learner.engine.engine import NonFiniteError
from learner.engine.host_transfer import Pinned
from learner.engine.prefetcher import Graphs, Prefetcher
from learner.engine.side_stream import CudaSideStream
from learner.replay.replay_frames import DeviceFrames
from shared.errors import ConfigError
from tests.support.device_work import Numbers, Work, answer, differences, learn, make_test_engine, played_ring
from tests.support.simulated_gpu import DEVICE, SimulatedGpu, simulated_gpu

Scenario = Callable[[Work, SimulatedGpu], Numbers]


def _rounds(work: Work, gpu: SimulatedGpu) -> Numbers:
    return learn(work, DEVICE, rounds=2)


def _rounds_on_another_device(work: Work, gpu: SimulatedGpu) -> Numbers:
    """`torch.cuda.graph` waits for the current device alone."""
    gpu.is_current = False
    return learn(work, DEVICE, rounds=2)


def _answers(work: Work, gpu: SimulatedGpu) -> Numbers:
    return answer(work, DEVICE, played_ring(work))


def _warm_up(work: Work, gpu: SimulatedGpu) -> Numbers:
    """The pass before a capture reads what the main stream has written."""
    given, seen = torch.zeros(3, device=DEVICE), torch.zeros(3, device=DEVICE)
    given.fill_(7.0)
    Graphs(DEVICE).capture("copy", lambda: seen.copy_(given))
    return {"seen": seen.numpy(force=True)}


def _stop_in_a_round(work: Work, gpu: SimulatedGpu) -> Numbers:
    """A process that ends leaves nothing under way."""
    played = played_ring(work)
    engine = make_test_engine(work, DEVICE, played)
    engine.run(engine.begin_round(1, played.run_schedule.window_end(1)))
    engine.settle()
    return {"idle": np.float32([gpu.idle])}


OTHER, INFINITE, INDEX, ARITHMETIC = "other numbers", "not finite", "an index out of range", "arithmetic"
ERRORS: dict[str, tuple[type[Exception], str]] = {
    INFINITE: (NonFiniteError, "ceased to be finite"),
    INDEX: (IndexError, "index out of range in self"),
    ARITHMETIC: (ConfigError, "a kernel of PyTorch"),
}
"""Errors that wrong numbers end in: their types, and words of their messages."""


class Mutation(NamedTuple):
    """A wait or an order that is left out."""

    scenario: Scenario
    work: Work
    seed: int
    """One that finds it."""
    outcomes: tuple[str, ...] = (OTHER,)
    """Forms in which it may show: `OTHER`, or one of `ERRORS`. Anything else fails the test."""
    patch: Callable[[], AbstractContextManager[Any]] = nullcontext
    """A change of the program within which an order is not kept."""


NATURE, PLAIN = Work("nature"), Work("nature", graph_updates=0, replay_on="host")
WAITS = {
    "Engine.settle: synchronize": Mutation(_stop_in_a_round, NATURE, 0),
    "Graphs.capture: synchronize": Mutation(_rounds_on_another_device, NATURE, 1),
    "Graphs.capture: wait_stream": Mutation(_warm_up, NATURE, 1),
    "HostTransfer.to_host: synchronize": Mutation(_rounds, NATURE, 0, (OTHER, ARITHMETIC, INFINITE)),
    "Pinned.send: synchronize": Mutation(_rounds, NATURE, 1),
    "Policy.values_from_rows: synchronize": Mutation(_answers, NATURE, 1),
    "Prefetcher._run: wait_event": Mutation(_rounds, NATURE, 3, (OTHER, INDEX)),
    "Prefetcher.settle: wait_event": Mutation(_rounds, NATURE, 1, (OTHER, INDEX)),
    "CudaSideStream.settle: wait_stream": Mutation(_rounds, PLAIN, 0, (OTHER, INFINITE)),
    "CudaSideStream.submit: wait_stream": Mutation(_rounds, PLAIN, 0, (INFINITE,)),
}
"""All waits of `learner/`, each with what shows that it is needed. No process of a run has a current device other than
its own, so the wait of `Graphs.capture` for the warm-up is a safeguard."""


def _send_with_an_early_record(self: Pinned, fill: Callable[[Tensor], None], out: Tensor) -> None:
    self._copied.synchronize()
    host = self._buffer[: len(out)]
    fill(host)
    self._copied.record(accelerator_of(out.device).current_stream(out.device))
    out.copy_(host, non_blocking=True)


PREFETCH, SUBMIT = Prefetcher.submit, CudaSideStream.submit


def _prefetch_at_once(self: Prefetcher, work: Callable[[], None], *, after_main_stream: bool = True) -> None:
    PREFETCH(self, work, after_main_stream=False)


def _submit_and_forget(self: CudaSideStream, job: Callable[[], None]) -> None:
    SUBMIT(self, job)
    self._kept[:] = [lambda: None]


@contextmanager
def _one_pool_and_stream() -> Iterator[None]:
    make, made = Graphs.__init__, list[Graphs]()

    def make_like_the_first(self: Graphs, device: torch.device) -> None:
        make(self, device)
        made.append(self)
        self._pool, self._stream = made[0]._pool, made[0]._stream

    with mock.patch.object(Graphs, "__init__", make_like_the_first):
        yield


_early_record = partial(mock.patch.object, Pinned, "send", _send_with_an_early_record)
_at_once = partial(mock.patch.object, Prefetcher, "submit", _prefetch_at_once)
_nothing_kept = partial(mock.patch.object, CudaSideStream, "submit", _submit_and_forget)
_window_ticks = staticmethod(lambda ring: ring.run_schedule.window_ticks)
_short_window = partial(mock.patch.object, DeviceFrames, "_tick_capacity", _window_ticks)
ORDERS = {
    "Pinned.send: the event is recorded before the copy": Mutation(_rounds, NATURE, 1, patch=_early_record),
    "Prefetcher.submit: never after the main stream": Mutation(_rounds, NATURE, 1, (OTHER, INDEX), _at_once),
    "CudaSideStream.submit: inputs are not kept": Mutation(_rounds, PLAIN, 0, (INFINITE,), _nothing_kept),
    "DeviceFrames: one tick less than the window needs": Mutation(_rounds, NATURE, 0, patch=_short_window),
    "Graphs: one pool and stream for both": Mutation(_rounds, NATURE, 1, (OTHER, INFINITE), _one_pool_and_stream),
}
"""Orders that are kept otherwise than by a wait: how each is left out, and what shows that it is needed."""
MUTATIONS = WAITS | ORDERS


@cache
def _undisturbed(scenario: Scenario, work: Work) -> tuple[Numbers, set[str]]:
    """The right numbers, and the waits that the scenario comes to."""
    with simulated_gpu(0) as gpu:
        return scenario(work, gpu), gpu.waits


def _outcome(name: str, seed: int) -> str | None:
    """Return the form in which a mutation shows with a seed, or None."""
    mutation = MUTATIONS[name]
    wanted, waits = _undisturbed(mutation.scenario, mutation.work)
    assert name in ORDERS or name in waits, "the scenario does not come to this wait"
    with simulated_gpu(seed) as gpu, mutation.patch():
        gpu.left_out.add(name)
        try:
            found = mutation.scenario(mutation.work, gpu)
        except tuple(kind for kind, _ in ERRORS.values()) as error:
            for outcome, (kind, words) in ERRORS.items():
                if isinstance(error, kind) and words in str(error) and outcome in mutation.outcomes:
                    return outcome
            raise
    if not differences(wanted, found):
        return None
    assert OTHER in mutation.outcomes, "other numbers are not how this mutation shows"
    return OTHER


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mutation_is_found(name: str) -> None:
    assert _outcome(name, MUTATIONS[name].seed)


@pytest.mark.stress
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", MUTATIONS)
def test_the_number_of_seeds_that_find_a_mutation(name: str) -> None:
    found = [seed for seed in range(24) if _outcome(name, seed)]
    print(f"{name}: {len(found)} of 24 seeds")
    assert found


def test_the_list_has_all_waits() -> None:
    found = Counter[str]()
    for path in Path(learner.__file__).parent.rglob("*.py"):
        if path.name != "accelerator.py":
            for owner in ast.parse(path.read_text()).body:
                for function in (node for node in ast.walk(owner) if isinstance(node, ast.FunctionDef)):
                    name = f"{getattr(owner, 'name', '')}.{function.name}"
                    found.update(f"{name}: {call}" for call in _waits_in(function))
    assert found == Counter(WAITS.keys()), "every wait is in the list, and no function has two of one name"


def _waits_in(function: ast.FunctionDef) -> list[str]:
    names = ("wait_event", "wait_stream", "synchronize")
    calls = [node.func for node in ast.walk(function) if isinstance(node, ast.Call)]
    return [call.attr for call in calls if isinstance(call, ast.Attribute) and call.attr in names]
