"""Work captured into graphs stays on the GPU: no other device's tensors, nothing that waits for the GPU.

PyTorch's `meta` device stands for the GPU: operations have shapes, kinds and a device there, but no numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from learner import make_engine as make_engine_module
from learner.engine import engine as engine_module
from learner.engine.engine import Engine
from learner.engine.side_stream import SideStream
from learner.make_engine import make_engine
from learner.networks import policy
from learner.networks.policy import Policy
from shared.config.presets import PRESETS
from shared.config.settings import Config
from shared.network_spec import Network, network_of
from tests.support.played_ring import ACTIONS, REPLAY_PRESETS, PlayedRing
from tests.support.simulated_gpu.operations import NONDETERMINISTIC, SYNCHRONIZING, adds_in_any_order

META = torch.device("meta")
COPIES = {"copy_", "_to_copy", "_foreach_copy_", "lift_fresh"}


class Watch(TorchDispatchMode):
    """Looks at every operation within."""

    def __init__(self) -> None:
        super().__init__()
        self.operations = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        result = func(*args, **(kwargs or {}))
        # A number that the CPU holds as a tensor goes along with a kernel, as any number does, but for copies.
        tensors = [x for x in tree_leaves((args, kwargs, result)) if isinstance(x, Tensor)]
        if name not in COPIES:
            tensors = [x for x in tensors if x.dim()]
        assert {x.device for x in tensors} <= {META}, f"{name} reads or writes {[x.device for x in tensors]}"
        assert name not in SYNCHRONIZING | NONDETERMINISTIC, name
        assert name != "where" or all(isinstance(x, Tensor) and x.device == META for x in args), "where copies a number"
        assert not adds_in_any_order(name), name
        self.operations += 1
        return result


@pytest.fixture(autouse=True)
def _no_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make_engine_module, "check_arithmetic", lambda *_, **__: None)
    monkeypatch.setattr(policy, "check_arithmetic", lambda *_, **__: None)


@pytest.fixture(autouse=True, scope="module")
def _fused_adam() -> Iterator[None]:
    """PyTorch lacks fused Adam with a learning rate in a tensor for `meta`; it changes nothing but its arguments."""
    library = torch.library.Library("aten", "IMPL", "Meta")
    library.impl("_fused_adam_.tensor_lr", lambda *_, **__: None)
    yield
    library._destroy()


def _engine(preset: str, precision: str) -> Engine:
    """An engine whose GPU is `META`, with the frames there, at the beginning of a round."""
    small = {"envs": 4, "total_steps": 4_096, "round_steps": 256, "replay_size": 1_024, "learning_starts": 256}
    config = PRESETS[preset].with_settings(game="pong", snapshot_every_steps=256, batch_size=8, **small)
    played = PlayedRing(config)
    played.play(8 * played.run_schedule.round_ticks)
    settings = config.with_settings(seed=1, device="meta", precision=precision, replay_on="device")
    engine = make_engine(settings, network_of(config, ACTIONS), played.ring)
    assert engine.begin_round(4, 4 * played.run_schedule.round_ticks)
    return engine


@pytest.mark.parametrize("precision", ["bf16", "fp32"])
@pytest.mark.parametrize("preset", REPLAY_PRESETS)
def test_updates_stay_on_the_gpu(monkeypatch: pytest.MonkeyPatch, preset: str, precision: str) -> None:
    monkeypatch.setattr(engine_module, "make_side_stream", lambda _: SideStream())
    engine = _engine(preset, precision)
    source: Any = engine._source
    source.load(0)
    with torch.inference_mode(), Watch() as watch:
        source._learning.prepare(source.chunks[0])
        engine._updates(0, 0, 2)
    assert watch.operations > 2 * 30


@pytest.mark.parametrize("precision", ["bf16", "fp32"])
@pytest.mark.parametrize(
    ("method", "optimizer", "recurrent"),
    [
        ("a2c", "rmsprop", False),
        ("a3c", "adam", False),
        ("ppo", "adam", False),
        ("pqn", "radam", False),
        ("vtrace", "rms", False),
        ("vtrace", "rms", True),
    ],
)
def test_updates_of_an_on_policy_method_stay_on_the_gpu(
    monkeypatch: pytest.MonkeyPatch, method: str, optimizer: str, recurrent: bool, precision: str
) -> None:
    """Updates alone, at an annealed rate: outputs at the beginning of a round are read back."""
    monkeypatch.setattr(engine_module, "make_side_stream", lambda _: SideStream())
    settings = {
        "method": method,
        "envs": 4,
        "round_steps": 16,
        "batch_size": 8,
        "recurrent": recurrent,
        "optimizer": optimizer,
        "learning_rate_end": 0.0,
        "anneal_steps": 1_000,
        "clip_gradient": 0.5,
    }
    config = Config().with_settings(game="pong", schedule="alternate", device="meta", precision=precision, **settings)
    engine = make_engine(config, network_of(config, ACTIONS), PlayedRing(config).ring)
    with torch.inference_mode(), Watch() as watch:
        engine._updates(0, 0, 2)
    assert watch.operations > 2 * 30


@pytest.mark.parametrize("preset", PRESETS)
def test_answers_are_computed_on_the_gpu(preset: str) -> None:
    """Frames and noise being there already."""
    answering = Policy(network_of(PRESETS[preset], ACTIONS), META, "bf16", 4, explore_seed=1)
    answering._host = answering._blocks = answering._host.to(META)
    answering._drawn = answering._noise = answering._drawn.to(META)
    answering._values = answering._values.to(META)
    if answering._state_values is not None:
        answering._state_values = answering._state_values.to(META)
    with torch.inference_mode(), Watch() as watch:
        answering._answer()
    assert watch.operations > 10


def test_answers_of_a_recurrent_network_are_computed_on_the_gpu() -> None:
    answering = Policy(Network("small", ACTIONS, "a2c", value_output=True, recurrent=64), META, "bf16", 4)
    for name in ("_host", "_drawn", "_host_state", "_host_next", "_values", "_state_values"):
        setattr(answering, name, getattr(answering, name).to(META))
    answering._blocks, answering._noise, answering._state = answering._host, answering._drawn, answering._host_state
    with torch.inference_mode(), Watch() as watch:
        answering._answer()
    assert watch.operations > 20


@pytest.mark.parametrize(
    "body",
    [lambda x: x.add_(torch.ones(3)), lambda x: x.add_(torch.tensor(0.5).to(META)), lambda x: x.cumsum(0)],
    ids=["another device", "a copy", "not deterministic"],
)
def test_the_watch_sees(body: Any) -> None:
    with pytest.raises((AssertionError, RuntimeError)), Watch():
        body(torch.zeros(3, device=META))
