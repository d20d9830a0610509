"""Prioritized replay in rounds: what has weight, what errors do to the next draws, and that it all comes again."""

from typing import Any

import numpy as np
import pytest
import torch

from learner.engine.engine import Engine
from learner.replay.chunk import Chunk
from learner.replay.prioritized import PrioritizedSampler
from learner.replay.replay_frames import Batch, HostFrames
from learner.replay.sampling import Replay
from shared.config.sections import Algorithm
from shared.config.settings import Config
from shared.errors import FatalError
from tests.learner.replay.test_priorities import check_valid
from tests.support.played_ring import PlayedRing, make_test_engine, small_config

UPDATES, BATCH = 4, 8


def _config(n_step: int = 1, **learn: object) -> Config:
    return small_config(Algorithm(prioritized=True, importance_start=0.4, importance_end=1.0, n_step=n_step), **learn)


def _sampler(config: Config, ticks: int, seed: int = 3) -> tuple[PlayedRing, PrioritizedSampler]:
    """A sampler of a ring in which so many ticks were played."""
    played = PlayedRing(config, ticks=ticks)
    replay = Replay(played.ring, HostFrames(played.ring), config.learn, seed)
    return played, PrioritizedSampler(replay, config.algorithm, UPDATES, torch.device("cpu"))


def _chunk() -> Chunk:
    """The buffers of a chunk that sampling writes."""
    n = UPDATES * BATCH
    sampled = {"tree_index": torch.zeros(n, dtype=torch.int64), "importance": torch.zeros(n)}
    return Chunk(**dict.fromkeys(Chunk._fields, torch.zeros(0)) | sampled)


def _begun() -> PrioritizedSampler:
    """In round 2, with 12 ticks played."""
    _, prioritized = _sampler(_config(), 12)
    prioritized.begin_round(2, 12)
    return prioritized


def _drawn(prioritized: PrioritizedSampler, number: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Places and importance of a chunk."""
    chunk = _chunk()
    prioritized.draw(number, chunk)
    return chunk.tree_index, chunk.importance


def _weights(prioritized: PrioritizedSampler) -> np.ndarray:
    """By place, without the maximum."""
    state = np.zeros(prioritized.tree.state_size, np.float32)
    prioritized.tree.store(state)
    return state[:-1]


def _places(played: PlayedRing, end: int) -> set[int]:
    """Expected leaves of the transitions that the window ending at tick `end` offers."""
    run_schedule = played.run_schedule
    return {tick % run_schedule.priority_ticks * run_schedule.envs + env for tick, env in played.samplable(end)}


@pytest.mark.parametrize(("n_step", "train_every", "begun"), [(1, 2, 19), (3, 2, 19), (5, 2, 19), (1, 60, 8)])
def test_exactly_what_can_be_sampled_has_weight(n_step: int, train_every: int, begun: int) -> None:
    """Through the wrap of the window and that of the ring; rounds without updates, if there are any, are not begun."""
    played, prioritized = _sampler(_config(n_step, train_every=train_every), 0)
    for round_ in range(20):
        if played.run_schedule.updates_in(round_):
            begun -= 1
            prioritized.begin_round(round_, played.ticks)
            check_valid(prioritized.tree)
            assert set(np.flatnonzero(_weights(prioritized)).tolist()) == _places(played, played.ticks)
            places, _ = _drawn(prioritized)
            prioritized.update_priorities(places, torch.full((len(places),), 2.0))
            assert set(np.flatnonzero(_weights(prioritized)).tolist()) == _places(played, played.ticks)
        played.play(played.run_schedule.round_ticks)
    assert begun == 0
    assert played.ticks > played.run_schedule.capacity + played.run_schedule.window_ticks


def test_a_new_transition_has_the_greatest_weight_so_far() -> None:
    played, prioritized = _sampler(_config(), 6)
    prioritized.begin_round(1, 6)
    assert set(_weights(prioritized)[list(_places(played, 6))]) == {1.0}
    places, _ = _drawn(prioritized)
    prioritized.update_priorities(places, torch.linspace(0.5, 16.0, len(places)))
    former = _weights(prioritized)
    played.play(6)
    prioritized.begin_round(2, 12)
    weights = _weights(prioritized)
    assert set(weights[list(_places(played, 12) - _places(played, 6))]) == {former.max()}
    kept = list(_places(played, 6) & _places(played, 12))
    np.testing.assert_array_equal(weights[kept], former[kept])


@pytest.mark.parametrize("n_step", [1, 3])
def test_a_draw_gives_the_transition_of_its_place(n_step: int) -> None:
    played, prioritized = _sampler(_config(n_step), 30)
    prioritized.begin_round(5, 30)
    chunk = _chunk()
    batch = prioritized.draw(0, chunk)
    ticks = played.run_schedule.priority_ticks
    by_place = {tick % ticks * 4 + env: played.transition(tick, env) for tick, env in played.samplable(30)}
    for i, place in enumerate(chunk.tree_index.tolist()):
        assert batch.action[i] == by_place[place].action
        assert batch.reward[i] == pytest.approx(by_place[place].reward)
        assert bool(batch.discount[i] == 0) == by_place[place].ends


def test_errors_move_the_next_draws() -> None:
    prioritized = _begun()
    before, importance = _drawn(prioritized)
    assert importance.tolist() == [1.0] * len(importance)  # all alike
    assert len(set(before.tolist())) > 20
    prioritized.update_priorities(before, torch.linspace(0.1, 5.0, len(before)))
    places, importance = _drawn(prioritized)
    # w = (P_min / P)^beta, of each batch by itself.
    weights = torch.from_numpy(_weights(prioritized))[places].double().view(UPDATES, BATCH)
    expected = (weights / weights.amin(1, keepdim=True)) ** -prioritized._beta
    torch.testing.assert_close(importance.double().view(UPDATES, BATCH), expected, rtol=1e-5, atol=0)
    assert importance.min() < 0.8
    favourite = before[5]
    prioritized.update_priorities(before, torch.where(before == favourite, 1e6, 0.0))
    after, _ = _drawn(prioritized, 1)
    assert (after == favourite).float().mean() > 0.9


def test_beta_rises_linearly_with_the_steps_and_stays() -> None:
    config = _config(total_steps=240, learning_starts=48)
    for steps, expected in ((240, [0.4 + 0.06 * r for r in range(2, 10)]), (96, [0.7, 0.85, *[1.0] * 6])):
        _, prioritized = _sampler(config.with_settings(importance_steps=steps), 60)
        found = []
        for round_ in range(2, 10):
            prioritized.begin_round(round_, round_ * 6)
            found.append(prioritized._beta)
        assert found == pytest.approx(expected)


def test_the_same_seed_draws_the_same_and_another_does_not() -> None:
    drawn = []
    for seed, round_, number in ((3, 2, 0), (3, 2, 0), (4, 2, 0), (3, 3, 0), (3, 2, 1)):
        _, prioritized = _sampler(_config(), 12, seed)
        prioritized.begin_round(round_, 12)
        drawn.append(_drawn(prioritized, number)[0].tolist())
    assert drawn[0] == drawn[1]
    assert drawn[0] not in drawn[2:]


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_errors_that_are_not_finite_teach_nothing(wrong: float) -> None:
    prioritized = _begun()
    before = _weights(prioritized)
    places, _ = _drawn(prioritized)
    error = torch.full((len(places),), 3.0)
    error[7] = wrong
    prioritized.update_priorities(places, error)
    np.testing.assert_array_equal(_weights(prioritized), before)


def test_a_method_with_negative_priorities_ends_the_run_with_a_sentence() -> None:
    prioritized = _begun()
    places, _ = _drawn(prioritized)
    with pytest.raises(FatalError, match=r"The method's loss .* has the size -0\.5; a priority needs"):
        prioritized.update_priorities(places, torch.full((len(places),), -0.5))


def test_an_empty_window_is_a_sentence() -> None:
    with pytest.raises(ValueError, match="holds no transition"):
        _sampler(_config(5), 4)[1].begin_round(1, 4)


def test_the_priorities_of_a_run_do_not_depend_on_its_end() -> None:
    """So that a run that has ended may go on (--resume with more --total-steps)."""
    short, long = (PlayedRing(_config(total_steps=steps)).run_schedule for steps in (48, 10_000))
    assert short.window_ticks < long.window_ticks
    assert short.priorities == long.priorities == long.window_ticks * 4


# The engine with priorities


def _watched(engine: Engine) -> list[str]:
    """Draws and updates from here on, in order; chunks are taught in the order in which they were drawn."""
    source: Any = engine._source
    sampler, events, drawn = source._sampler, list[str](), list[torch.Tensor]()
    draw, update = sampler.draw, sampler.update_priorities

    def watched_draw(number: int, chunk: Chunk) -> Batch:
        events.append(f"draw {number}")
        batch: Batch = draw(number, chunk)
        drawn.append(chunk.tree_index.clone())
        return batch

    def watched_update(tree_index: torch.Tensor, td_error: torch.Tensor) -> None:
        events.append(f"learn {len(tree_index)}")
        assert torch.equal(tree_index, drawn.pop(0)[: len(tree_index)])
        update(tree_index, td_error)

    sampler.draw, sampler.update_priorities = watched_draw, watched_update
    return events


@pytest.mark.parametrize("done", [3, 8, 11, 12])
def test_only_what_was_learned_is_taught(done: int) -> None:
    """A round that is left early taught its updates, and nothing that was prefetched."""
    config = _config()
    engine = make_test_engine(PlayedRing(config, ticks=24), config)
    events = _watched(engine)
    assert engine.begin_round(4, 24) == 12
    engine.run(done)
    engine.end_round()
    learned = [int(event.removeprefix("learn ")) for event in events if event.startswith("learn")]
    assert sum(learned) == done * config.learn.batch_size


def test_chunks_are_drawn_with_the_errors_of_the_chunk_but_one_before() -> None:
    """Whatever pieces the round is cut into: chunk 0 is taught before chunk 2 is drawn, chunk 1 is not."""
    config = _config(round_steps=72, replay_size=216)  # 36 updates: four chunks of eight and a half
    played = PlayedRing(config, ticks=4 * 18)
    for pieces in ([36], [1] * 36, [7, 9, 20]):
        engine = make_test_engine(played, config)
        events = _watched(engine)
        engine.begin_round(4, 72)
        for piece in pieces:
            engine.run(piece)
        engine.end_round()
        begin, between = ["draw 0", "draw 1"], [f"learn 64,draw {number}" for number in (2, 3, 4)]
        assert events == [*begin, *",".join(between).split(","), "learn 64", "learn 32"]
