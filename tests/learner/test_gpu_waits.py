"""Every wait of the learner and the policy is needed: without it some order of a simulated GPU gives wrong numbers."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch

import learner
from learner.engine.prefetcher import Graphs
from shared.errors import ConfigError, FatalError
from tests.support.device_work import Numbers, Work, answer, differences, learn, make_test_engine, played_ring
from tests.support.played_ring import PlayedRing
from tests.support.simulated_gpu import DEVICE, SimulatedGpu, simulated_gpu

pytestmark = pytest.mark.usefixtures("one_thread")

Scenario = Callable[[Work, SimulatedGpu, PlayedRing], Numbers]


def _rounds(work: Work, gpu: SimulatedGpu, played: PlayedRing) -> Numbers:
    return learn(work, DEVICE, played)


def _rounds_on_another_device(work: Work, gpu: SimulatedGpu, played: PlayedRing) -> Numbers:
    """`torch.cuda.graph` waits for the current device alone."""
    gpu.is_current = False
    return learn(work, DEVICE, played)


def _answers(work: Work, gpu: SimulatedGpu, played: PlayedRing) -> Numbers:
    return answer(work, DEVICE, played)


def _warm_up(work: Work, gpu: SimulatedGpu, played: PlayedRing) -> Numbers:
    """The pass before a capture reads what the main stream has written."""
    given, seen = torch.zeros(3, device=DEVICE), torch.zeros(3, device=DEVICE)
    given.fill_(7.0)
    Graphs(DEVICE).capture("copy", lambda: seen.copy_(given))
    return {"seen": seen.numpy(force=True)}


def _stop_in_a_round(work: Work, gpu: SimulatedGpu, played: PlayedRing) -> Numbers:
    """A process that ends leaves nothing under way."""
    engine = make_test_engine(work, DEVICE, played)
    engine.run(engine.begin_round(1, played.run_schedule.window_end(1)))
    engine.settle()
    assert gpu.idle, "the process ends while the device works"
    return {}


NATURE, PLAIN = Work("nature"), Work("nature", graph_updates=0, replay_on="host")
WAITS: dict[str, tuple[Scenario, Work, int]] = {
    "Engine.settle: synchronize": (_stop_in_a_round, NATURE, 0),
    "Graphs.capture: synchronize": (_rounds_on_another_device, NATURE, 1),
    "Graphs.capture: wait_stream": (_warm_up, NATURE, 1),
    "HostTransfer.to_host: synchronize": (_rounds, NATURE, 0),
    "Pinned.send: synchronize": (_rounds, NATURE, 0),
    "Policy.values_from_rows: synchronize": (_answers, NATURE, 1),
    "Prefetcher._run: wait_event": (_rounds, NATURE, 3),
    "Prefetcher.settle: wait_event": (_rounds, NATURE, 0),
    "SideStream.settle: wait_stream": (_rounds, PLAIN, 0),
    "SideStream.submit: wait_stream": (_rounds, PLAIN, 0),
}
"""All waits of `learner/`: what shows that each is needed, where, and a seed that does."""


@cache
def _undisturbed(scenario: Scenario, work: Work) -> tuple[PlayedRing, Numbers, set[str]]:
    """The ring, the right numbers, and the waits that the scenario comes to."""
    played = played_ring(work)
    with simulated_gpu(0) as gpu:
        return played, scenario(work, gpu, played), gpu.waits


def _fails(wait: str, seed: int) -> bool:
    """True if the numbers are wrong without the wait, or the program or the device says that something is."""
    scenario, work, _ = WAITS[wait]
    played, wanted, waits = _undisturbed(scenario, work)
    assert wait in waits, "the scenario does not come to this wait"
    with simulated_gpu(seed) as gpu:
        gpu.left_out.add(wait)
        try:
            found = scenario(work, gpu, played)
        except (FatalError, ConfigError, RuntimeError, ValueError, IndexError, AssertionError):
            return True
    return bool(differences(wanted, found))


@pytest.mark.parametrize("wait", WAITS)
def test_a_wait_that_is_left_out_is_found(wait: str) -> None:
    assert _fails(wait, WAITS[wait][2])


@pytest.mark.stress
@pytest.mark.timeout(600)
@pytest.mark.parametrize("wait", WAITS)
def test_the_number_of_seeds_that_find_a_mutation(wait: str) -> None:
    found = [seed for seed in range(24) if _fails(wait, seed)]
    print(f"{wait}: {len(found)} of 24 seeds")
    assert found


def test_the_list_has_all_waits() -> None:
    found = set()
    for path in Path(learner.__file__).parent.rglob("*.py"):
        if path.name != "accelerator.py":
            for owner in ast.parse(path.read_text()).body:
                functions = [node for node in ast.walk(owner) if isinstance(node, ast.FunctionDef)]
                for function in functions:
                    found |= {f"{getattr(owner, 'name', '')}.{function.name}: {call}" for call in _waits_in(function)}
    assert found == WAITS.keys()


def _waits_in(function: ast.FunctionDef) -> list[str]:
    names = ("wait_event", "wait_stream", "synchronize")
    calls = [node.func for node in ast.walk(function) if isinstance(node, ast.Call)]
    return [call.attr for call in calls if isinstance(call, ast.Attribute) and call.attr in names]
