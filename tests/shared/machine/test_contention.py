"""Cores that other programs and a hypervisor take, from files of /proc and /sys that were made up."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from shared.machine.contention import Contention, CpuTimes, contention_sentences, cpu_times, sum_cpu_time
from tests.support.machines import tree, v1, v2

SECOND = 1_000_000_000


def stat(*cpus: tuple[int, int, int]) -> str:
    """/proc/stat with a line for each CPU, of (busy, idle, stolen) ticks; what is busy is spread over its columns."""
    lines = [f"cpu{i} {busy - 4} 1 1 {idle - 3} 3 1 1 {stolen} 99 99" for i, (busy, idle, stolen) in enumerate(cpus)]
    return "\n".join(["cpu  9 9 9 9 9 9 9 9 9 9", *lines, "intr 1 2 3", "cpu7 not a processor"]) + "\n"


def show(root: Path, *cpus: tuple[int, int, int]) -> None:
    tree(root, {"proc/stat": stat(*cpus)})


def test_times_of_the_usable_cpus_alone(tmp_path: Path) -> None:
    show(tmp_path, (100, 200, 5), (300, 400, 7), (1_000, 10, 0))
    assert cpu_times({0, 1}, tmp_path) == CpuTimes(4 * SECOND, 12 * SECOND // 100)
    assert cpu_times({1}, tmp_path) == CpuTimes(3 * SECOND, 7 * SECOND // 100)


@pytest.mark.parametrize(
    "text", [None, "", "cpu0 0 0 0 0 0 0 0 0 0 0\n", "cpu0 1 2 3\n", stat()], ids=["none", "", "zeros", "old", "no cpu"]
)
def test_a_kernel_that_does_not_tell_gives_nothing(text: str | None, tmp_path: Path) -> None:
    if text is not None:
        tree(tmp_path, {"proc/stat": text})
    assert cpu_times({0}, tmp_path) is None
    found = Contention(tmp_path, {0})
    found.read(SECOND, 0)
    found.read(2 * SECOND, 0)
    assert (found.at, found.others, found.stolen) == (0, 0, 0)


def test_core_time_that_the_run_did_not_use_belongs_to_others(tmp_path: Path) -> None:
    found = Contention(tmp_path, {0, 1})
    show(tmp_path, (100, 100, 0), (100, 100, 0), (100, 100, 0))
    found.read(10 * SECOND, 3 * SECOND)
    show(tmp_path, (300, 100, 0), (250, 100, 50), (300, 100, 0))
    found.read(12 * SECOND, 4 * SECOND)  # 3.5 s of work in two seconds, one of them the run's own
    assert (found.cores, found.at, found.others, found.stolen) == (2, 12 * SECOND, 5 * SECOND // 2, SECOND // 2)
    show(tmp_path, (350, 250, 0), (300, 200, 50), (300, 100, 0))
    found.read(14 * SECOND, 5 * SECOND)  # the run alone
    assert found.others == 5 * SECOND // 2


def test_under_a_quota_cores_that_the_run_may_not_use_absorb_others(tmp_path: Path) -> None:
    root = v2(tmp_path, "/a", {"a/cpu.max": "100000 100000", "a/cpu.stat": "usage_usec 7000000\n"})
    found = Contention(root, {0, 1, 2})
    show(root, (100, 100, 0), (100, 100, 0), (100, 100, 0))
    found.read(10 * SECOND, 0)
    assert found.cores == 1
    show(root, (300, 100, 0), (300, 100, 0), (150, 250, 0))
    tree(root, {"sys/fs/cgroup/a/cpu.stat": "usage_usec 7500000\n"})
    found.read(12 * SECOND, SECOND // 2)  # others have two of three CPUs, and the quota is for one
    assert found.others == 0
    show(root, (500, 100, 0), (500, 100, 0), (350, 250, 0))
    found.read(14 * SECOND, SECOND)  # and now more than that: half a core of the quota's one is left
    assert found.others == 3 * SECOND // 2


@pytest.mark.parametrize("version", [1, 2])
def test_others_in_the_same_group_share_its_quota(version: int, tmp_path: Path) -> None:
    if version == 2:
        root = v2(tmp_path, "/a/b", {"a/cpu.max": "100000 100000", "a/cpu.stat": "usage_usec 7000000\n"})
        used = "sys/fs/cgroup/a/cpu.stat", "usage_usec 8500000\n"
    else:
        files = {"cpu.cfs_quota_us": "100000", "cpu.cfs_period_us": "100000", "cpuacct.usage": str(7 * SECOND)}
        root = v1(tmp_path, "/a", {f"cpu,cpuacct/a/{name}": text for name, text in files.items()})
        used = "sys/fs/cgroup/cpu,cpuacct/a/cpuacct.usage", str(8_500_000_000)
    found = Contention(root, {0, 1, 2})
    show(root, *[(100, 100, 0)] * 3)
    found.read(10 * SECOND, 0)
    show(root, (250, 150, 0), (100, 300, 0), (100, 300, 0))
    tree(root, dict([used]))
    found.read(12 * SECOND, SECOND // 2)
    assert found.others == SECOND


def test_cpu_time_of_processes_and_of_children_that_they_have_waited_for(tmp_path: Path) -> None:
    fields = " ".join(map(str, range(4, 30)))  # the fourth field is 4, and so on
    tree(tmp_path, {"proc/7/stat": f"7 (a ) b) S {fields}\n", "proc/8/stat": f"8 (x) R {fields}\n"})
    assert sum_cpu_time([7, 9], tmp_path) == (14 + 15 + 16 + 17) * SECOND // 100
    assert sum_cpu_time([7, 8], tmp_path) == 2 * sum_cpu_time([7], tmp_path)


def test_a_small_share_of_others_is_not_shown() -> None:
    assert contention_sentences(None, None, 2) == contention_sentences(0.1, 0.1, 2) == []
    assert contention_sentences(0.9, 0.1, 2) == ["Other programs use 0.9 of 2 cores."]
    assert contention_sentences(0.5, 0.3, 1) == [
        "Other programs use 0.5 of the only core.",
        "The hypervisor takes 0.3 of the only core (steal time).",
    ]


def test_this_machine_tells() -> None:
    """This process uses CPU time, and says that it used none."""
    found = Contention()
    found.read(SECOND, 0)
    end = time.process_time() + 0.1
    while time.process_time() < end:
        pass
    found.read(2 * SECOND, 0)
    assert found.at == 2 * SECOND
    assert found.others > 0
