"""Cores for actors: one thread of every core first, whole cores left for learner and inference, claims held apart."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.machine.cores import Claims, choose_threads, physical_cores, threads_for_actors
from tests.support.machines import v2


def machine(root: Path, cores: int, threads: int) -> Path:
    """A tree of /sys for `cores` cores; thread `t` belongs to core `t % cores`, as Linux numbers them on Intel."""
    for thread in range(cores * threads):
        folder = root / f"sys/devices/system/cpu/cpu{thread}/topology"
        folder.mkdir(parents=True)
        siblings = ",".join(str(thread % cores + layer * cores) for layer in range(threads))
        (folder / "thread_siblings_list").write_text(siblings + "\n")
    return root


@pytest.fixture
def claims() -> Iterator[Claims]:
    """Claims that are given back after the test."""
    held = Claims()
    yield held
    held.close()


def see(monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    """Let this process have the affinity of a machine of so many threads, of numbers that no run on this one uses."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(threads)))


def test_threads_are_grouped_by_core(tmp_path: Path) -> None:
    machine(tmp_path, cores=8, threads=2)
    assert physical_cores(range(16), tmp_path) == [[core, core + 8] for core in range(8)]
    assert physical_cores({1, 9, 10}, tmp_path) == [[1, 9], [10]]  # of core 2 only the second thread is ours
    assert physical_cores({3, 5}, tmp_path / "nowhere") == [[3], [5]]


def test_neighbouring_numbers_may_be_siblings(tmp_path: Path) -> None:
    for thread in range(4):
        folder = tmp_path / f"sys/devices/system/cpu/cpu{thread}/topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{thread // 2 * 2}-{thread // 2 * 2 + 1}\n")
    assert physical_cores(range(4), tmp_path) == [[0, 1], [2, 3]]


@pytest.mark.parametrize(
    ("actors", "threads"),
    [
        (4, [0, 1, 2, 3]),  # a core each
        (6, [0, 1, 2, 3, 4, 5]),
        (8, [0, 1, 2, 3, 4, 5, 8, 9]),  # then second threads, before the last two cores are touched
        (12, [0, 1, 2, 3, 4, 5, 8, 9, 10, 11, 12, 13]),
        (14, [0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14]),  # one core of two threads is left
        (15, []),
    ],
)
def test_sixteen_threads_on_eight_cores(actors: int, threads: list[int]) -> None:
    cores = [[core, core + 8] for core in range(8)]
    assert threads_for_actors(actors, cores)[:actors] == threads


def test_two_cores_of_one_thread_are_left() -> None:
    cores = [[core] for core in range(16)]
    assert threads_for_actors(14, cores) == list(range(14))
    assert threads_for_actors(15, cores) == []
    assert threads_for_actors(1, cores[:2]) == []


def test_learner_and_inference_have_the_fastest_cores(tmp_path: Path) -> None:
    """Eight threads of four fast cores, then four slow cores, as processors of two kinds are numbered."""
    for thread in range(12):
        folder = tmp_path / f"sys/devices/system/cpu/cpu{thread}"
        (folder / "topology").mkdir(parents=True)
        (folder / "cpufreq").mkdir()
        first = thread // 2 * 2
        (folder / "topology/thread_siblings_list").write_text(f"{first}-{first + 1}" if thread < 8 else f"{thread}")
        (folder / "cpufreq/cpuinfo_max_freq").write_text("5000000\n" if thread < 8 else "3800000\n")
    cores = physical_cores(range(12), tmp_path)
    assert cores == [[0, 1], [2, 3], [8], [9], [10], [11], [4, 5], [6, 7]]
    assert threads_for_actors(3, cores)[:3] == [0, 2, 8]


def eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process see cores of numbers far beyond this machine's, which no run of its own can have claimed."""
    cores = [[9_000 + core, 9_008 + core] for core in range(8)]
    monkeypatch.setattr("shared.machine.cores.physical_cores", lambda threads, root: cores)
    see(monkeypatch, 16)


def test_every_actor_gets_a_thread_that_no_other_run_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, claims: Claims
) -> None:
    eight_cores(monkeypatch)
    assert choose_threads(4, 0, claims, tmp_path) == [frozenset({9_000 + core}) for core in range(4)]
    other = Claims()
    assert choose_threads(7, 0, other, tmp_path) == [frozenset({9_000 + core}) for core in (4, 5, 8, 9, 10, 11, 12)]
    third = Claims()
    assert choose_threads(4, 0, third, tmp_path) == []
    assert third.threads == []  # what it could have is not kept from others
    other.close()
    assert choose_threads(4, 0, third, tmp_path) == [frozenset({9_000 + core}) for core in (4, 5, 8, 9)]
    third.close()


@pytest.mark.parametrize(
    ("actors", "members", "found"),
    [
        (2, 4, [4, 5, 0, 1, 2, 3]),  # the last two cores are left
        (5, 4, [4, 5, 6, 12, 13, 0, 1, 2, 3]),  # one core of two threads is left
        (7, 4, [0, 1, 2, 3, 4, 5, 8]),  # no member has a core: as without members
        (2, 8, [0, 1]),
        (15, 2, []),
    ],
)
def test_every_member_of_a_team_gets_a_core_that_no_actor_shares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, claims: Claims, actors: int, members: int, found: list[int]
) -> None:
    eight_cores(monkeypatch)
    chosen = choose_threads(actors, members, claims, tmp_path)
    assert [thread - 9_000 for (thread,) in chosen] == found


@pytest.mark.parametrize(
    ("quota", "bound"), [("1550000 100000", False), ("1600000 100000", True), ("max 100000", True)]
)
def test_no_fixed_places_under_a_quota(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, claims: Claims, quota: str, bound: bool
) -> None:
    """A quota is of no certain cores: others may have theirs on the same."""
    monkeypatch.setattr(
        "shared.machine.cores.physical_cores", lambda threads, root: [[9_000 + core] for core in range(16)]
    )
    see(monkeypatch, 16)
    root = v2(tmp_path, "/box", {"box/cpu.max": quota})
    assert len(choose_threads(2, 0, claims, root)) == (2 if bound else 0)
    assert len(claims.threads) == (2 if bound else 0)
