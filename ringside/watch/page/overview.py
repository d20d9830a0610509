"""The page of all runs: pictures of live ones, curve and score of finished ones, suites as grids of games."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence

from werkzeug.exceptions import NotFound
from werkzeug.utils import redirect
from werkzeug.wrappers import Request, Response

from ringside.watch.page.all_runs import AllRuns
from ringside.watch.page.budget import Budget
from ringside.watch.page.keyed_app import KeyedApp, query_number, static_file
from ringside.watch.page.server import Page, with_header

STATE_SECONDS = 2.0
"""Interval of the overview's state."""


class Overview(KeyedApp):
    """The page of all runs, and below `run/ID/` the page of each."""

    def __init__(self, runs: AllRuns, budget: Budget) -> None:
        super().__init__()
        self._runs = runs
        self._budget = budget
        self._lock = threading.Lock()
        self._pages: dict[str, Page] = {}
        self._thumbnails: bytes | None = None

    def maintain(self) -> None:
        """Release the memory of runs that have ended, and drop the pages of runs that are not shown any more."""
        for id_ in list(self._pages):
            if self._runs.source(id_) is None:
                self._pages.pop(id_, None)
        self._runs.release_ended()

    def respond(self, request: Request, rest: Sequence[str]) -> Response:
        """Answer a request for the overview, its state and pictures, or the page of a run."""
        if rest[0] == "run" and len(rest) > 1:
            return self._run_response(request, rest[1], rest[2:])
        name = "/".join(rest) or "overview.html"
        if name == "runs":
            return self._runs_response(request)
        if name == "thumbnails":
            return self._thumbnails_response(request)
        response = static_file(name)
        self._budget.exclude()
        return response

    def _run_response(self, request: Request, id_: str, rest: Sequence[str]) -> Response:
        """Answer of the page of one run."""
        if not rest:
            return redirect(f"/{self.key}/run/{id_}/")
        with self._lock:
            source = self._runs.source(id_)
            if source is None:
                raise NotFound
            page = self._pages.setdefault(id_, Page(source, self._budget))
        return page.respond(request, rest)

    def _runs_response(self, request: Request) -> Response:
        """Runs that changed since the version that the viewer has."""
        with self._lock:
            self._runs.refresh()
            found = self._runs.since(query_number(request.args.get("since", "")))
        state = {**found, "directory": str(self._runs.runs), "pause": 0.1 if found["reading"] else STATE_SECONDS}
        return self.packed(request, json.dumps(state).encode(), "application/json")

    def _thumbnails_response(self, request: Request) -> Response:
        """Newest pictures of living runs, shared by all viewers."""
        with self._lock:
            if self._thumbnails is None or self._budget.due:
                fields, frames = self._runs.thumbnails()
                self._thumbnails = with_header(fields, *map(bytes, frames))
                self._budget.charge()
            response = self.packed(request, self._thumbnails, "application/octet-stream")
            response.headers["X-Pause"] = f"{self._budget.pause:.3f}"
        return response
