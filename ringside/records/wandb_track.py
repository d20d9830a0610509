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
from typing import TypeVar

import psutil

from ringside.records.metric_names import record_scalars
from ringside.records.metrics import Follower, Unsent, cut_metrics
from ringside.records.own_metrics import own_scalars, parse_own
from shared.config.settings import ResolvedRun, flat_of
from shared.files.atomic import write_atomic
from shared.files.run_file_names import CONFIG_FILE, METRICS_FILE, SUMMARY_FILE
from shared.files.strict_json import read_object
from shared.process.ownership import OWN_METRICS_FILE, TRACK_FILE, WANDB

POLL_SECONDS = 2.0
"""Interval between two reads of the records."""
FINISH_SECONDS = 30.0
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
        thread.join(FINISH_SECONDS)
        while said:
            note(said.popleft())
        if thread.is_alive():
            note(f"Weights & Biases did not take the rest within {FINISH_SECONDS:.0f} s; `wandb sync` sends it later.")
            _abandon()


def _abandon() -> None:
    """End the processes of the package: else the end of this process would wait for them."""
    for child in psutil.Process().children():
        with suppress(psutil.NoSuchProcess):
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
        unsent, own = Unsent(run_dir / METRICS_FILE, state), Follower(run_dir / OWN_METRICS_FILE, parse_own)
        own_sent, written, has_more = state.get("own", -1), "", True
        while has_more:
            has_more = not is_over.wait(POLL_SECONDS)
            for record in unsent.records():
                run.log(record_scalars(record) | {"steps": record["steps"]})
            found = own.read()
            for record in found.records:
                if record["steps"] > own_sent:
                    run.log(own_scalars(record["values"]) | {"steps": record["steps"]})
                    state["own"] = max(state.get("own", -1), record["steps"])
            has_more = has_more or found.has_more
            if (content := json.dumps(state)) != written:
                write_atomic(run_dir / TRACK_FILE, content.encode())
                written = content
        summary = read_object(run_dir / SUMMARY_FILE)
        run.summary.update({name: value for name, value in summary.items() if not isinstance(value, dict | list)})
        run.finish()
    except Exception as error:  # noqa: BLE001  (whatever the service raises, the run continues)
        reason = " ".join(str(error).split()) or type(error).__name__
        note(f"Weights & Biases gets nothing more of this run; the run continues: {reason:.300}")
