"""Memory of a run before it starts: the sizes that are promised, and the refusal of what does not fit."""

import errno
import os
import re
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import pytest

from shared.config.presets import PRESETS
from shared.config.resolve import resolve
from shared.config.run_schedule import make_run_schedule
from shared.config.settings import Config
from shared.errors import ConfigError
from shared.memory import memory_need
from shared.memory.arena import ArenaError
from shared.memory.plan import Plan
from shared.memory.ring import ring_fields
from shared.memory.run_memory import Memory
from shared.root import ROOT
from tests.support.configurations import assert_sentence, settled


def test_memory_that_does_not_suffice_says_what_would_fit() -> None:
    plan = Plan(settled(envs=96, inference_batch=32), 4)
    with pytest.raises(ConfigError) as refused:
        memory_need.require_memory(plan, 4_000_000_000)
    said = str(refused.value)
    assert_sentence(said)
    fits = int(re.search(r"--replay-size ([\d_]+) would fit", said)[1])
    assert 250_000 < fits < 400_000
    memory_need.require_memory(Plan(settled(envs=96, inference_batch=32, replay_size=fits), 4), 4_000_000_000)
    with pytest.raises(ConfigError, match="no replay would fit"):
        memory_need.require_memory(plan, 1_000_000_000)


def test_a_resume_is_not_told_of_a_replay_that_it_refuses() -> None:
    plan = Plan(settled(envs=96, inference_batch=32, resume="runs/pong"), 4)
    with pytest.raises(ConfigError, match=r"only 4\.0 GB are free; fewer --actors need less\."):
        memory_need.require_memory(plan, 4_000_000_000)


def test_an_on_policy_run_holds_a_round_beside_the_rings_and_is_told_of_its_steps() -> None:
    own = {steps: memory_need.own_bytes(Plan(settled(method="a2c", round_steps=steps), 4)) for steps in (320, 320_000)}
    assert own[320_000] - own[320] == (320_000 - 320) * 4 * 84 * 84
    with pytest.raises(ConfigError, match=r"only 4\.0 GB are free; fewer --round-steps need less\."):
        memory_need.require_memory(Plan(settled(method="a2c", round_steps=320_000), 4), 4_000_000_000)


@pytest.mark.parametrize(("method", "setting"), [("a2c", "--round-steps"), ("dqn", "--replay-size")])
def test_a_refused_region_names_the_methods_setting(method: str, setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "posix_fallocate", Mock(side_effect=OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))))
    with pytest.raises(ArenaError, match=f"could not be reserved .*; .* {setting} needs? less") as refused:
        Memory.create(Plan(settled(method=method, round_steps=3_200), 4))
    assert_sentence(str(refused.value))


def test_a_million_steps_take_at_most_7_2_gb() -> None:
    assert sum(item.nbytes for item in ring_fields(make_run_schedule(Config())).values()) <= 7.2e9
    assert Plan(settled(envs=96, inference_batch=32), 18).layout.size <= 7.2e9


def _table_of_memory() -> Iterator[tuple[str, list[float]]]:
    """Each preset of the table of docs/algorithms.md, with the numbers of its row."""
    for line in (ROOT / "docs/algorithms.md").read_text().split("\n## Memory\n")[1].splitlines():
        if line.startswith("| `"):
            names, *cells = line.strip("|").split("|")
            numbers = [float(number) for cell in cells for number in re.findall(r"\d+\.\d+", cell)]
            yield from ((name, numbers) for name in re.findall(r"`([\w-]+)`", names))


def test_the_table_of_memory_is_computed_from_the_layout() -> None:
    table = dict(_table_of_memory())
    assert set(table) == set(PRESETS)
    for name, sizes in table.items():
        config = PRESETS[name].with_settings(actors=2, device="cpu", precision="fp32")  # type: ignore[index]
        assert min(sizes) <= round(Plan(resolve(config), 4).layout.size / 1e9, 2) <= max(sizes), name


ADVICE = [("dqn-async", "a smaller --local-replay needs less"), ("a3c-async", "fewer --workers need less")]


@pytest.mark.parametrize(("preset", "says"), ADVICE)
def test_workers_are_told_of_settings_that_they_have(preset: Any, says: str) -> None:
    plan = Plan(PRESETS[preset].with_settings(actors=2, device="cpu", inference_batch=1), 4)
    with pytest.raises(ConfigError, match=says):
        memory_need.require_memory(plan, 100_000_000)
