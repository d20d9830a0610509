"""The engine against a slow float64 engine by autograd; exactness of its schedule; failure of numbers."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from learner.engine.engine import Engine, NonFiniteError
from learner.engine.initialization import initial_parameters
from learner.engine.optimizer import Optimizer
from learner.engine.side_stream import SideStream, ThreadSideStream
from learner.networks.fused import FusedModel
from learner.replay.sampling import draw_integers
from shared.config.method_declaration import DQN
from shared.config.presets import PRESETS
from shared.config.sections import Algorithm, Learn
from shared.config.settings import Config
from shared.memory.snapshot import state_lengths
from shared.network_parameters import parameters_of
from shared.network_spec import Network, network_of
from tests.support.device_work import Work, played_ring
from tests.support.device_work import make_test_engine as engine_on
from tests.support.played_ring import (
    ACTIONS,
    REPLAY_PRESETS,
    PlayedRing,
    make_algorithm,
    make_test_engine,
    small_config,
)
from tests.support.simulated_gpu import DEVICE, simulated_gpu

CPU = torch.device("cpu")
State = dict[str, np.ndarray]


pytestmark = pytest.mark.usefixtures("one_thread")


def _stored(engine: Engine, learn: Learn) -> State:
    count = parameters_of(Network(learn.network, ACTIONS)).count
    state: State = {name: np.zeros(count, np.float32) for name in DQN.states}
    engine.store(state)
    return state


def _played(config: Config) -> PlayedRing:
    played = PlayedRing(config)
    played.play(4 * played.run_schedule.round_ticks)
    return played


def _q(flat: torch.Tensor, stacks: np.ndarray) -> torch.Tensor:
    """The small network in float64."""
    shapes = parameters_of(Network("small", ACTIONS)).shapes
    parts = flat.split([int(np.prod(shape)) for _, shape in shapes])
    w1, b1, w2, b2, wh, bh, wv, bv = (part.view(shape) for part, (_, shape) in zip(parts, shapes, strict=True))
    x = torch.from_numpy(stacks).double() / 255.0
    x = F.relu(F.conv2d(F.relu(F.conv2d(x, w1, b1, 4)), w2, b2, 2)).flatten(1)
    return F.linear(F.relu(F.linear(x, wh, bh)), wv, bv)


def _reference_round(played: PlayedRing, learn: Learn, round_: int, updates: int) -> tuple[State, list[float]]:
    """One round from fresh parameters, in float64, transition by transition."""
    target = torch.from_numpy(initial_parameters(Network("small", ACTIONS), 3)).double()
    online, mean, square = target.clone(), torch.zeros_like(target), torch.zeros_like(target)
    starts = played.samplable(round_ * played.run_schedule.round_ticks)
    losses = []
    for step, picks in enumerate(draw_integers(len(starts), updates, learn.batch_size, 3, round_), start=1):
        batch = [played.transition(*starts[pick]) for pick in picks]
        next_q = _q(target, np.stack([t.next_state for t in batch])).max(1).values
        y = torch.tensor([t.reward for t in batch]) + next_q * torch.tensor(
            [0.0 if t.ends else 0.99**t.length for t in batch]
        )
        flat = online.clone().requires_grad_()
        q = _q(flat, np.stack([t.state for t in batch]))[range(len(batch)), [t.action for t in batch]]
        loss = F.huber_loss(q, y, reduction="mean" if learn.optimizer == "adam" else "sum")
        (g,) = torch.autograd.grad(loss, flat)
        losses.append(float(F.huber_loss(q.detach(), y)))
        beta = learn.optimizer_decay
        square = beta * square + (1 - beta) * g**2
        if learn.optimizer == "rmsprop":
            mean = beta * mean + (1 - beta) * g
            online = online - learn.learning_rate * g / (square - mean**2 + learn.optimizer_epsilon).sqrt()
        else:
            step += played.run_schedule.updates_before(round_)
            mean = 0.9 * mean + 0.1 * g
            root = (square / (1 - beta**step)).sqrt() + learn.optimizer_epsilon
            online = online - learn.learning_rate * mean / (1 - 0.9**step) / root
    vectors = (online, target, mean, square)
    return {name: v.numpy() for name, v in zip(DQN.states, vectors, strict=True)}, losses


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("optimizer", ["rmsprop", "adam"])
def test_a_round_is_that_of_the_reference(optimizer: str, precision: str) -> None:
    config = small_config(
        optimizer=optimizer,
        optimizer_decay=0.95 if optimizer == "rmsprop" else 0.999,
        optimizer_epsilon=0.01 if optimizer == "rmsprop" else 1.5e-4,
    )
    played = _played(config)
    engine = make_test_engine(played, config, precision)
    before = _stored(engine, config.learn)
    updates = engine.begin_round(4, played.ticks)
    assert updates == 12
    engine.run(updates)
    metrics = engine.end_round()
    after = _stored(engine, config.learn)
    expected, losses = _reference_round(played, config.learn, 4, updates)
    assert metrics.updates == updates
    assert metrics.means["loss"] == pytest.approx(np.mean(losses), rel=1e-4 if precision == "fp32" else 2e-2)
    tolerance = 1e-3 if precision == "fp32" else 0.1
    assert np.array_equal(after["target"], before["target"])
    for name in ("online", "moment1", "moment2"):
        moved, wanted = after[name] - before[name], expected[name] - before[name]
        assert np.linalg.norm(moved - wanted) < tolerance * np.linalg.norm(wanted), name


def test_the_slices_of_a_round_change_nothing() -> None:
    config = small_config()
    played = _played(config)
    results = []
    for slices in ([12], [1] * 12, [5, 3, 99], [8, 4]):
        engine = make_test_engine(played, config, "bf16")
        engine.begin_round(4, played.ticks)
        for count in slices:
            engine.run(count)
        results.append((_stored(engine, config.learn), engine.end_round()))
    for state, metrics in results[1:]:
        assert metrics == results[0][1]
        for name in DQN.states:
            assert np.array_equal(state[name], results[0][0][name]), name


def test_a_stored_engine_goes_on_bit_for_bit() -> None:
    config = small_config(optimizer="adam", optimizer_decay=0.999, optimizer_epsilon=1.5e-4)
    played = _played(config)
    first = make_test_engine(played, config, "bf16")
    for round_ in (2, 3):
        first.begin_round(round_, round_ * played.run_schedule.round_ticks)
        first.run(12)
        first.end_round()
        first.update_target()
        if round_ == 2:
            kept = _stored(first, config.learn)
    second = make_test_engine(played, config, "bf16")
    second.load(kept)
    second.begin_round(3, 3 * played.run_schedule.round_ticks)
    second.run(12)
    second.end_round()
    second.update_target()
    for name, vector in _stored(first, config.learn).items():
        assert np.array_equal(vector, _stored(second, config.learn)[name]), name
    online = np.zeros_like(kept["online"])
    second.online_into(online)
    assert np.array_equal(online, _stored(second, config.learn)["target"])


@pytest.mark.parametrize("prioritized", [False, True])
def test_the_place_of_frames_and_prefetching_change_nothing(prioritized: bool) -> None:
    config = small_config(Algorithm(prioritized=prioritized))
    played = _played(config)
    states = []
    for replay_on, prefetched in (("host", False), ("device", False), ("device", True), ("host", True)):
        engine = make_test_engine(played, config, replay_on=replay_on)
        for round_ in (3, 4):
            engine.begin_round(round_, round_ * played.run_schedule.round_ticks)
            engine.run(12)
            if prefetched:
                for _ in range(2):  # once is enough
                    engine.prefetch(4, 4 * played.run_schedule.round_ticks)
            engine.end_round()
        states.append(_stored(engine, config.learn))
    for state in states[1:]:
        for name in DQN.states:
            assert np.array_equal(states[0][name], state[name]), name


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("optimizer", ["rmsprop", "adam"])
def test_the_side_stream_changes_nothing(optimizer: str, precision: str) -> None:
    config = small_config(optimizer=optimizer, optimizer_decay=0.95)
    played = _played(config)
    states = []
    for own_thread in (True, False):
        engine = make_test_engine(played, config, precision)
        engine._side_stream = ThreadSideStream() if own_thread else SideStream()
        engine.begin_round(3, 3 * played.run_schedule.round_ticks)
        engine.run(12)
        engine.end_round()
        states.append(_stored(engine, config.learn))
    for name in DQN.states:
        assert np.array_equal(states[0][name], states[1][name]), name


def test_an_error_of_the_side_stream_is_raised_at_the_wait() -> None:
    side_stream = ThreadSideStream()
    side_stream.submit(lambda: None)
    side_stream.submit(lambda: print(1 // 0))
    with pytest.raises(ZeroDivisionError):
        side_stream.settle()
    side_stream.settle()


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
    config = small_config()
    played = _played(config)
    engine = make_test_engine(played, config)
    engine.begin_round(3, 3 * played.run_schedule.round_ticks)
    engine.run(1)
    with pytest.raises(AssertionError, match="all updates of a round"):
        engine.update_target()
    engine.initialize()  # as a repetition from the start does


def test_a_prefetch_for_another_round_is_not_used() -> None:
    config = small_config()
    played = _played(config)
    states = []
    for prefetched in (3, 4):
        engine = make_test_engine(played, config)
        engine.prefetch(prefetched, prefetched * played.run_schedule.round_ticks)
        engine.begin_round(4, 4 * played.run_schedule.round_ticks)
        engine.run(12)
        states.append(_stored(engine, config.learn))
    assert np.array_equal(states[0]["online"], states[1]["online"])


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("optimizer", ["rmsprop", "rms", "adam", "radam"])
@pytest.mark.parametrize("bound", [None, 0.01])
@pytest.mark.parametrize("end", [None, 0.0])
def test_both_forms_of_the_optimizer_agree(
    end: float | None, bound: float | None, optimizer: str, precision: str
) -> None:
    learn = small_config(optimizer=optimizer, optimizer_decay=0.95, learning_rate_end=end, learning_rate=1e-3).learn
    flat = initial_parameters(Network("small", ACTIONS), 1)
    results = []
    for compiled in (True, False):
        weights = FusedModel(Network("small", ACTIONS), CPU, precision)
        weights.pack(flat, weights.params)
        weights.sync_copy()
        optimizer_ = Optimizer(weights, learn, bound)
        optimizer_.set_steps(4)
        optimizer_.set_rate(1e-3 if end is None else 2e-3)
        generator = torch.Generator().manual_seed(0)
        for _ in range(3):
            optimizer_.gradient.copy_(torch.randn(len(flat), generator=generator))
            optimizer_._compiled = compiled
            optimizer_.step(SideStream())
        results.append((weights, optimizer_))
    (weights, compiled), (other_weights, plain) = results
    torch.testing.assert_close(weights.params, other_weights.params, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(compiled.mean, plain.mean, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(compiled.square, plain.square, rtol=1e-5, atol=1e-6)
    assert torch.equal(weights.params_bf16, weights.params.to(weights.params_bf16.dtype))


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_norm_of_a_gradient_is_that_of_the_books(precision: str) -> None:
    weights = FusedModel(Network("small", ACTIONS), CPU, precision)
    optimizer_ = Optimizer(weights, small_config().learn)
    optimizer_.gradient.copy_(torch.randn(len(weights.params), generator=torch.Generator().manual_seed(0)))
    expected = optimizer_.gradient.double().square().sum().sqrt().float()
    torch.testing.assert_close(optimizer_.norm(), expected, rtol=1e-5, atol=0)


@pytest.mark.parametrize("optimizer", ["rmsprop", "rms", "adam", "radam"])
def test_the_learning_rate_of_a_round_is_constant_and_on_the_line(optimizer: str) -> None:
    """Rounds of 24 steps: the fifth one begins after 96 steps."""
    annealed = {"learning_rate": 4e-3, "learning_rate_end": 1e-3, "anneal_steps": 192}
    states = []
    for settings in ({"learning_rate": 2.5e-3}, annealed, {"learning_rate": 4e-3}):
        config = small_config(optimizer=optimizer, **settings)
        engine = make_test_engine(played := _played(config), config)
        engine.begin_round(4, played.ticks)
        engine.run(12)
        states.append(_stored(engine, config.learn)["online"])
    constant, found, start = states
    assert np.array_equal(found, constant)
    assert not np.array_equal(found, start)


def test_broken_numbers_stop_the_round() -> None:
    config = small_config()
    played = _played(config)
    engine = make_test_engine(played, config)
    state = _stored(engine, config.learn)
    state["online"][5] = np.nan
    engine.load(state)
    engine.begin_round(4, played.ticks)
    engine.run(3)
    with pytest.raises(NonFiniteError, match="round 4"):
        engine.end_round()
    with pytest.raises(NonFiniteError, match="round 4"):
        engine.online_into(state["online"])


def test_a_round_that_only_plays_has_no_updates() -> None:
    config = small_config()
    played = _played(config)
    engine = make_test_engine(played, config)
    assert engine.begin_round(0, 0) == 0
    engine.run(5)
    assert engine.end_round().updates == 0


# What came after the DQN of 2015

COMBINATIONS = {
    "double": Algorithm(double=True, clip_gradient=0.5, n_step=3),
    "rainbow": make_algorithm(
        method="c51", atoms=11, double=True, dueling=True, noisy=True, n_step=3, prioritized=True, v_min=-3, v_max=3
    ),
    "qr-dqn": make_algorithm(method="qr-dqn", atoms=5, value_rescaling=True, normalize="all", clip_gradient=10.0),
    "m-iqn": make_algorithm(
        method="iqn",
        munchausen=True,
        dueling=True,
        noisy=True,
        n_step=3,
        prioritized=True,
        iqn_samples=4,
        iqn_policy_samples=4,
    ),
}


SIZES = ("total_steps", "round_steps", "train_every", "replay_size", "learning_starts")
"""Settings of learning that are amounts."""


def _whole(engine: Engine, config: Config, played: PlayedRing) -> State:
    """All vectors of a snapshot, and the target's."""
    lengths = state_lengths(played.run_schedule, parameters_of(network_of(config, ACTIONS)).count)
    lengths["target"] = lengths["online"]
    state = {name: np.zeros(length, np.float32) for name, length in lengths.items()}
    engine.store(state)
    return state


def _do(engine: Engine, round_: int, slices: list[int]) -> None:
    assert engine.begin_round(round_, round_ * 6) == 12
    for count in slices:
        engine.run(count)
    engine.end_round()
    engine.update_target()


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(
    ("name", "network"),
    [*((name, "small") for name in COMBINATIONS), pytest.param("btr", "impala", marks=pytest.mark.stress)],
)
def test_every_combination_is_exact(name: str, network: str, precision: str) -> None:
    """However rounds are cut into pieces, and from a snapshot between them, the bits are the same."""
    algorithm = COMBINATIONS["m-iqn" if name == "btr" else name]
    if name == "btr":
        algorithm = replace(algorithm, spectral_norm=True, pooling=True)
    config = small_config(algorithm, network=network, optimizer="adam", optimizer_decay=0.999, optimizer_epsilon=1e-4)
    played = PlayedRing(config)
    played.play(24)
    first, second = make_test_engine(played, config, precision), make_test_engine(played, config, precision)
    fresh = _whole(first, config, played)
    _do(first, 3, [12])
    kept = _whole(first, config, played)
    _do(first, 4, [12])
    _do(second, 3, [1] * 12)
    for vector, other in zip(kept.values(), _whole(second, config, played).values(), strict=True):
        np.testing.assert_array_equal(other, vector)
    resumed = make_test_engine(played, config, precision)
    resumed.load(kept)
    _do(resumed, 4, [5, 3, 99])
    wanted, found = _whole(first, config, played), _whole(resumed, config, played)
    for key, vector in wanted.items():
        np.testing.assert_array_equal(found[key], vector, err_msg=key)
        assert not np.array_equal(vector, kept[key]), key
        assert not np.array_equal(kept[key], fresh[key]), key


@pytest.mark.parametrize("takes", ["fresh parameters", "a snapshot"])
@pytest.mark.parametrize("preset", REPLAY_PRESETS)
def test_nothing_is_left_of_the_updates_before_a_capture(preset: str, takes: str) -> None:
    """On a GPU updates are done before there are parameters; spectral norms of zeros make numbers that are none."""
    theirs = PRESETS[preset]
    run_schedule = {name: getattr(small_config().learn, name) for name in SIZES}
    config = small_config(
        replace(theirs.algorithm, width=1),
        **(asdict(theirs.learn) | run_schedule | {"batch_size": 2, "network": _small(theirs)}),
    )
    played = PlayedRing(config)
    played.play(24)
    engine, other = (make_test_engine(played, config) for _ in range(2))
    kept = _whole(engine, config, played)
    with torch.inference_mode():
        for vector in engine._state().values():
            vector.zero_()
        engine._online.sync_copy()
        engine._rule.networks["target"].sync_copy()
        engine._updates(0, 0, 1)
    if takes == "a snapshot":
        engine.load(kept)
    else:
        engine.initialize()
    engine.online_into(np.zeros_like(kept["online"]))  # as the first boundary's commit does, before any round
    for each in (engine, other):
        each.begin_round(3, 18)
        each.run(3)
    expected = _whole(other, config, played)
    for key, vector in _whole(engine, config, played).items():
        np.testing.assert_array_equal(vector, expected[key], err_msg=key)


def _small(config: Config) -> str:
    """A network of the same kind, for frames of the same size."""
    return "small" if config.learn.network == "nature" else config.learn.network


@pytest.mark.parametrize("replay_on", ["host", "device"])
def test_an_update_by_priorities_is_that_of_the_reference(replay_on: str) -> None:
    """One update of Double DQN with three steps, weighted as its priorities say, by autograd in float64."""
    config = small_config(Algorithm(double=True, n_step=3, prioritized=True))
    played = _played(config)
    engine = make_test_engine(played, config, replay_on=replay_on)
    _do(engine, 3, [12])
    before = _whole(engine, config, played)
    engine.load(before | {"target": initial_parameters(Network("small", ACTIONS), 9)})
    target = torch.from_numpy(initial_parameters(Network("small", ACTIONS), 9)).double()
    engine.begin_round(4, 24)
    engine.run(1)
    update = engine.last_update()
    importance = engine._source.minibatch(0, 0).importance
    assert importance.max() == 1
    assert importance.min() < 0.99

    flat = torch.from_numpy(before["online"]).double().requires_grad_()
    states, following = update["frames"][:, :4], update["frames"][:, 4:]
    best = _q(flat.detach(), following).argmax(1)
    rows = range(len(best))
    y = torch.from_numpy(update["reward"]) + torch.from_numpy(update["discount"]) * _q(target, following)[rows, best]
    np.testing.assert_allclose(update["target_value"], y.numpy(), rtol=1e-4, atol=1e-5)
    q = _q(flat, states)[rows, update["action"].tolist()]
    losses = F.huber_loss(q, y, reduction="none")
    (gradient,) = torch.autograd.grad((importance.double() * losses).sum(), flat)
    assert np.linalg.norm(update["gradient"] - gradient.numpy()) < 1e-4 * np.linalg.norm(gradient.numpy())
    errors = engine._source.minibatch(0, 0).td_error
    np.testing.assert_allclose(errors.numpy(), (q - y).detach().abs().numpy(), rtol=1e-3, atol=1e-5)


def test_the_target_in_a_report_is_the_one_that_was_learned_from() -> None:
    """With Double DQN it depends on the online network, which the update has moved since."""
    targets = []
    for rate in (1e-9, 1.0):
        config = small_config(Algorithm(double=True), learning_rate=rate, optimizer="adam", optimizer_epsilon=1e-8)
        engine = make_test_engine(played := _played(config), config)
        engine.begin_round(4, played.ticks)
        engine.run(1)
        targets.append(engine.last_update()["target_value"])
    np.testing.assert_array_equal(targets[0], targets[1])


@pytest.mark.parametrize("optimizer", ["rmsprop", "adam"])
@pytest.mark.parametrize("bound", [0.01, 1e6])
def test_gradients_are_clipped_as_their_batchs_mean(optimizer: str, bound: float) -> None:
    """rmsprop is given the gradient of the batch's sum, adam that of its mean; the bound is for the mean."""
    learn = small_config(optimizer=optimizer, optimizer_decay=0.95).learn
    weights = FusedModel(Network("small", ACTIONS), CPU, "fp32")
    optimizer_ = Optimizer(weights, learn, bound)
    optimizer_.set_steps(0)
    mean = torch.randn(len(weights.params), generator=torch.Generator().manual_seed(0))
    factor = learn.batch_size if optimizer == "rmsprop" else 1
    optimizer_.gradient.copy_(mean * factor)
    optimizer_.step(SideStream())
    parameter = torch.nn.Parameter(torch.zeros_like(mean))
    parameter.grad = mean.clone()
    torch.nn.utils.clip_grad_norm_([parameter], bound)
    assert (float(parameter.grad.norm()) < float(mean.norm())) == (bound < 1)
    decay = 0.95 if optimizer == "rmsprop" else 0.9
    torch.testing.assert_close(optimizer_.mean, (1 - decay) * parameter.grad * factor, rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize("compiled", [True, False])
def test_rms_is_not_centered_and_takes_the_mean_gradient(compiled: bool) -> None:
    """The formula of A3C, with epsilon under the root, which counts here: gradients are small."""
    learn = small_config(optimizer="rms", learning_rate=0.01, optimizer_decay=0.9, optimizer_epsilon=1e-3).learn
    weights = FusedModel(Network("small", ACTIONS), CPU, "fp32")
    optimizer_ = Optimizer(weights, learn, 0.5, mean_gradient=True)
    optimizer_._compiled = compiled
    assert optimizer_.gradient_scale == optimizer_.mean_factor == 1.0
    expected, square = torch.zeros(len(weights.params), dtype=torch.float64), 0.0
    generator = torch.Generator().manual_seed(0)
    for _ in range(3):
        gradient = torch.randn(len(weights.params), generator=generator)
        optimizer_.gradient.copy_(gradient)
        optimizer_.step(SideStream())
        clipped = gradient.double() * 0.5 / gradient.double().norm()
        square = 0.9 * square + 0.1 * clipped.square()
        expected -= 0.01 * clipped / (square + 1e-3).sqrt()
    torch.testing.assert_close(weights.params.double(), expected, rtol=1e-4, atol=1e-7)
    assert not optimizer_.mean.any()


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("decay", [0.5, 0.95, 0.999])
def test_radam_is_that_of_pytorch(decay: float, compiled: bool, precision: str) -> None:
    """Its first steps do not divide by the root: all of those with a decay of 0.5, five with the others."""
    learn = small_config(optimizer="radam", learning_rate=1e-2, optimizer_decay=decay, optimizer_epsilon=1e-10).learn
    weights = FusedModel(Network("small", ACTIONS), CPU, precision)
    optimizer_ = Optimizer(weights, learn, mean_gradient=True)
    optimizer_._compiled = compiled
    parameter = torch.nn.Parameter(torch.zeros(len(weights.params), dtype=torch.float64))
    theirs = torch.optim.RAdam([parameter], lr=1e-2, betas=(0.9, decay), eps=1e-10)
    generator = torch.Generator().manual_seed(0)
    for _ in range(9):
        optimizer_.gradient.copy_(torch.randn(len(weights.params), generator=generator))
        optimizer_.step(SideStream())
        parameter.grad = optimizer_.gradient.double()
        theirs.step()
        torch.testing.assert_close(weights.params.double(), parameter.detach(), rtol=1e-4, atol=1e-6)
    assert torch.equal(weights.params_bf16, weights.params.to(weights.params_bf16.dtype))


def test_the_norm_that_is_shown_is_that_before_it_is_clipped() -> None:
    norms = []
    for clip in (None, 1e-4):
        config = small_config(Algorithm(clip_gradient=clip))
        engine = make_test_engine(played := _played(config), config)
        engine.begin_round(4, played.ticks)
        engine.run(1)
        norms.append(engine.end_round().means["gradient_norm"])
    assert norms[0] == norms[1] > 1e-3


@pytest.mark.parametrize("dead", [False, True])
def test_the_spread_of_q_is_that_of_the_first_batch(dead: bool) -> None:
    config = small_config()
    engine = make_test_engine(played := _played(config), config)
    state = _stored(engine, config.learn)
    if dead:  # the second convolution's biases
        shapes = parameters_of(Network("small", ACTIONS)).shapes
        places = np.cumsum([0, *(np.prod(shape) for _, shape in shapes)])
        state["online"][places[3] : places[4]] = -100.0
        engine.load(state)
    engine.begin_round(4, played.ticks)
    engine.run(1)
    frames = engine.last_update()["frames"][:, :4]
    best = _q(torch.from_numpy(state["online"]).double(), frames).max(1).values
    found = engine.end_round().means["q_spread"]
    assert found == pytest.approx(float(best.std(correction=0)), rel=1e-3, abs=1e-7)
    assert (found < 1e-7) == dead
