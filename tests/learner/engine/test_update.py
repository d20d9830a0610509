"""The engine against a slow float64 engine by autograd; exactness of its schedule; failure of numbers."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.optim.radam import radam

from learner.engine.engine import Engine, NonFiniteError
from learner.engine.optimizer import Optimizer
from learner.engine.round_means import RoundMetrics
from learner.networks.fused import FusedModel
from learner.networks.modules import initial_parameters
from learner.replay.sampling import draw_integers
from shared.config.sections import Algorithm, Learn
from shared.config.settings import Config
from shared.network_parameters import parameters_of
from shared.network_spec import Network
from tests.learner.networks.test_modules import make_reference
from tests.support.device_work import Work, played_ring
from tests.support.device_work import make_test_engine as engine_on
from tests.support.played_ring import ACTIONS, PlayedRing, make_algorithm, make_test_engine, small_config, stored_state
from tests.support.simulated_gpu import DEVICE, simulated_gpu

CPU, NETWORK = torch.device("cpu"), Network("small", ACTIONS)
State = dict[str, np.ndarray]
END = 4 * 6
"""The tick before which the ring was played."""


def _engine(config: Config, precision: str = "fp32", replay_on: str = "auto") -> Engine:
    """An engine on four rounds of random episodes."""
    return make_test_engine(PlayedRing(config, ticks=END), config, precision, replay_on)


def _after(updates: int, config: Config, precision: str = "fp32") -> Engine:
    """An engine that has done the first updates of round 4."""
    engine = _engine(config, precision)
    assert engine.begin_round(4, END) == 12
    engine.run(updates)
    return engine


@torch.no_grad()
def _q(flat: np.ndarray, stacks: np.ndarray) -> Tensor:
    return make_reference(NETWORK, flat).values(stacks)


def _step(learn: Learn, step: int, g: Tensor, x: Tensor, mean: Tensor, square: Tensor) -> list[Tensor]:
    """Parameters and moments after a step of an optimizer, numbered from 1, in the dtype of the vectors."""
    rate, beta, epsilon = learn.learning_rate, learn.optimizer_decay, learn.optimizer_epsilon
    if learn.optimizer == "radam":
        found = [x.clone(), mean.clone(), square.clone()]
        x, mean, square = ([vector] for vector in found)
        done = [torch.tensor(step - 1.0)]
        radam(x, [g], mean, square, done, beta1=0.9, beta2=beta, lr=rate, weight_decay=0.0, eps=epsilon)
        return found
    square = beta * square + (1 - beta) * g**2
    if learn.optimizer == "rms":  # the formula of A3C, with epsilon under the root
        return [x - rate * g / (square + epsilon).sqrt(), mean, square]
    if learn.optimizer == "rmsprop":
        mean = beta * mean + (1 - beta) * g
        return [x - rate * g / (square - mean**2 + epsilon).sqrt(), mean, square]
    mean = 0.9 * mean + 0.1 * g
    return [x - rate * mean / (1 - 0.9**step) / ((square / (1 - beta**step)).sqrt() + epsilon), mean, square]


def _reference_round(played: PlayedRing, learn: Learn, round_: int, updates: int) -> tuple[State, list[float]]:
    """One round from fresh parameters, in float64, transition by transition."""
    target = torch.from_numpy(initial_parameters(NETWORK, 3)).double()
    online, mean, square = target.clone(), torch.zeros_like(target), torch.zeros_like(target)
    starts = played.samplable(round_ * played.run_schedule.round_ticks)
    losses = []
    for step, picks in enumerate(draw_integers(len(starts), updates, learn.batch_size, 3, round_), start=1):
        batch = [played.transition(*starts[pick]) for pick in picks]
        next_q = _q(target.numpy(), np.stack([t.next_state for t in batch])).max(1).values
        discount = torch.tensor([0.0 if t.ends else 0.99**t.length for t in batch])
        y = torch.tensor([t.reward for t in batch]) + next_q * discount
        reference = make_reference(NETWORK, online.numpy())
        q = reference.values(np.stack([t.state for t in batch]))[range(len(batch)), [t.action for t in batch]]
        F.huber_loss(q, y, reduction="mean" if learn.optimizer == "adam" else "sum").backward()
        losses.append(float(F.huber_loss(q.detach(), y)))
        step += played.run_schedule.updates_before(round_)
        online, mean, square = _step(learn, step, reference.gradient(), online, mean, square)
    state = {"online": online, "target": target, "moment1": mean, "moment2": square}
    return {name: vector.numpy() for name, vector in state.items()}, losses


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("optimizer", ["rmsprop", "adam"])
def test_a_round_is_that_of_the_reference(optimizer: str, precision: str) -> None:
    decay, epsilon = (0.95, 0.01) if optimizer == "rmsprop" else (0.999, 1.5e-4)
    config = small_config(optimizer=optimizer, optimizer_decay=decay, optimizer_epsilon=epsilon)
    before, engine = stored_state(_engine(config, precision), "target"), _after(12, config, precision)
    metrics, after = engine.end_round(), stored_state(engine, "target")
    expected, losses = _reference_round(PlayedRing(config, ticks=END), config.learn, 4, 12)
    assert metrics.updates == 12
    assert metrics.means["loss"] == pytest.approx(np.mean(losses), rel=1e-4 if precision == "fp32" else 2e-2)
    tolerance = 1e-3 if precision == "fp32" else 0.1
    assert np.array_equal(after["target"], before["target"])
    for name in ("online", "moment1", "moment2"):
        moved, wanted = after[name] - before[name], expected[name] - before[name]
        assert np.linalg.norm(moved - wanted) < tolerance * np.linalg.norm(wanted), name


@pytest.mark.parametrize("preset", ["quick", "rainbow"])
def test_the_place_of_frames_and_prefetching_change_nothing(preset: str) -> None:
    """A prefetch for another round is not used."""
    states = []
    for replay_on, prefetched in (("host", None), ("device", None), ("device", 2), ("host", 2), ("host", 1)):
        work = Work(preset, replay_on=replay_on)
        played = played_ring(work, 3)
        end = played.run_schedule.window_end
        with simulated_gpu(0):
            engine = engine_on(work, DEVICE, played)
            for round_ in (1, 2):
                engine.run(engine.begin_round(round_, end(round_)))
                if prefetched:
                    for _ in range(2):  # once is enough
                        engine.prefetch(prefetched, end(prefetched))
                engine.end_round()
            states.append(stored_state(engine))
    np.testing.assert_equal(states[1:], states[:1] * 4)


def test_a_gpu_is_waited_for_though_a_prefetch_has_failed() -> None:
    work = Work("nature", graph_updates=0)
    with simulated_gpu(1) as gpu:  # a seed with which the device works only when it is waited for
        played = played_ring(work)
        engine: Any = engine_on(work, DEVICE, played)
        engine.run(engine.begin_round(1, played.run_schedule.window_end(1)))
        engine._source._prefetcher.submit(lambda: print(1 // 0))
        with pytest.raises(ZeroDivisionError):
            engine.settle()
        assert gpu.idle


def test_the_target_network_does_not_change_within_a_round() -> None:
    engine = _after(1, small_config())
    with pytest.raises(AssertionError, match="all updates of a round"):
        engine.update_target()
    engine.load(None)  # as a repetition from the start does


OPTIMIZERS = [("rmsprop", 0.95), ("rms", 0.9), ("adam", 0.999), ("radam", 0.5), ("radam", 0.95), ("radam", 0.999)]
"""Names and decays. RAdam's first steps do not divide by the root: five, and all of them with a decay of 0.5."""
BOUNDS = [(None, None, False), (0.01, None, True), (0.01, 0.0, False), (1e6, 0.0, True)]
"""Bounds of the norm, rates at the end, and whether gradients are those of a mean."""


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize(("optimizer", "decay"), OPTIMIZERS)
@pytest.mark.parametrize(("bound", "end", "mean"), BOUNDS)
def test_steps_are_those_of_the_formulas(
    bound: float | None, end: float | None, mean: bool, optimizer: str, decay: float, compiled: bool, precision: str
) -> None:
    """With gradients of a mean or a sum, clipped by the norm of the mean, and rates that are constant or annealed."""
    epsilon = {"rmsprop": 1e-3, "rms": 1e-3, "adam": 1e-5, "radam": 1e-12}[optimizer]
    settings = {"optimizer": optimizer, "optimizer_decay": decay, "optimizer_epsilon": epsilon}
    learn = small_config(learning_rate=1e-2, learning_rate_end=end, **settings).learn
    weights = FusedModel(NETWORK, CPU, precision)
    found = Optimizer(weights, learn, bound, mean_gradient=mean)
    found._compiled = compiled
    summed, adam = 1 if mean else learn.batch_size, "adam" in optimizer
    assert (found.gradient_scale, found.mean_factor) == (1 / summed if adam else 1.0, 1 if adam else summed)
    if end is not None:
        found.set_rate(2e-3)
        learn = replace(learn, learning_rate=2e-3)
    wanted = [torch.zeros(len(weights.params), dtype=torch.float64)] * 3
    generator = torch.Generator().manual_seed(0)
    for step in range(1, 10):
        found.gradient.copy_(torch.randn(len(weights.params), generator=generator) * found.mean_factor)
        gradient = found.gradient.double()
        norm = gradient.norm()
        torch.testing.assert_close(found.norm().double(), norm, rtol=1e-5, atol=0)
        scale = 1.0 if bound is None else (bound * found.mean_factor / norm).clamp(max=1.0)
        found.step()
        wanted = _step(learn, step, gradient * scale, *wanted)
        for ours, theirs in zip((weights.params, found.mean, found.square), wanted, strict=True):
            torch.testing.assert_close(ours.double(), theirs, rtol=1e-4, atol=1e-4 * float(theirs.abs().max()))
    assert torch.equal(weights.params_bf16, weights.params.to(weights.params_bf16.dtype))


@pytest.mark.parametrize("optimizer", ["rmsprop", "rms", "adam", "radam"])
def test_the_learning_rate_of_a_round_is_constant_and_on_the_line(optimizer: str) -> None:
    """Rounds of 24 steps: the fifth one begins after 96 steps."""
    annealed = {"learning_rate": 4e-3, "learning_rate_end": 1e-3, "anneal_steps": 192}
    constant, found, start = (
        stored_state(_after(12, small_config(optimizer=optimizer, **settings)))["online"]
        for settings in ({"learning_rate": 2.5e-3}, annealed, {"learning_rate": 4e-3})
    )
    assert np.array_equal(found, constant)
    assert not np.array_equal(found, start)


def test_broken_numbers_stop_the_round() -> None:
    engine = _engine(small_config())
    state = stored_state(engine, "target")
    state["online"][5] = np.nan
    engine.load(state)
    engine.begin_round(4, END)
    engine.run(3)
    with pytest.raises(NonFiniteError, match="round 4"):
        engine.end_round()


def test_a_round_that_only_plays_has_no_updates() -> None:
    engine = _engine(small_config())
    assert engine.begin_round(0, 0) == 0
    engine.run(5)
    assert engine.end_round().updates == 0


# What came after the DQN of 2015

RAINBOW = {"dueling": True, "noisy": True, "n_step": 3, "prioritized": True}
COMBINATIONS = {
    "dqn": Algorithm(),
    "double": Algorithm(double=True, clip_gradient=0.5, n_step=3),
    "rainbow": make_algorithm(method="c51", atoms=11, v_min=-3, v_max=3, double=True, **RAINBOW),
    "qr-dqn": make_algorithm(method="qr-dqn", atoms=5, value_rescaling=True, normalize="all", clip_gradient=10.0),
    "m-iqn": make_algorithm(method="iqn", iqn_samples=4, iqn_policy_samples=4, munchausen=True, **RAINBOW),
}
BTR = replace(COMBINATIONS["m-iqn"], spectral_norm=True, pooling=True)


def _do(engine: Engine, round_: int, slices: list[int]) -> RoundMetrics:
    assert engine.begin_round(round_, round_ * 6) == 12
    for count in slices:
        engine.run(count)
    metrics = engine.end_round()
    engine.update_target()
    return metrics


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("name", [*COMBINATIONS, pytest.param("btr", marks=pytest.mark.stress)])
def test_every_combination_is_exact(name: str, precision: str) -> None:
    """Pieces of rounds, a snapshot between them and a new beginning change no bit."""
    adam = {"optimizer": "adam", "optimizer_decay": 0.999, "optimizer_epsilon": 1e-4}
    config = small_config(COMBINATIONS.get(name, BTR), network="impala" if name == "btr" else "small", **adam)
    first, second, resumed = (_engine(config, precision) for _ in range(3))
    fresh = stored_state(first, "target")
    metrics = _do(first, 3, [12])
    kept = stored_state(first, "target")
    later = _do(first, 4, [12])
    wanted = stored_state(first, "target")
    assert _do(second, 3, [1] * 12) == metrics
    np.testing.assert_equal(stored_state(second, "target"), kept)
    resumed.load(kept)
    assert _do(resumed, 4, [5, 3, 99]) == later
    np.testing.assert_equal(stored_state(resumed, "target"), wanted)
    resumed.load(None)
    _do(resumed, 3, [8, 4])
    np.testing.assert_equal(stored_state(resumed, "target"), kept)
    for key, vector in wanted.items():
        assert not np.array_equal(vector, kept[key]), key
        assert not np.array_equal(kept[key], fresh[key]), key


@pytest.mark.parametrize("replay_on", ["host", "device"])
def test_an_update_by_priorities_is_that_of_the_reference(replay_on: str) -> None:
    """One update of Double DQN with three steps, weighted as its priorities say, by autograd in float64."""
    engine = _engine(small_config(Algorithm(double=True, n_step=3, prioritized=True)), replay_on=replay_on)
    _do(engine, 3, [12])
    before = stored_state(engine, "target")
    target, reference = initial_parameters(NETWORK, 9), make_reference(NETWORK, before["online"])
    engine.load(before | {"target": target})
    engine.begin_round(4, END)
    engine.run(1)
    update = engine.last_update()
    importance = engine._source.minibatch(0, 0).importance
    assert importance.max() == 1
    assert importance.min() < 0.99

    states, following = update["frames"][:, :4], update["frames"][:, 4:]
    best = _q(before["online"], following).argmax(1)
    rows = range(len(best))
    y = torch.from_numpy(update["reward"]) + torch.from_numpy(update["discount"]) * _q(target, following)[rows, best]
    np.testing.assert_allclose(update["target_value"], y.numpy(), rtol=1e-4, atol=1e-5)
    q = reference.values(states)[rows, update["action"].tolist()]
    (importance.double() * F.huber_loss(q, y, reduction="none")).sum().backward()
    gradient = reference.gradient().numpy()
    assert np.linalg.norm(update["gradient"] - gradient) < 1e-4 * np.linalg.norm(gradient)
    errors = engine._source.minibatch(0, 0).td_error
    np.testing.assert_allclose(errors.numpy(), (q - y).detach().abs().numpy(), rtol=1e-3, atol=1e-5)


def test_the_target_in_a_report_is_the_one_that_was_learned_from() -> None:
    """With Double DQN it depends on the online network, which the update has moved since."""
    double, adam = Algorithm(double=True), {"optimizer": "adam", "optimizer_epsilon": 1e-8}
    engines = (_after(1, small_config(double, learning_rate=rate, **adam)) for rate in (1e-9, 1.0))
    np.testing.assert_array_equal(*(engine.last_update()["target_value"] for engine in engines))


def test_the_norm_that_is_shown_is_that_before_it_is_clipped() -> None:
    engines = [_after(1, small_config(Algorithm(clip_gradient=clip))) for clip in (None, 1e-4)]
    norm, clipped = (engine.end_round().means["gradient_norm"] for engine in engines)
    assert norm == clipped > 1e-3


@pytest.mark.parametrize("dead", [False, True])
def test_the_spread_of_q_is_that_of_the_first_batch(dead: bool) -> None:
    engine = _engine(small_config())
    state = stored_state(engine, "target")
    if dead:
        parameters_of(NETWORK).split(state["online"])["conv2.bias"][:] = -100.0
        engine.load(state)
    engine.begin_round(4, END)
    engine.run(1)
    best = _q(state["online"], engine.last_update()["frames"][:, :4]).max(1).values
    found = engine.end_round().means["q_spread"]
    assert found == pytest.approx(float(best.std(correction=0)), rel=1e-3, abs=1e-7)
    assert (found < 1e-7) == dead
