"""The page of runs: a WSGI application behind a key, served on loopback by waitress.

The address holds the key, because other users of the machine reach its loopback, too. The host name of a request is
checked against DNS rebinding, and a page may load nothing from other sites.
"""

from __future__ import annotations

import errno
import hmac
import json
import logging
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import waitress
from werkzeug.exceptions import HTTPException, NotFound, SecurityError
from werkzeug.sansio.utils import host_is_trusted
from werkzeug.utils import redirect, send_from_directory
from werkzeug.wrappers import Request, Response

from ringside.watch.source import MOST_ENVS, Runs, Source
from shared.errors import ConfigError
from shared.machine.facts import usable_cores

NAMES = ("localhost", "127.0.0.1")
"""Host names of this machine, also at the near end of an ssh tunnel, on any port."""
STATIC = Path(__file__).parent / "static"
"""Files of the pages."""
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
SHARE = 0.006
"""Share of the usable cores that the page may take, so that an observer costs a run next to nothing."""
LEAST_SECONDS, MOST_SECONDS = 0.1, 5.0
"""Bounds of the interval between two pictures."""


class Budget:
    """Rate limit of pictures: the CPU time of the process since one picture delays the next.

    More viewers, more envs or a slower machine get fewer pictures, not a slower run.
    """

    def __init__(self, cores: float) -> None:
        self._allowed = SHARE * cores
        self._spent, self._next_at = time.process_time(), time.monotonic()

    @property
    def pause(self) -> float:
        """Seconds until the next picture may be made."""
        return max(0.0, self._next_at - time.monotonic())

    def charge(self) -> None:
        """Account for a picture. Viewers of different envs also wait for each other's pictures."""
        spent, self._spent = self._spent, time.process_time()
        interval = min(max((self._spent - spent) / self._allowed, LEAST_SECONDS), MOST_SECONDS)
        self._next_at = time.monotonic() + min(self.pause + interval, MOST_SECONDS)


class App:
    """The list of runs below `/KEY/`, and the page of each below `/KEY/run/ID/`."""

    def __init__(self, runs: Runs) -> None:
        self.key = secrets.token_urlsafe(12)
        self._runs = runs
        self._budget = Budget(usable_cores())
        self._lock = threading.Lock()
        self._picture: tuple[object, bytes] = None, b""

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        """Answer one request."""
        request = Request(environ)
        try:
            with self._lock:
                response = self._answer(request)
        except HTTPException as error:
            response = Response(f"{error.name}\n", error.code, mimetype="text/plain")
        except ConfigError as error:
            response = _json({"refused": str(error)})
        response.headers.update(HEADERS)
        return response(environ, start)

    def release_ended(self) -> None:
        """Once a second, release the memory of runs that have ended, though no viewer asks."""
        while True:
            time.sleep(1)
            with self._lock:
                self._runs.release_ended()

    def _answer(self, request: Request) -> Response:
        if not host_is_trusted(request.environ.get("HTTP_HOST"), NAMES):
            raise SecurityError
        key, slash, path = request.path.removeprefix("/").partition("/")
        if not hmac.compare_digest(key.encode(), self.key.encode()) or request.method not in ("GET", "HEAD"):
            raise NotFound
        words = request.args
        match path.split("/"):
            case [""] if not slash:
                return redirect(f"/{self.key}/")
            case ["runs"]:
                return _json(self._runs.listed())
            case ["run", number, "outline"]:
                return _json(self._runs.source(_number(number, -1)).outline())
            case ["run", number, "state"]:
                known = [_number(word) for word in words.get("known", "").split(",")]
                return _json(self._runs.source(_number(number, -1)).state(_number(words.get("edition")), known))
            case ["run", number, "pictures"]:
                return self._pictures(self._runs.source(_number(number, -1)), words)
            case [*folder, name]:
                page = "run.html" if folder else "runs.html"
                return send_from_directory(STATIC, name or page, request.environ)
        raise NotFound

    def _pictures(self, source: Source, words: Mapping[str, str]) -> Response:
        """Newest pictures, shared by viewers of the same envs: u32 length of the JSON, the JSON, frames."""
        place = _number(words.get("first")), _number(words.get("count"), MOST_ENVS), _number(words.get("env"))
        if self._picture[0] != (source, place) or not self._budget.pause:
            found = source.pictures(*place)
            if found is None:
                self._picture = None, b""
                return Response(status=204)  # the run has ended
            head = json.dumps(found[0]).encode()
            self._picture = (source, place), b"".join([struct.pack("<I", len(head)), head, *map(bytes, found[1])])
            self._budget.charge()
        pause = {"X-Pause": f"{self._budget.pause:.3f}"}
        return Response(self._picture[1], mimetype="application/octet-stream", headers=pause)


def _json(value: object) -> Response:
    return Response(json.dumps(value, default=str), mimetype="application/json")


def _number(word: str | None, default: int = 0) -> int:
    """Number of a query; `default` if the word is no number."""
    return int(word) if word and word.isascii() and word.isdigit() and len(word) < 10 else default


def listen(port: int) -> socket.socket:
    """Listening socket on loopback; port 0: any free port. Raises `ConfigError` if the port is not available."""
    if not 0 <= port <= 65_535:
        raise ConfigError(f"--port {port} is not a port: pass 0 (any free port) to 65535.")
    try:
        return socket.create_server(("127.0.0.1", port))
    except OSError as error:
        why = "is in use" if error.errno == errno.EADDRINUSE else f"is not available ({error.strerror})"
        raise ConfigError(f"--port {port} {why}: pass another, or omit it for a free one.") from error


def serve(app: App, listening: socket.socket) -> None:
    """Serve until the process is interrupted."""

    threading.Thread(target=app.release_ended, daemon=True).start()
    logging.getLogger("waitress").setLevel(logging.ERROR)  # viewers of a busy machine often wait
    limits = {"max_request_header_size": 16_384, "max_request_body_size": 1_024, "channel_timeout": 30}
    waitress.create_server(app, sockets=[listening], ident=None, asyncore_use_poll=True, **limits).run()
