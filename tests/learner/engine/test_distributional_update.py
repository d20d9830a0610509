"""Updates of c51, qr-dqn and iqn from the ring to the gradient, against their papers, transition by transition.

Of the engine are taken its parameters and, with iqn, the fractions that it drew; all else is worked out here, in
float64, from the history that was played.
"""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from learner.engine.engine import Engine
from learner.engine.interfaces import CHUNK_UPDATES
from learner.networks.modules import initial_parameters
from learner.replay.sampling import draw_integers
from shared.config.sections import Algorithm
from shared.frame_shape import STACK
from shared.network_parameters import parameters_of
from shared.network_spec import Network, network_of
from tests.learner.losses.test_losses import action_values, paper_target, quantile_loss
from tests.learner.networks.test_modules import Reference, make_reference
from tests.support import played_ring
from tests.support.played_ring import ACTIONS, PlayedRing, Transition, make_algorithm, make_test_engine, small_config

DISCOUNT = 0.9
"""Its powers are further apart than those of 0.99."""
BATCH, UPDATES = 32, 12
UPDATE = CHUNK_UPDATES + 1
"""The one of a round that is looked at: in its second chunk, and not the first there."""
ROUNDS = (3, 6)
"""In the first of them the window begins with the first tick; in the second it has moved, and the ring has wrapped."""
ATOMS = 11
SUPPORT = [-3.0 + 0.6 * i for i in range(ATOMS)]

C51 = {"method": "c51", "atoms": ATOMS, "v_min": -3.0, "v_max": 3.0}
QR_DQN = {"method": "qr-dqn", "atoms": 5}
IQN = {"method": "iqn", "iqn_samples": 3, "iqn_policy_samples": 4}
# A policy and a bound with which logarithms are on both sides of the bound.
MUNCHAUSEN = {"munchausen": True, "munchausen_temperature": 1.0, "munchausen_floor": -1.5}
CASES = {"c51": C51, "qr-dqn": QR_DQN, "iqn": IQN}
CASES |= {f"{name}-double": method | {"double": True} for name, method in CASES.items()} | {"m-iqn": IQN | MUNCHAUSEN}


# The papers


def _midpoints(count: int) -> list[float]:
    """Dabney et al. 2018a, lemma 2."""
    return [(2 * i + 1) / (2 * count) for i in range(count)]


def _choosing(network: Network, n: int) -> Tensor | None:
    """Fractions [n, K] whose mean chooses; the paper samples them, here they are even (learner/methods/iqn.py)."""
    return torch.tensor([_midpoints(network.fractions)] * n).double() if network.fractions else None


def _loss(algorithm: Algorithm, chosen: Tensor, fractions: Tensor | None, target: list[float]) -> Tensor:
    """Loss of the outputs [atoms] of the action that was taken."""
    if algorithm.method == "c51":  # Bellemare et al. 2017, algorithm 1
        log_p = chosen.log_softmax(0)
        return -torch.stack([m * log_p[i] for i, m in enumerate(target)]).sum()
    # Dabney et al. 2018a, equation 10; 2018b, equation 3.
    tau = _midpoints(len(chosen)) if fractions is None else fractions.tolist()
    return quantile_loss(chosen, tau, torch.tensor(target, dtype=torch.float64))


def _expected(
    algorithm: Algorithm, batch: list[Transition], online: Reference, target: Reference, drawn: list[Tensor | None]
) -> tuple[list[list[float]], Tensor]:
    """Targets of a batch, and the sum of its losses; `drawn`: fractions of the network that learns and of the other."""
    stacks = (np.stack([getattr(each, name) for each in batch]) for name in ("state", "next_state"))
    states, following = (torch.from_numpy(each).double() for each in stacks)
    fractions, next_fractions = drawn
    choosing = _choosing(target.network, len(batch))
    with torch.no_grad():
        now = target(states, choosing, None)
        judged = (online if algorithm.double else target)(following, choosing, None)
        outputs = target(following, next_fractions, None)
    learned = online(states, fractions, None)
    q, q_next = (action_values(algorithm, each, SUPPORT) for each in (now, judged))
    targets, losses = [], []
    for i, transition in enumerate(batch):
        step = transition.reward, 0.0 if transition.ends else DISCOUNT**transition.length, transition.action
        targets.append(paper_target(algorithm, step, q[i], q_next[i], outputs[i], SUPPORT))
        asked = None if fractions is None else fractions[i]
        losses.append(_loss(algorithm, learned[i, transition.action], asked, targets[-1]))
    return targets, torch.stack(losses).sum()


# The updates


def _parameters(network: Network, seed: int) -> NDArray[np.float32]:
    """Fresh ones, but with a last layer by which values differ by more than 1, and another action is best elsewhere."""
    flat = initial_parameters(network, seed)
    views = parameters_of(network).split(flat)
    views["value.weight"] *= 100.0
    stacks = torch.from_numpy(played_ring.patches(np.random.default_rng(seed), BATCH, STACK)).double()
    with torch.no_grad():
        outputs = make_reference(network, flat)(stacks, _choosing(network, BATCH), None)
    views["value.bias"] -= (outputs.mean(2) if network.fractions else outputs.flatten(1)).mean(0).numpy()
    return flat


def _drawn(engine: Engine) -> list[Tensor | None]:
    """Fractions [n, N] of the update that is looked at: of the online network, and of what it moves to."""
    minibatch = engine._source.minibatch(*divmod(UPDATE, CHUNK_UPDATES))
    samples = minibatch.fractions.shape[1]
    drawn = minibatch.fractions, minibatch.next_fractions[:, -samples:]
    return [each.double() if samples else None for each in drawn]


@pytest.mark.parametrize("case", CASES)
def test_an_update_is_that_of_the_papers(case: str) -> None:
    algorithm = make_algorithm(n_step=3, **CASES[case])
    config = small_config(algorithm, batch_size=BATCH, discount=DISCOUNT)
    network = network_of(config, ACTIONS)
    spec = parameters_of(network)
    played = PlayedRing(config, both=True)
    engine = make_test_engine(played, config)
    online, target = _parameters(network, 1), _parameters(network, 2)
    moments = {name: np.zeros(spec.count, np.float32) for name in ("moment1", "moment2")}
    engine.load({"online": online, "target": target} | moments)
    for round_ in ROUNDS:
        played.play(round_ * played.run_schedule.round_ticks - played.ticks)
        assert engine.begin_round(round_, played.ticks) == UPDATES
        engine.run(UPDATE)
        engine.store({"online": online})
        engine.run(1)
        update = engine.last_update()

        starts = played.samplable(played.ticks)
        places = [starts[pick] for pick in draw_integers(len(starts), UPDATES, BATCH, 3, round_)[UPDATE].tolist()]
        batch = [played.transition(*place, DISCOUNT) for place in places]
        reference = make_reference(network, online)
        targets, loss = _expected(algorithm, batch, reference, make_reference(network, target), _drawn(engine))
        np.testing.assert_allclose(update["target_value"], targets, rtol=1e-4, atol=1e-4)
        loss.backward()
        gradient = reference.gradient().numpy()
        # Nearer by far, but for units of which rounding decides whether they are alive.
        assert np.linalg.norm(update["gradient"] - gradient) < 3e-3 * np.linalg.norm(gradient)
