"""`launch.py bench ladder` as a user types it: one rung in one process and one run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import Launch, Refused

TINY = ("--seconds", "1", "--repeats", "1", "--round-steps", "64", "--device", "cpu")


@pytest.mark.stress
def test_a_serial_and_a_parallel_rung(launched: Launch, tmp_path: Path) -> None:
    done = launched("bench", "ladder", "--only", "gradients,ringside", *TINY, "--json", "ladder.json", timeout=110)
    assert done.returncode == 0, done.stderr
    written = json.loads((tmp_path / "ladder.json").read_text())
    assert not written["missing"], written["missing"]
    first, second = written["rows"]
    assert (first["name"], first["unit"], first["limit"]) == ("gradients", "steps/s", None)
    assert (second["name"], second["limit"]) == ("ringside", "gradients")
    assert first["median"] > 0
    assert second["ratio"] > 0


def test_a_rung_that_does_not_exist(refused: Refused) -> None:
    assert "did you mean parallel?" in refused("bench", "ladder", "--only", "paralel")
