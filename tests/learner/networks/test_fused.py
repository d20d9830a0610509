"""Layouts of plain networks, answers of a policy, and the check of the arithmetic."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from learner.networks import arithmetic_check
from learner.networks.arithmetic_check import check_arithmetic
from learner.networks.fused import FusedModel
from learner.networks.model import ExtraInputs
from learner.networks.module_model import make_model
from learner.networks.modules import initial_parameters
from learner.networks.policy import Policy, greedy
from shared.errors import ConfigError
from shared.frame_shape import CELL, DEFAULT_FRAMES, STACK, FrameShape
from shared.network_parameters import parameters_of
from shared.network_spec import Network
from tests.learner.networks.test_modules import CPU, NETWORKS, make_reference, relative

ACTIONS = 6
TOLERANCE = {"fp32": 2e-5, "bf16": 3e-2}


def _stacks(n: int, seed: int = 0, shape: FrameShape = DEFAULT_FRAMES) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, *shape.observation), dtype=np.uint8)


def _reference(network: Network, flat: np.ndarray, stacks: np.ndarray) -> Tensor:
    """Q values in float64."""
    return make_reference(network, flat).values(stacks.reshape(len(stacks), -1, *stacks.shape[-2:])).detach()


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("dueling", [False, True], ids=["fused", "autograd"])
def test_another_process_takes_what_a_model_exports(precision: str, dueling: bool) -> None:
    network = Network("nature", ACTIONS, dueling=dueling)
    ours, theirs = (make_model(network, CPU, precision) for _ in range(2))
    ours.pack(initial_parameters(network, 1), ours.params)
    exported = np.full(len(ours.params), np.nan, np.float32)
    ours.export_into(exported)
    theirs.take(exported)
    ours.sync_copy()
    assert torch.equal(ours.params, theirs.params)
    assert torch.equal(ours.params_bf16, theirs.params_bf16)
    stacks = torch.ones(DEFAULT_FRAMES.blocks(2), dtype=torch.uint8)
    assert torch.equal(*(model.forward(stacks, 0, ExtraInputs()).outputs for model in (ours, theirs)))


def test_the_first_convolution_is_one_of_blocks() -> None:
    model = FusedModel(Network("nature", ACTIONS), CPU, "fp32")
    shapes = [tuple(view.shape) for view in model.views(model.params).values()]
    assert shapes[0] == (32, STACK * CELL, 2, 2)  # as many numbers as [32, 4, 8, 8]
    assert shapes[1:] == [shape for _, shape in parameters_of(model.network).shapes][1:]


def test_the_network_of_a3c_is_that_of_the_paper() -> None:
    """Mnih et al. 2013, section 4.1: 16 8x8 filters with stride 4, 32 4x4 filters with stride 2, 256 units."""
    weights = {"conv1": (16, 4, 8, 8), "conv2": (32, 16, 4, 4), "hidden": (256, 32 * 9 * 9), "value": (4, 256)}
    pairs = [((f"{name}.weight", shape), (f"{name}.bias", shape[:1])) for name, shape in weights.items()]
    assert parameters_of(Network("a3c", 4)).shapes == sum(pairs, ())


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_policy_answers_as_the_reference_and_row_by_row(precision: str) -> None:
    network, stacks = Network("nature", ACTIONS), _stacks(8)
    policy, flat = Policy(network, CPU, precision, 8), initial_parameters(network, 2)
    policy.load(flat)
    q = policy.values(stacks)
    assert relative(torch.from_numpy(q), _reference(network, flat, stacks)) < TOLERANCE[precision]
    others = _stacks(8, seed=9)
    others[3] = stacks[3]
    assert np.array_equal(policy.values(others)[3], q[3]), "a row depends on its neighbors"
    assert np.array_equal(policy.values(stacks), q)
    with pytest.raises(ValueError, match="batches of 8"):
        policy.values(stacks[:4])


def test_a_policy_answers_observations_of_another_shape() -> None:
    network = Network("small", ACTIONS, frame_size=40, frame_stack=3, frame_channels=3)
    policy, flat = Policy(network, CPU, "fp32", 4), initial_parameters(network, 2)
    policy.load(flat)
    policy.rehearse()
    stacks = _stacks(4, 0, network.frames)
    assert relative(torch.from_numpy(policy.values(stacks)), _reference(network, flat, stacks)) < TOLERANCE["fp32"]
    with pytest.raises(ValueError, match="batches of 4"):
        policy.values(stacks[:, :, 0])


def test_greedy_takes_the_first_best_and_refuses_nan() -> None:
    assert greedy(np.array([[0, 2, 2], [1, 0, -1]], np.float32)).tolist() == [1, 0]
    for broken in (np.nan, np.inf):
        with pytest.raises(FloatingPointError, match="row 1"):
            greedy(np.array([[0, 1], [broken, 0]], np.float32))


ACTOR_CRITIC = Network("small", 4, value_output=True)


def test_a_unit_that_rounding_turns_on_is_no_wrong_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """On an AMD EPYC the gradients of the first draw are off by 0.41, those of four draws by 0.21."""
    monkeypatch.setattr(arithmetic_check, "GRADIENTS_OFF", 0.3)
    check_arithmetic(ACTOR_CRITIC, CPU, "bf16", 80, learns=True)


PLAIN = [("nature", True, 8), ("nature", False, 4), ("nature", True, 32), ("nature", False, 32)]
PLAIN += [("a3c", True, 32), ("small", True, 32), ("small", False, 32)]
CHECKED = [(Network(name, ACTIONS), learns, batch) for name, learns, batch in PLAIN]
CHECKED += [(ACTOR_CRITIC, True, 80), (NETWORKS["rainbow"], True, 4), (NETWORKS["everything"], True, 4)]


@pytest.mark.parametrize(("network", "learns", "batch"), CHECKED)
def test_a_wrong_kernel_is_noticed(network: Network, learns: bool, batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    check_arithmetic(network, CPU, "bf16", batch, learns=learns)
    right = F.conv2d

    def wrong(x: Tensor, weight: Tensor, *rest: Any, **more: Any) -> Tensor:
        if x.dtype == torch.bfloat16 and weight.shape[2] == 4:
            weight = weight.roll(1, dims=1)
        return right(x, weight, *rest, **more)

    monkeypatch.setattr(F, "conv2d", wrong)
    with pytest.raises(ConfigError, match="--precision fp32"):
        check_arithmetic(network, CPU, "bf16", batch, learns=learns)


def test_new_rows_come_to_their_places_and_masked_frames_are_zeros() -> None:
    policy = Policy(Network("small", ACTIONS), CPU, "fp32", 4)
    policy.load(initial_parameters(Network("small", ACTIONS), 1))
    stacks = _stacks(4)
    policy.values(stacks)
    frames = np.random.default_rng(2).integers(0, 256, (9, 84, 84), dtype=np.uint8)
    rows, keep = np.array([[5, 0, 7, 8], [1, 1, 2, 3]]), np.array([[False, False, True, True], [True] * 4])
    mixed = stacks.copy()
    mixed[[2, 0]] = frames[rows]
    mixed[2, :2] = 0
    assert np.array_equal(policy.values_from_rows(frames, rows, keep, np.array([2, 0])), policy.values(mixed))
