"""Requests to stop, counted."""

from __future__ import annotations

import os
import signal

from shared.process.signals import SECOND_AFTER_SECONDS, STOP_SIGNALS, Requests, handle_stop_signals


def test_a_signal_sent_twice_at_once_is_one_request_and_a_later_one_another() -> None:
    now = [100.0]
    requests = Requests(lambda: now[0])
    requests.count_signal(signal.SIGINT)
    now[0] += SECOND_AFTER_SECONDS / 2
    requests.count_signal(signal.SIGTERM)
    assert requests.count == 1
    now[0] += SECOND_AFTER_SECONDS
    requests.count_signal(signal.SIGINT)
    assert requests.count == 2


def test_a_closed_terminal_never_asks_again() -> None:
    now = [100.0]
    requests = Requests(lambda: now[0])
    for _ in range(3):
        requests.count_signal(signal.SIGHUP)
        now[0] += 60.0
    assert requests.count == 1


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
