"""Cores for actors: one thread of every core first, whole cores left for learner and inference, claims held apart."""

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from shared.machine.cores import Claims, choose_threads, physical_cores, threads_for_actors
from tests.support.machines import tree, v2


def machine(root: Path, name: str, *texts: str) -> None:
    """A tree of /sys with a file of this name for each thread."""
    tree(root, {f"sys/devices/system/cpu/cpu{thread}/{name}": f"{text}\n" for thread, text in enumerate(texts)})


SIBLINGS = "topology/thread_siblings_list"


@pytest.fixture
def claims(monkeypatch: pytest.MonkeyPatch) -> Iterator[Claims]:
    """Claims on eight cores, which are given back after the test.

    The numbers of the cores are far beyond this machine's, so no run of its own can have claimed them.
    """
    cores = [[9_000 + core, 9_008 + core] for core in range(8)]
    monkeypatch.setattr("shared.machine.cores.physical_cores", lambda threads, root: cores)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)))
    with closing(Claims()) as held:
        yield held


def test_threads_are_grouped_by_core(tmp_path: Path) -> None:
    machine(tmp_path, SIBLINGS, *[f"{core},{core + 8}" for core in range(8)] * 2)  # as Linux numbers them on Intel
    assert physical_cores(range(16), tmp_path) == [[core, core + 8] for core in range(8)]
    assert physical_cores({1, 9, 10}, tmp_path) == [[1, 9], [10]]  # of core 2 only the second thread is ours
    assert physical_cores({3, 5}, tmp_path / "nowhere") == [[3], [5]]


SIXTEEN_THREADS = [
    (4, [0, 1, 2, 3]),  # a core each
    (6, [0, 1, 2, 3, 4, 5]),
    (8, [0, 1, 2, 3, 4, 5, 8, 9]),  # then second threads, before the last two cores are touched
    (12, [0, 1, 2, 3, 4, 5, 8, 9, 10, 11, 12, 13]),
    (14, [0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14]),  # one core of two threads is left
    (15, []),
]


@pytest.mark.parametrize(("actors", "threads"), SIXTEEN_THREADS)
def test_sixteen_threads_on_eight_cores(actors: int, threads: list[int]) -> None:
    assert threads_for_actors(actors, [[core, core + 8] for core in range(8)])[:actors] == threads


def test_two_cores_of_one_thread_are_left() -> None:
    cores = [[core] for core in range(16)]
    assert threads_for_actors(14, cores) == list(range(14))
    assert threads_for_actors(15, cores) == threads_for_actors(1, cores[:2]) == []


def test_learner_and_inference_have_the_fastest_cores(tmp_path: Path) -> None:
    """Eight threads of four fast cores, then four slow cores, as processors of two kinds are numbered."""
    fast = [f"{core}-{core + 1}" for core in (0, 0, 2, 2, 4, 4, 6, 6)]
    machine(tmp_path, SIBLINGS, *fast, "8", "9", "10", "11")
    machine(tmp_path, "cpufreq/cpuinfo_max_freq", *["5000000"] * 8, *["3800000"] * 4)
    cores = physical_cores(range(12), tmp_path)
    assert cores == [[0, 1], [2, 3], [8], [9], [10], [11], [4, 5], [6, 7]]
    assert threads_for_actors(3, cores)[:3] == [0, 2, 8]


def test_every_actor_gets_a_thread_that_no_other_run_has(tmp_path: Path, claims: Claims) -> None:
    assert choose_threads(4, 0, claims, tmp_path) == [frozenset({9_000 + core}) for core in range(4)]
    with closing(Claims()) as third:
        with closing(Claims()) as other:
            found = choose_threads(7, 0, other, tmp_path)
            assert found == [frozenset({9_000 + core}) for core in (4, 5, 8, 9, 10, 11, 12)]
            assert choose_threads(4, 0, third, tmp_path) == third.threads == []  # what it could have is left to others
        assert choose_threads(4, 0, third, tmp_path) == [frozenset({9_000 + core}) for core in (4, 5, 8, 9)]


TEAMS = [
    (2, 4, [4, 5, 0, 1, 2, 3]),  # the last two cores are left
    (5, 4, [4, 5, 6, 12, 13, 0, 1, 2, 3]),  # one core of two threads is left
    (7, 4, [0, 1, 2, 3, 4, 5, 8]),  # no member has a core: as without members
    (2, 8, [0, 1]),
    (15, 2, []),
]


@pytest.mark.parametrize(("actors", "members", "found"), TEAMS)
def test_every_member_of_a_team_gets_a_core_that_no_actor_shares(
    tmp_path: Path, claims: Claims, actors: int, members: int, found: list[int]
) -> None:
    chosen = choose_threads(actors, members, claims, tmp_path)
    assert [thread - 9_000 for (thread,) in chosen] == found


BESIDE = {((4, 2), (2, 2)): [10, 11], ((2, 2), (2, 2)): [4, 5], ((2, 4), (4, 0)): []}
"""Threads by actors and members of two runs, where the second would have its members on cores of the first."""


@pytest.mark.parametrize(("runs", "found"), BESIDE.items())
def test_beside_another_run_no_process_shares_a_core_with_a_member(
    tmp_path: Path, claims: Claims, runs: tuple[tuple[int, int], tuple[int, int]], found: list[int]
) -> None:
    assert len(choose_threads(*runs[0], claims, tmp_path)) == sum(runs[0])
    with closing(Claims()) as other:
        assert [thread - 9_000 for (thread,) in choose_threads(*runs[1], other, tmp_path)] == found


@pytest.mark.parametrize(("quota", "bound"), [("155000 10000", False), ("160000 10000", True), ("max 10000", True)])
def test_no_fixed_places_under_a_quota(tmp_path: Path, claims: Claims, quota: str, bound: bool) -> None:
    """A quota is of no certain cores: others may have theirs on the same."""
    found = choose_threads(2, 0, claims, v2(tmp_path, "/box", {"box/cpu.max": quota}))
    assert len(found) == len(claims.threads) == (2 if bound else 0)
