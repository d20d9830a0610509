"""Prioritised replay in rounds: what has weight, what errors do to the next draws, and that it all comes again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from learner.engine.trainer import Trainer
from learner.replay.prioritized import Prioritised
from learner.replay.sampling import Batch, HostFrames, Replay
from shared.config.settings import Config, Extend
from shared.errors import Unmendable
from shared.memory.snapshot import state_lengths
from shared.network_spec import Network, parameters_of
from tests.support.played_ring import ACTIONS, PlayedRing, small_config, trainer_of

UPDATES, BATCH = 4, 8
EXTEND = Extend(prioritised=True, importance_start=0.4, importance_end=1.0)


pytestmark = pytest.mark.usefixtures("one_thread")


def _config(n_step: int = 1, **learn: object) -> Config:
    return small_config(replace(EXTEND, n_step=n_step), **learn)


def _prioritised(played: PlayedRing, config: Config, seed: int = 3) -> Prioritised:
    frames = HostFrames(played.ring)
    replay = Replay(played.ring, frames, batch=BATCH, discount=0.99, seed=seed)
    return Prioritised(played.ring, replay, frames, extend=config.extend, updates=UPDATES, batch=BATCH, seed=seed)


def _begun() -> Prioritised:
    """In round 2, with 12 ticks played."""
    config = _config()
    played = PlayedRing(config)
    played.play(12)
    prioritised = _prioritised(played, config)
    prioritised.begin(2, 12)
    return prioritised


def _drawn(prioritised: Prioritised, number: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Places and importance of a chunk."""
    places, importance = torch.zeros(UPDATES * BATCH, dtype=torch.int64), torch.zeros(UPDATES * BATCH)
    prioritised.draw(number, places, importance)
    return places, importance


def _weights(prioritised: Prioritised) -> np.ndarray:
    """By place, without the maximum."""
    state = np.zeros(prioritised.tree.state_size, np.float32)
    prioritised.tree.store(state)
    return state[:-1]


def _places(played: PlayedRing, end: int) -> set[int]:
    """Where what can be sampled from the window that ends at tick `end` must stand."""
    sizes = played.sizes
    return {tick % sizes.priority_ticks * sizes.envs + env for tick, env in played.samplable(end)}


@pytest.mark.parametrize("n_step", [1, 3, 5])
def test_exactly_what_can_be_sampled_has_weight(n_step: int) -> None:
    """Round after round, through the wrap of the window and that of the ring."""
    played = PlayedRing(_config(n_step))
    prioritised = _prioritised(played, _config(n_step))
    played.play(played.sizes.round_ticks)
    for round_ in range(1, 10):
        prioritised.begin(round_, played.ticks)
        prioritised.tree.check_valid()
        assert set(np.flatnonzero(_weights(prioritised)).tolist()) == _places(played, played.ticks)
        places, _ = _drawn(prioritised)
        prioritised.learn(places, torch.full((len(places),), 2.0))
        assert set(np.flatnonzero(_weights(prioritised)).tolist()) == _places(played, played.ticks)
        played.play(played.sizes.round_ticks)
    assert played.ticks > played.sizes.capacity + played.sizes.window_ticks


def test_what_rounds_without_updates_played_enters_with_the_next() -> None:
    """With one update for two rounds and a half, most rounds are not begun at all."""
    config = _config(train_every=60)
    played = PlayedRing(config)
    prioritised, begun = _prioritised(played, config), 0
    for round_ in range(20):
        if played.sizes.updates_in(round_):
            prioritised.begin(round_, played.ticks)
            assert set(np.flatnonzero(_weights(prioritised)).tolist()) == _places(played, played.ticks)
            begun += 1
        played.play(played.sizes.round_ticks)
    assert begun == 8


def test_what_is_new_has_the_greatest_weight_so_far() -> None:
    config = _config()
    played = PlayedRing(config)
    played.play(6)
    prioritised = _prioritised(played, config)
    prioritised.begin(1, 6)
    assert set(_weights(prioritised)[list(_places(played, 6))]) == {1.0}
    places, _ = _drawn(prioritised)
    prioritised.learn(places, torch.linspace(0.5, 16.0, len(places)))
    former = _weights(prioritised)
    played.play(6)
    prioritised.begin(2, 12)
    weights = _weights(prioritised)
    assert set(weights[list(_places(played, 12) - _places(played, 6))]) == {former.max()}
    kept = list(_places(played, 6) & _places(played, 12))
    np.testing.assert_array_equal(weights[kept], former[kept])


@pytest.mark.parametrize("n_step", [1, 3])
def test_what_is_drawn_is_the_transition_of_its_place(n_step: int) -> None:
    config = _config(n_step)
    played = PlayedRing(config)
    played.play(5 * 6)
    prioritised = _prioritised(played, config)
    prioritised.begin(5, 30)
    places, importance = torch.zeros(UPDATES * BATCH, dtype=torch.int64), torch.zeros(UPDATES * BATCH)
    batch = prioritised.draw(0, places, importance)
    by_place = {
        tick % played.sizes.priority_ticks * 4 + env: played.transition(tick, env) for tick, env in played.samplable(30)
    }
    for i, place in enumerate(places.tolist()):
        assert batch.action[i] == by_place[place].action
        assert batch.reward[i] == pytest.approx(by_place[place].reward)
        assert bool(batch.discount[i] == 0) == by_place[place].ends


def test_errors_move_the_next_draws() -> None:
    prioritised = _begun()
    before, importance = _drawn(prioritised)
    assert importance.tolist() == [1.0] * len(importance)  # all alike
    assert len(set(before.tolist())) > 20
    favourite = before[5]
    prioritised.learn(before, torch.where(before == favourite, 1e6, 0.0))
    after, importance = _drawn(prioritised, 1)
    assert (after == favourite).float().mean() > 0.9
    # What is drawn often counts little: w = (P_min / P)^beta, of each batch by itself.
    weights = torch.from_numpy(_weights(prioritised))[after].double().view(UPDATES, BATCH)
    beta = prioritised._beta
    expected = (weights / weights.amin(1, keepdim=True)) ** -beta
    torch.testing.assert_close(importance.double().view(UPDATES, BATCH), expected, rtol=1e-5, atol=0)


def test_beta_rises_linearly_with_the_steps_and_stays() -> None:
    config = _config(total_steps=240, learning_starts=48)
    played = PlayedRing(config)
    played.play(60)
    for steps, expected in ((240, [0.4 + 0.06 * r for r in range(2, 10)]), (96, [0.7, 0.85, *[1.0] * 6])):
        changed = config.with_settings(importance_steps=steps)
        prioritised, found = _prioritised(played, changed), []
        for round_ in range(2, 10):
            prioritised.begin(round_, round_ * 6)
            found.append(prioritised._beta)
        assert found == pytest.approx(expected)


def test_the_same_seed_draws_the_same_and_another_does_not() -> None:
    config = _config()
    played = PlayedRing(config)
    played.play(12)
    drawn = []
    for seed, number in ((3, 0), (3, 0), (4, 0), (3, 1)):
        prioritised = _prioritised(played, config, seed)
        prioritised.begin(2, 12)
        drawn.append(_drawn(prioritised, number)[0].tolist())
    assert drawn[0] == drawn[1]
    assert drawn[2] != drawn[0] != drawn[3]


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_errors_that_are_not_finite_teach_nothing(wrong: float) -> None:
    prioritised = _begun()
    before = _weights(prioritised)
    places, _ = _drawn(prioritised)
    error = torch.full((len(places),), 3.0)
    error[7] = wrong
    prioritised.learn(places, error)
    np.testing.assert_array_equal(_weights(prioritised), before)


def test_a_method_with_negative_priorities_ends_the_run_with_a_sentence() -> None:
    prioritised = _begun()
    places, _ = _drawn(prioritised)
    with pytest.raises(Unmendable, match=r"The method's loss .* has the size -0\.5; a priority needs"):
        prioritised.learn(places, torch.full((len(places),), -0.5))


def test_an_empty_window_is_a_sentence() -> None:
    config = _config(5)
    played = PlayedRing(config)
    played.play(4)
    with pytest.raises(ValueError, match="holds no transition"):
        _prioritised(played, config).begin(1, 4)


def test_the_priorities_of_a_run_do_not_depend_on_its_end() -> None:
    """So that a run that has ended may go on (--resume with more --total-steps)."""
    short, long = (PlayedRing(_config(total_steps=steps)).sizes for steps in (48, 10_000))
    assert short.window_ticks < long.window_ticks
    assert short.priorities == long.priorities == long.window_ticks * 4


# The trainer with priorities


def _stored(trainer: Trainer, played: PlayedRing) -> dict[str, np.ndarray]:
    lengths = state_lengths(played.sizes, parameters_of(Network("small", ACTIONS)).count)
    state = {name: np.zeros(length, np.float32) for name, length in lengths.items()}
    trainer.store(state)
    return state


def _do(trainer: Trainer, round_: int) -> None:
    trainer.run(trainer.begin_round(round_, round_ * 6))
    trainer.end_round()
    trainer.update_target()


def _watched(trainer: Trainer) -> list[str]:
    """What is drawn and learnt from now on, in order."""
    prioritised, events = trainer._feed.prioritised, list[str]()
    assert prioritised is not None
    draw, learn = prioritised.draw, prioritised.learn

    def watched_draw(number: int, places: torch.Tensor, importance: torch.Tensor) -> Batch:
        events.append(f"draw {number}")
        return draw(number, places, importance)

    def watched_learn(places: torch.Tensor, error: torch.Tensor) -> None:
        events.append(f"learn {len(places)}")
        learn(places, error)

    prioritised.draw, prioritised.learn = watched_draw, watched_learn  # type: ignore[method-assign]
    return events


def test_a_stored_trainer_goes_on_with_its_priorities() -> None:
    config = _config(3)
    played = PlayedRing(config)
    played.play(36)
    first = trainer_of(played, config)
    for round_ in (2, 3):
        _do(first, round_)
    kept = _stored(first, played)
    assert len(set(kept["priorities"].tolist())) > 10, "errors differ"
    _do(first, 4)
    second = trainer_of(played, config)
    second.load(kept)
    _do(second, 4)
    forgetful = trainer_of(played, config)
    fresh = np.zeros_like(kept["priorities"])
    fresh[-1] = 1.0
    forgetful.load(kept | {"priorities": fresh})
    _do(forgetful, 4)
    wanted, found, without = (_stored(trainer, played) for trainer in (first, second, forgetful))
    for name, vector in wanted.items():
        np.testing.assert_array_equal(found[name], vector, err_msg=name)
    assert not np.array_equal(without["online"], wanted["online"]), "priorities matter"


def test_a_trainer_that_begins_anew_forgets_its_priorities() -> None:
    config = _config()
    played = PlayedRing(config)
    played.play(24)
    trainer = trainer_of(played, config)
    states = []
    for _ in range(2):
        trainer.initialise()
        _do(trainer, 4)
        states.append(_stored(trainer, played))
    for name, vector in states[0].items():
        np.testing.assert_array_equal(states[1][name], vector, err_msg=name)


@pytest.mark.parametrize("done", [3, 8, 11, 12])
def test_only_what_was_learnt_is_taught(done: int) -> None:
    """A round that is left early taught its updates, and nothing of what was drawn ahead."""
    config = _config()
    played = PlayedRing(config)
    played.play(24)
    trainer = trainer_of(played, config)
    events = _watched(trainer)
    assert trainer.begin_round(4, 24) == 12
    trainer.run(done)
    trainer.end_round()
    taught = [int(event.removeprefix("learn ")) for event in events if event.startswith("learn")]
    assert sum(taught) == done * config.learn.batch_size


def test_chunks_are_drawn_with_the_errors_of_the_chunk_but_one_before() -> None:
    """Whatever pieces the round is cut into: chunk 0 is taught before chunk 2 is drawn, chunk 1 is not."""
    config = _config(round_steps=72, replay_size=216)  # 36 updates: four chunks of eight and a half
    played = PlayedRing(config)
    played.play(4 * 18)
    for pieces in ([36], [1] * 36, [7, 9, 20]):
        trainer = trainer_of(played, config)
        events = _watched(trainer)
        trainer.begin_round(4, 72)
        for piece in pieces:
            trainer.run(piece)
        trainer.end_round()
        begin, between = ["draw 0", "draw 1"], [f"learn 64,draw {number}" for number in (2, 3, 4)]
        assert events == [*begin, *",".join(between).split(","), "learn 64", "learn 32"]
