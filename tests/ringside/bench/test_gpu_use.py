"""The use of a GPU, from the lines of the driver's tool."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ringside.bench.harness import gpu_use
from ringside.bench.harness.gpu_use import GpuSampler, GpuUse, seen_by_the_driver
from tests.support.waiting import until


@pytest.mark.parametrize(
    ("visible", "index", "name"),
    [("", 0, "0"), ("", 1, "1"), ("3,5", 1, "5"), ("GPU-1a, GPU-2b", 1, "GPU-2b"), ("3", 0, "3")],
)
def test_the_driver_numbers_gpus_its_own_way(
    monkeypatch: pytest.MonkeyPatch, visible: str, index: int, name: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert seen_by_the_driver(index) == name


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tool that says how it was called, in this file, and tells three samples, of which one is none."""
    file, tool = tmp_path / "asked", tmp_path / "nvidia-smi"
    tool.write_text(
        f"#!{sys.executable}\nimport sys, time\n"
        "print('40, 8000\\n[N/A], [N/A]\\n60, 9000', flush=True)\n"
        f"open({str(file)!r}, 'w').write(' '.join(sys.argv[1:]))\ntime.sleep(600)\n"
    )
    tool.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(gpu_use.facts, "has_nvidia_driver", lambda: True)
    return file


def test_samples_are_of_the_gpu_of_the_run(asked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    with GpuSampler() as sampler:
        sampler.begin("cuda:1")
        sampler.begin("cuda:1")
        until(lambda: asked.exists() and asked.read_text())
        assert sampler.use() == GpuUse(0.5, 9000 * 2**20)
    assert "--id=7" in asked.read_text().split()


def test_a_run_on_the_cpu_has_no_samples(asked: Path) -> None:
    with GpuSampler() as sampler:
        sampler.begin("cpu")
        assert sampler.use() is None
    assert not asked.exists()
