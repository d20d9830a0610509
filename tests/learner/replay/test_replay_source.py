"""Placement of the replay's frames by the free memory of the device."""

from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from learner.engine.accelerator import ACCELERATORS
from learner.replay import replay_source
from learner.replay.replay_frames import DeviceFrames, HostFrames
from shared.config.run_schedule import make_run_schedule
from shared.config.settings import Config
from shared.errors import ConfigError
from tests.support.played_ring import PlayedRing, make_algorithm, make_test_engine, small_config

NEEDED = 1_000_000


@pytest.fixture
def is_on_gpu(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str, int], bool]:
    """True if frames lie on the GPU where that device and place are asked for and so many bytes are free."""
    copies, ring = Mock(nbytes=lambda ring: NEEDED), PlayedRing(small_config()).ring
    monkeypatch.setattr(replay_source, "DeviceFrames", copies)

    def choose(device: str, replay_on: str, free: int) -> bool:
        monkeypatch.setattr(ACCELERATORS["cuda"], "free_bytes", lambda device: free)
        frames = replay_source.make_frames(ring, torch.device(device), replay_on)
        assert frames is copies.return_value or isinstance(frames, HostFrames)
        return frames is copies.return_value

    return choose


PLACES = [
    ("cpu", "auto", 100 * NEEDED, False),
    ("cuda:0", "auto", 100 * NEEDED, True),
    ("cuda:0", "auto", round(NEEDED / replay_source.DEVICE_SHARE), True),
    ("cuda:0", "auto", round(NEEDED / replay_source.DEVICE_SHARE) - 2, False),
    ("cuda:0", "host", 100 * NEEDED, False),
    ("cuda:0", "device", 100 * NEEDED, True),
]


@pytest.mark.parametrize(("device", "asked", "free", "fits"), PLACES)
def test_the_window_lies_on_the_gpu_if_it_fits(is_on_gpu: Any, device: str, asked: str, free: int, fits: bool) -> None:
    assert is_on_gpu(device, asked, free) == fits


def test_a_window_that_was_asked_for_there_and_does_not_fit_is_refused(is_on_gpu: Any) -> None:
    with pytest.raises(ConfigError, match=r"--replay-on device needs 0\.0 GB on cuda:0, of which"):
        is_on_gpu("cuda:0", "device", NEEDED)


def test_a_million_steps_take_at_most_7_2_gb_of_a_gpu() -> None:
    assert 7.0e9 < DeviceFrames.nbytes(Mock(run_schedule=make_run_schedule(Config()))) <= 7.2e9


def test_every_chunk_has_the_random_inputs_of_its_round_and_number() -> None:
    config = small_config(make_algorithm(method="iqn", iqn_samples=8), round_steps=40)  # 20 updates
    engine = make_test_engine(PlayedRing(config, ticks=40), config)
    source: Any = engine._source
    for round_ in (3, 4):
        assert engine.begin_round(round_, round_ * 10) == 20
        for number, chunk in enumerate([*source.chunks, source.chunks[0]]):
            source.load(number)
            found = chunk.fractions.clone()
            chunk.draw_random_inputs(3, round_, number)
            assert torch.equal(found, chunk.fractions)
        engine.settle()
