"""The number of deaths in a row that ends a run, by cause."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any, cast

import pytest

from ringside.run.deaths import Cause, Deaths, crash_report, diagnose, signal_name
from shared.process.child import DEVICE_FAULT, ENV_FAULT, FATAL
from shared.root import ROOT


@pytest.mark.parametrize("cause", list(Cause))
def test_deaths_without_progress_add_up_by_cause(cause: Cause) -> None:
    deaths = Deaths()
    assert [deaths.add(cause, -1) for _ in range(cause.value)] == list(range(1, cause.value + 1))
    assert deaths.add(cause, 0) == 1  # beyond where it ever was
    assert deaths.add(cause, 0) == 2


def test_the_page_on_reliability_names_the_numbers_of_deaths() -> None:
    words = {2: "second", 5: "five", 100: "a hundred"}
    own, device, outside = (words[cause.value] for cause in (Cause.OWN, Cause.DEVICE, Cause.OUTSIDE))
    page = (ROOT / "docs" / "reliability.md").read_text()
    assert f"dies {own} times in a row without progress by its own fault, or {outside} times by SIGKILL" in page
    assert f"At the {device} time without progress" in page


def test_kills_from_outside_neither_hide_a_fault_nor_count_as_one() -> None:
    deaths = Deaths()
    counts = []
    for _ in range(Cause.OWN.value):
        deaths.add(Cause.OUTSIDE, 7)
        counts.append(deaths.add(Cause.OWN, 7))
    assert counts == list(range(1, Cause.OWN.value + 1))


def test_the_last_line_of_a_long_log_is_read_from_its_end(tmp_path: Path) -> None:
    """A sparse file of 100 GB, which no machine reads whole."""
    log = tmp_path / "actor-0.log"
    with open(log, "wb") as file:
        file.truncate(100 << 30)
        file.seek(0, os.SEEK_END)
        file.write(b"\nValueError: no such level\n")
    said = crash_report("actor 0", "ended with code 1", 5, 1, log, begin=7)
    assert "The last line of its log: ValueError: no such level (" in said


@pytest.mark.parametrize("code", [0, 1, FATAL])
def test_an_empty_log_is_said_to_be_empty(tmp_path: Path, code: int) -> None:
    """An env that ends its process leaves no traceback, and may choose any code."""
    log = tmp_path / "actor-0.log"
    log.write_text("of an earlier run\n")
    said = crash_report("actor 0", f"ended with code {code}", 5, code, log, begin=log.stat().st_size)
    assert said.startswith(f"actor 0 ended with code {code}, 5 times in a row without progress. It wrote nothing into ")
    assert "traceback" not in said


def test_an_error_of_an_env_is_told_with_the_place_of_its_traceback(tmp_path: Path) -> None:
    log = tmp_path / "actor-0.log"
    log.write_text("Traceback\nmine:factory failed in step() of env 3 at tick 17: KeyError: 'x' (mine.py, line 4).\n")
    said = crash_report("actor 0", "met an error of its env", 1, ENV_FAULT, log, begin=0)
    assert said.startswith("mine:factory failed in step() of env 3 at tick 17: KeyError: 'x' (mine.py, line 4). A ")
    assert f"A restart of actor 0 met it again; the traceback is in {log}." in said


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
        (ENV_FAULT, False, None, ("met an error of its env", Cause.OWN)),
        (DEVICE_FAULT, False, None, ("met a fault of the GPU", Cause.DEVICE)),
        (-signal.SIGKILL, False, None, ("was killed by SIGKILL", Cause.OUTSIDE)),
        (-signal.SIGKILL, False, "was killed for lack of memory", ("was killed for lack of memory", Cause.OWN)),
        (-signal.SIGKILL, True, "was killed for lack of memory", ("hung", Cause.OWN)),
        (-signal.SIGSEGV, False, "was killed for lack of memory", ("was killed by SIGSEGV", Cause.OWN)),
    ],
)
def test_a_death_has_a_cause(code: int, hung: bool, starved: str | None, expected: tuple[str, Cause]) -> None:
    assert diagnose(code, hung=hung, oom_kills=cast(Any, Kills(starved))) == expected
