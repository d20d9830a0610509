"""Connections of the page's server: a viewer with the key gets in, whatever those without it do."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from ringside.watch.page.connections import MOST_CONNECTIONS, MOST_KEYLESS, READ_SECONDS, REQUEST_SECONDS, Server
from ringside.watch.page.server import listen
from tests.support.waiting import until

BODY = b"x" * 1_000_000
"""Seventeen unread answers are more than waitress holds without making a thread wait."""
KEYED, KEYLESS = (f"GET /{key}/ HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() for key in ("key", "x"))


def application(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
    content = BODY if environ["PATH_INFO"] == "/key/" else b"no"
    start("200 OK", [("Content-Length", str(len(content)))])
    return [content]


class Loop:
    """A server whose loop is turned by hand."""

    def __init__(self, stack: ExitStack) -> None:
        listening = listen(0)
        self.address = listening.getsockname()
        self.server = Server(application, lambda path: path == "/key/", listening, lambda: None)
        self._stack = stack
        stack.callback(self.server.asyncore.close_all, self.server._map)
        stack.callback(self.server.task_dispatcher.shutdown)

    def turn(self) -> None:
        self.server.asyncore.loop(timeout=0.01, use_poll=True, map=self.server._map, count=1)

    def connect(self, sent: bytes) -> socket.socket:
        """A connection that has sent something; for a server that accepts it or not."""
        connection = self._stack.enter_context(socket.create_connection(self.address))
        connection.setblocking(False)
        connection.sendall(sent)
        self.turn()
        return connection

    def answers(self, connection: socket.socket, sent: bytes = b"") -> bool:
        """True if a complete answer comes to the requests sent so far."""
        connection.sendall(sent)
        received = bytearray()

        def whole() -> bool:
            self.turn()
            try:
                received.extend(connection.recv(1 << 20))
            except BlockingIOError:
                return False
            return len(received) > len(BODY)

        until(whole, 10.0, every=0.0)
        # The thread that answered ends the request a moment after the viewer has the answer.
        own = [each for each in self.server.active_channels.values() if each.addr == connection.getsockname()]
        until(lambda: not any(each.requests for each in own), 10.0)
        return received.startswith(b"HTTP/1.1 200")

    def is_closed(self, connection: socket.socket) -> bool:
        """True if the server has closed a connection without pending answers."""
        self.turn()
        try:
            return connection.recv(1) == b""
        except BlockingIOError:
            return False
        except ConnectionResetError:
            return True

    def later(self, seconds: float) -> None:
        """Let the server act as after so many seconds."""
        self._act(time.time() + seconds)

    def since_answer(self, seconds: float) -> None:
        """Let the server act as so many seconds after the newest answer, or else connection."""
        self._act(seconds + max(each.answered_at for each in self.server.active_channels.values()))

    def _act(self, now: float) -> None:
        self.turn()
        self.server.maintenance(now)
        self.turn()


@pytest.fixture
def loop() -> Iterator[Loop]:
    with ExitStack() as stack:
        yield Loop(stack)


@pytest.mark.parametrize("sent", [b"", b"G", KEYLESS, KEYLESS * 100, KEYED[:-2]])
def test_a_viewer_gets_in_however_many_hold_connections_without_the_key(loop: Loop, sent: bytes) -> None:
    viewer = loop.connect(KEYED)
    assert loop.answers(viewer)
    strangers = [loop.connect(sent) for _ in range(MOST_CONNECTIONS + 20)]
    assert loop.answers(loop.connect(KEYED))
    assert loop.answers(viewer, KEYED), "the connection was there before them, and continues"
    strangers[-1].close()
    until(lambda: (loop.turn(), len(loop.server.active_channels) <= 2 + MOST_KEYLESS)[1], 10.0)


@pytest.mark.parametrize("sent", [b"", b"G", KEYLESS])
def test_a_connection_without_the_key_is_closed_whatever_it_sends(loop: Loop, sent: bytes) -> None:
    stranger = loop.connect(sent)
    loop.since_answer(REQUEST_SECONDS - 1)
    assert loop.server.active_channels
    stranger.sendall(b"E")  # a byte counts for nothing
    loop.later(REQUEST_SECONDS + 1)
    assert not loop.server.active_channels


@pytest.mark.parametrize("sent", [b"", b"G"])
def test_a_viewer_has_a_while_for_the_next_request_whatever_it_drips(loop: Loop, sent: bytes) -> None:
    viewer = loop.connect(KEYED)
    assert loop.answers(viewer)
    viewer.sendall(sent)
    loop.since_answer(REQUEST_SECONDS - 1)
    assert not loop.is_closed(viewer)
    viewer.sendall(sent)
    loop.later(REQUEST_SECONDS + 1)
    assert loop.is_closed(viewer)


def test_viewers_who_do_not_read_hold_no_thread_for_good(loop: Loop) -> None:
    for _ in range(2):
        loop.connect(KEYED * 60)
    stuck = list(loop.server.active_channels.values())

    def both_wait() -> bool:
        loop.turn()
        return all(each.total_outbufs_len > each.adj.outbuf_high_watermark for each in stuck)

    until(both_wait, 10.0)
    assert loop.server.task_dispatcher.active_count == len(stuck)
    loop.later(READ_SECONDS + 1)
    assert loop.answers(loop.connect(KEYED))
    assert not set(stuck) & set(loop.server.active_channels.values())
