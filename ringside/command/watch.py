"""The task `watch`: a page that shows a run as it plays. The page itself is in `ringside/watch`."""

from __future__ import annotations

import os
import webbrowser
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread

from ringside.command.arguments import parse
from ringside.command.option import Positional
from ringside.watch.attach import RUNS, living, runs_below
from ringside.watch.server import App, listen, serve
from ringside.watch.source import Runs
from shared.config.trust import load_plugin
from shared.errors import ConfigError
from shared.files.run_file_names import CONFIG_FILE
from shared.process.signals import handle_stop_signals, ignore_requests
from shared.text import count, printable

LEAST_URGENT = 19
"""Nice value of the page's process, below all processes of a run in priority."""


@dataclass(frozen=True)
class Options:
    """A page in the browser that shows a run as it plays: its envs, curves and roles; without a run, all runs under
    runs/, or under the directory that is named. It only reads: open or closed, it changes nothing in a run."""

    run: Positional[Path | None] = None
    """Directory of a run, or of several, all of which are shown; default: runs/."""
    plugin: str | None = None
    """The plug-in of the run (docs/extending.md); no file chooses code."""
    port: int = 0
    """Port on this machine's loopback; 0: whichever is free."""
    open: bool = False
    """Open the page in this machine's browser, through a file beside the runs."""


def main(arguments: Sequence[str]) -> int:
    """Serve the page until Ctrl-C, SIGTERM or SIGHUP."""
    options = parse(Options, arguments, "watch")

    load_plugin(options.plugin)
    listening = listen(options.port)
    runs, place, told = _runs(options.run)
    app = App(runs)
    address = f"http://127.0.0.1:{listening.getsockname()[1]}/{app.key}/{place}"
    with suppress(KeyboardInterrupt), handle_stop_signals(_stop), ExitStack() as stack:
        print(printable(f"{told}\n  {address}\nCtrl-C ends the page; runs continue without it."), flush=True)
        if options.open:  # a thread started before `nice`: the browser inherits its priority
            # A browser from a snap sees no file in /tmp.
            above = (runs.directory if options.run is None else options.run.absolute().parent).absolute()
            folder = above if os.access(above, os.W_OK | os.X_OK) else None
            redirect = Path(stack.enter_context(TemporaryDirectory(prefix="ringside-watch-", dir=folder))) / "page.html"
            Thread(target=_open_page, args=(address, redirect), daemon=True).start()
        stack.callback(ignore_requests)  # so that no signal interrupts the removal of the directory
        os.nice(LEAST_URGENT)
        serve(app, listening)
    return 0


def _runs(run: Path | None) -> tuple[Runs, str, str]:
    """The runs that the page shows, its place below the key, and what it shows.

    Raises `ConfigError` if there is no run.
    """
    holds_runs = run is not None and not os.path.lexists(run / CONFIG_FILE) and bool(runs_below(run))
    if run is not None and not holds_runs:
        goes_on = "" if living(run) else ", which has ended: what its files tell"
        return Runs(run.parent, run), "run/0/", f"{run}{goes_on}"
    runs = run or RUNS
    number = len(runs_below(runs))
    if not number:
        raise ConfigError(f"There is no run under {runs.absolute()}: name the directory of one.")
    return Runs(runs), "", f"{count(number, 'run')} under {runs}"


def _stop(number: int) -> None:
    """End the page as Ctrl-C does."""
    raise KeyboardInterrupt


def _open_page(address: str, page: Path) -> None:
    """Open the address in the browser, through a file with a redirect that only its owner can read.

    The address contains the key of the page, and all users of the machine can read the arguments of a process.
    """
    page.touch(mode=0o600)
    page.write_text(f'<!doctype html><meta http-equiv="refresh" content="0; url={address}">\n')
    if not webbrowser.open(page.as_uri()):
        print("No browser was found here: open the address yourself.", flush=True)
