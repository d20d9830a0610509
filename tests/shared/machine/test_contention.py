"""Cores that other programs and a hypervisor take, by counts of a kernel that were made up."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from shared.machine.contention import Contention, contention_sentences, sum_cpu_time
from tests.support.machines import tree, v2

SECOND = 1_000_000_000
Show = Callable[..., None]


@pytest.fixture
def show(tmp_path: Path) -> Show:
    """Shows the CPUs 0, 4 and 5, of (busy, idle, stolen) seconds each; what is busy is spread over its kinds."""

    def shown(*cpus: tuple[float, float, float]) -> None:
        lines = ["cpu 0 0 0 0 0 0 0 0 0 0"]
        for cpu, (busy, idle, stolen) in zip((0, 4, 5), cpus, strict=False):
            seconds = (busy / 2, busy / 5, busy / 10, idle - 0.3, 0.3, busy / 10, busy / 10, stolen, 9 * busy, 0)
            lines.append(f"cpu{cpu} " + " ".join(str(round(each * os.sysconf("SC_CLK_TCK"))) for each in seconds))
        tree(tmp_path, {"proc/stat": "\n".join([*lines, "intr 5 6 7"])})

    return shown


def test_core_time_that_the_run_did_not_use_belongs_to_others(tmp_path: Path, show: Show) -> None:
    found = Contention(tmp_path, {0, 4})
    show((1, 1, 0), (1, 1, 0), (1, 1, 0))
    found.read(10 * SECOND, 3 * SECOND)
    show((3, 1, 0), (2.5, 1, 0.5), (9, 1, 3))
    found.read(12 * SECOND, 4 * SECOND)  # 3.5 s of work in two seconds, one of them the run's own
    assert (found.cores, found.at, found.others, found.stolen) == (2, 12 * SECOND, 5 * SECOND // 2, SECOND // 2)
    show((3.5, 2.5, 0), (3, 2, 0.5), (9, 1, 3))
    found.read(14 * SECOND, 5 * SECOND)  # the run alone
    assert found.others == 5 * SECOND // 2


def test_a_kernel_that_does_not_tell_gives_nothing(tmp_path: Path, show: Show) -> None:
    show((1, 1, 0))  # of a CPU that the run may not use
    found = Contention(tmp_path, {4})
    found.read(SECOND, 0)
    assert (found.at, found.others, found.stolen) == (0, 0, 0)


def test_under_a_quota_cores_that_the_run_may_not_use_absorb_others(tmp_path: Path, show: Show) -> None:
    found = Contention(v2(tmp_path, "/a", {"a/cpu.max": "100000 100000"}), {0, 4, 5})
    show(*[(1, 1, 0)] * 3)
    found.read(10 * SECOND, 0)
    assert found.cores == 1
    show((3, 1, 0), (3, 1, 0), (1.5, 2.5, 0))
    found.read(12 * SECOND, SECOND // 2)  # others have two of three CPUs, and the quota is for one
    assert found.others == 0
    show((5, 1, 0), (5, 1, 0), (3.5, 2.5, 0))
    found.read(14 * SECOND, SECOND)  # and now more than that: half a core of the quota's one is left
    assert found.others == 3 * SECOND // 2


def test_cpu_time_of_processes_and_of_children_that_they_have_waited_for() -> None:
    burn = "import time\nwhile time.process_time() < 0.2: pass\n"
    before = sum_cpu_time([os.getpid(), 2**31 - 7])  # the other is none
    subprocess.run([sys.executable, "-c", burn], check=True)
    assert 0.1 * SECOND <= sum_cpu_time([os.getpid()]) - before < 5 * SECOND


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
    found.cores = len(os.sched_getaffinity(0))  # also under a quota
    found.read(SECOND, 0)
    end = time.process_time() + 0.1
    while time.process_time() < end:
        pass
    found.read(2 * SECOND, 0)
    assert found.at == 2 * SECOND
    assert found.others > 0
