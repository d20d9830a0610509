"""Requests to stop, counted."""

import os
import signal

import pytest

from shared.process.signals import SECOND_AFTER_SECONDS, STOP_SIGNALS, Requests, handle_stop_signals

SIGNALS = [
    ([(0.0, signal.SIGINT), (0.5, signal.SIGTERM)], 1),  # one sent twice at once
    ([(0.0, signal.SIGINT), (0.5, signal.SIGTERM), (1.5, signal.SIGINT)], 2),
    ([(0.0, signal.SIGHUP), (60.0, signal.SIGHUP), (120.0, signal.SIGHUP)], 1),  # the terminal is closed
    ([(0.0, signal.SIGINT), (60.0, signal.SIGHUP)], 1),
]


@pytest.mark.parametrize(("signals", "count"), SIGNALS)
def test_requests_to_stop_are_counted(signals: list[tuple[float, int]], count: int) -> None:
    now = [0.0]
    requests = Requests(lambda: now[0])
    for moment, number in signals:
        now[0] = 100.0 + moment * SECOND_AFTER_SECONDS
        requests.count_signal(number)
    assert (requests.count, requests.hurries) == (count, signals[0][1] != signal.SIGINT)


def test_signals_are_heard_within_and_as_before_afterwards() -> None:
    heard: list[int] = []
    before = [signal.getsignal(number) for number in STOP_SIGNALS]
    ignored = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with handle_stop_signals(heard.append):
            for number in STOP_SIGNALS:
                os.kill(os.getpid(), number)
        assert heard == [signal.SIGINT, signal.SIGTERM], "who is told to ignore one ignores it"
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, ignored)
    assert [signal.getsignal(number) for number in STOP_SIGNALS] == before
