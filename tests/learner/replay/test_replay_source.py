"""Placement of the replay's frames by the free memory of the device."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from learner.engine.accelerator import ACCELERATORS
from learner.replay import replay_source
from learner.replay.replay_frames import DeviceFrames
from shared.config.run_schedule import make_run_schedule
from shared.config.settings import Config
from shared.errors import ConfigError
from tests.support.played_ring import PlayedRing, make_algorithm, make_test_engine, small_config

NEEDED = 1_000_000


class Copies:
    """Stands for the copy on a GPU."""

    def __init__(self, *_: Any) -> None:
        pass

    @staticmethod
    def nbytes(ring: Any) -> int:
        return NEEDED


@pytest.fixture
def ring(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(replay_source, "DeviceFrames", Copies)
    return PlayedRing(small_config()).ring


def _chosen(ring: Any, device: str, replay_on: str, free: int, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(ACCELERATORS["cuda"], "free_bytes", lambda device: free)
    return type(replay_source.make_frames(ring, torch.device(device), replay_on)).__name__


@pytest.mark.parametrize(
    ("device", "replay_on", "free", "chosen"),
    [
        ("cpu", "auto", 100 * NEEDED, "HostFrames"),
        ("cuda:0", "auto", 100 * NEEDED, "Copies"),
        ("cuda:0", "auto", round(NEEDED / replay_source.DEVICE_SHARE), "Copies"),
        ("cuda:0", "auto", round(NEEDED / replay_source.DEVICE_SHARE) - 2, "HostFrames"),
        ("cuda:0", "host", 100 * NEEDED, "HostFrames"),
        ("cuda:0", "device", 100 * NEEDED, "Copies"),
    ],
)
def test_the_window_lies_on_the_gpu_where_it_fits(
    ring: Any, device: str, replay_on: str, free: int, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _chosen(ring, device, replay_on, free, monkeypatch) == chosen


def test_a_window_that_was_asked_for_there_and_does_not_fit_is_refused(
    ring: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match=r"--replay-on device needs 0\.0 GB on cuda:0, of which"):
        _chosen(ring, "cuda:0", "device", NEEDED, monkeypatch)


def test_a_million_steps_take_at_most_7_2_gb_of_a_gpu() -> None:
    ring: Any = SimpleNamespace(run_schedule=make_run_schedule(Config()))
    assert 7.0e9 < DeviceFrames.nbytes(ring) <= 7.2e9


@pytest.mark.usefixtures("one_thread")
def test_every_chunk_has_the_random_inputs_of_its_round_and_number() -> None:
    config = small_config(make_algorithm(method="iqn", iqn_samples=8), round_steps=40)  # 20 updates
    played = PlayedRing(config)
    played.play(40)
    engine = make_test_engine(played, config)
    source: Any = engine._source
    for round_ in (3, 4):
        assert engine.begin_round(round_, round_ * 10) == 20
        for number, chunk in enumerate([*source.chunks, source.chunks[0]]):
            source.load(number)
            found = chunk.fractions.clone()
            chunk.draw_random_inputs(3, round_, number)
            assert torch.equal(found, chunk.fractions)
        engine.settle()
