"""Service times that are kept for doctor and for runs."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from shared.errors import ConfigError
from shared.performance import known_times
from shared.performance.service_times import ServiceTimes
from tests.shared.performance.test_throughput_model import TIMES


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache folder of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_stored_times_are_found_under_their_key_alone() -> None:
    key, other = known_times.key_of({"cores": 2}), known_times.key_of({"cores": 3})
    assert known_times.find_times(key) is None
    known_times.keep(key, TIMES)
    known_times.keep(other, replace(TIMES, step=1e-3))
    assert known_times.find_times(key) == TIMES
    assert known_times.find_times(other) == replace(TIMES, step=1e-3)


def test_the_oldest_entries_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_times, "KEPT", 3)
    for key in ("a", "b", "a", "c", "d"):
        known_times.keep(key, TIMES)
    assert [known_times.find_times(key) is not None for key in "abcd"] == [True, False, True, True]


@pytest.mark.parametrize(
    "content", ["", "[1]", '{"key": 3}', '{"key": {"step": 1}}', '{"key": {"step": "1"}}', '{"key": null}']
)
def test_a_damaged_file_holds_nothing(content: str) -> None:
    known_times.times_file().parent.mkdir()
    known_times.times_file().write_text(content)
    assert known_times.find_times("key") is None


def test_a_user_without_a_home_has_no_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    assert known_times.find_times("key") is None


def test_times_out_of_range_are_refused() -> None:
    assert ServiceTimes.from_json(TIMES.to_json()) == TIMES
    for name, value in (("step", 0.0), ("answer", -1.0), ("crowding", 0.0), ("parallel_share", 1.5), ("wake", "1")):
        with pytest.raises(ValueError, match=r"service times|must be finite"):
            ServiceTimes.from_json(TIMES.to_json() | {name: value})


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(ConfigError, match="Set XDG_CACHE_HOME to a folder"):
        known_times.keep("key", TIMES)
