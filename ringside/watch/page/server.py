"""The page's server: on loopback, for whoever knows its address, and reading alone.

An address holds a key, so that other users of the machine, who reach its loopback too, see nothing; the name that a
browser asks for is checked, so that no foreign site can be made to stand for this one (DNS rebinding); and the page may
load nothing from elsewhere. `connections.py` keeps slow and dead connections away from the two threads that answer.
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
"""What this machine calls itself; also at the near end of an ssh tunnel, on whatever port."""
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
"""Between two looks at what is no picture."""
_LENGTH = struct.Struct("<I")
_COMPRESSION = 1
_SMALL = 1_000
"""Bytes below which nothing is compressed."""


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
        """True if a request for a path knows the key."""
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
            return self._told(request)
        if name == "pictures":
            return self._pictured(request)
        if name not in self._files:
            raise NotFound
        self._budget.forgive()
        return Response(self._files[name], content_type=KINDS[Path(name).suffix])

    def _told(self, request: Request) -> Response:
        """The state of the run, and the curves that the viewer lacks."""
        known = [_whole(word) for word in request.args.get("known", "").split(",")]
        with self._lock:
            if self._budget.now() - self._state_at >= STATE_SECONDS / 2:  # one look for all viewers
                self._source.refresh()
                self._state = self._source.state()
                self._state_at = self._budget.now()
            curves = self._source.curves(_whole(request.args.get("edition", "")), known)
        pause = 0.0 if curves["more"] else STATE_SECONDS
        told = {**self._state, "curves": curves, "pause": pause}
        return self._packed(request, json.dumps(told, default=str).encode(), "application/json")

    def _pictured(self, request: Request) -> Response:
        """The newest pictures, of which all viewers who look at the same have the same: u32 length, JSON, frames."""
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
        """A response, compressed as the viewer understands it: pictures may travel through a tunnel."""
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
    """A number of a query; what is none counts as `default`."""
    return int(word) if word.isascii() and word.isdigit() and len(word) < 10 else default


def listen(port: int) -> socket.socket:
    """A socket on loopback; port 0: whichever is free. Raises `ConfigError` when the port cannot be had."""
    if not 0 <= port <= 65_535:
        raise ConfigError(f"--port {port} is not a port; it lies between 0 (whichever is free) and 65535.")
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(("127.0.0.1", port))
        listening.listen()
    except OSError as error:
        listening.close()
        why = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be had ({error.strerror})"
        raise ConfigError(f"--port {port} {why}: name another, or omit it to get a free one.") from error
    return listening


def serve(source: Source, listening: socket.socket, ready: Callable[[str], None]) -> None:
    """Serve until the process is interrupted; `ready` is told the address."""
    logging.getLogger("waitress").setLevel(logging.ERROR)  # that viewers wait for a busy machine is no news
    page = Page(source, Budget(usable_cores()))
    server = Server(page, page.is_keyed, listening)
    ready(f"http://127.0.0.1:{listening.getsockname()[1]}/{page.key}/")
    server.run()
