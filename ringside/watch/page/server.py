"""The page's server: on loopback, read-only, for viewers who know its address.

`keyed_app.py` says whom it answers. `connections.py` keeps slow and dead connections away from the two threads that
answer.
"""

from __future__ import annotations

import errno
import json
import logging
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from typing import Any

from werkzeug.exceptions import NotFound
from werkzeug.wrappers import Request, Response

from ringside.watch.page.budget import Budget
from ringside.watch.page.connections import Server
from ringside.watch.page.keyed_app import KeyedApp, query_number, static_file
from ringside.watch.page.source import MOST_ENVS, Source
from shared.errors import ConfigError

STATE_SECONDS = 1.0
"""Interval of the page's state."""
_LENGTH = struct.Struct("<I")


class Page(KeyedApp):
    """The page of one run."""

    def __init__(self, source: Source, budget: Budget) -> None:
        super().__init__()
        self._source = source
        self._budget = budget
        self._lock = threading.Lock()
        self._state: dict[str, Any] = {}
        self._state_at = float("-inf")
        self._picture: tuple[tuple[int, int, int], bytes] | None = None

    def maintain(self) -> None:
        """Release the memory of a run that has ended."""
        self._source.release_ended()

    def respond(self, request: Request, rest: Sequence[str]) -> Response:
        """Answer a request for the page, the state, the pictures, a video or a file."""
        name = "/".join(rest) or "index.html"
        if name == "state":
            return self._state_response(request)
        if name == "pictures":
            return self._pictures_response(request)
        if rest[0] == "video":
            return self._video_response(request, rest[-1])
        response = static_file(name)
        self._budget.exclude()
        return response

    def _state_response(self, request: Request) -> Response:
        """State of the run, and the curve rows that the viewer lacks."""
        known = [query_number(word) for word in request.args.get("known", "").split(",")]
        with self._lock:
            if self._budget.now() - self._state_at >= STATE_SECONDS / 2:  # one state for all viewers
                self._source.refresh()
                self._state = self._source.state()
                self._state_at = self._budget.now()
            curves = self._source.curves(query_number(request.args.get("edition", "")), known)
        pause = 0.0 if curves["more"] else STATE_SECONDS
        state = {**self._state, "curves": curves, "pause": pause}
        return self.packed(request, json.dumps(state, default=str).encode(), "application/json")

    def _pictures_response(self, request: Request) -> Response:
        """Newest pictures, shared by viewers of the same envs: u32 length, JSON, frames."""
        words = request.args
        asked = (
            query_number(words.get("first", "")),
            query_number(words.get("count", ""), MOST_ENVS),
            query_number(words.get("env", "")),
        )
        with self._lock:
            if self._picture is None or self._picture[0] != asked or self._budget.due:
                found = self._source.pictures(*asked)
                if found is None:
                    self._picture = None
                    return Response(status=204)  # the run has ended
                self._picture = asked, with_header(found[0], *map(bytes, found[1]))
                self._budget.charge()
            response = self.packed(request, self._picture[1], "application/octet-stream")
            response.headers["X-Pause"] = f"{self._budget.pause:.3f}"
        return response

    def _video_response(self, request: Request, number: str) -> Response:
        """The video of an evaluation, or the part of it that a player asks for."""
        content = self._source.video(query_number(number, -1))
        if content is None:
            raise NotFound
        response = Response(content, mimetype="video/mp4")
        response.make_conditional(request, accept_ranges=True, complete_length=len(content))
        self._budget.exclude()
        return response


def with_header(header: dict[str, Any], *content: bytes) -> bytes:
    """Binary response: u32 length of the JSON, the JSON, the content."""
    head = json.dumps(header).encode()
    return b"".join([_LENGTH.pack(len(head)), head, *content])


def listen(port: int) -> socket.socket:
    """Listening socket on loopback; port 0: any free port. Raises `ConfigError` if the port is not available."""
    if not 0 <= port <= 65_535:
        raise ConfigError(f"--port {port} is not a port: pass 0 (any free port) to 65535.")
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(("127.0.0.1", port))
        listening.listen()
    except OSError as error:
        listening.close()
        why = "is in use" if error.errno == errno.EADDRINUSE else f"is not available ({error.strerror})"
        raise ConfigError(f"--port {port} {why}: pass another, or omit it for a free one.") from error
    return listening


def serve(page: KeyedApp, listening: socket.socket, ready: Callable[[str], None]) -> None:
    """Serve until the process is interrupted; calls `ready` with the address."""
    logging.getLogger("waitress").setLevel(logging.ERROR)  # viewers of a busy machine often wait
    server = Server(page, page.is_keyed, listening, page.maintain)
    ready(f"http://127.0.0.1:{listening.getsockname()[1]}/{page.key}/")
    server.run()
