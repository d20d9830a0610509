"""Limits are read from trees of files that look like other machines."""

import importlib.metadata
import json
import os
import resource
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from shared.machine import facts
from shared.machine.proc_files import stat_fields
from tests.support.machines import GB, tree, v1, v2


def test_affinity_alone(tmp_path: Path) -> None:
    assert facts.usable_cores(tmp_path) == len(os.sched_getaffinity(0))
    assert facts.usable_cores(tmp_path, affinity=5) == 5


ROUNDED = [("max 100000", 16), ("150000 100000", 2), ("50000 100000", 1), ("3200000 100000", 16)]


@pytest.mark.parametrize(("quota", "cores"), ROUNDED)
def test_quota_of_version_2_is_rounded_up(tmp_path: Path, quota: str, cores: int) -> None:
    assert facts.usable_cores(v2(tmp_path, "/user/run", {"user/run/cpu.max": quota}), affinity=16) == cores


def test_threads_of_one_core_count_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(6)))
    assert facts.physical_cores(tmp_path) == 6, "a virtual machine may not say"
    for n in range(8):
        tree(tmp_path, {f"sys/devices/system/cpu/cpu{n}/topology/thread_siblings_list": f"{n % 4},{n % 4 + 4}\n"})
    assert facts.physical_cores(tmp_path) == 4


V1_QUOTAS = {"docker/x/cpu.cfs_quota_us": "-1", "docker/x/cpu.cfs_period_us": "100000"}
V1_QUOTAS |= {"docker/cpu.cfs_quota_us": "250000", "docker/cpu.cfs_period_us": "100000"}


QUOTAS = [
    (v2, "/a/b/c", {"a/cpu.max": "300000 100000", "a/b/c/cpu.max": "800000 100000"}, 3),  # the tightest above
    (v2, "/docker/x", {"cpu.max": "200000 100000"}, 2),  # in a container the own group is the top
    (v2, "/docker/x/y", {"cpu.max": "300000 100000", "y/cpu.max": "200000 100000"}, 2),  # and one in it
    (v1, "/docker/x", {f"cpu,cpuacct/{name}": text for name, text in V1_QUOTAS.items()}, 3),
]


@pytest.mark.parametrize(("version", "group", "files", "cores"), QUOTAS)
def test_quotas_of_groups_above(tmp_path: Path, version: Any, group: str, files: dict[str, str], cores: int) -> None:
    assert facts.usable_cores(version(tmp_path, group, files), affinity=16) == cores


def test_the_least_of_machine_and_groups_is_usable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=20 * GB))
    assert facts.usable_memory(tmp_path) == 20 * GB
    for limit, usable in ((30, 20), (8, 8)):
        assert facts.usable_memory(v2(tmp_path, "/a", {"a/memory.max": str(limit * GB)})) == usable * GB


TASKS = [
    (0, 3, 30, 30),  # root is free of ulimit -u
    (7, 25, 30, 20),
    (7, 1_000, 30, 30),
    (7, 3, 30, 0),
    (7, 25, None, 20),
    (7, resource.RLIM_INFINITY, None, None),
]


@pytest.mark.parametrize(("user", "limit", "groups", "free"), TASKS)
def test_tasks_of_the_user_and_of_the_groups_above(
    monkeypatch: pytest.MonkeyPatch, user: int, limit: int, groups: int | None, free: int | None
) -> None:
    """User 7 has five threads; one process is another's, and one tells nothing."""
    found = [(SimpleNamespace(real=7), 3), (SimpleNamespace(real=7), 2), (SimpleNamespace(real=8), 9), (None, None)]
    processes = [SimpleNamespace(info={"uids": uids, "num_threads": threads}) for uids, threads in found]
    monkeypatch.setattr(psutil, "process_iter", lambda names: processes)
    monkeypatch.setattr(os, "getuid", lambda: user)
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (limit, limit))
    monkeypatch.setattr(facts.control_groups, "free_tasks", lambda root: groups)
    assert facts.free_tasks() == free


def nvidia_smi(path: Path, *lines: str) -> None:
    """A command of that name that prints these lines."""
    (path / "nvidia-smi").write_text("".join(["#!/bin/sh\n", *(f"echo '{line}'\n" for line in lines)]))
    (path / "nvidia-smi").chmod(0o755)


def test_gpus_as_the_driver_lists_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert facts.gpus() == []
    nvidia_smi(tmp_path, "WARNING: corrupted", "NVIDIA H200, 570.1, 143771, 143000", "NVIDIA T4, 570.1, [N/A], 10")
    first, second = facts.gpus()
    assert first == facts.Gpu("NVIDIA H200", "570.1", 143771 << 20, 143000 << 20)
    assert (second.memory, second.free) == (0, 10 << 20)


FLAGS = [
    ("fpu avx512_bf16 amx_bf16 sse", ["amx_bf16", "avx512_bf16"]),
    ("fpu avx512_bf16", ["avx512_bf16"]),
    ("fpu avx512f amx_bf16_not", []),
]


@pytest.mark.parametrize(("flags", "found"), FLAGS)
def test_flags_of_the_processor_say_where_bf16_is_fast(tmp_path: Path, flags: str, found: list[str]) -> None:
    root = tree(tmp_path, {"proc/cpuinfo": f"processor : 0\nmodel name : X\nflags : {flags}\n\nprocessor : 1\n"})
    assert facts.bf16_flags(root) == facts.describe(root)["bf16_flags"] == found


def test_processors_of_one_name_are_told_apart(tmp_path: Path) -> None:
    root = tree(tmp_path, {"proc/cpuinfo": "cpu family\t: 6\nmodel\t\t: 207\nmodel name\t: X\nstepping\t: 2\n"})
    assert facts.processor(root) == "X (6-207-2)"


def test_the_gpus_of_a_machine_decide_the_last_bits_of_runs_on_them(tmp_path: Path) -> None:
    cards = {f"proc/driver/nvidia/gpus/{n}/information": f"Model: \t\t Card {n // 2}\nIRQ:\t 1\n" for n in range(3)}
    root = tree(tmp_path, cards | {"proc/cpuinfo": "model name : X\n"})
    found = facts.arithmetic("cuda", "cpu", root=root)
    assert (found["cpu"], found["gpu"], found["torch"]) == ("X", "Card 0, Card 1", importlib.metadata.version("torch"))
    assert facts.arithmetic("cpu", "cpu", root=root).keys() == found.keys() - {"gpu"}


def test_no_process_looks_for_devices_without_a_driver_or_cuda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "read_output", None)
    assert facts.cuda_devices(tmp_path) == 0
    tree(tmp_path, {"proc/driver/nvidia/version": "NVRM"})
    monkeypatch.setattr(facts, "torch_cuda_version", lambda: None)
    assert (facts.has_nvidia_driver(tmp_path), facts.cuda_devices(tmp_path)) == (True, 0)


@pytest.mark.parametrize(("driver", "build", "seen"), [(13000, 13, 2), (12080, 12, 2), (13000, 12, 2), (12080, 13, 0)])
def test_a_driver_older_than_the_build_of_torch_shows_it_no_device(
    driver: int, build: int, seen: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(value: int) -> Any:
        return lambda pointer: setattr(pointer._obj, "value", value) or 0

    library = SimpleNamespace(cuInit=lambda flags: 0, cuDriverGetVersion=answer(driver), cuDeviceGetCount=answer(2))
    monkeypatch.setattr("ctypes.CDLL", lambda name: library)
    monkeypatch.setattr("sys.argv", ["-c", str(build)])
    exec(facts._COUNT_DEVICES, {})
    assert int(capsys.readouterr().out) == seen


BUILDS = [("cuda: Optional[str] = None", None), ("cuda: Optional[str] = '12.8'", "12.8"), ("cuda = '13.0'", "13.0")]


@pytest.mark.parametrize(("line", "version"), BUILDS)
def test_the_build_of_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, version: str | None) -> None:
    tree(tmp_path, {"torch/version.py": f"__version__ = '2.13.0+cu128'\n{line}\ngit_version = 'cuda = 1'\n"})
    spec = SimpleNamespace(origin=str(tmp_path / "torch/__init__.py"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: spec)
    assert facts.torch_cuda_version() == version


def test_torch_is_not_loaded_to_learn_its_build() -> None:
    import torch  # the truth that the reading of files is compared with

    assert facts.torch_cuda_version() == torch.version.cuda


def test_description_is_json_and_names_the_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    root = tree(tmp_path, {"proc/cpuinfo": "model name : Fast\nflags : a\n"})
    described = facts.describe(root)
    assert (described["cpu"], described["gpus"], described["gpu_driver"]) == ("Fast", [], None)
    assert json.loads(json.dumps(described)) == described
    assert json.dumps(facts.describe())
    tree(root, {"dev/nvidiactl": ""})
    assert facts.describe(root)["gpus"] == ["NVIDIA GPU"], "nvidia-smi is missing"
    nvidia_smi(tmp_path, "NVIDIA T4, 570.1, 15360, 15000")
    described = facts.describe(root)
    assert (described["gpus"], described["gpu_driver"]) == (["NVIDIA T4"], "570.1")


def test_names_that_are_no_text_are_read(tmp_path: Path) -> None:
    (tmp_path / "stat").write_bytes(b"7 (\xff\xfe) S 1 2\n")
    assert stat_fields(tmp_path / "stat") == ["S", "1", "2"]
