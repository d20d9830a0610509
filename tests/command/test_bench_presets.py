"""`launch.py bench presets` as a user types it, with tiny settings."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ringside.bench import preset_costs
from ringside.bench.harness.interleaved import Contender
from ringside.bench.harness.tables import Report
from ringside.bench.preset_costs import Options, _case, _plain_at_other_ratios
from tests.conftest import Launch, Refused

WORDS = ("--envs", "4", "--actors", "1", "--inference-batch", "2", "--network", "small", "--learner-threads", "1")
ROUNDS = ("--round-steps", "120", "--replay-size", "600", "--learning-starts", "240", "--device", "cpu")
QUICK = ("--seconds", "0.2", "--repeats", "1", "--json", "out.json")


@pytest.mark.stress
@pytest.mark.timeout(290)
def test_a_preset_is_measured_beside_the_plain_one(launched: Launch, tmp_path: Path) -> None:
    done = launched("bench", "presets", "--presets", "rainbow", *QUICK, "--", *WORDS, *ROUNDS, timeout=280)
    assert done.returncode == 0, (done.stdout, done.stderr)
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["missing"] == found["wrong"] == {}
    rows = {row["name"]: row for row in found["rows"]}
    assert rows["rainbow, samples"]["limit"] == "nature, samples"
    assert rows["rainbow, samples"]["median"] == pytest.approx(32 * rows["rainbow, learner"]["median"])
    assert any(sentence.startswith("rainbow: an update takes ") for sentence in found["notes"])


@pytest.mark.stress
@pytest.mark.timeout(600)
def test_short_runs_stand_beside_the_plain_one(launched: Launch, tmp_path: Path) -> None:
    flags = ("--presets", "double", "--end-to-end", *QUICK)
    done = launched("bench", "presets", *flags, "--", *WORDS, *ROUNDS, timeout=590)
    assert done.returncode == 0, (done.stdout, done.stderr)
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["missing"] == found["wrong"] == {}
    rows = {row["name"]: row for row in found["rows"]}
    assert rows["double, run"]["limit"] == "nature, run"
    assert rows["double, run"]["ratio"] > 0


def test_a_preset_with_other_samples_a_step_has_a_plain_run_of_its_own() -> None:
    words = ("--device", "cpu", "--replay-size", "100_000")
    cases = [_case(Options(words=words), name) for name in ("nature", "btr", "double")]
    (other,) = _plain_at_other_ratios(Options(words=words), cases)
    assert other.name == cases[1].reference(cases[0]) == "nature at 4 samples"
    assert other.samples_per_step == cases[1].samples_per_step == 4
    assert cases[2].reference(cases[0]) == "nature"


def test_presets_of_workers_have_runs_and_no_learner(monkeypatch: pytest.MonkeyPatch) -> None:
    def speeds(report: Report, contenders: Sequence[Contender], repeats: int) -> dict[str, list[Any]]:
        measured.append([each.name for each in contenders])
        return {}

    measured = list[list[str]]()
    monkeypatch.setattr(preset_costs, "measure_interleaved", speeds)
    monkeypatch.setattr(preset_costs, "learner_pace", lambda plan, seconds: 100.0)
    monkeypatch.setattr(preset_costs, "bare_speeds", lambda game, seconds, processes: [1_000.0])
    for end_to_end, names in ((False, []), (True, ["a3c-async, run", "dqn-async, run"])):
        measured.clear()
        report = Report("presets", "title")
        options = Options(presets="a3c-async,dqn-async", end_to_end=end_to_end, words=("--device", "cpu"))
        preset_costs.measure(options, report)
        assert measured == [["nature"], *([names] if end_to_end else [])]
        note = "Without a learner: a3c-async, dqn-async; --end-to-end measures the runs."
        assert report.notes == ([] if end_to_end else [note])
        assert report.missing == {}


def test_mistakes_are_one_sentence(refused: Refused) -> None:
    for words, says in (
        (("--presets", "rainbw"), "did you mean rainbow?"),
        (("--seconds", "0"), "--seconds 0.0 must be above 0"),
        (("--", "--preset", "iqn"), "--preset after -- is what this benchmark varies"),
    ):
        assert says in refused("bench", "presets", *words)
