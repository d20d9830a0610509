"""The number of deaths in a row that ends a run, by cause."""

from __future__ import annotations

import signal
from typing import Any, cast

import pytest

from ringside.supervisor.deaths import Cause, Deaths, diagnose, signal_name
from shared.process.child import DEVICE_FAULT


@pytest.mark.parametrize("cause", list(Cause))
def test_deaths_without_progress_add_up_by_cause(cause: Cause) -> None:
    deaths = Deaths()
    assert [deaths.add(cause, -1) for _ in range(cause.value)] == list(range(1, cause.value + 1))
    assert deaths.add(cause, 0) == 1  # beyond where it ever was
    assert deaths.add(cause, 0) == 2


def test_the_numbers_of_deaths_are_those_of_the_page_on_reliability() -> None:
    assert (Cause.OWN.value, Cause.DEVICE.value, Cause.OUTSIDE.value) == (5, 2, 100)


def test_kills_from_outside_neither_hide_a_fault_nor_count_as_one() -> None:
    deaths = Deaths()
    counts = []
    for _ in range(Cause.OWN.value):
        deaths.add(Cause.OUTSIDE, 7)
        counts.append(deaths.add(Cause.OWN, 7))
    assert counts == list(range(1, Cause.OWN.value + 1))
    assert deaths.by_fault == Cause.OWN.value
    deaths.add(Cause.DEVICE, 8)
    assert deaths.by_fault == 1


def test_causes_from_outside_are_forgiven_more_often_and_the_device_least() -> None:
    assert Cause.DEVICE.value < Cause.OWN.value < Cause.OUTSIDE.value


@pytest.mark.parametrize(("number", "name"), [(9, "SIGKILL"), (signal.SIGRTMIN + 1, f"signal {signal.SIGRTMIN + 1}")])
def test_signals_have_names(number: int, name: str) -> None:
    assert signal_name(number) == name


class Kills:
    """The kernel has killed for lack of memory, or not."""

    def __init__(self, sentence: str | None) -> None:
        self._sentence = sentence

    def explain(self) -> str | None:
        return self._sentence


@pytest.mark.parametrize(
    ("code", "hung", "starved", "expected"),
    [
        (1, False, None, ("ended with code 1", Cause.OWN)),
        (-signal.SIGSEGV, False, None, ("was killed by SIGSEGV", Cause.OWN)),
        (DEVICE_FAULT, False, None, ("met a fault of the GPU", Cause.DEVICE)),
        (-signal.SIGKILL, False, None, ("was killed by SIGKILL", Cause.OUTSIDE)),
        (-signal.SIGKILL, False, "was killed for lack of memory", ("was killed for lack of memory", Cause.OWN)),
        (-signal.SIGKILL, True, "was killed for lack of memory", ("hung", Cause.OWN)),
        (-signal.SIGSEGV, False, "was killed for lack of memory", ("was killed by SIGSEGV", Cause.OWN)),
    ],
)
def test_a_death_has_a_cause(code: int, hung: bool, starved: str | None, expected: tuple[str, Cause]) -> None:
    assert diagnose(code, hung=hung, oom_kills=cast(Any, Kills(starved))) == expected
