"""The performance model against limiting cases, and against a discrete-event simulation of the same run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shared.performance.queueing import Mailbox, greatest_of, speedup
from shared.performance.service_times import Link, RunShape, ServiceTimes, on_counted_gpu
from shared.performance.throughput_model import crowded, play_rate, predict, update_seconds
from tests.support.simulated_run import SimulatedRun

TIMES = ServiceTimes(
    step=400e-6,
    step_spread=0.3,
    answer=300e-6,
    answer_row=60e-6,
    wake=50e-6,
    update=8e-3,
    update_cores=17e-3,
    update_ahead=4e-3,
    update_overhead=1.0,
    contention=1.0,
    commit=10e-3,
    crowding=1.0,
    parallel_share=0.6,
    processors=2,
)
SHAPE = RunShape(cores=2, envs=96, lane_envs=2, actors=1, inference_batch=32, round_steps=9_600, steps_per_update=4.0)
PER_STEP = TIMES.step + (TIMES.answer + 32 * TIMES.answer_row) / 32
"""Core time of a step that is played and answered."""
ROOMY = replace(SHAPE, cores=64, steps_per_update=None, round_steps=960_000)
"""A run with cores for all, which does not learn, with rounds so long that their ends cost nothing."""


# --- limiting cases


def test_one_core_does_all_work_in_turn() -> None:
    found = predict(TIMES, replace(SHAPE, cores=1, round_steps=960_000))
    assert found.steps_per_second == pytest.approx(1 / (PER_STEP + TIMES.update_cores / 4), rel=1e-3)
    assert found.part == "cores"


def test_envs_that_take_no_time_leave_the_learner() -> None:
    found = predict(replace(TIMES, step=1e-9, answer=1e-9, answer_row=1e-9), replace(SHAPE, cores=8))
    assert found.part == "learner"
    seconds = SHAPE.round_steps / 4 * TIMES.update + TIMES.commit
    assert found.steps_per_second == pytest.approx(SHAPE.round_steps / seconds)


def test_updates_that_take_no_time_leave_emulation() -> None:
    found = predict(
        replace(TIMES, update=1e-9, update_cores=1e-9, update_ahead=0.0), replace(ROOMY, steps_per_update=4.0)
    )
    assert (found.part, found.steps_per_second) == ("emulation", pytest.approx(1 / TIMES.step, rel=0.01))


def test_many_actors_leave_inference() -> None:
    found = predict(TIMES, replace(ROOMY, actors=24))
    assert found.part == "inference"
    assert found.steps_per_second == pytest.approx(32 / (TIMES.answer + 32 * TIMES.answer_row), rel=0.01)


def test_a_single_batch_is_played_and_answered_in_turn() -> None:
    shape = replace(ROOMY, inference_batch=96)
    cycle = 96 * TIMES.step + TIMES.answer + 96 * TIMES.answer_row + 2 * TIMES.wake
    assert play_rate(TIMES, shape) == pytest.approx(96 / cycle, rel=0.01)
    assert predict(TIMES, shape).part == "mailbox"


def test_turns_add_up() -> None:
    """Every role has all cores while it works."""
    alone = predict(TIMES, replace(SHAPE, steps_per_update=None, cores=4)).steps_per_second
    found = predict(TIMES, replace(SHAPE, alternates=True, cores=4))
    assert found.part == "turns"
    learned = SHAPE.round_steps / 4 * update_seconds(TIMES, replace(SHAPE, cores=4))
    assert SHAPE.round_steps / found.steps_per_second == pytest.approx(SHAPE.round_steps / alone + learned)


def test_a_commit_is_added_to_a_round_and_without_a_barrier_to_the_learner_alone() -> None:
    shape = replace(ROOMY, round_steps=960)
    slow = replace(TIMES, commit=0.1)
    difference = 960 / predict(slow, shape).steps_per_second - 960 / predict(TIMES, shape).steps_per_second
    assert difference == pytest.approx(0.1 - TIMES.commit)
    free = replace(shape, barrier=False)
    assert predict(slow, free).steps_per_second == predict(TIMES, free).steps_per_second


def test_more_cores_never_make_a_run_slower() -> None:
    for learns in (None, 4.0):
        shapes = [replace(SHAPE, cores=cores, actors=4, steps_per_update=learns) for cores in (1, 2, 3, 4, 8, 16, 128)]
        speeds = [predict(TIMES, shape).steps_per_second for shape in shapes]
        assert speeds == sorted(speeds)


def test_crowding_is_a_straight_line_from_one_busy_core_to_all() -> None:
    times = replace(TIMES, crowding=0.8)
    assert [crowded(times, busy, 5) for busy in (0.5, 1, 3, 5, 9)] == pytest.approx([1.0, 1.0, 0.9, 0.8, 0.8])
    assert crowded(times, 1, 1) == 1.0


def test_threads_follow_amdahl() -> None:
    assert speedup(1, 0.6) == 1
    assert speedup(2, 0.6) == pytest.approx(1 / 0.7)
    assert speedup(10**9, 0.6) == pytest.approx(2.5)


def test_the_slowest_of_one_actor_is_itself() -> None:
    assert greatest_of(1, 0.5) == greatest_of(0.5, 0.5) == 1
    assert greatest_of(16, 0.0) == 1


def test_the_mailbox_without_randomness_is_its_slower_station() -> None:
    three = Mailbox(3, 3, playing=10e-3, slowest=10e-3, answering=2e-3, delay=0.0, spread=0.0)
    assert three.batches_per_second() == pytest.approx(100)
    assert replace(three, playing=2e-3, slowest=2e-3, answering=10e-3).batches_per_second() == pytest.approx(100)
    one = Mailbox(1, 1, playing=2e-3, slowest=2e-3, answering=10e-3, delay=1e-3, spread=0.0)
    assert one.batches_per_second() == pytest.approx(1 / 13e-3)
    assert replace(one, slowest=4e-3).batches_per_second() == pytest.approx(1 / 15e-3), "its slowest actor"


@pytest.mark.parametrize("batches", [1, 2, 3, 8])
def test_the_mailbox_with_exponential_times_agrees_with_the_exact_recursion(batches: int) -> None:
    """Mean value analysis of a closed network (Reiser & Lavenberg 1980)."""
    services, delay = (10e-3, 6e-3), 1e-3
    queues = [0.0, 0.0]
    throughput = 0.0
    for population in range(1, batches + 1):
        waits = [service * (1 + queue) for service, queue in zip(services, queues, strict=True)]
        throughput = population / (sum(waits) + delay)
        queues = [throughput * wait for wait in waits]
    mailbox = Mailbox(batches, batches, services[0], *services, delay, spread=1.0)
    assert mailbox.batches_per_second() == pytest.approx(throughput, rel=0.06)


def test_crowding_threads_and_waits_count() -> None:
    """Each by itself: the simulation has none of them."""
    crowded_times = replace(TIMES, crowding=0.8, step_spread=0.0)
    shape = replace(SHAPE, actors=3, steps_per_update=None, round_steps=960_000)
    assert predict(crowded_times, shape).steps_per_second == pytest.approx(2 * 0.8 / PER_STEP, rel=1e-3)
    shape = replace(ROOMY, actors=24, inference_threads=2)
    answer = TIMES.answer + 32 * TIMES.answer_row * (0.4 + 0.6 / 2)
    assert predict(TIMES, shape).steps_per_second == pytest.approx(32 / answer, rel=0.01)
    waits = replace(TIMES, step=1e-9, answer=1e-9, answer_row=1e-9, update_overhead=1.2)
    seconds = 9_600 / 4 * 1.2 * 8e-3 + 10e-3
    assert predict(waits, replace(SHAPE, cores=8)).steps_per_second == pytest.approx(9_600 / seconds)


# --- a GPU and nodes


def test_with_a_gpu_cores_play_and_the_device_learns() -> None:
    times = on_counted_gpu(TIMES)
    found = predict(times, replace(SHAPE, on_gpu=True, cores=2, inference_batch=96))
    assert found.part in ("emulation", "cores")
    roomy = replace(SHAPE, on_gpu=True, cores=128, actors=24, inference_batch=96)
    assert predict(times, roomy).steps_per_second > 15_000
    assert predict(times, replace(roomy, envs=960, actors=120)).part == "learner"


def test_nodes_add_up_until_parameters_fill_the_link() -> None:
    shape = replace(ROOMY, envs=960, actors=4, round_steps=96_000, parameter_bytes=6_744_720)
    fast = Link(bytes_per_second=1e12, round_seconds=0.0)
    ten = predict(TIMES, replace(shape, nodes=10, link=fast)).steps_per_second
    one = predict(TIMES, replace(shape, envs=96, round_steps=9_600, nodes=1, link=fast)).steps_per_second
    assert ten == pytest.approx(10 * one, rel=0.05)
    slow = Link(bytes_per_second=117e6)
    seconds = [96_000 / predict(TIMES, replace(shape, nodes=10, link=link)).steps_per_second for link in (fast, slow)]
    assert seconds[1] - seconds[0] == pytest.approx(10 * 6_744_720 / 117e6 + slow.round_seconds, rel=0.05)


def test_a_thin_link_limits_the_steps_that_come_back() -> None:
    shape = replace(ROOMY, envs=960, actors=4, round_steps=960_000, nodes=10, link=Link(bytes_per_second=100e3))
    assert predict(TIMES, shape).part == "network"
    assert predict(TIMES, shape).steps_per_second == pytest.approx(100e3 / 116, rel=0.01)


# --- against the simulation


def simulated(times: ServiceTimes, shape: RunShape) -> float:
    """Steps/s of the simulated run."""
    return SimulatedRun(times, shape, seed=7).steps_per_second(rounds=3)


PLAYING = {
    "one actor": {"actors": 1},
    "two actors, batches across them": {"actors": 2},
    "three actors": {"actors": 3},
    "an actor for each quarter of a batch": {"actors": 12},
    "two batches": {"actors": 1, "inference_batch": 48},
    "one batch": {"actors": 2, "inference_batch": 96},
    "small batches": {"actors": 4, "inference_batch": 8},
    "a GPU, one actor": {"actors": 1, "on_gpu": True, "inference_batch": 96},
    "a GPU, twelve actors": {"actors": 12, "on_gpu": True, "inference_batch": 96},
    "a GPU, a lane for each actor": {"actors": 48, "on_gpu": True, "inference_batch": 96},
}


@pytest.mark.parametrize("case", PLAYING)
def test_playing_agrees_with_the_simulation(case: str) -> None:
    shape = replace(ROOMY, round_steps=96 * 30, **PLAYING[case])  # type: ignore[arg-type]
    assert predict(TIMES, shape).steps_per_second == pytest.approx(simulated(TIMES, shape), rel=0.1)


@pytest.mark.parametrize(("cores", "actors"), [(4, 3), (8, 6), (16, 12)])
def test_an_actor_plays_one_batch_while_another_is_answered(cores: int, actors: int) -> None:
    """With fast answers its lanes of several batches keep it at work: it reaches 0.85 of emulation alone."""
    times = replace(TIMES, answer_row=10e-6)
    shape = replace(ROOMY, cores=cores, actors=actors, round_steps=96 * 30)
    found = predict(times, shape)
    assert found.steps_per_second == pytest.approx(simulated(times, shape), rel=0.05)
    assert found.steps_per_second > 0.85 * found.bounds["emulation"]


LEARNING = {
    "the learner limits": {"cores": 4, "steps_per_update": 4.0},
    "emulation limits": {"cores": 8, "steps_per_update": 40.0},
    "the cores limit": {"cores": 2, "steps_per_update": 8.0, "actors": 2},
    "the cores limit, without learning": {"cores": 2, "steps_per_update": None, "actors": 3},
    "one core": {"cores": 1, "steps_per_update": 8.0},
    "turns": {"cores": 2, "steps_per_update": 8.0, "actors": 2, "alternates": True},
    "short rounds": {"cores": 4, "steps_per_update": 40.0, "round_steps": 96 * 2},
}


@pytest.mark.parametrize("case", LEARNING)
def test_learning_agrees_with_the_simulation(case: str) -> None:
    shape = replace(SHAPE, **{"round_steps": 96 * 10} | LEARNING[case])  # type: ignore[arg-type]
    assert predict(TIMES, shape).steps_per_second == pytest.approx(simulated(TIMES, shape), rel=0.1)


@pytest.mark.parametrize("actors", [2, 3, 6])
def test_the_thread_that_prepares_ahead_waits_for_actors_as_in_the_simulation(actors: int) -> None:
    """Both have one niceness, so on two cores the learner is slower while actors play: by 13 to 19% here."""
    times = replace(TIMES, update_cores=12e-3)
    shape = replace(SHAPE, round_steps=96 * 10, steps_per_update=8.0, actors=actors)
    assert predict(times, shape).steps_per_second == pytest.approx(simulated(times, shape), rel=0.05)


def test_contention_slows_the_learner_as_long_as_actors_play() -> None:
    times = replace(TIMES, update_cores=12e-3, contention=1.2)
    found = predict(times, replace(SHAPE, round_steps=960))
    cores = 2 - 12 / 8 / 1.2  # what such a learner leaves to the actor
    played = 960 * PER_STEP / cores
    learned = 240 * TIMES.update + played * (1 - 1 / 1.2)
    assert 960 / found.steps_per_second == pytest.approx(learned + TIMES.commit, rel=1e-3)
    assert predict(times, replace(SHAPE, cores=8)) == predict(replace(times, contention=1.0), replace(SHAPE, cores=8))


@pytest.mark.parametrize("spread", [0.0, 0.3, 1.0])
def test_spread_agrees_with_the_simulation(spread: float) -> None:
    times = replace(TIMES, step_spread=spread)
    shape = replace(ROOMY, actors=8, round_steps=96 * 10)
    assert predict(times, shape).steps_per_second == pytest.approx(simulated(times, shape), rel=0.1)


@pytest.mark.parametrize(("cores", "envs"), [(2, 96), (3, 96), (4, 128)])
def test_an_answer_takes_the_core_of_an_actor_where_each_core_has_one(cores: int, envs: int) -> None:
    """With fewer actors, or more cores, the server has a core of its own."""
    times = replace(TIMES, step_spread=0.0, answer=0.0, answer_row=40e-6)
    shape = replace(ROOMY, cores=cores, actors=cores, envs=envs, round_steps=envs * 30)
    found, roomy = (predict(times, each).steps_per_second for each in (shape, replace(shape, cores=cores + 1)))
    emulated = 32 * times.step / cores
    assert found == pytest.approx(32 / (emulated + 32 * 40e-6 / (cores - 1)), rel=0.04)
    assert roomy == pytest.approx(32 / emulated, rel=0.08)
    assert found == pytest.approx(simulated(times, shape), rel=0.1)
