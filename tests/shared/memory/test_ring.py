"""Rows and stacks of the ring, against a slow obvious reference, around the wrap."""

from itertools import product
from typing import Any

import numpy as np
import pytest

from shared.config.run_schedule import make_run_schedule
from shared.config.settings import Config
from shared.frame_shape import STACK
from shared.memory.arena import Arena
from shared.memory.layout import Layout
from shared.memory.ring import Ring, plane_rows, ring_fields


def ring_of(**settings: Any) -> Ring:
    """The ring of a run."""
    run_schedule = make_run_schedule(Config().with_settings(**settings))
    return Ring(Arena.create(Layout(ring_fields(run_schedule).values())), run_schedule)


@pytest.fixture
def ring() -> Ring:
    return ring_of(envs=6, lane_envs=2, round_steps=60, total_steps=300, replay_size=180)


def test_rows_address_the_flat_fields(ring: Ring) -> None:
    capacity = ring.run_schedule.capacity
    for env, tick in product(range(6), (0, 1, capacity - 1, capacity, capacity + 1)):
        ring.field["action"][env // 2, tick % capacity, env % 2] = 100 + env
        assert ring.flat["action"][ring.rows(np.array([env]), np.array([tick]))] == 100 + env


@pytest.mark.parametrize("seed", range(5))
def test_stacks_begin_where_the_episode_does(ring: Ring, seed: int) -> None:
    rng = np.random.default_rng(seed)
    capacity, ticks = ring.run_schedule.capacity, ring.run_schedule.capacity + 20
    starts = rng.random((6, ticks)) < 0.25
    starts[:, 0] = True
    for env, tick in np.ndindex(6, ticks):
        ring.field["start"][env // 2, tick % capacity, env % 2] = starts[env, tick]
    env = rng.integers(0, 6, 200)
    tick = rng.integers(ticks - capacity + STACK, ticks, 200)
    tick[:4] = capacity - 1, capacity, capacity + 1, capacity + 2
    rows, mask = ring.stack_rows(env, tick)
    for i in range(len(env)):
        belongs, inside = [], True
        for at in range(tick[i], tick[i] - STACK, -1):
            belongs.append(inside and at >= 0)
            inside = inside and not (at >= 0 and starts[env[i], at])
        assert mask[i].tolist() == belongs[::-1]
        assert rows[i].tolist() == [ring.rows(env[i : i + 1], np.array([tick[i] - 3 + k]))[0] for k in range(STACK)]


def test_the_first_ticks_have_no_history(ring: Ring) -> None:
    ring.field["start"][:] = 0
    _, mask = ring.stack_rows(np.array([0, 0]), np.array([0, 2]))
    assert mask.tolist() == [[False, False, False, True], [False, True, True, True]]


@pytest.mark.parametrize("stack", [1, 2, 7])
def test_stacks_of_another_depth(stack: int) -> None:
    ring = ring_of(envs=2, lane_envs=2, round_steps=20, total_steps=100, frame_stack=stack)
    ring.field["start"][0, 6, 0] = 1
    rows, mask = ring.stack_rows(np.array([0, 0, 1]), np.array([6, 8, 8]))
    assert rows.shape == mask.shape == (3, stack)
    assert rows[:, -1].tolist() == [12, 16, 17]
    assert mask.sum(axis=1).tolist() == [1, min(stack, 3), stack]


def test_planes_of_frames_in_color() -> None:
    colored = {"frame_size": 36, "frame_stack": 2, "frame_color": "rgb"}
    ring = ring_of(envs=2, lane_envs=1, round_steps=20, total_steps=100, replay_size=40, **colored)
    frames = ring.field["frame"]
    assert frames.shape == (2, ring.run_schedule.capacity, 1, 3, 36, 36)
    frames[:] = np.random.default_rng(0).integers(0, 256, frames.shape, np.uint8)
    env, tick = np.array([0, 1, 1]), np.array([5, 0, 9])
    rows, mask = ring.stack_rows(env, tick)
    planes, plane_mask = plane_rows(rows, mask, 3)
    assert plane_mask.tolist() == [[True] * 6, [False] * 3 + [True] * 3, [True] * 6]
    assert np.array_equal(ring.planes[planes].reshape(3, 2, 3, 36, 36), ring.flat["frame"][rows])


def test_an_lstm_begins_every_episode_with_a_state_of_zeros() -> None:
    """Elsewhere it reads a tick with the state after the tick before, also around the wrap."""
    sizes = {"envs": 6, "lane_envs": 2, "round_steps": 60, "batch_size": 60, "snapshot_every_steps": 60}
    ring = ring_of(method="a2c", recurrent=True, total_steps=300, **sizes)
    field, capacity = ring.field["recurrent_state"], ring.run_schedule.capacity
    assert field.shape == (3, capacity, 2, 2, 256)
    field[:] = np.arange(field.size // 512).reshape(field.shape[:3])[..., None, None]
    ring.field["start"][1, 4, 1] = 1
    env, tick = np.array([3, 3, 0]), np.array([4, 5, capacity])
    found = ring.recurrent_state(env, tick)
    assert found[:, 0, 0].tolist() == [0, field[1, 4, 1, 0, 0], field[0, capacity - 1, 0, 0, 0]]
    assert (found == found[:, :1, :1]).all()
    assert field[1, 3, 1].all(), "the ring keeps what it held"
