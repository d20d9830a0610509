"""`launch.py bench throughput` and `bench scaling` as a user types them, with tiny settings."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from shared.root import ROOT
from tests.conftest import Launch, Refused
from tests.support.runs import gone
from tests.support.waiting import until

WORDS = ("--envs", "4", "--actors", "1", "--inference-batch", "2", "--network", "small", "--learner-threads", "1")
ROUNDS = ("--round-steps", "120", "--replay-size", "600", "--learning-starts", "240", "--device", "cpu")


def report(path: Path) -> dict[str, Any]:
    """The JSON that a benchmark wrote."""
    content: dict[str, Any] = json.loads(path.read_text())
    return content


@pytest.mark.stress
@pytest.mark.timeout(240)
def test_throughput_measures_both_sides_and_the_run(launched: Launch, tmp_path: Path) -> None:
    flags = ("--seconds", "0.5", "--repeats", "1", "--parts", "speed", "--json", "out.json")
    done = launched("bench", "throughput", *flags, "--", *WORDS, *ROUNDS, timeout=230)
    assert done.returncode == 0, (done.stdout, done.stderr)
    found = report(tmp_path / "out.json")
    assert found["missing"] == found["wrong"] == {}
    rows = {row["name"]: row for row in found["rows"]}
    for name in ("actors alone", "learner alone", "end to end", "bare emulator, all cores"):
        assert rows[name]["median"] > 0
    sides = rows["actors alone"]["median"], rows["learner alone"]["median"]
    assert rows["the smaller of the two alone"]["median"] == min(sides)
    assert rows["end to end"]["ratio"] == pytest.approx(rows["end to end"]["median"] / min(sides))
    assert rows["samples a step"]["median"] == 8
    assert {"learner", "inference", "actors", "shared region", "private, actor"} <= rows.keys()
    assert "Rounds have 120 steps." in found["notes"]


@pytest.mark.stress
@pytest.mark.timeout(240)
def test_scaling_compares_every_number_of_actors(launched: Launch, tmp_path: Path) -> None:
    words = [word for word in WORDS if word != "--actors"]
    words.remove("1")
    flags = ("--seconds", "0.5", "--repeats", "1", "--json", "out.json")
    done = launched("bench", "scaling", *flags, "--", *words, *ROUNDS, timeout=230)
    assert done.returncode == 0, (done.stdout, done.stderr)
    found = report(tmp_path / "out.json")
    assert found["missing"] == found["wrong"] == {}
    rows = {row["name"]: row for row in found["rows"]}
    assert rows["actors alone, 1"]["limit"] == "bare emulator, 1"
    assert rows["actors alone, 1"]["ratio"] > 0


def test_a_part_that_cannot_run_gives_a_reason_and_the_json_is_whole(launch: Launch, tmp_path: Path) -> None:
    done = launch("bench", "throughput", "--json", "out.json", "--", "--device", "cuda:99")
    assert done.returncode == 1, "nothing could be measured"
    found = report(tmp_path / "out.json")
    assert "There is no device cuda:99" in found["missing"]["settings"]
    assert found["rows"] == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("throughput", "--seconds", "0"), "--seconds 0.0 must be above 0"),
        (("throughput", "--parts", "sped"), "did you mean speed?"),
        (("throughput", "--game", "brakout"), "did you mean breakout?"),
        (("throughput", "--", "--game", "pong"), "--game after -- is given by the benchmark itself"),
        (("throughput", "--", "--envs", "97"), "--envs 97 cannot be divided"),
        (("scaling", "--", "--actors", "2"), "--actors is what this benchmark varies"),
        (("scaling", "--seconds", "-1"), "--seconds -1.0 must be above 0"),
    ],
)
def test_impossible_options_are_refused_at_once(refused: Refused, arguments: tuple[str, ...], says: str) -> None:
    assert says in refused("bench", *arguments)


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.stress)])
def test_interrupted_it_leaves_nothing_running(tmp_path: Path, number: signal.Signals) -> None:
    """SIGINT reaches the whole group, as from a terminal; SIGTERM the benchmark alone."""
    words = ("throughput", "--parts", "round", "--seconds", "600", "--json", str(tmp_path / "out.json"))
    command = [sys.executable, "launch.py", "bench", *words, "--", *WORDS, *ROUNDS]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        until(lambda: _actors(process), every=0.1)
        if number == signal.SIGINT:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        process.wait(60)
    finally:
        process.kill()
        process.wait()
    assert gone(process)
    assert "interrupted" in report(tmp_path / "out.json")["missing"]["the rest"]


def _actors(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """The actors of the run that a benchmark measures."""
    found = []
    for child in psutil.Process(process.pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # it may have ended meanwhile
            found += [child] if child.name().startswith("ringside a") else []
    return found
