"""Rules by which a run takes cores, against a search."""

from __future__ import annotations

import pytest

from shared.config.resolve import (
    busy_threads,
    fewest_actors,
    greatest_share,
    largest_batch,
    learner_threads_of,
)


def test_the_fewest_actors_with_the_least_share() -> None:
    for lanes in range(1, 60):
        for most in range(1, lanes + 1):
            least = greatest_share(lanes, most)
            fewest = next(count for count in range(1, most + 1) if greatest_share(lanes, count) == least)
            assert fewest_actors(lanes, most) == fewest


def test_the_largest_batch_makes_equal_groups() -> None:
    for lanes in range(1, 40):
        for most in range(1, 50):
            sizes = [size * 2 for size in range(1, lanes + 1) if lanes % size == 0 and size * 2 <= most]
            assert largest_batch(lanes, 2, most) == max(sizes, default=2)


@pytest.mark.parametrize(
    ("cores", "threads", "busy"), [(1, 1, 1), (2, 1, 1), (8, 1, 1), (9, 2, 6), (12, 3, 9), (15, 4, 12), (64, 4, 12)]
)
def test_no_thread_of_a_learner_without_a_core_of_its_own(cores: int, threads: int, busy: int) -> None:
    assert learner_threads_of(cores, None, on_cpu=True) == threads
    assert learner_threads_of(cores, None, on_cpu=False) == 1
    assert busy_threads(threads, None, on_cpu=True) == busy <= max(1, cores - 3)
    assert busy_threads(1, None, on_cpu=False) == 1


def test_teams_of_threads_follow_from_shards() -> None:
    assert learner_threads_of(15, 6, on_cpu=True) == 2
    assert busy_threads(2, 6, on_cpu=True) == 12
