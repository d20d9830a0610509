"""Torsos of the user: which the look before a run takes, and the sentence for each that it refuses."""

import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from learner.networks.own_torso import look, make_torso
from shared.errors import ConfigError
from shared.frame_shape import DEFAULT_FRAMES, FrameShape
from shared.network_spec import OwnTorso
from tests.support import own_networks

HOME = own_networks.__name__
CPU = torch.device("cpu")
COLOR = FrameShape(64, 2, 3)


TAKEN = [
    ("Residual", DEFAULT_FRAMES, 16 * 9 * 9, 64),
    ("Residual", COLOR, 16 * 6 * 6, 64),
    ("Attention", DEFAULT_FRAMES, 32, 512),
    ("Tied", DEFAULT_FRAMES, 8 * 10 * 10, 512),
    ("Linear", COLOR, 16, 512),
]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(("name", "frames", "features", "hidden"), TAKEN)
def test_a_look_finds_all_sizes(name: str, frames: FrameShape, features: int, hidden: int, precision: str) -> None:
    found = look(f"{HOME}:{name}", frames, CPU, precision)
    parameters = getattr(own_networks, name)(frames).named_parameters()
    assert found == OwnTorso(features, hidden, tuple((each, tuple(value.shape)) for each, value in parameters))


BROKEN = [
    ("BatchNorm", "as BatchNorm does: use GroupNorm or LayerNorm."),
    ("Centered", "as BatchNorm does: use GroupNorm or LayerNorm."),
    ("Dropout", r"other numbers when the same frames come again \(as with dropout"),
    ("Counting", "or with state between calls"),
    ("Spectral", r"\(it changes layer\.parametrizations\.weight\.0\._u\)"),
    ("Running", "changes mean in a pass"),
    ("DrawnBuffer", "draws the buffer noise, and no file stores it: make it a parameter with requires_grad=False."),
    ("DrawnElsewhere", "other initial values of scale .*: draw them from torch's generator."),
    ("Double", r"parameter layer\.weight in torch\.float64: keep it in float32"),
    ("Lazy", r"parameter layer\.weight of a lazy layer"),
    ("NoHidden", "has hidden 0, .*: set a whole number"),
    ("Maps", r"returns torch\.b?float\d\d\[4, 16, 1\] for 4 rows, .*: flatten them"),
    ("Pair", "returns tuple, and not floating-point features"),
    ("Infinite", "not finite: scale the frames"),
    *((name, r"no gradient of its features by a parameter: leave one") for name in ("Detached", "Frozen")),
    ("Caching", "forward pass raised RuntimeError at .*: Inference tensors cannot be saved for backward"),
    ("Raising", r"forward pass raised RuntimeError at \S+own_networks\.py:\d+: mat1 and mat2 shapes"),
    ("FixedBatch", r"forward pass raised RuntimeError at \S+own_networks\.py:\d+: shape"),
    ("NotBuilt", r"constructor raised KeyError at \S+own_networks\.py:\d+: .no such\S+size"),
    ("fault", f"{HOME} has no class fault of torch.nn.Module: name one"),
    ("Nothing", f"{HOME} has no class Nothing"),
]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(("name", "says"), BROKEN)
def test_a_torso_that_would_break_a_promise_is_refused_in_a_sentence(name: str, says: str, precision: str) -> None:
    with pytest.raises(ConfigError, match=f"--network {HOME}:{name}.* {says}") as error:
        look(f"{HOME}:{name}", DEFAULT_FRAMES, CPU, precision)
    assert "\n" not in str(error.value)


def test_a_kernel_that_is_not_deterministic_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    says = "scatter_cuda does not have a deterministic implementation, but you set ..."
    monkeypatch.setattr(own_networks.Linear, "change", Mock(side_effect=RuntimeError(says)))
    with pytest.raises(ConfigError, match=r"needs scatter_cuda, .*: use another layer, or pass --deterministic off"):
        look(f"{HOME}:Linear", DEFAULT_FRAMES, CPU, "fp32")


def test_initial_values_follow_from_the_seed_and_leave_the_generator_alone() -> None:
    before = torch.get_rng_state()
    with torch.inference_mode():
        torso, twin, other = (make_torso(f"{HOME}:Linear", DEFAULT_FRAMES, seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    weights, same, others = (next(each.parameters()) for each in (torso, twin, other))
    assert torch.equal(weights, same)
    assert not torch.equal(weights, others)
    assert not weights.is_inference()
    torch.manual_seed(1)
    assert torch.equal(weights, next(own_networks.Linear(DEFAULT_FRAMES).parameters()))


MODULES = [
    ("import broken", "cannot be imported: No module named 'broken'; install what it needs."),
    ("def f(:", r"cannot be imported: .*line 1"),
    ("raise SystemExit(0)", "cannot be imported: it ends the program"),
    ("1 / 0", r"its import raised ZeroDivisionError at \S+/broken_nets\.py:1: division by zero\."),
    (None, "is not found: put its directory into PYTHONPATH."),
]


@pytest.mark.parametrize(("source", "says"), MODULES)
def test_a_module_that_cannot_be_imported_is_a_sentence(
    source: str | None, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    if source is not None:
        (tmp_path / "broken_nets.py").write_text(source)
    with pytest.raises(ConfigError, match=f"--network broken_nets:Net .*{says}"):
        make_torso("broken_nets:Net", DEFAULT_FRAMES, 1)
    assert "broken_nets" not in sys.modules
