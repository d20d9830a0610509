"""Target values in the rounds' chunks against slow float64 forms, whatever is combined."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor

from learner.losses.method import make_method
from learner.losses.scalar_loss import rescale
from learner.losses.td_learning import TDLearning
from learner.networks.model import ExtraInputs, Model
from learner.networks.module_model import make_model
from learner.networks.modules import initial_parameters
from learner.replay.replay_frames import second_stack_offset
from shared.config.method_declaration import IQNSettings
from shared.config.sections import Algorithm
from shared.frame_shape import DEFAULT_FRAMES
from shared.network_spec import Network
from tests.learner.losses.test_losses import EPSILON, action_values, paper_target, scaled
from tests.learner.networks.test_modules import CPU, packed_model

ACTIONS, UPDATES, BATCH = 4, 3, 6
N = UPDATES * BATCH
K, SAMPLES = 4, 3
SUPPORT = torch.linspace(-2, 2, 7, dtype=torch.float64).tolist()


def _model(network: Network, seed: int) -> Model:
    """With large weights at the end, so that values differ by more than 1."""
    flat = initial_parameters(network, seed)
    flat[-ACTIONS * network.atoms * (network.hidden + 1) :] *= 30.0
    return packed_model(network, "fp32", flat, make_model)


class Case:
    """Two networks and a chunk of random transitions."""

    def __init__(self, algorithm: Algorithm) -> None:
        if algorithm.method == "iqn":
            algorithm = replace(algorithm, settings=IQNSettings(SAMPLES, K))
        atoms, noisy = {"c51": 7, "qr-dqn": 5}.get(algorithm.method, 1), 0.5 if algorithm.noisy else 0.0
        k = K if algorithm.method == "iqn" else 0
        network = Network("small", ACTIONS, algorithm.method, atoms, -2.0, 2.0, algorithm.dueling, noisy, fractions=k)
        self.algorithm, self.n_step = algorithm, algorithm.n_step
        self.target, self.online = _model(network, 1), _model(network, 2)
        self.learning = TDLearning(self.online, self.target, make_method(network, algorithm, CPU))  # type: ignore[arg-type]
        self.chunk = self.learning.make_chunk(UPDATES, BATCH)
        generator, chunk = torch.Generator().manual_seed(0), self.chunk
        chunk.blocks.copy_(torch.randint(0, 256, chunk.blocks.shape, generator=generator))
        self.actions = torch.randint(0, ACTIONS, (N,), generator=generator).tolist()
        chunk.action_one_hot.copy_(torch.eye(ACTIONS)[self.actions])
        chunk.reward.copy_(torch.randn(N, generator=generator))
        chunk.discount.copy_(torch.tensor([0.0, 0.97, 0.99]).repeat(N // 3))
        chunk.draw_random_inputs(5, 2, 1)
        self.reward = chunk.reward.double().tolist()

    @torch.inference_mode()
    def found(self) -> Tensor:
        """[n, atoms or 1], update by update."""
        self.learning.prepare(self.chunk)
        return torch.cat([self.learning.targets(self.chunk.minibatch(u)) for u in range(UPDATES)]).view(N, -1)

    @torch.inference_mode()
    def outputs(self, model: Model, first: int, fractions: slice, noise: Tensor) -> Tensor:
        """float64[n, actions, atoms] on the scale of returns, row by row as if there were no other."""
        rows = []
        for i in range(N):
            asked = self.chunk.next_fractions[i : i + 1, fractions]
            of_update = noise[i // BATCH][None] if model.noise else None
            beside = ExtraInputs(asked if asked.shape[1] else None, of_update)
            rows.append(model.forward(self.chunk.blocks[i : i + 1], first, beside).outputs.double())
        outputs = torch.cat(rows)
        return _unscaled(outputs) if self.algorithm.value_rescaling else outputs

    def values(self, outputs: Tensor) -> list[list[float]]:
        """Q by state and action."""
        return action_values(self.algorithm, outputs, SUPPORT)

    def expected(self) -> list[list[float]]:
        """Transition by transition."""
        algorithm, chunk, second = self.algorithm, self.chunk, second_stack_offset(DEFAULT_FRAMES, self.n_step)
        first_ones = slice(0, K if algorithm.method == "iqn" else 0)
        last_ones = slice(first_ones.stop, None)
        choosing = self.outputs(self.target, second, first_ones, chunk.next_noise)
        outputs = self.outputs(self.target, second, last_ones, chunk.next_noise)
        online = self.outputs(self.online, second, first_ones, chunk.noise)
        now = self.outputs(self.target, 0, first_ones, chunk.next_noise)
        q, q_online, q_now = self.values(choosing), self.values(online), self.values(now)
        result = []
        for i in range(N):
            step = self.reward[i], chunk.discount[i].item(), self.actions[i]
            y = paper_target(algorithm, step, q_now[i], (q_online if algorithm.double else q)[i], outputs[i], SUPPORT)
            result.append([scaled(value) for value in y] if algorithm.value_rescaling else y)
        return result


def _unscaled(x: Tensor) -> Tensor:
    """Pohlen et al. 2018, h^-1."""
    root = ((1 + 4 * EPSILON * (x.abs() + 1 + EPSILON)).sqrt() - 1) / (2 * EPSILON)
    return x.sign() * (root * root - 1)


BASES = {
    "plain": {},
    "double": {"double": True},
    "munchausen": {"munchausen": True},
    "rescaled": {"value_rescaling": True},
    "rescaled-double": {"value_rescaling": True, "double": True},
    "rescaled-munchausen": {"value_rescaling": True, "munchausen": True},
    "soft": {"munchausen": True, "munchausen_temperature": 1.0, "munchausen_alpha": 0.5, "munchausen_floor": -0.7},
    "three-steps": {"n_step": 3},
    "noisy-double": {"noisy": True, "double": True, "dueling": True, "n_step": 3},
    "noisy-munchausen": {"noisy": True, "munchausen": True, "dueling": True, "n_step": 3},
}
CASES = [
    (method, base)
    for method in ("dqn", "c51", "qr-dqn", "iqn")
    for base in BASES
    if method != "c51" or not {"munchausen", "value_rescaling"} & BASES[base].keys()
]


@pytest.mark.parametrize(("method", "base"), CASES)
def test_targets_are_those_of_the_papers(method: str, base: str) -> None:
    case = Case(Algorithm(method=method, **BASES[base]))  # type: ignore[arg-type]
    found = case.found()
    expected = torch.tensor(case.expected(), dtype=torch.float64)
    assert found.shape == expected.shape == (N, {"c51": 7, "qr-dqn": 5, "iqn": SAMPLES}.get(method, 1))
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=2e-4)
    assert torch.equal(case.chunk.target.view(N, -1), found), "they are kept, for reports"


def test_the_networks_of_these_tests_disagree() -> None:
    """So that a target of the wrong network, stack or noise would be seen."""
    case = Case(Algorithm(noisy=True, n_step=3, double=True))
    chunk, everything = case.chunk, slice(0, 0)
    second = second_stack_offset(DEFAULT_FRAMES, 3)
    target = torch.tensor(case.values(case.outputs(case.target, second, everything, chunk.next_noise)))
    wrong = [(case.online, second, chunk.noise), (case.target, 0, chunk.next_noise), (case.target, second, chunk.noise)]
    for model, first, noise in wrong:
        other = torch.tensor(case.values(case.outputs(model, first, everything, noise)))
        assert (other - target).abs().mean() > 0.05


def test_means_over_quantiles_are_those_of_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not of their values on the network's scale, which would choose another action here."""
    case = Case(Algorithm(method="qr-dqn", value_rescaling=True, double=True))
    outputs = torch.zeros(BATCH, ACTIONS, 5)
    outputs[:, 0, 4], outputs[:, 1] = 30.0, 7.0
    monkeypatch.setattr(case.online, "forward", lambda *_: SimpleNamespace(outputs=outputs))
    with torch.inference_mode():
        case.learning.prepare(case.chunk)
        minibatch = case.chunk.minibatch(1)
        learned = case.learning.learn(outputs, minibatch, costly_metrics=True)
    returns = minibatch.reward[:, None] + minibatch.discount[:, None] * minibatch.next_outputs[:, 0]
    torch.testing.assert_close(minibatch.target, rescale(returns, EPSILON))
    best = _unscaled(outputs.double()).mean(2).amax(1)
    torch.testing.assert_close(learned.metrics["mean_q"].double(), best, rtol=1e-4, atol=0)


def test_draws_of_a_chunk_are_a_function_of_seed_round_and_number() -> None:
    chunk = Case(Algorithm(method="iqn", noisy=True)).chunk
    first = chunk.next_fractions[:, :K].clone()

    def drawn(*where: int) -> list[np.ndarray]:
        chunk.draw_random_inputs(*where)
        parts = (chunk.fractions, chunk.next_fractions[:, K:], chunk.noise, chunk.next_noise)
        return [part.numpy().copy() for part in parts]

    kept = drawn(5, 2, 1)
    np.testing.assert_equal(drawn(5, 2, 1), kept)
    for other in ((6, 2, 1), (5, 3, 1), (5, 2, 2), (5, 1, 2)):
        for new, former in zip(drawn(*other), kept, strict=True):
            assert not np.array_equal(new, former)
    assert not np.array_equal(kept[0], kept[1]), "both sides have fractions of their own"
    assert not np.array_equal(kept[2], kept[3]), "and noise of their own"
    assert torch.equal(chunk.next_fractions[:, :K], first), "those that choose stay"
    assert 0 <= min(kept[0].min(), kept[1].min()) <= max(kept[0].max(), kept[1].max()) < 1
    assert abs(kept[2].mean()) < 0.1
    assert kept[2].std() == pytest.approx(1.0, abs=0.1)
