"""Sampling and gathering against a slow, obvious reference: masks, ends, wrap-around, the device's copy."""

import numpy as np
import pytest
import torch

from learner.networks.frame_blocks import images_in, network_input, stack_in
from learner.replay import replay_frames
from learner.replay.replay_frames import Batch, DeviceFrames, Frames, HostFrames, second_stack_offset
from learner.replay.sampling import Replay, Window, draw_integers
from shared.config.sections import Algorithm
from shared.config.settings import Config
from shared.frame_shape import DEFAULT_FRAMES, STACK, FrameShape
from tests.learner.engine.test_atari_100k import augmented, drawn
from tests.support.played_ring import PlayedRing, small_config

CPU = torch.device("cpu")


COLOR = {"frame_size": 48, "frame_color": "rgb", "frame_stack": 2, "env": "m:f"}
STEPS = pytest.mark.parametrize("steps", [1, 3, 5])
COPY = pytest.mark.parametrize("copy", [False, True], ids=["host", "device"])


def _config(steps: int) -> Config:
    return small_config(Algorithm(n_step=steps))


def _replay(played: PlayedRing, frames: Frames) -> Replay:
    return Replay(played.ring, frames, small_config().learn, seed=3)


def _stacks(frames: Frames, batch: Batch, first: int, shape: FrameShape = DEFAULT_FRAMES) -> np.ndarray:
    """The observations that begin with plane `first`, out of the blocks."""
    blocks = torch.zeros(shape.blocks(len(batch.rows), batch.rows.shape[1]), dtype=torch.uint8)
    frames.select(batch.rows, batch.frame_mask, blocks)
    pixels = network_input(stack_in(blocks, first, shape.planes), torch.float32).numpy()
    planes = pixels.reshape(-1, shape.planes, 4, 4, shape.grid, shape.grid).transpose(0, 1, 4, 2, 5, 3)
    return planes.reshape(-1, *shape.observation).astype(np.uint8)


def _check_valid(played: PlayedRing, replay: Replay, frames: Frames, round_: int) -> Batch:
    """Draw a round and compare every transition with the history."""
    end, shape = played.ticks, played.shape
    batch = replay.draw_round(round_, end, 12, 12)
    expected_starts = played.samplable(end)
    picks = draw_integers(len(expected_starts), 12, 8, 3, round_).reshape(-1)
    assert batch.rows.shape[1] == replay_frames.planes_per_transition(shape, played.run_schedule.n_step)
    second = second_stack_offset(shape, played.run_schedule.n_step)
    states, next_states = (_stacks(frames, batch, first, shape) for first in (0, second))
    for i, pick in enumerate(picks):
        expected = played.transition(*expected_starts[pick])
        np.testing.assert_array_equal(states[i], expected.state)
        np.testing.assert_array_equal(next_states[i], expected.next_state)
        assert batch.action[i] == expected.action
        assert batch.reward[i] == pytest.approx(expected.reward, rel=1e-6)
        assert batch.discount[i] == pytest.approx(0.0 if expected.ends else 0.99**expected.length, rel=1e-6)
    return batch


@STEPS
def test_starts_are_the_windows_transitions_in_order(steps: int) -> None:
    played = PlayedRing(_config(steps), both=True)
    window = Window(played.ring)
    for ticks in (1, 2, 3, 6, 6, 6, 1, 20, 6, 6, 45, *[6] * 14):  # so many that the list moves to its front
        played.play(ticks)
        assert window.starts(played.ticks).tolist() == _starts(played, played.ticks)
    for end in (played.ticks - 1, played.ticks):  # a round is done again
        assert window.starts(end).tolist() == _starts(played, end)


def _starts(played: PlayedRing, end: int) -> list[int]:
    return [tick * 4 + env for tick, env in played.samplable(end)]


@COPY
@pytest.mark.parametrize("extra", [-1, 0, 1])
@STEPS
def test_transitions_at_the_wrap(copy: bool, extra: int, steps: int) -> None:
    """Transitions are those of the history when the ring has just not, just, and already wrapped."""
    played = PlayedRing(_config(steps), seed=extra + 5, both=True)
    _compare_rounds(played, (6, played.run_schedule.capacity + extra - 6, *[6] * 4), copy=copy)


def _compare_rounds(played: PlayedRing, rounds: tuple[int, ...], *, copy: bool) -> None:
    """Play rounds of so many ticks, and compare what is drawn after each."""
    frames: Frames = DeviceFrames(played.ring, CPU) if copy else HostFrames(played.ring)
    replay = _replay(played, frames)
    for round_, ticks in enumerate(rounds):
        played.play(ticks)
        _check_valid(played, replay, frames, round_)


@COPY
@pytest.mark.parametrize("frames", [{"frame_stack": 1}, {"frame_stack": 6, "frame_size": 36}, COLOR])
@pytest.mark.parametrize("steps", [1, 3])
def test_transitions_of_other_frames(copy: bool, frames: dict[str, object], steps: int) -> None:
    played = PlayedRing(_config(steps).with_settings(**frames), both=True)
    _compare_rounds(played, (12, played.run_schedule.capacity - 11, 6), copy=copy)
    assert DeviceFrames.nbytes(played.ring) == 4 * (18 + 6 + 1) * played.shape.nbytes


@pytest.mark.parametrize("shape", [{}, COLOR])
def test_stacks_are_augmented_each_by_its_draws(shape: dict[str, object]) -> None:
    played = PlayedRing(_config(3).with_settings(**shape), both=True, ticks=60)
    played.ring.planes[:] = np.random.default_rng(0).integers(0, 256, played.ring.planes.shape)
    frames, draws = HostFrames(played.ring), drawn(3, 1, 0, 64)
    batch = _replay(played, frames).draw_round(1, 60, 8, 8)
    blocks = torch.zeros(played.shape.blocks(64, 2 * played.shape.planes), dtype=torch.uint8)
    whole = blocks.clone()
    frames.select(batch.rows, batch.frame_mask, whole)
    frames.select(batch.rows, batch.frame_mask, blocks, torch.from_numpy(draws).float())
    before, after = (images_in(each).contiguous().numpy() for each in (whole, blocks))
    expected = [augmented(stack, draws[:, i]) for i, stack in enumerate(np.split(before, 2, axis=1))]
    np.testing.assert_equal(np.split(after, 2, axis=1), expected)


@STEPS
def test_the_reference_sees_all_kinds_of_ends(steps: int) -> None:
    """The comparison above is not vacuous: masks, terminal, lost and truncated transitions of all lengths are drawn."""
    played = PlayedRing(_config(steps), both=True, ticks=60)
    batch = _check_valid(played, _replay(played, frames := HostFrames(played.ring)), frames, 1)
    mask = batch.frame_mask.numpy()
    assert (mask[:, :STACK] == 0).any()
    assert (mask[:, second_stack_offset(DEFAULT_FRAMES, steps) :] == 0).any()
    assert (batch.discount == 0).any()
    chosen = [played.transition(*start) for start in played.samplable(60)]
    assert {(t.ends, t.length) for t in chosen} == {(ends, n) for ends in (True, False) for n in range(1, steps + 1)}


@STEPS
def test_rewards_are_learned_by_their_amount_where_that_is_asked_for(steps: int) -> None:
    played = PlayedRing(_config(steps), both=True, ticks=60)
    tick, env = np.array(played.samplable(60)).T
    replay = Replay(played.ring, HostFrames(played.ring), small_config(clip_rewards=False).learn, seed=3)
    rewards = replay.transitions(tick, env).reward.tolist()
    expected = [played.transition(*start, clip=False).reward for start in zip(tick, env, strict=True)]
    assert rewards == pytest.approx(expected, rel=1e-6)
    assert max(rewards) > steps, "not signs alone"


@STEPS
def test_a_draw_waits_for_the_round_that_it_reads_and_for_no_later_one(steps: int) -> None:
    whole, played = (PlayedRing(_config(steps), ticks=ticks) for ticks in (30, 24))
    late = Replay(played.ring, HostFrames(played.ring), small_config().learn, 3, lambda end: played.play(6 * end - 24))
    for tick, there in ((24 - steps, 24), (25 - steps, 30)):
        found, wanted = (one.transitions(np.full(4, tick), np.arange(4)) for one in (late, _replay(whole, late.frames)))
        assert (played.ticks, found.reward.tolist()) == (there, wanted.reward.tolist())


def test_the_next_round_may_come_to_the_device_while_this_one_is_sampled() -> None:
    played = PlayedRing(small_config(), ticks=48)
    on_device, on_host = DeviceFrames(played.ring, CPU), HostFrames(played.ring)
    plans = [_replay(played, frames).draw_round(2, 48, 12, 12) for frames in (on_device, on_host)]
    wanted = _stacks(on_host, plans[1], 0)
    played.play(played.run_schedule.round_ticks)
    on_device.advance(played.ticks)
    np.testing.assert_array_equal(_stacks(on_device, plans[0], 0), wanted)


def test_the_device_copy_survives_a_step_back() -> None:
    played = PlayedRing(small_config(), ticks=50)
    frames = DeviceFrames(played.ring, CPU)
    replay = _replay(played, frames)
    _check_valid(played, replay, frames, 1)
    last = replay.draw_round(1, 48, 4, 4)
    again = DeviceFrames(played.ring, CPU)
    fresh = _replay(played, again).draw_round(1, 48, 4, 4)
    np.testing.assert_array_equal(_stacks(frames, last, 0), _stacks(again, fresh, 0))


def test_padding_repeats_and_changes_nothing() -> None:
    played = PlayedRing(small_config(), ticks=30)
    replay = _replay(played, HostFrames(played.ring))
    plain, padded = replay.draw_round(2, 30, 5, 5), replay.draw_round(2, 30, 5, 8)
    for a, b in zip(plain, padded, strict=True):
        assert torch.equal(a, b[:40])
        assert torch.equal(a[:24], b[40:])


def test_draws_depend_on_seed_and_round_alone_and_are_uniform() -> None:
    first, again, later, other = (draw_integers(1000, 4, 32, *of).tolist() for of in ((7, 3), (7, 3), (7, 4), (8, 3)))
    assert first == again
    assert first not in (later, other)
    counts = np.bincount(draw_integers(10, 2500, 32, 1, 1).reshape(-1), minlength=10)
    expected = 2500 * 32 / 10
    assert ((counts - expected) ** 2 / expected).sum() < 27.9  # chi-squared, 9 degrees of freedom, p = 0.001


def test_an_empty_window_is_a_sentence() -> None:
    played = PlayedRing(small_config())
    with pytest.raises(ValueError, match="holds no transition"):
        _replay(played, HostFrames(played.ring)).draw_round(0, 0, 1, 1)
