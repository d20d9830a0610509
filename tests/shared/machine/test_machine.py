"""Limits are read from trees of files that look like other machines."""

from __future__ import annotations

import json
import os
import resource
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shared.machine import facts
from shared.machine.proc_files import stat_fields
from tests.support.machines import GB, V1_UNLIMITED, tree, v1, v2


def test_affinity_alone(tmp_path: Path) -> None:
    assert facts.usable_cores(tmp_path) == len(os.sched_getaffinity(0))
    assert facts.usable_cores(tmp_path, affinity=5) == 5


@pytest.mark.parametrize(
    ("quota", "cores"), [("max 100000", 16), ("150000 100000", 2), ("50000 100000", 1), ("3200000 100000", 16)]
)
def test_quota_of_version_2_is_rounded_up(tmp_path: Path, quota: str, cores: int) -> None:
    root = v2(tmp_path, "/user/run", {"user/run/cpu.max": quota})
    assert facts.usable_cores(root, affinity=16) == cores


def test_the_tightest_ancestor_counts(tmp_path: Path) -> None:
    root = v2(
        tmp_path,
        "/a/b/c",
        {"a/cpu.max": "300000 100000", "a/b/cpu.max": "max 100000", "a/b/c/cpu.max": "800000 100000"},
    )
    assert facts.usable_cores(root, affinity=16) == 3


def test_quota_of_version_1(tmp_path: Path) -> None:
    root = v1(
        tmp_path,
        "/docker/x",
        {
            "cpu,cpuacct/docker/x/cpu.cfs_quota_us": "-1",
            "cpu,cpuacct/docker/x/cpu.cfs_period_us": "100000",
            "cpu,cpuacct/docker/cpu.cfs_quota_us": "250000",
            "cpu,cpuacct/docker/cpu.cfs_period_us": "100000",
        },
    )
    assert facts.usable_cores(root, affinity=16) == 3


def test_a_container_that_sees_its_own_group_as_the_top(tmp_path: Path) -> None:
    root = v2(tmp_path, "/docker/x", {"cpu.max": "200000 100000"}, mount_root="/docker/x")
    assert facts.usable_cores(root, affinity=16) == 2


def test_a_container_whose_group_has_a_path_of_the_host(tmp_path: Path) -> None:
    root = v2(tmp_path, "/kubepods/x", {"cpu.max": "200000 100000"})
    assert facts.usable_cores(root, affinity=16) == 2


def test_memory_of_the_machine(tmp_path: Path) -> None:
    root = tree(tmp_path, {"proc/meminfo": "MemTotal: 32000000 kB\nMemAvailable:   20000000 kB\nHugePages_Total: 0\n"})
    assert facts.usable_memory(root) == 20_000_000 * 1024


def test_memory_of_version_2_counts_cache_as_free(tmp_path: Path) -> None:
    root = v2(
        tmp_path,
        "/a/b",
        {
            "a/memory.max": str(8 * GB),
            "a/memory.current": str(5 * GB),
            "a/memory.stat": f"anon 1\ninactive_file {2 * GB}\n",
            "a/b/memory.max": "max",
            "a/b/memory.current": "1",
        },
    )
    tree(root, {"proc/meminfo": "MemAvailable: 20000000 kB\n"})
    assert facts.usable_memory(root) == 5 * GB


def test_memory_of_version_1(tmp_path: Path) -> None:
    root = v1(
        tmp_path,
        "/a",
        {
            "memory/memory.limit_in_bytes": V1_UNLIMITED,
            "memory/memory.usage_in_bytes": str(30 * GB),
            "memory/a/memory.limit_in_bytes": str(4 * GB),
            "memory/a/memory.usage_in_bytes": str(3 * GB),
            "memory/a/memory.stat": f"inactive_file 7\ntotal_inactive_file {GB}\n",
        },
    )
    assert facts.usable_memory(root) == 2 * GB


def test_a_group_over_its_limit_leaves_nothing(tmp_path: Path) -> None:
    root = v2(tmp_path, "/a", {"a/memory.max": str(GB), "a/memory.current": str(2 * GB)})
    assert facts.usable_memory(root) == 0


def test_tasks_of_the_user_and_of_the_groups_above(tmp_path: Path) -> None:
    root = v2(tmp_path, "/a", {"a/pids.max": "100", "a/pids.current": "70"})
    assert facts.free_tasks(root, limit=50, user=0) == 30  # root is free of ulimit -u
    for process, threads in (("17", 3), ("18", 2)):
        for thread in range(threads):
            (root / "proc" / process / "task" / str(thread)).mkdir(parents=True)
    me = os.getuid() or 1
    for process in ("17", "18"):
        os.chown(root / "proc" / process, me if os.getuid() == 0 else -1, -1)
    assert facts.free_tasks(root, limit=25, user=me) == 20
    assert facts.free_tasks(root, limit=1_000, user=me) == 30
    assert facts.free_tasks(root, limit=3, user=me) == 0
    assert facts.free_tasks(tmp_path / "bare", limit=resource.RLIM_INFINITY, user=me) is None


def test_gpus_as_the_driver_lists_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert facts.gpus() == []
    script = "echo 'WARNING: corrupted'; echo 'NVIDIA H200, 570.1, 143771, 143000'; echo 'NVIDIA T4, 570.1, [N/A], 10'"
    (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    first, second = facts.gpus()
    assert first == facts.Gpu("NVIDIA H200", "570.1", 143771 << 20, 143000 << 20)
    assert (second.memory, second.free) == (0, 10 << 20)


@pytest.mark.parametrize(
    ("flags", "found"),
    [
        ("fpu avx512_bf16 amx_bf16 sse", ["amx_bf16", "avx512_bf16"]),
        ("fpu avx512_bf16", ["avx512_bf16"]),
        ("fpu avx512f amx_bf16_not", []),
    ],
)
def test_flags_of_the_processor_say_where_bf16_is_fast(tmp_path: Path, flags: str, found: list[str]) -> None:
    text = f"processor : 0\nmodel name : X\nflags : {flags}\n\nprocessor : 1\n"
    root = tree(tmp_path, {"proc/cpuinfo": text})
    assert facts.bf16_flags(root) == facts.describe(root)["bf16_flags"] == found


def test_no_driver_no_device_and_no_process_to_find_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "read_output", None)
    assert facts.cuda_devices(tmp_path) == 0


def test_a_torch_without_cuda_sees_no_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree(tmp_path, {"proc/driver/nvidia/version": "NVRM"})
    monkeypatch.setattr(facts, "torch_cuda_version", lambda: None)
    monkeypatch.setattr(facts, "read_output", None)
    assert facts.has_nvidia_driver(tmp_path)
    assert facts.cuda_devices(tmp_path) == 0


@pytest.mark.parametrize(
    ("driver", "build", "usable"), [(13000, 13, 2), (12080, 12, 2), (13000, 12, 2), (12080, 13, 0)]
)
def test_a_driver_older_than_the_build_of_torch_shows_it_no_device(
    driver: int, build: int, usable: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(value: int) -> Any:
        def call(pointer: Any) -> int:
            pointer._obj.value = value
            return 0

        return call

    library = SimpleNamespace(cuInit=lambda flags: 0, cuDriverGetVersion=answer(driver), cuDeviceGetCount=answer(2))
    monkeypatch.setattr("ctypes.CDLL", lambda name: library)
    monkeypatch.setattr("sys.argv", ["-c", str(build)])
    exec(facts._COUNT_DEVICES, {})
    assert int(capsys.readouterr().out) == usable


def test_torch_is_not_loaded_to_learn_its_build() -> None:
    import torch  # the truth that the reading of files is compared with

    assert facts.torch_cuda_version() == torch.version.cuda


def test_description_is_json_and_names_the_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    root = tree(
        tmp_path,
        {
            "proc/cpuinfo": "model name : Fast\nsiblings : 16\ncpu cores : 8\nflags : a\n",
            "proc/driver/nvidia/gpus/0000:01/information": "Model: \t NVIDIA H200\nIRQ: 1\n",
        },
    )
    described = facts.describe(root)
    assert (described["cpu"], described["threads_per_core"], described["gpus"]) == ("Fast", 2, ["NVIDIA H200"])
    assert described["gpu_driver"] is None
    assert json.loads(json.dumps(described)) == described
    assert json.dumps(facts.describe())
    for module in ("x86_64 Kernel Module  570.86.15  Thu Oct", "Open Kernel Module for x86_64  570.86.15  Release"):
        tree(tmp_path, {"proc/driver/nvidia/version": f"NVRM version: NVIDIA UNIX {module} ...\nGCC version: 12.2.0\n"})
        assert facts.describe(root)["gpu_driver"] == "570.86.15"
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho 'NVIDIA T4, 570.1, 15360, 15000'\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    in_container = facts.describe(tree(tmp_path / "container", {"dev/nvidiactl": ""}))
    assert (in_container["gpus"], in_container["gpu_driver"]) == (["NVIDIA T4"], "570.1")


def test_names_that_are_no_text_are_read(tmp_path: Path) -> None:
    (tmp_path / "stat").write_bytes(b"7 (\xff\xfe) S 1 2\n")
    assert stat_fields(tmp_path / "stat") == ["S", "1", "2"]
