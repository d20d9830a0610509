"""`--track wandb`: a process that reads the records of a run and sends them to Weights & Biases.

It only reads files, so neither the service nor the network can disturb the run. `Tracker` starts
`python -m ringside.recording.wandb_track RUN`; closing its standard input tells it that the run is over.
"""

from __future__ import annotations

import copy
import json
import os
import secrets
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ringside.recording.follow import Follower, Unsent
from ringside.recording.metric_names import episode_scalars, evaluation_scalars, round_scalars
from ringside.recording.metrics import cut_metrics
from ringside.recording.own_metrics import own_scalars, parse_own
from shared.config.digest import flat_of
from shared.config.settings import ResolvedRun
from shared.errors import FileError
from shared.files.atomic import PRIVATE_UMASK, make_directory, write_atomic
from shared.files.plain_files import open_to_write, read_bytes
from shared.files.run_file_names import CONFIG_FILE, LOGS, METRICS_FILE, SUMMARY_FILE
from shared.files.strict_json import read_object
from shared.machine.cores import NICENESS
from shared.machine.subprocesses import die_with, kill_and_reap
from shared.process.ownership import OWN_METRICS_FILE, TRACK_FILE, evaluation_video
from shared.process.signals import enable_stack_dumps, handle_stop_signals, ignore_requests, stack_dumps_held_back
from shared.root import ROOT

POLL_SECONDS = 2.0
"""Interval between two reads of the records."""
SILENT_SECONDS = 2.0
"""Wait for the end of the process without a word."""
FINISH_SECONDS = 120.0
"""Time limit for sending the rest after the end of the run."""
_LOG_LIMIT = 16 << 20

T = TypeVar("T")


class Tracker:
    """The launcher's side of the process."""

    def __init__(self, run_dir: Path, note: Callable[[str], None]) -> None:
        """Start the process. Its output goes to RUN/logs/track.log."""
        self._run_dir = run_dir
        self._note = note
        self._log = run_dir / LOGS / "track.log"
        self._shown = self._lost = False
        make_directory(self._log.parent)
        with open(open_to_write(self._log, os.O_WRONLY | os.O_APPEND), "ab") as log, stack_dumps_held_back():
            self._process = subprocess.Popen(
                [sys.executable, "-m", "ringside.recording.wandb_track", str(run_dir.absolute())],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C does not reach it: it sends the rest first
                preexec_fn=partial(die_with, os.getpid()),
            )

    def poll(self) -> None:
        """Report, once each, the address of the run, and a failure of the process."""
        if not self._lost and self._process.poll():
            self._lost = True
            self._note(
                f"Weights & Biases gets nothing more of this run; the run continues: {self._last_log_line()} "
                f"({self._log})"
            )
        if self._shown or self._lost:
            return
        state = read_object(self._run_dir / TRACK_FILE)
        if state.get("process") == self._process.pid and "address" in state:  # else it is of a former process
            self._shown = True
            self._note(f"Weights & Biases: {state['address']}")

    def _last_log_line(self) -> str:
        lines = []
        with suppress(OSError, FileError):  # the run's directory may be gone
            lines = read_bytes(self._log, _LOG_LIMIT).decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"exit code {self._process.returncode}"

    def finish(self) -> None:
        """Let the process send the rest, and wait `FINISH_SECONDS` at most; a request to stop ends the wait."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            with handle_stop_signals(_interrupt):
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(SILENT_SECONDS)
                if self._process.poll() is None:
                    self._note(f"Weights & Biases gets the rest: {FINISH_SECONDS:.0f} s at most. Ctrl-C ends that.")
                self._process.wait(FINISH_SECONDS)
            self.poll()
        except KeyboardInterrupt:
            self._note("Weights & Biases did not take the rest: you have interrupted that.")
        except subprocess.TimeoutExpired:
            self._note(f"Weights & Biases did not take the rest within {FINISH_SECONDS:.0f} s; see {self._log}.")
        finally:
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)
                kill_and_reap(self._process)


def _interrupt(number: int) -> None:
    raise KeyboardInterrupt


@contextmanager
def tracking(run: ResolvedRun, poll: Callable[[T], None], note: Callable[[str], None]) -> Iterator[Callable[[T], None]]:
    """Track a run during the block if its settings ask for it. Yields the function to call in place of `poll`.

    Args:
        poll: called several times a second.
    """
    if run.track == "off":
        yield poll
        return
    if run.resume is None:
        # What a former run without a checkpoint left in this directory: the scribe may cut the records too late.
        (run.run_dir / TRACK_FILE).unlink(missing_ok=True)
        cut_metrics(run.run_dir / METRICS_FILE, 0)
    tracker = Tracker(run.run_dir, note)

    def poll_both(at: T) -> None:
        poll(at)
        tracker.poll()

    try:
        yield poll_both
    finally:
        tracker.finish()


# --- the process


def main(run_dir: Path) -> None:
    """Send new records until standard input is closed, then the rest and the summary."""
    ignore_requests()
    enable_stack_dumps()
    os.umask(PRIVATE_UMASK)
    os.nice(NICENESS)
    import wandb

    state = read_object(run_dir / TRACK_FILE)
    config = flat_of(read_object(run_dir / CONFIG_FILE))
    run = wandb.init(
        project=os.environ.get("WANDB_PROJECT", "ringside"),
        dir=str(run_dir),
        id=state.setdefault("id", secrets.token_hex(4)),
        name=run_dir.name,
        resume="allow",
        config=config,
        entity=config.get("wandb_entity"),
        group=config.get("wandb_group"),
        tags=[tag.strip() for tag in (config.get("wandb_tags") or "").split(",") if tag.strip()],
    )
    run.define_metric("steps")
    run.define_metric("*", step_metric="steps")
    state["process"] = os.getpid()
    state["address"] = run.url or f"kept in {run_dir / 'wandb'}"
    write_atomic(run_dir / TRACK_FILE, json.dumps(state).encode())
    unsent = Unsent(run_dir / METRICS_FILE, state)
    own = UnsentOwn(run_dir / OWN_METRICS_FILE, state)
    over = False
    while not over:
        over = bool(select.select([sys.stdin], [], [], POLL_SECONDS)[0])
        before = copy.deepcopy(state)
        for record in unsent.records():
            run.log(_scalars(record) | {"steps": record["steps"]})
            video = evaluation_video(run_dir, record["evaluation"]) if record["kind"] == "evaluation" else None
            if video is not None and video.is_file():
                run.log({"eval/video": wandb.Video(str(video), format="mp4"), "steps": record["steps"]})
        for record in own.records():
            run.log(own_scalars(record["values"]) | {"steps": record["steps"]})
        if state != before:
            write_atomic(run_dir / TRACK_FILE, json.dumps(state).encode())
    summary = read_object(run_dir / SUMMARY_FILE)
    run.summary.update({name: value for name, value in summary.items() if not isinstance(value, dict | list)})
    run.finish()


class UnsentOwn:
    """The user's own metrics that were not sent yet."""

    def __init__(self, path: Path, state: dict[str, Any]) -> None:
        """`state` holds the place of the newest record sent of each kind, `own_places`, and is kept up to date."""
        self._follower = Follower(path, parse_own)
        self._sent: dict[str, list[int]] = state.setdefault("own_places", {})
        self._read: dict[str, list[int]] = {}

    def records(self) -> Iterator[dict[str, Any]]:
        """New records. A resume cuts the file, and its callbacks may return values for other steps than before.

        The place of a record is its steps, and its number among those of its kind with the same steps.
        """
        has_more = True
        while has_more:
            found, is_new_file, has_more = self._follower.read()
            if is_new_file:
                self._read.clear()
            for record in found:
                kind, steps = str(record.get("kind")), record["steps"]
                before, number = self._read.get(kind, [steps, 0])
                self._read[kind] = place = [steps, number + 1 if steps == before else 1]
                if place > self._sent.get(kind, []):
                    self._sent[kind] = place
                    yield record


def _scalars(record: dict[str, Any]) -> dict[str, Any]:
    """Values of a record by the names of dashboards."""
    if record["kind"] == "episode":
        return episode_scalars(record["return"], record["length"])
    if record["kind"] == "round":
        return round_scalars(record)
    return evaluation_scalars(
        {name: value for name, value in record.items() if name not in ("evaluation", "round", "steps")}
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
