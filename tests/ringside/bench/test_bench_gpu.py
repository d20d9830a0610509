"""`launch.py bench gpu`: what it measures with runs on a CPU too, slowly; without a GPU it says so and continues."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ringside.bench import bench_command
from ringside.bench.harness.tables import WrongResult
from ringside.bench.network_parts.beside import BackgroundLearner, Updates, answers, updates
from shared.config.resolve import resolve
from shared.config.settings import Config
from shared.machine.facts import cuda_devices

SMALL: dict[str, Any] = {
    "device": "cpu",
    "precision": "fp32",
    "network": "small",
    "envs": 4,
    "actors": 1,
    "learner_threads": 1,
    "replay_size": 800,
    "round_steps": 400,
    "learning_starts": 400,
}


@pytest.fixture
def config() -> Config:
    """A learner and an inference server that a CPU manages."""
    return resolve(Config().with_settings(**SMALL))


def test_learners_with_the_same_numbers_are_told_by_their_parameters(config: Config) -> None:
    first: dict[tuple[Any, ...], str] = {}
    one = updates(config, 0.1)
    assert one.per_second > 0
    one.check(first, ())
    Updates(2.0, one.digest).check(first, ())
    with pytest.raises(WrongResult, match="parameters differ"):
        Updates(1.0, "others").check(first, ())


def test_answers_are_timed_beside_a_learner(config: Config) -> None:
    with BackgroundLearner(config, {}) as learner:
        told = answers(config, 0.1, {})
        assert 0 < told.median_us <= told.late_us
        assert learner.per_second() > 0


@pytest.mark.skipif(cuda_devices() > 0, reason="there is a GPU here, and it would be measured")
def test_without_a_gpu_it_says_so_in_valid_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "gpu.json"
    benchmark = bench_command.find_benchmark("gpu")
    assert bench_command.run(benchmark, benchmark.options(json=file), ["--json", str(file)]) == 1
    told = json.loads(file.read_text())
    assert told["missing"].keys() == {"latency", "learner"}
    assert all("There is no device cuda" in reason for reason in told["missing"].values())
    assert not told["rows"]
    assert "not measured" in capsys.readouterr().out
