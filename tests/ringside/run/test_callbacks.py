"""Callbacks: each record once, in order; metrics of the user's own, in their file, on dashboards and on the page."""

import json
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from ringside.records.own_metrics import OwnMetrics
from ringside.run.training import Callbacks, dispatching
from ringside.watch.source import SERIES, Curves
from shared.errors import ConfigError, StopTraining
from shared.process.ownership import OWN_EVENTS, OWN_METRICS_FILE
from tests.support.written_runs import log_rounds


def own_records(run_dir: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run_dir / OWN_METRICS_FILE).read_text().splitlines()]


def rounds_by_two(record: dict[str, Any]) -> dict[str, float]:
    return {"twice": 2.0 * record["round"]}


def fail(sentence: str) -> None:
    raise AssertionError(sentence)


def test_each_record_is_passed_on_once_and_in_order(tmp_path: Path) -> None:
    told: list[tuple[str, int]] = []

    def tell(name: str) -> Callable[[dict[str, Any]], None]:
        return lambda record: told.append((name, record["steps"]))

    callbacks = Callbacks(on_round=tell("round"), on_episode=tell("episode"), on_evaluation=tell("evaluation"))
    with dispatching(callbacks, tmp_path, tmp_path, 0, {}, fail) as poll:
        poll()
        log_rounds(tmp_path, 0, 1)
        poll()
        poll()
        assert told == [("episode", 4), ("round", 40)]
        log_rounds(tmp_path, 1, 2, evaluation=0)
    assert told[2:] == [("episode", 44), ("round", 80), ("evaluation", 80)], "the rest at the end"
    assert not (tmp_path / OWN_METRICS_FILE).exists(), "nothing was returned"


def test_a_request_to_stop_loses_no_record(tmp_path: Path) -> None:
    """Several rounds come with one read, and each call asks for a stop."""
    mine, enough = {"mine": 1.0}, StopTraining("enough")
    stop = Mock(side_effect=[mine, enough, mine, enough, mine])
    with dispatching(Callbacks(on_round=stop), tmp_path, tmp_path, 0, {}, fail) as poll:
        log_rounds(tmp_path, 0, 4)
        with pytest.raises(StopTraining):
            poll()
        assert stop.call_count == 2
        log_rounds(tmp_path, 4, 5)
    assert [call.args[0]["round"] for call in stop.mock_calls] == [0, 1, 2, 3, 4]
    assert [record["round"] for record in own_records(tmp_path)] == [0, 2, 4]


def test_metrics_of_callbacks_are_recorded_at_the_steps_of_the_record(tmp_path: Path) -> None:
    callbacks = Callbacks(on_round=rounds_by_two, on_evaluation=lambda record: {"score": record["mean_return"]})
    with dispatching(callbacks, tmp_path, tmp_path, 0, {}, fail) as poll:
        log_rounds(tmp_path, 0, 2, evaluation=0)
        poll()
    told = [(record["steps"], record["values"]) for record in own_records(tmp_path)]
    assert told == [(40, {"twice": 0.0}), (80, {"twice": 2.0}), (80, {"score": 7.0})]
    events = EventAccumulator(str(tmp_path / OWN_EVENTS)).Reload()
    assert [(event.step, event.value) for event in events.Scalars("own/twice")] == [(40, 0.0), (80, 2.0)]

    curves = Curves(tmp_path)
    curves.read()
    told = curves.since(0, [0] * len(SERIES))
    rows = [[40, 0.0, None], [80, 2.0, None], [80, None, 7.0]]
    assert (told["own_metrics"], told["own"]) == (["twice", "score"], rows)


def test_a_resume_goes_on_with_the_metrics_up_to_its_boundary(tmp_path: Path) -> None:
    callbacks = Callbacks(on_round=rounds_by_two)
    with dispatching(callbacks, tmp_path, tmp_path, 0, {}, fail):
        log_rounds(tmp_path, 0, 3)
    with dispatching(callbacks, tmp_path, tmp_path, 80, {"round": 1}, fail) as poll:
        poll()
        log_rounds(tmp_path, 3, 4)
    assert [record["steps"] for record in own_records(tmp_path)] == [40, 80, 120, 160]


NO_METRICS = [
    (3.0, "on_round returned a float; return numbers by name, or None"),
    ({"My Metric": 1.0}, "a metric named 'My Metric'"),
    ({"mine": "x"}, "mine = 'x', which is no number"),
]


@pytest.mark.parametrize(("returned", "says"), NO_METRICS)
def test_a_value_that_is_no_metric_is_refused(tmp_path: Path, returned: Any, says: str) -> None:
    log_rounds(tmp_path, 0, 1)
    callbacks = Callbacks(on_round=lambda record: returned)
    with pytest.raises(ConfigError, match=says), dispatching(callbacks, tmp_path, tmp_path, 0, {}, fail):
        pass


def test_a_disk_that_refuses_delays_the_metrics(tmp_path: Path) -> None:
    notes: list[str] = []
    own = OwnMetrics(tmp_path, tmp_path, 0, notes.append)
    (tmp_path / OWN_METRICS_FILE).mkdir()
    for steps in (40, 80):
        own.add({"steps": steps, "round": 0, "kind": "round"}, {"mine": 1.0})
        own.flush()
    assert len(notes) == 1
    (tmp_path / OWN_METRICS_FILE).rmdir()
    own.close()
    assert [record["steps"] for record in own_records(tmp_path)] == [40, 80]


def test_a_disk_that_takes_a_part_is_told_of(tmp_path: Path) -> None:
    notes: list[str] = []
    own = OwnMetrics(tmp_path, tmp_path, 0, notes.append)
    own.add({"steps": 40, "round": 0, "kind": "round"}, {"mine": 1.0})
    former = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5, former[1]))
    try:
        own.flush()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, former)
    assert (len(notes), (tmp_path / OWN_METRICS_FILE).read_bytes()) == (1, b"")
    own.close()
    assert [record["steps"] for record in own_records(tmp_path)] == [40]
