"""Before a run: what a user is told of a slow start."""

from __future__ import annotations

from threading import Event

import pytest

from ringside import training


def test_a_slow_step_of_the_start_is_noted_while_it_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    noted: list[str] = []
    told = Event()

    def note(sentence: str) -> None:
        noted.append(sentence)
        told.set()

    monkeypatch.setattr(training, "SLOW_SECONDS", 0.01)
    with training._noted_if_slow("It takes long.", note):
        assert told.wait(30)
    assert noted == ["It takes long."]
    monkeypatch.setattr(training, "SLOW_SECONDS", 600.0)
    with training._noted_if_slow("It does not.", note):
        pass
    assert noted == ["It takes long."]
