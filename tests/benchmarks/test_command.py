"""`python -m benchmarks` as a user types it: mistakes, interrupts, and each benchmark with tiny settings."""

import json
import os
import re
import signal
from pathlib import Path

import psutil
import pytest

from benchmarks.__main__ import BENCHMARKS, main
from tests.support.runs import child, finish, living, start_words
from tests.support.waiting import until

WORDS = ("--envs", "4", "--inference-batch", "2", "--network", "small", "--learner-members", "1", "--device", "cpu")
ROUNDS = ("--round-steps", "120", "--replay-size", "600", "--learning-starts", "240")
PROGRAM = ("-m", "benchmarks")


MISTAKES = [
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
    ("throughput -- --game pong", "--game after -- is given by the benchmark itself"),
    ("throughput -- --envs 97", "--envs 97 cannot be divided"),
    ("scaling -- --actors 2", "--actors is what this benchmark varies"),
    ("scaling --only learner -- --learner-members 2 --device cpu", "--learner-members is what --only learner varies"),
    ("presets -- --preset iqn", "--preset after -- is what this benchmark varies"),
    ("ladder --only lapan_lst", "did you mean lapan last?"),
    ("peers --peer-steps 0", "--peer-steps: 0 must be a finite number above 0"),
    ("peers --only sb3 -- --batch-size 64", "must leave the game, the batch and the steps of each update alone."),
    ("peers --only sb4", "--only sb4 is not one of sb3, pfrl, cleanrl-dqn, sb3-ppo"),
]


@pytest.mark.parametrize(("words", "says"), MISTAKES)
def test_mistakes_are_one_sentence(
    words: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words.split()) == 2
    printed, told = capsys.readouterr()
    assert (printed, list(tmp_path.iterdir())) == ("", [])
    assert re.fullmatch(rf"python -m benchmarks: .*{re.escape(says)}.*\n", told), told


def test_help_lists_the_benchmarks_and_explains_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    listed = capsys.readouterr().out
    assert all(f"  {name}" in listed for name in BENCHMARKS)
    with pytest.raises(SystemExit, match=r"^0$"):
        main(["limits", "--help"])
    assert re.search("Limits of this machine.*--repeats", capsys.readouterr().out, re.DOTALL)


STRESS = [pytest.mark.stress, pytest.mark.timeout(600)]


FIGURES = [
    ("limits --only memory -- {run}", "ring write", "memcpy into the ring"),
    pytest.param("limits --game pong -- {run}", "pong: actor loop", "pong: bare emulator", marks=STRESS),
    pytest.param("throughput --only speed -- {run} --actors 1", "end to end", "the two alone", marks=STRESS),
    pytest.param("scaling -- {run}", "actors alone, 1", "bare emulator, 1", marks=STRESS),
    pytest.param("scaling --only parts -- {run}", "one of 2: optimizer", "one of 1: optimizer", marks=STRESS),
    pytest.param("presets --only double --end-to-end -- {run}", "double, run", "nature, run", marks=STRESS),
    pytest.param("ladder --only gradients,ringside -- {rung}", "ringside", "gradients", marks=STRESS),
]


@pytest.mark.parametrize(("words", "row", "limit"), FIGURES)
def test_figures_are_measured_from_the_command(tmp_path: Path, words: str, row: str, limit: str) -> None:
    out, rung = tmp_path / "out.json", "--device cpu --round-steps 64 --snapshot-every-steps 64"
    name, *rest = words.format(run=" ".join((*WORDS, *ROUNDS)), rung=rung).split()
    finish(start_words(name, "--json", str(out), "--seconds", "0.2", "--repeats", "1", *rest, program=PROGRAM), 590)
    found = json.loads(out.read_text())
    assert found["missing"] == found["wrong"] == {}
    assert all(value > 0 for each in found["rows"] for value in each["values"] if each["unit"])
    (shown,) = (each for each in found["rows"] if each["name"] == row)
    assert (shown["limit"], shown["ratio"] > 0) == (limit, True)


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.stress)])
def test_interrupted_it_leaves_nothing_running(tmp_path: Path, number: signal.Signals) -> None:
    """SIGINT reaches the whole group, as from a terminal; SIGTERM the benchmark alone."""
    words = ("throughput", "--only", "round", "--seconds", "600", "--json", str(tmp_path / "out.json"))
    process = start_words(*words, "--", *WORDS, *ROUNDS, "--actors", "1", program=PROGRAM)
    until(lambda: child(process, "actor 0"), every=0.1)
    started = psutil.Process(process.pid).children(recursive=True)  # the run has a session of its own
    (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
    finish(process, seconds=60, code=130)
    until(lambda: living(started) is None)
    assert "interrupted" in json.loads((tmp_path / "out.json").read_text())["missing"]["the rest"]
