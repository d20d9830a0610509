"""`launch.py bench limits` as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import Launch, Refused

QUICK = ("--repeats", "1", "--seconds", "0.01", "--window-steps", "2_000", "--batches", "4")


@pytest.mark.stress
def test_every_part_is_measured_and_verified(launched: Launch, tmp_path: Path) -> None:
    done = launched("bench", "limits", *QUICK, "--games", "pong", "--json", "limits.json", timeout=110)
    assert done.returncode == 0, (done.stdout, done.stderr)
    held = json.loads((tmp_path / "limits.json").read_text())
    assert held["wrong"] == {}
    assert set(held["missing"]) <= {"inference on CUDA", "update on CUDA"}
    rows = {row["name"]: row for row in held["rows"]}
    for name in ("pong: env", "pong: actor loop", "ring write", "weights published", "request and reply"):
        assert rows[name]["ratio"] > 0
    assert rows["update, fp32, 4"]["limit"] == "passes of update, fp32, 4"
    assert rows["inference, fp32, 8"]["median"] > 0
    assert all(value > 0 for row in held["rows"] for value in row["values"])
    assert done.stdout.startswith("Limits of this machine")


def test_mistakes_are_one_sentence(refused: Refused, tmp_path: Path) -> None:
    for words, says in (
        (("limits", "--games", "pong,brakout"), "no game 'brakout'; did you mean breakout?"),
        (("limits", "--parts", "emulator,netwrk"), "--parts netwrk is not one of"),
        (("limits", "--json", "nowhere/file"), "--json nowhere/file cannot be written"),
        (("limtis",), "no benchmark 'limtis'; did you mean limits?"),
    ):
        assert says in refused("bench", *words)
    assert list(tmp_path.iterdir()) == []
