"""WSGI application behind a key: whom it answers, and what every answer says to a browser.

The address holds a key, because other users of the machine reach its loopback, too. The host name of a request is
checked against DNS rebinding, and a page may load nothing from other sites.
"""

from __future__ import annotations

import gzip
import hmac
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from string import Template
from typing import Any

import zstandard
from werkzeug.exceptions import HTTPException, NotFound, SecurityError
from werkzeug.sansio.utils import host_is_trusted
from werkzeug.utils import redirect
from werkzeug.wrappers import Request, Response

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
    "media-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
_COMPRESSION = 1
_SMALL = 1_000
"""Size below which responses are not compressed."""
FRAME = "frame.html"
"""Text around the body of every page."""
PAGES = {"index.html": ("Ringside", "page.js"), "overview.html": ("Runs · Ringside", "overview.js")}
"""Title and script of each page, whose body is the file."""


def _read_files() -> dict[str, bytes]:
    """Content of the files of the pages, by name."""
    files = {path.name: path.read_bytes() for path in STATIC.iterdir() if path.suffix in KINDS}
    frame = Template(files.pop(FRAME).decode())
    for name, (title, script) in PAGES.items():
        files[name] = frame.substitute(title=title, script=script, body=files[name].decode()).encode()
    return files


_FILES = _read_files()


class KeyedApp(ABC):
    """An application whose pages are below `/KEY/`."""

    def __init__(self) -> None:
        self.key = secrets.token_urlsafe(12)

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
        return redirect(f"/{self.key}/") if not rest else self.respond(request, rest)

    @abstractmethod
    def respond(self, request: Request, rest: Sequence[str]) -> Response:
        """Answer a request for the path `rest` below the key. Raises `NotFound`."""

    @abstractmethod
    def maintain(self) -> None:
        """Release what no run needs any more; the server calls it once a second, whether or not somebody asks."""

    def packed(self, request: Request, content: bytes, kind: str) -> Response:
        """Response in a compression that the viewer accepts: pictures may pass a tunnel."""
        response = Response(content, mimetype=kind)
        accepted = request.accept_encodings
        if len(content) < _SMALL:
            return response
        if accepted.quality("zstd"):
            # Two threads answer, and a compressor serves one at a time: every response has its own.
            response.data, response.content_encoding = zstandard.compress(content, _COMPRESSION), "zstd"
        elif accepted.quality("gzip"):
            response.data, response.content_encoding = gzip.compress(content, _COMPRESSION), "gzip"
        return response


def static_file(name: str) -> Response:
    """A file of the pages. Raises `NotFound`."""
    if name not in _FILES:
        raise NotFound
    return Response(_FILES[name], content_type=KINDS[Path(name).suffix])


def query_number(word: str, default: int = 0) -> int:
    """Number of a query; `default` if the word is no number."""
    return int(word) if word.isascii() and word.isdigit() and len(word) < 10 else default
