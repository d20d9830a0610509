"""Curves from a metrics.jsonl that grows, is thinned, and is cut back."""

from __future__ import annotations

import json
import os
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


def add(path: Path, *records: dict[str, object]) -> None:
    with open(path, "a") as file:
        for record in records:
            file.write(json.dumps(record) + "\n")


def round_(steps: int, **values: object) -> dict[str, object]:
    return {"kind": "round", "round": steps // 10, "steps": steps, **values}


def row_of(curves: Curves, told: dict[str, Any]) -> dict[str, Any]:
    """The first row of the rounds, by column."""
    return dict(zip(("steps", *SERIES["round"], *curves.series["round"].metrics), told["round"][0], strict=True))


def known(curves: Curves) -> list[int]:
    return [len(curves.series[kind].rows) for kind in SERIES]


def edition_of(curves: Curves) -> int:
    edition: int = curves.since(0, [])["edition"]
    return edition


def test_new_points_are_sent_once(path: Path, curves: Curves) -> None:
    assert not curves.read()  # there is no file yet
    add(path, {"kind": "episode", "round": 0, "steps": 7, "return": -3.0}, round_(10, loss=0.5, epsilon=1.0))
    assert not curves.read()
    told = curves.since(edition_of(curves), [0, 0, 0, 0])
    assert (told["episode"], told["evaluation"], told["fresh"]) == ([[7, -3]], [], False)
    row = row_of(curves, told)
    assert (row["steps"], row["loss"], row["epsilon"], row["steps_per_second"]) == (10, 0.5, 1, None)
    had = known(curves)
    add(path, {"kind": "evaluation", "evaluation": 0, "round": 1, "steps": 20, "mean_return": 2.5})
    curves.read()
    told = curves.since(edition_of(curves), had)
    assert (told["round"], told["episode"], told["evaluation"]) == ([], [], [[20, 2.5]])


def test_busy_shares_of_workers_have_a_column(path: Path, curves: Curves) -> None:
    add(path, round_(10, steps_per_second=90.0, workers_busy=0.75, loss=0.5))
    curves.read()
    row = row_of(curves, curves.since(0, []))
    assert (row["workers_busy"], row["actors_busy"], row["loss"]) == (0.75, None, 0.5)


def test_half_a_line_waits_for_its_end_and_nonsense_is_left_out(path: Path, curves: Curves) -> None:
    line = json.dumps(round_(10, loss=1.0)) + "\n"
    path.write_text("{nonsense\n[]\n" + json.dumps({"kind": "round", "steps": "x"}) + "\n" + line[:9])
    curves.read()
    assert known(curves) == [0, 0, 0, 0]
    path.write_text(path.read_text() + line[9:])
    curves.read()
    assert known(curves) == [1, 0, 0, 0]


def test_numbers_that_are_none_are_told_as_unknown(path: Path, curves: Curves) -> None:
    path.write_text('{"kind": "round", "round": 0, "steps": 10, "loss": null, "mean_q": true}\n')
    curves.read()
    assert curves.since(0, [])["round"][0][1:] == [None] * (len(SERIES["round"]) + len(curves.series["round"].metrics))


def test_a_file_that_was_cut_back_or_replaced_is_told_anew(tmp_path: Path, path: Path, curves: Curves) -> None:
    add(path, round_(10), round_(20), round_(30))
    curves.read()
    had, edition = known(curves), edition_of(curves)
    add(tmp_path / "new", round_(10), round_(20, loss=0.1), round_(30), round_(40))
    os.replace(tmp_path / "new", path)  # as a resume cuts it (ringside/records/metrics.py)
    curves.read()
    told = curves.since(edition, had)
    assert told["fresh"]
    assert [row[0] for row in told["round"]] == [10, 20, 30, 40]
    path.write_text("")
    curves.read()
    assert known(curves) == [0, 0, 0, 0]


def test_a_long_run_is_thinned_evenly(path: Path, curves: Curves) -> None:
    for begin in range(0, 5 * MOST_POINTS, MOST_POINTS):
        add(path, *(round_(10 * i) for i in range(begin, begin + MOST_POINTS)))
        had, edition = known(curves), edition_of(curves)
        curves.read()
        assert curves.since(edition, had)["fresh"] == (edition_of(curves) != edition)
    steps = [row[0] for row in curves.series["round"].rows]
    assert MOST_POINTS / 2 <= len(steps) <= MOST_POINTS
    assert {later - former for former, later in pairwise(steps)} == {80}
    assert steps[-1] >= 10 * (5 * MOST_POINTS - 8)


def test_a_long_file_is_read_in_pieces(path: Path, curves: Curves, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringside.records.metrics.READ_BYTES", 200)
    add(path, *(round_(10 * i) for i in range(20)))
    looks = 1
    while curves.read():
        looks += 1
    assert looks > 3
    assert [row[0] for row in curves.series["round"].rows] == [10 * i for i in range(20)]


def test_a_metric_that_appears_later_gets_a_column_and_former_rows_get_none(path: Path, curves: Curves) -> None:
    add(path, round_(10, loss=0.5, gradient_norm=2.0))
    curves.read()
    edition = edition_of(curves)
    add(path, round_(20, loss=0.25, entropy=1.5))
    curves.read()
    told = curves.since(edition, [1, 0, 0, 0])
    assert told["fresh"]
    assert [each["label"] for each in told["metrics"]] == ["loss", "entropy"]
    assert [row[-2:] for row in told["round"]] == [[0.5, None], [0.25, 1.5]]
