"""The cost of a viewer: a run with one viewer of `launch.py watch` against the same run without, interleaved.

One run continues throughout; the server of the page is started and stopped for each measurement. A measurement begins
and ends with a commit, so it covers whole rounds. The viewer requests what the page does: state once a second, pictures
as often as the server allows. It draws nothing, so the cost of a browser on this machine is not included. Words after
-- are flags of launch.py:

  python launch.py bench watch --seconds 60 -- --actors 4
"""

from __future__ import annotations

import http.client
import json
import re
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from threading import Event, Thread, Timer
from typing import NamedTuple

import psutil

from ringside.bench.bench_command import RunOptions
from ringside.bench.harness.attached import AttachedRun, attached_run, lasting
from ringside.bench.harness.interleaved import Contender, measure_interleaved
from ringside.bench.harness.measured_plans import make_plan
from ringside.bench.harness.tables import CannotRun, Report, WrongResult
from ringside.watch.page.live_curves import SERIES
from shared.machine.facts import usable_cores
from shared.machine.subprocesses import kill_and_reap
from shared.memory.parts.board import METRIC_RECORDS, RECORD_METRICS
from shared.root import ROOT

ALONE, WATCHED = "no viewer", "one viewer"
COMMITTED_AT = RECORD_METRICS.index("committed_at") - len(RECORD_METRICS)
END_SECONDS = 10.0
"""Longest time that the server may take to end."""
ADDRESS_SECONDS = 60.0
"""Longest time until the server prints its address."""
ADDRESS = re.compile(rb"http://127\.0\.0\.1:(\d+)(/\S+/)")


@dataclass(frozen=True)
class Options(RunOptions):
    """Options of `launch.py bench watch`."""

    seconds: float = 30.0
    """Least seconds of each measurement, which continues to the end of a round."""
    repeats: int = 5
    """Repeats of both measurements, interleaved."""


class Seen(NamedTuple):
    """Figures of one measurement."""

    steps_per_second: float
    pictures_per_second: float = 0.0
    cores: float = 0.0
    """Mean number of cores that the server used."""


def measure(options: Options, report: Report) -> None:
    """Measure both, interleaved. Raises `ConfigError` before anything runs if a setting is invalid."""
    words = lasting(options.words)
    with report.measuring("settings"):
        make_plan(options.game, words)
    if report.missing:
        return
    found: dict[str, list[Seen]] = {}
    with report.measuring("run"), _learning(options.game, words) as run:
        contenders = [
            Contender(ALONE, lambda: Seen(_speed(run, options.seconds))),
            Contender(WATCHED, partial(_watched, run, options.seconds)),
        ]
        found = measure_interleaved(report, contenders, options.repeats)
    for name, seen in found.items():
        limit = ALONE if name != ALONE and ALONE in found else None
        with report.measuring(name):
            report.add(name, "steps/s", [each.steps_per_second for each in seen], limit=limit)
    for each in found.get(WATCHED, ()):
        share = each.cores / usable_cores()
        report.note(f"{each.pictures_per_second:.1f} pictures a second; the server used {share:.2%} of all cores.")


@contextmanager
def _learning(game: str, words: list[str]) -> Iterator[AttachedRun]:
    """A run that has begun to learn. Raises `CannotRun`."""
    with attached_run(game, words) as run:
        run.until_it_learns()
        yield run


def _speed(run: AttachedRun, seconds: float) -> float:
    """Steps/s between two commits that are at least `seconds` apart. Raises `CannotRun`."""
    first, begun = _next_commit(run)
    while True:
        last, ended = _next_commit(run)
        if ended - begun >= seconds:
            return (last - first) * run.memory.run_schedule.round_steps / (ended - begun)


def _next_commit(run: AttachedRun) -> tuple[int, float]:
    """Wait for the end of a record; return its boundary and time. Raises `CannotRun` if none comes."""
    memory = run.memory
    before = memory.board.newest_record
    run.until(lambda: memory.board.newest_record != before)
    boundary = memory.board.newest_record
    row = memory.board.metrics[memory.run_schedule.record_number(boundary) % METRIC_RECORDS]
    return boundary, float(row[COMMITTED_AT])


def _watched(run: AttachedRun, seconds: float) -> Seen:
    """Measure with a viewer. Raises `CannotRun`, and `WrongResult` if the viewer did not see the run progress."""
    command = [sys.executable, "launch.py", "watch", str(run.directory)]
    server = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert server.stdout is not None
    try:
        late = Timer(ADDRESS_SECONDS, server.kill)
        late.start()
        address = next((found for line in server.stdout if (found := ADDRESS.search(line))), None)
        late.cancel()
        if address is None:
            raise CannotRun("launch.py watch printed no address.")
        with Viewer(int(address[1]), address[2].decode()) as viewer:
            _next_commit(run)  # start-up is over
            used, pictures, began = _cpu_seconds(server.pid), viewer.pictures, time.monotonic()
            speed = _speed(run, seconds)
            took = time.monotonic() - began
            used, pictures = _cpu_seconds(server.pid) - used, viewer.pictures - pictures
    finally:
        server.send_signal(signal.SIGINT)
        try:
            server.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            kill_and_reap(server)
    if viewer.trouble is not None:
        raise WrongResult(viewer.trouble)
    return Seen(speed, pictures / took, used / took)


def _cpu_seconds(process: int) -> float:
    times = psutil.Process(process).cpu_times()
    return float(times.user + times.system)


class Viewer:
    """Thread that sends the requests of the page, and checks that the env in its pictures makes progress."""

    def __init__(self, port: int, path: str) -> None:
        self.pictures = 0
        self.trouble: str | None = None
        self._port, self._path = port, path
        self._ended = Event()
        self._thread = Thread(target=self._request_pages)

    def __enter__(self) -> Viewer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _request_pages(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=20)
        state_at, tick, known = float("-inf"), -1, f"edition=0&known={_numbers(0)}"
        first = None
        try:
            while not self._ended.is_set():
                if time.monotonic() - state_at >= 1.0:
                    state_at = time.monotonic()
                    curves = json.loads(self._ask(connection, f"state?{known}")[0])["curves"]
                    known = f"edition={curves['edition']}&known={_numbers(10**6)}"
                content, pause = self._ask(connection, "pictures?first=0&count=96&env=0")
                (length,) = struct.unpack_from("<I", content)
                tick = json.loads(content[4 : 4 + length])["chosen"]["tick"]
                first = tick if first is None else first
                self.pictures += 1
                self._ended.wait(max(pause, 0.1))
        except (OSError, ValueError, http.client.HTTPException) as error:
            self.trouble = f"The page was not served: {error}."
        finally:
            connection.close()
        if self.trouble is None and (first is None or tick <= first):
            self.trouble = "The pictures stood still while the run played."

    def _ask(self, connection: http.client.HTTPConnection, what: str) -> tuple[bytes, float]:
        """Return the content of a response, and the pause that its header demands."""
        connection.request("GET", self._path + what)
        answer = connection.getresponse()
        return answer.read(), float(answer.headers.get("X-Pause") or 0)


def _numbers(rows: int) -> str:
    """Numbers of rows that a viewer has of each curve, as the page writes them."""
    return ",".join([str(rows)] * len(SERIES))
