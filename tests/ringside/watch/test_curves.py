"""Curves from a metrics.jsonl that grows, is thinned, and is cut back."""

import json
import os
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ringside.watch.source import MOST_POINTS, SERIES, Curves


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file of records, which does not exist yet."""
    return tmp_path / "metrics.jsonl"


@pytest.fixture
def curves(tmp_path: Path) -> Curves:
    return Curves(tmp_path)


def rounds(steps: Iterable[int], **values: object) -> str:
    records = ({"kind": "round", "round": each // 10, "steps": each, **values} for each in steps)
    return "".join(json.dumps(record) + "\n" for record in records)


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def read(curves: Curves, told: dict[str, Any] | None = None) -> dict[str, Any]:
    """Rows of the files that a viewer lacks who was `told` the others."""
    curves.read()
    known = [len(told[kind]) for kind in SERIES] if told else []
    return curves.since(told["edition"] if told else 0, known)


def test_new_points_are_sent_once(path: Path, curves: Curves) -> None:
    assert not curves.read()  # there is no file yet
    episode = '{"kind": "episode", "round": 0, "steps": 7, "return": -3.0}\n'
    path.write_text(episode + rounds([10], loss=0.5, epsilon=1.0, workers_busy=0.75, mean_q=True))
    first = read(curves)
    assert (first["episode"], first["evaluation"], first["fresh"]) == ([[7, -3]], [], True)
    assert [each["name"] for each in first["metrics"]] == ["loss", "mean_q"]
    values = {"epsilon": 1, "workers_busy": 0.75, "loss": 0.5, "mean_q": None}
    numbers = {"steps": 10} | dict.fromkeys(SERIES["round"]) | values
    assert first["round"] == [list(numbers.values())]
    append(path, '{"kind": "evaluation", "evaluation": 0, "round": 1, "steps": 20, "mean_return": 2.5}\n')
    second = read(curves, first)
    assert (second["round"], second["episode"], second["evaluation"], second["fresh"]) == ([], [], [[20, 2.5]], False)


def test_half_a_line_waits_for_its_end_and_nonsense_is_left_out(path: Path, curves: Curves) -> None:
    line = rounds([10], loss=1.0)
    path.write_text('{nonsense\n[]\n{"kind": "round", "steps": "x"}\n' + line[:9])
    assert read(curves)["round"] == []
    append(path, line[9:])
    assert len(read(curves)["round"]) == 1


def test_a_file_that_was_cut_back_or_replaced_is_told_anew(tmp_path: Path, path: Path, curves: Curves) -> None:
    path.write_text(rounds([10, 20, 30]))
    told = read(curves)
    (tmp_path / "new").write_text(rounds([10, 20, 30, 40], loss=0.1))
    os.replace(tmp_path / "new", path)  # as a resume cuts it (ringside/records/metrics.py)
    told = read(curves, told)
    assert (told["fresh"], [row[0] for row in told["round"]]) == (True, [10, 20, 30, 40])
    path.write_text("")
    told = read(curves, told)
    assert (told["fresh"], told["round"]) == (True, [])


def test_a_long_run_is_thinned_evenly(path: Path, curves: Curves) -> None:
    told = read(curves)
    for begin in range(0, 50 * MOST_POINTS, 10 * MOST_POINTS):
        append(path, rounds(range(begin, begin + 10 * MOST_POINTS, 10)))
        former, told = told, read(curves, told)
        assert told["fresh"] == (told["edition"] != former["edition"])
    steps = [row[0] for row in read(curves)["round"]]
    assert MOST_POINTS / 2 <= len(steps) <= MOST_POINTS
    assert {later - former for former, later in pairwise(steps)} == {80}
    assert steps[-1] >= 10 * (5 * MOST_POINTS - 8)


def test_a_long_file_is_read_in_pieces(path: Path, curves: Curves, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringside.records.metrics.READ_BYTES", 200)
    path.write_text(rounds(range(0, 200, 10)))
    assert sum(1 for _ in iter(curves.read, False)) > 2
    assert [row[0] for row in read(curves)["round"]] == list(range(0, 200, 10))


def test_a_metric_that_appears_later_gets_a_column_and_former_rows_get_none(path: Path, curves: Curves) -> None:
    path.write_text(rounds([10], loss=0.5, gradient_norm=2.0))
    told = read(curves)
    append(path, rounds([20], loss=0.25, entropy=1.5))
    told = read(curves, told)
    assert (told["fresh"], [each["label"] for each in told["metrics"]]) == (True, ["loss", "entropy"])
    assert [row[-2:] for row in told["round"]] == [[0.5, None], [0.25, 1.5]]
