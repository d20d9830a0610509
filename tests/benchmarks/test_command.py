"""`python -m benchmarks` as a user types it: mistakes, interrupts, and each benchmark with tiny settings."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from benchmarks.__main__ import BENCHMARKS, main
from shared.root import ROOT
from tests.support.runs import gone
from tests.support.waiting import until

WORDS = ("--envs", "4", "--inference-batch", "2", "--network", "small", "--learner-threads", "1", "--device", "cpu")
ROUNDS = ("--round-steps", "120", "--replay-size", "600", "--learning-starts", "240")
QUICK = ("--seconds", "0.2", "--repeats", "1")


def report(path: Path) -> dict[str, Any]:
    """The JSON that a benchmark wrote."""
    content: dict[str, Any] = json.loads(path.read_text())
    return content


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("limtis", "no benchmark 'limtis'; did you mean limits?"),
        ("limits --game pong,brakout", "no game 'brakout'; did you mean breakout?"),
        ("limits --only emulator,netwrk", "--only netwrk is not one of"),
        ("limits --json nowhere/file", "--json nowhere/file cannot be written: its directory does not exist"),
        ("limits --json /dev/full", "--json /dev/full cannot be written: it is not an ordinary file"),
        ("limits pong", "Unrecognized arguments: pong; --help explains the options."),
        ("limits --seconds nan", "--seconds: nan must be a finite number above 0"),
        ("limits --seconds x", "--seconds: invalid float value: 'x'"),
        ("limits --repeats 0", "--repeats: 0 must be a finite number above 0"),
        ("limits -- --replay-size 1_000", "--replay-size 1_000 is smaller than one round"),
        ("throughput --only sped", "did you mean speed?"),
        ("throughput --game brakout", "did you mean breakout?"),
        ("throughput -- --game pong", "--game after -- is given by the benchmark itself"),
        ("throughput -- --envs 97", "--envs 97 cannot be divided"),
        ("throughput -- --device cuda:99", "There is no device cuda:99"),
        ("scaling -- --actors 2", "--actors is what this benchmark varies"),
        ("presets --only rainbw", "did you mean rainbow?"),
        ("presets -- --preset iqn", "--preset after -- is what this benchmark varies"),
        ("ladder --only paralel", "did you mean parallel?"),
        ("ladder --only lapan_lst", "did you mean lapan last?"),
        ("ladder --game pnog", "no game 'pnog'"),
        ("peers --only sb4", "--only sb4 is not one of sb3, pfrl, cleanrl-dqn, sb3-ppo"),
        ("peers --game brakout", "no game 'brakout'"),
    ],
)
def test_mistakes_are_one_sentence(
    words: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words.split()) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert re.fullmatch(r"python -m benchmarks: [^\n]+\n", captured.err), captured.err
    assert says in captured.err
    assert list(tmp_path.iterdir()) == []


def test_help_lists_the_benchmarks_and_explains_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    listed = capsys.readouterr().out
    assert all(f"  {name}" in listed for name in BENCHMARKS)
    with pytest.raises(SystemExit) as end:
        main(["limits", "--help"])
    explained = capsys.readouterr().out
    assert end.value.code == 0
    assert "Limits of this machine" in explained
    assert "--repeats" in explained


def measured(tmp_path: Path, *words: str, timeout: float) -> dict[str, Any]:
    """Rows by name of a benchmark in a process of its own, which measured all that it was asked for."""
    command = [sys.executable, "-m", "benchmarks", words[0], "--json", str(tmp_path / "out.json"), *words[1:]]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, (done.stdout, done.stderr)
    found = report(tmp_path / "out.json")
    assert found["missing"] == found["wrong"] == {}
    assert all(value > 0 for row in found["rows"] for value in row["values"] if row["unit"])
    return {row["name"]: row for row in found["rows"]}


def test_data_paths_are_measured_from_the_command(tmp_path: Path) -> None:
    words = ("--only", "memory", *QUICK, "--", *WORDS, *ROUNDS)
    rows = measured(tmp_path, "limits", *words, timeout=100)
    assert rows["ring write"]["ratio"] > 0


@pytest.mark.stress
def test_every_part_is_measured_and_verified(tmp_path: Path) -> None:
    rows = measured(tmp_path, "limits", "--game", "pong", *QUICK, "--", *WORDS, *ROUNDS, timeout=110)
    for name in ("pong: env", "pong: actor loop", "ring write", "weights published"):
        assert rows[name]["ratio"] > 0
    assert rows["update, fp32"]["limit"] == "passes of update, fp32"
    assert rows["inference, fp32, 8"]["median"] > 0


@pytest.mark.stress
@pytest.mark.timeout(240)
def test_throughput_measures_both_sides_and_the_run(tmp_path: Path) -> None:
    words = ("--only", "speed", *QUICK, "--", *WORDS, *ROUNDS, "--actors", "1")
    rows = measured(tmp_path, "throughput", *words, timeout=230)
    sides = rows["actors alone"]["median"], rows["learner alone"]["median"]
    assert rows["the two alone"]["median"] == min(sides)
    assert rows["end to end"]["ratio"] == pytest.approx(rows["end to end"]["median"] / min(sides))
    assert rows["samples a step"]["median"] == 8
    assert {"busy, learner", "busy, inference", "busy, actor", "shared region", "private, actor"} <= rows.keys()


@pytest.mark.stress
@pytest.mark.timeout(240)
def test_scaling_compares_every_number_of_actors(tmp_path: Path) -> None:
    rows = measured(tmp_path, "scaling", *QUICK, "--", *WORDS, *ROUNDS, timeout=230)
    assert rows["actors alone, 1"]["limit"] == "bare emulator, 1"
    assert rows["actors alone, 1"]["ratio"] > 0


@pytest.mark.stress
@pytest.mark.timeout(600)
def test_a_preset_is_measured_beside_the_plain_one(tmp_path: Path) -> None:
    words = ("--only", "double", "--end-to-end", *QUICK, "--", *WORDS, *ROUNDS, "--actors", "1")
    rows = measured(tmp_path, "presets", *words, timeout=590)
    assert rows["double, samples"]["median"] == pytest.approx(32 * rows["double, learner"]["median"])
    assert rows["double, run"]["limit"] == "nature, run"
    assert rows["double, run"]["ratio"] > 0


@pytest.mark.stress
@pytest.mark.timeout(120)
def test_a_serial_and_a_parallel_rung(tmp_path: Path) -> None:
    words = ("--only", "gradients,ringside", *QUICK, "--", "--round-steps", "64", "--device", "cpu")
    rows = measured(tmp_path, "ladder", *words, "--snapshot-every-steps", "64", timeout=110)
    assert rows["ringside"]["limit"] == "gradients"
    assert rows["ringside"]["ratio"] > 0


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.stress)])
def test_interrupted_it_leaves_nothing_running(tmp_path: Path, number: signal.Signals) -> None:
    """SIGINT reaches the whole group, as from a terminal; SIGTERM the benchmark alone."""
    words = ("throughput", "--only", "round", "--seconds", "600", "--json", str(tmp_path / "out.json"))
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks", *words, "--", *WORDS, *ROUNDS, "--actors", "1"],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        until(lambda: _actors(process), every=0.1)
        if number == signal.SIGINT:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        assert process.wait(60) == 130
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
