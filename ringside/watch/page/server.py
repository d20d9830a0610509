"""The page's server: on loopback, read-only, for viewers who know its address.

The address holds a key, because other users of the machine reach its loopback, too. The server checks the host name of
a request against DNS rebinding, and the page may load nothing from other sites. `connections.py` keeps slow and dead
connections away from the two threads that answer.
"""

from __future__ import annotations

import errno
import gzip
import hmac
import json
import logging
import secrets
import socket
import struct
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import zstandard
from werkzeug.exceptions import HTTPException, NotFound, SecurityError
from werkzeug.sansio.utils import host_is_trusted
from werkzeug.utils import redirect
from werkzeug.wrappers import Request, Response

from ringside.watch.page.budget import Budget
from ringside.watch.page.connections import Server
from ringside.watch.page.source import MOST_ENVS, Source
from shared.errors import ConfigError
from shared.machine.facts import usable_cores

STATIC = Path(__file__).parent / "static"
NAMES = ("localhost", "127.0.0.1")
"""Host names of this machine, also at the near end of an ssh tunnel, on any port."""
KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
STATE_SECONDS = 1.0
"""Interval of the page's state."""
_LENGTH = struct.Struct("<I")
_COMPRESSION = 1
_SMALL = 1_000
"""Size below which responses are not compressed."""


class Page:
    """The WSGI application of one run."""

    def __init__(self, source: Source, budget: Budget) -> None:
        self.key = secrets.token_urlsafe(12)
        self._source = source
        self._budget = budget
        self._lock = threading.Lock()
        self._files = {path.name: path.read_bytes() for path in STATIC.iterdir() if path.suffix in KINDS}
        self._state: dict[str, Any] = {}
        self._state_at = float("-inf")
        self._picture: tuple[tuple[int, int, int], bytes] | None = None
        self._compressor = zstandard.ZstdCompressor(level=_COMPRESSION)

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        """Answer one request."""
        request = Request(environ)
        try:
            response = self._answer(request)
        except HTTPException as error:
            response = Response(f"{error.name}\n", error.code, mimetype="text/plain")
        response.headers.extend(HEADERS)
        return response(environ, start)

    def is_keyed(self, path: str) -> bool:
        """True if a path starts with the key."""
        return hmac.compare_digest(path.removeprefix("/").partition("/")[0].encode(), self.key.encode())

    def _answer(self, request: Request) -> Response:
        if not host_is_trusted(request.environ.get("HTTP_HOST"), NAMES):
            raise SecurityError
        if not self.is_keyed(request.path) or request.method not in ("GET", "HEAD"):
            raise NotFound
        rest = request.path.split("/")[2:]
        if not rest:
            return redirect(f"/{self.key}/")
        name = "/".join(rest) or "index.html"
        if name == "state":
            return self._state_response(request)
        if name == "pictures":
            return self._pictures_response(request)
        if name not in self._files:
            raise NotFound
        self._budget.exclude()
        return Response(self._files[name], content_type=KINDS[Path(name).suffix])

    def _state_response(self, request: Request) -> Response:
        """State of the run, and the curve rows that the viewer lacks."""
        known = [_whole(word) for word in request.args.get("known", "").split(",")]
        with self._lock:
            if self._budget.now() - self._state_at >= STATE_SECONDS / 2:  # one state for all viewers
                self._source.refresh()
                self._state = self._source.state()
                self._state_at = self._budget.now()
            curves = self._source.curves(_whole(request.args.get("edition", "")), known)
        pause = 0.0 if curves["more"] else STATE_SECONDS
        state = {**self._state, "curves": curves, "pause": pause}
        return self._packed(request, json.dumps(state, default=str).encode(), "application/json")

    def _pictures_response(self, request: Request) -> Response:
        """Newest pictures, shared by viewers of the same envs: u32 length, JSON, frames."""
        words = request.args
        asked = (
            _whole(words.get("first", "")),
            _whole(words.get("count", ""), MOST_ENVS),
            _whole(words.get("env", "")),
        )
        with self._lock:
            if self._picture is None or self._picture[0] != asked or self._budget.due:
                found = self._source.pictures(*asked)
                if found is None:
                    self._picture = None
                    return Response(status=204)  # the run has ended
                head = json.dumps(found[0]).encode()
                self._picture = asked, b"".join([_LENGTH.pack(len(head)), head, *map(bytes, found[1])])
                self._budget.charge()
            response = self._packed(request, self._picture[1], "application/octet-stream")
            response.headers["X-Pause"] = f"{self._budget.pause:.3f}"
        return response

    def _packed(self, request: Request, content: bytes, kind: str) -> Response:
        """Response in a compression that the viewer accepts: pictures may pass a tunnel."""
        response = Response(content, mimetype=kind)
        accepted = request.accept_encodings
        if len(content) < _SMALL:
            return response
        if accepted.quality("zstd"):
            response.data, response.content_encoding = self._compressor.compress(content), "zstd"
        elif accepted.quality("gzip"):
            response.data, response.content_encoding = gzip.compress(content, _COMPRESSION), "gzip"
        return response


def _whole(word: str, default: int = 0) -> int:
    """Number of a query; `default` if the word is no number."""
    return int(word) if word.isascii() and word.isdigit() and len(word) < 10 else default


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


def serve(source: Source, listening: socket.socket, ready: Callable[[str], None]) -> None:
    """Serve until the process is interrupted; calls `ready` with the address."""
    logging.getLogger("waitress").setLevel(logging.ERROR)  # viewers of a busy machine often wait
    page = Page(source, Budget(usable_cores()))
    server = Server(page, page.is_keyed, listening)
    ready(f"http://127.0.0.1:{listening.getsockname()[1]}/{page.key}/")
    server.run()
