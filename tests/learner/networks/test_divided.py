"""Passes in parts: the sums of whole batches, and bits that do not depend on the members that share the parts."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from learner.engine.side_stream import SideStream
from learner.networks.divided import DividedModel
from learner.networks.fused import FusedModel
from learner.networks.model import ExtraInputs, Model, Recurrence
from learner.networks.module_model import make_model
from learner.networks.modules import initial_parameters
from learner.networks.packed_model import Rows
from learner.networks.units import UnitsModel
from learner.team.team import Team
from shared.network_spec import Network
from tests.support.thread_team import in_team

CPU = torch.device("cpu")
ROWS = 10
"""More than eight parts, which do not divide them."""
NETWORKS = {
    "plain": Network("small", 4, "ppo", value_output=True),
    "plain of many outputs": Network("small", 4, "c51", 51, -10.0, 10.0),
    "normalized": Network("small", 4, "pqn", layer_norm=True, conv_norm=True),
    "recurrent": Network("small", 4, "a2c", value_output=True, recurrent=16),
    "fractions and noise": Network("small", 4, "iqn", dueling=True, noisy=0.5),
    "quantiles": Network("small", 4, "qr-dqn", 50, dueling=True),
    "spectral": Network("impala", 4, spectral_norm=True, pooling=True, frame_size=56, frame_stack=1),
}
Arrays = list[NDArray[np.float32]]


def _divided(network: Network, precision: str, parts: int, team: Team, *, ranks: bool = False) -> DividedModel:
    """The model with which a learner of a CPU learns, or one of ranks."""
    model = make_model(network, CPU, precision, team)
    return (UnitsModel if isinstance(model, FusedModel) and not ranks else DividedModel)(model, parts, team)


def _inputs(network: Network, rows: int, noise: int) -> ExtraInputs:
    """Sequences of two rows, fractions, and noise of one update."""
    generator = torch.Generator().manual_seed(2)
    state = torch.randn(rows // 2, 2, network.recurrent, generator=generator)
    return ExtraInputs(
        torch.rand(rows, 3, generator=generator) if network.method == "iqn" else None,
        torch.randn(1, noise, generator=generator) if noise else None,
        Recurrence(state, torch.randint(0, 2, (rows,), generator=generator).float()) if network.recurrent else None,
    )


def _learn(model: Model, team: Team, rows: int, updates: int = 2) -> Arrays:
    """Outputs of some updates, the last gradient and the parameters behind it; each member moves its parts."""
    network, generator = model.network, torch.Generator().manual_seed(1)
    extra_inputs = _inputs(network, rows, model.noise)
    if team.written(1):
        model.pack(initial_parameters(network, 0), model.params)
    vector = team.zeros(len(model.params), dtype=model.params_bf16.dtype)
    model.gradient_into(vector)
    found = []
    with torch.inference_mode():
        for _ in range(updates):
            team.sync()
            model.sync_copy()
            blocks = torch.randint(0, 256, network.frames.blocks(rows), generator=generator, dtype=torch.uint8)
            found += [model.forward(blocks, 0, extra_inputs).outputs.numpy() for _ in range(2)]
            saved = model.forward(blocks, 0, extra_inputs, learns=True)
            outputs = saved.outputs.detach()
            found.append(outputs.numpy(force=True).copy())
            model.backward(saved, torch.randn(outputs.shape, generator=generator) - outputs, SideStream())
            places = [place for part in team.written(len(model.parts)) for place in model.parts[part]]
            moved = [model.params[place] - 1e-4 * vector[place].float() for place in places]
            team.sync()  # the step of a member takes a while
            for place, numbers in zip(places, moved, strict=True):
                model.params[place] = numbers
        team.sync()
    return [*found, vector.float().numpy(), model.params.numpy()]


@pytest.mark.parametrize("parts", [1, 2, 4, 16])
@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
def test_parts_give_the_outputs_and_the_gradient_of_the_batch(network: Network, parts: int) -> None:
    for rows in (ROWS, 2):
        wanted = _learn(make_model(network, CPU, "fp32"), Team(), rows)
        found = _learn(_divided(network, "fp32", parts, Team()), Team(), rows)
        assert np.abs(wanted[-2]).max() > 0.1
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("parts", [4, *(pytest.param(parts, marks=pytest.mark.stress) for parts in (2, 8))])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
def test_the_number_of_members_changes_no_bit(network: Network, precision: str, parts: int) -> None:
    """Whichever of them runs first, and with fewer rows than parts."""
    for rows in (ROWS, 2):
        _require_same(network, precision, parts, rows, ranks=False)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("name", [name for name, network in NETWORKS.items() if not network.recurrent])
def test_the_number_of_ranks_changes_no_bit(name: str, precision: str) -> None:
    """They share the batch evenly."""
    _require_same(NETWORKS[name], precision, 4, 8, ranks=True)


@pytest.mark.parametrize("depends", [False, True])
def test_neighboring_parts_are_one_pass_unless_bits_differ(depends: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    model, parts = make_model(NETWORKS["quantiles"], CPU, "bf16"), list[list[int]]()
    forward = model.forward

    def counted(blocks: Tensor, *arguments: Any, rows: Rows, learns: bool) -> Any:
        parts.append(list(rows))
        found = forward(blocks, *arguments, rows=rows, learns=learns)
        with torch.inference_mode(mode=not learns), torch.set_grad_enabled(learns):
            return found._replace(outputs=found.outputs * (1 + 1e-6 * len(blocks))) if depends else found

    monkeypatch.setattr(model, "forward", counted)
    _learn(DividedModel(model, 4, Team()), Team(), 16, updates=1)
    assert parts[-4:] == ([[0], [1], [2], [3]] if depends else [[0, 1, 2, 3]] * 4)


def _require_same(network: Network, precision: str, parts: int, rows: int, *, ranks: bool) -> None:
    """Require the bits of one member of every one of 2, 4, ... `parts` members."""

    def learn(team: Team) -> Arrays:
        return _learn(_divided(network, precision, parts, team, ranks=ranks), team, rows)

    wanted = learn(Team())
    for size in (size for size in (2, 4, 8) if size <= parts):
        for reverse in (False, True):
            np.testing.assert_equal(in_team(size, learn, ranks=ranks, reverse=reverse), [wanted] * size)
