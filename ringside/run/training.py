"""Training as planned, in a run directory that one launcher owns.

Callbacks receive the records of a run, and may return metrics of their own.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

from actors.pixels.bilinear import compile_kernels
from actors.pixels.frames import is_compiled
from ringside.records.metrics import MEAN_OVER, Unsent, next_evaluation
from ringside.records.own_metrics import OwnMetrics, checked_values
from ringside.records.wandb_track import tracking
from ringside.run.checks import action_names_of, look_at, require_run_directory
from ringside.run.children import require_main_program
from ringside.run.config_file import config_of_call
from ringside.run.planning import continues, plan, resumed_checkpoint
from ringside.run.supervisor import Supervisor
from ringside.run.torso_look import look_at_torso
from ringside.run.train_settings import TrainSettings
from ringside.watch.display import Display, open_display
from ringside.watch.observer import Observer
from ringside.watch.status import Status, ending
from shared.checkpoint.manifest import Manifest
from shared.config.settings import Config, flat_of
from shared.config.trust import code_named
from shared.errors import StopTraining
from shared.files.atomic import PRIVATE_UMASK, remove_temporaries, write_atomic
from shared.files.lock import locked
from shared.files.run_file_names import CONFIG_FILE, METRICS_FILE, SUMMARY_FILE
from shared.files.strict_json import read_json, read_object
from shared.memory.plan import Plan
from shared.memory.run_memory import Memory
from shared.process.live import LIVE_FILE, Live, withdraw
from shared.process.ownership import LIVING, LOCK_FILE, OWN_METRICS_FILE, require_writable_run
from shared.text import PROGRAM, printable, refused

Record = dict[str, Any]
"""A line of metrics.jsonl (docs/files.md)."""
Callback = Callable[[Record], Mapping[str, float] | None]
"""Receives a record; returns metrics to record at its steps, or None."""


@dataclass(frozen=True)
class Callbacks:
    """Functions that the launcher calls with each new record, in the order of the records.

    What they raise stops the run, which saves its last boundary; then it is raised to the caller of `train`, unless it
    is `StopTraining`.
    """

    on_round: Callback | None = None
    on_episode: Callback | None = None
    on_evaluation: Callback | None = None


NO_CALLBACKS = Callbacks()


@contextmanager
def dispatching(
    callbacks: Callbacks, run_dir: Path, source_dir: Path, steps: int, sent: dict[str, int], note: Callable[[str], None]
) -> Iterator[Callable[[], None]]:
    """Call the callbacks with all records that a run adds. Yields the function to call several times a second.

    Args:
        source_dir: run that is continued; `run_dir` for a new one.
        steps: played before the run began or was resumed.
        sent: the newest `round` and `evaluation` of records that exist and are not to be passed on; kept up to date.
        note: called with a sentence when own metrics cannot be written.

    Raises:
        ConfigError: own metrics of former steps cannot be cut.
    """
    with refused(f"{run_dir / OWN_METRICS_FILE} cannot be written"):
        own = OwnMetrics(run_dir, source_dir, steps, note)
    unsent = Unsent(run_dir / METRICS_FILE, sent)

    def poll() -> None:
        try:
            for record in unsent.records() if callbacks != NO_CALLBACKS else ():
                callback: Callback | None = getattr(callbacks, f"on_{record['kind']}")
                if callback is not None and (values := callback(dict(record))):
                    own.add(record, checked_values(values, f"on_{record['kind']}"))
        finally:
            own.flush()

    try:
        yield poll
        over = False
        while not over:
            with suppress(StopTraining):  # the run is over: go on with the record after that of the request
                poll()
                over = True
    finally:
        own.close()


def train(
    *,
    preset: str | None = None,
    config: str | Path | None = None,
    progress: bool = True,
    on_status: Callable[[Status], None] | None = None,
    on_round: Callback | None = None,
    on_episode: Callback | None = None,
    on_evaluation: Callback | None = None,
    **settings: Unpack[TrainSettings],
) -> dict[str, Any]:
    """Train, and return what `summary.json` holds. A run that Ctrl-C has stopped says `"finished": False` there.

    Args:
        preset: what the settings that are not given default to, "nature" unless given; not together with `resume`.
        config: settings from a file, under those that are given: TOML, or a run (its config.json).
        progress: print the lines and notes of the command with --plain. False: print nothing of the run.
        on_status: called several times a second with the state of the run. What it raises stops the run, which saves
            its last boundary and can be resumed; then it is raised here.
        on_round, on_episode, on_evaluation: called with each new record, a line of metrics.jsonl. The numbers that they
            return, by name, are recorded as metrics of your own. What they raise acts as for `on_status`.
        settings: any field of any section in `shared.config.sections`.

    Raises:
        ConfigError: the settings cannot work. ArenaError: there is too little memory. RunFailed: a fault ended the run.
    """
    require_main_program()  # before a plug-in is imported
    look_at.cache_clear()  # in a notebook the code of envs and networks may have changed since the last call
    look_at_torso.cache_clear()
    ready = plan(config_of_call(preset, config, settings))
    callbacks = Callbacks(on_round, on_episode, on_evaluation)
    look = on_status or (lambda status: None)
    if not progress or sys.stdout is None:  # a program without a terminal may have closed it
        return run_plan(ready, look, lambda sentence: None, callbacks)
    return run_shown(ready, open_display(plain=True), look, callbacks)


def run_shown(
    ready: Plan, display: Display, on_status: Callable[[Status], None], callbacks: Callbacks = NO_CALLBACKS
) -> dict[str, Any]:
    """As `run_plan`, with a display that the call opens and closes; print how the run ended."""
    newest: list[Status] = []

    def show(status: Status) -> None:
        newest[:] = [status]
        display.show(status)
        on_status(status)

    with display:
        summary = run_plan(ready, show, display.note, callbacks)
    for sentence in ending(summary, ready.config.run.run_dir, newest[0].evaluation if newest else None):
        print(printable(sentence), flush=True)
    return summary


def run_plan(
    ready: Plan, on_status: Callable[[Status], None], note: Callable[[str], None], callbacks: Callbacks = NO_CALLBACKS
) -> dict[str, Any]:
    """Train by a plan in its run directory; `note` receives sentences about events. Otherwise as `train`."""
    require_main_program()
    run_dir = ready.config.run.run_dir
    for sentence in ready.warnings:
        note(sentence)
    with _owned(ready) as checkpoint:
        source_dir, boundary, sent = run_dir, 0, dict[str, int]()
        if checkpoint is not None:
            for sentence in checkpoint.refused:
                note(f"{sentence} Continuing from {checkpoint.path.name} instead.")
            if flat_of(checkpoint.config).get("track") == "wandb" and ready.config.run.track == "off":
                note("This run was sent to Weights & Biases before; pass --track wandb to send the rest, too.")
            source_dir, boundary = checkpoint.run_dir, checkpoint.boundary
            evaluation = next_evaluation(source_dir / METRICS_FILE, boundary) - 1
            sent = {"round": boundary - 1, "evaluation": evaluation}
        if (first_update := learning_begins_sentence(ready, boundary)) is not None:
            note(first_update)
        observers: list[Observer] = []

        def look(memory: Memory) -> None:
            """Pass state and new records on, several times a second. Raises `StopTraining` at --stop-at."""
            if not observers:
                observers.append(Observer(memory))
                _announce(ready, memory, note)
            on_status(status := observers[0].observe())
            if memory.board.prepared[0]:  # a resume has cut the records to its boundary
                dispatch()
            if (sentence := score_reached(ready.config, status)) is not None:
                raise StopTraining(sentence)

        steps = boundary * ready.run_schedule.round_steps
        with (
            dispatching(callbacks, run_dir, source_dir, steps, sent, note) as dispatch,
            tracking(ready.config.run, look, note) as on_poll,
        ):
            if not is_compiled():
                note("Compiling the code that shrinks frames, once for this installation: about half a minute.")
            compile_kernels()  # once, into numba's cache, instead of in every actor at the same time
            try:
                Supervisor(ready, on_poll, note, checkpoint=checkpoint).run()
            finally:
                withdraw(run_dir)
    return read_json(run_dir / SUMMARY_FILE)


def learning_begins_sentence(ready: Plan, boundary: int) -> str | None:
    """Sentence with the step at which a run at `boundary` begins to learn; None if it learns already or never."""
    run_schedule, starts = ready.run_schedule, ready.config.learn.learning_starts
    begins = run_schedule.learning_begins
    if boundary * run_schedule.round_steps >= begins or not run_schedule.updates_before(run_schedule.rounds):
        return None
    waits = begins != starts and not ready.method.on_policy
    part = "gradient" if run_schedule.workers else "whole round"
    after = f", with the first {part} after --learning-starts {starts:_}" if waits else ""
    return f"Learning begins in {ready.config.machine.precision} at step {begins:,}{after}."


def score_reached(config: Config, status: Status) -> str | None:
    """Sentence that the mean return has reached --stop-at; None: it has not."""
    if config.run.stop_at is None:
        return None
    if config.evaluate.eval_every_steps:
        mean, name = None if status.evaluation is None else status.evaluation.mean_return, "an evaluation"
    else:
        mean, name = status.mean_return_100 if status.episodes >= MEAN_OVER else None, f"{MEAN_OVER} episodes"
    if mean is None or mean < config.run.stop_at:
        return None
    return f"The mean return of {name}, {mean:.2f}, has reached --stop-at {config.run.stop_at:g}."


def _announce(ready: Plan, memory: Memory, note: Callable[[str], None]) -> None:
    """Write the file by which observers attach to the run. A write error does not end the run."""
    try:
        live = Live.for_this_process(
            memory.arena.fd, action_names_of(ready.config.play), ready.elsewhere.actors, ready.own_torso
        )
        with _private_umask():
            live.write(ready.config.run.run_dir)
    except OSError as error:
        note(f"{LIVE_FILE} cannot be written ({error.strerror}): `{PROGRAM} watch` cannot show this run.")


@contextmanager
def _owned(ready: Plan) -> Iterator[Manifest | None]:
    """Make and lock a run directory, find the checkpoint to resume, if any, and write the configuration.

    Another run may have been here since this one was planned. So the lock comes first, then the look at what is there.
    A new directory is made once the checkpoint is found.
    New files are readable by their owner only; children set this themselves (shared/process/child.py).

    Raises:
        ConfigError: it is another's, holds a run that this one does not continue, or cannot be written; or there is
            nothing to resume.
    """
    config, told, run_dir = ready.config, ready.config.to_json(), ready.config.run.run_dir
    with ExitStack() as held:
        with refused(f"--run-dir {run_dir} cannot be written"), _private_umask():
            is_new = not run_dir.exists()
            checkpoint = resumed_checkpoint(ready) if is_new else None
            run_dir.mkdir(parents=True, exist_ok=True)
            require_writable_run(run_dir, "--run-dir")
            held.enter_context(locked(run_dir / LOCK_FILE, "--run-dir", LIVING))
            checkpoint = checkpoint if is_new else resumed_checkpoint(ready)
            require_run_directory(run_dir, continues=continues(ready, checkpoint), **code_named(config))
            remove_temporaries(run_dir)
            former = read_object(checkpoint.run_dir / CONFIG_FILE).get("run") if checkpoint else None
            if isinstance(former, dict) and isinstance(former.get("init_from"), str):
                told["run"]["init_from"] = former["init_from"]  # no resume forgets where its weights began
            write_atomic(run_dir / CONFIG_FILE, json.dumps(told, indent=2).encode() + b"\n")
        yield checkpoint


@contextmanager
def _private_umask() -> Iterator[None]:
    """Make new files and directories accessible to their owner only during the block."""
    previous = os.umask(PRIVATE_UMASK)
    try:
        yield
    finally:
        os.umask(previous)
