"""Measuring in turn: what fails is left out, and what was measured before an interruption is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ringside.bench.harness.interleaved import Contender, measure_interleaved
from ringside.bench.harness.tables import CannotRun, Report


def answering(values: Iterable[float | BaseException]) -> Callable[[], float]:
    """A measurement that gives one value after the other, or raises it."""
    rest = iter(values)

    def measure() -> float:
        value = next(rest)
        if isinstance(value, BaseException):
            raise value
        return value

    return measure


def test_a_contender_that_fails_once_is_left_out() -> None:
    report = Report("name", "title")
    contenders = [Contender("a", answering([1, 2])), Contender("b", answering([3, CannotRun("It is gone.")]))]
    assert measure_interleaved(report, contenders, 2) == {"a": [1, 2]}
    assert report.missing == {"b": "It is gone."}


def test_an_interruption_keeps_whole_repeats() -> None:
    report = Report("name", "title")
    contenders = [Contender("a", answering([1, 2])), Contender("b", answering([3, KeyboardInterrupt()]))]
    assert measure_interleaved(report, contenders, 5) == {"a": [1], "b": [3]}
    assert report.missing == {"the rest": "It was interrupted."}
    assert measure_interleaved(report, [Contender("c", answering([]))], 1) == {}


def test_an_interruption_in_the_first_repeat_keeps_what_there_is() -> None:
    contenders = [Contender("a", answering([1])), Contender("b", answering([KeyboardInterrupt()]))]
    assert measure_interleaved(Report("name", "title"), contenders, 3) == {"a": [1]}
