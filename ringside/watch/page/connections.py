"""Waitress with deadlines for connections without the key, slow requests, and responses that are not read.

Waitress times out idle connections, and every byte restarts its clock; so a few slow connections would keep all viewers
out. Other users of the machine share the loopback address with viewers; only the key tells them apart. Connections
without it are limited to a few, of a few seconds each, and the oldest gives way to a new one. A connection that has
shown the key gives way to none.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

from waitress.adjustments import Adjustments
from waitress.channel import HTTPChannel
from waitress.server import TcpWSGIServer

MOST_CONNECTIONS = 48
MOST_KEYLESS = 16
"""Limit for connections without the key."""
REQUEST_SECONDS = 5.0
"""Deadline for a request, from the end of the previous response. Without the key, for the whole connection."""
READ_SECONDS = 30.0
"""Longest pause of a viewer in reading a response."""
_OF_THE_SERVER = 2
"""Descriptors that waitress counts as connections: the one it listens on, and its bell."""


class _Connection(HTTPChannel):
    """Connection of a viewer or of a stranger."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.has_key = False
        self.answered_at: float = self.creation_time

    def is_late(self, now: float) -> bool:
        """True if a deadline has passed at a time of `time.time()`."""
        if not self.has_key:
            return bool(now - self.creation_time > REQUEST_SECONDS)
        if self.total_outbufs_len:
            return bool(now - self.last_activity > READ_SECONDS)
        return not self.requests and now - self.answered_at > REQUEST_SECONDS

    def service(self) -> None:
        """Answer a request, in a thread."""
        super().service()
        self.answered_at = self.last_activity


class Server(TcpWSGIServer):
    """Server of a WSGI application on a listening socket."""

    channel_class = _Connection

    def __init__(
        self,
        application: Callable[..., Any],
        knows_key: Callable[[str], bool],
        listening: socket.socket,
        maintain: Callable[[], None],
    ) -> None:
        """Serve on a socket that listens.

        Args:
            knows_key: returns True if the path of a request has the key.
            maintain: called once a second, between two requests.
        """
        self._knows_key, self._maintain = knows_key, maintain
        super().__init__(
            application,
            _sock=listening,
            bind_socket=False,
            sockinfo=(listening.family, listening.type, listening.proto, listening.getsockname()),
            adj=Adjustments(
                sockets=[listening],
                threads=2,
                ident=None,
                connection_limit=MOST_CONNECTIONS + _OF_THE_SERVER,
                cleanup_interval=1,
                max_request_header_size=16_384,
                max_request_body_size=1_024,
                outbuf_overflow=64 << 20,
                asyncore_use_poll=True,
            ),
        )

    def add_task(self, connection: _Connection) -> None:
        """Accept a complete request."""
        request = connection.requests[0]
        connection.has_key = connection.has_key or (not request.error and self._knows_key(request.path))
        super().add_task(connection)

    def handle_accept(self) -> None:
        """Accept a connection, and drop the oldest ones without the key."""
        super().handle_accept()
        keyless = [each for each in self.active_channels.values() if not each.has_key]  # the oldest first
        for each in keyless[:-MOST_KEYLESS]:
            each.handle_close()

    def maintenance(self, now: float) -> None:
        """Once a second, close late connections, whose threads continue, and call `maintain`."""
        for connection in list(self.active_channels.values()):
            if connection.is_late(now):
                connection.handle_close()  # waitress would wait until the socket is writable
        self._maintain()
