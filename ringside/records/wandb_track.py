"""`--track wandb`: a thread of the launcher that reads the records of a run and sends them to Weights & Biases.

It only reads files, and the package sends from a process of its own. So neither the service nor the network can disturb
the run.
"""

from __future__ import annotations

import json
import os
import secrets
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any, TypeVar

import psutil

from ringside.records.metric_names import episode_scalars, evaluation_scalars, round_scalars
from ringside.records.metrics import Follower, Unsent, cut_metrics
from ringside.records.own_metrics import own_scalars, parse_own
from shared.config.settings import ResolvedRun, flat_of
from shared.files.atomic import write_atomic
from shared.files.run_file_names import CONFIG_FILE, METRICS_FILE, SUMMARY_FILE
from shared.files.strict_json import read_object
from shared.process.ownership import OWN_METRICS_FILE, TRACK_FILE, WANDB, evaluation_video
from shared.process.signals import handle_stop_signals

POLL_SECONDS = 2.0
"""Interval between two reads of the records."""
SILENT_SECONDS = 2.0
"""Wait for the end of the thread without a word."""
FINISH_SECONDS = 120.0
"""Time limit for sending the rest after the end of the run."""

T = TypeVar("T")


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
    is_over, said = Event(), deque[str]()
    thread = Thread(target=_send, args=(run.run_dir, is_over, said.append), daemon=True)
    thread.start()

    def poll_both(at: T) -> None:
        poll(at)
        while said:  # in this thread, which draws the display
            note(said.popleft())

    try:
        yield poll_both
    finally:
        is_over.set()
        _finish(thread, note)
        while said:
            note(said.popleft())


def _finish(thread: Thread, note: Callable[[str], None]) -> None:
    """Wait `FINISH_SECONDS` at most until the rest is sent; a request to stop ends the wait."""

    def interrupt(number: int) -> None:
        raise KeyboardInterrupt

    why = f"within {FINISH_SECONDS:.0f} s"
    try:
        with handle_stop_signals(interrupt):
            thread.join(SILENT_SECONDS)
            if thread.is_alive():
                note(f"Weights & Biases gets the rest: {FINISH_SECONDS:.0f} s at most. Ctrl-C ends that.")
            thread.join(FINISH_SECONDS)
    except KeyboardInterrupt:
        why = "because you have interrupted that"
    if thread.is_alive():
        note(f"Weights & Biases did not take the rest {why}; `wandb sync` sends it later.")
        for child in psutil.Process().children():  # else the end of this process would wait for it
            if child.name().startswith(WANDB):
                child.kill()
        import wandb

        with suppress(Exception):
            wandb.teardown()


def _send(run_dir: Path, is_over: Event, note: Callable[[str], None]) -> None:
    """Send new records until the run is over, then the rest and the summary."""
    os.environ.setdefault("WANDB_SILENT", "true")  # else it asks for a key on the terminal of the run
    state, config = read_object(run_dir / TRACK_FILE), flat_of(read_object(run_dir / CONFIG_FILE))
    try:
        import wandb

        run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "ringside"),
            dir=str(run_dir),
            id=state.setdefault("id", secrets.token_hex(4)),
            name=run_dir.name,
            resume="allow",
            reinit="create_new",  # beside a run that the user's program may have
            config=config,
            entity=config.get("wandb_entity"),
            group=config.get("wandb_group"),
            tags=[tag.strip() for tag in (config.get("wandb_tags") or "").split(",") if tag.strip()],
            settings=wandb.Settings(console="off"),
        )
        run.define_metric("steps")
        run.define_metric("*", step_metric="steps")
        note(f"Weights & Biases: {run.url or f'kept in {run_dir / WANDB}'}")
        new_values, written, is_last = _reader(run_dir, state, wandb.Video), "", False
        while not is_last:
            is_last = is_over.wait(POLL_SECONDS)
            for values in new_values():
                run.log(values)
            if (content := json.dumps(state)) != written:
                write_atomic(run_dir / TRACK_FILE, content.encode())
                written = content
        summary = read_object(run_dir / SUMMARY_FILE)
        run.summary.update({name: value for name, value in summary.items() if not isinstance(value, dict | list)})
        run.finish()
    except Exception as error:  # noqa: BLE001  (whatever the service raises, the run continues)
        reason = " ".join(str(error).split()) or type(error).__name__
        note(f"Weights & Biases gets nothing more of this run; the run continues: {reason:.300}")


def _reader(run_dir: Path, state: dict[str, Any], video: Callable[..., Any]) -> Callable[[], Iterator[dict[str, Any]]]:
    """Make a function that returns values that were not sent yet, by the names of dashboards.

    `state` holds how far records were sent, and is kept up to date.
    """
    unsent, own = Unsent(run_dir / METRICS_FILE, state), Follower(run_dir / OWN_METRICS_FILE, parse_own)
    sent_before = state.get("own", -1)

    def new_values() -> Iterator[dict[str, Any]]:
        for record in unsent.records():
            yield _scalars(record) | {"steps": record["steps"]}
            film = evaluation_video(run_dir, record["evaluation"]) if record["kind"] == "evaluation" else None
            if film is not None and film.is_file():
                yield {"eval/video": video(str(film), format="mp4"), "steps": record["steps"]}
        has_more = True
        while has_more:
            records, _, has_more = own.read()
            for record in (each for each in records if each["steps"] > sent_before):
                state["own"] = max(state.get("own", -1), record["steps"])
                yield own_scalars(record["values"]) | {"steps": record["steps"]}

    return new_values


def _scalars(record: dict[str, Any]) -> dict[str, Any]:
    """Values of a record by the names of dashboards."""
    if record["kind"] == "episode":
        return episode_scalars(record["return"], record["length"])
    if record["kind"] == "round":
        return round_scalars(record)
    return evaluation_scalars({name: record[name] for name in record.keys() - {"evaluation", "round", "steps"}})
