"""The task `watch`: a page that shows a run as it plays. The page itself is in `watch/page/`."""

from __future__ import annotations

import os
import webbrowser
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

from tasks.arguments import PROGRAM, parse

LEAST_URGENT = 19
"""Niceness of the page's process: everything in a run goes before it."""


@dataclass(frozen=True)
class Watching:
    """The options of `watch`."""

    run: Positional[Path | None] = None
    """Directory of the run; default: the newest that goes on under runs/, else the newest of all."""
    port: int = 0
    """Port on this machine's loopback; 0: whichever is free."""
    open: bool = False
    """Open the page in this machine's browser."""


OPTIONS = Watching


def main(arguments: Sequence[str]) -> int:
    """Serve the page until Ctrl-C."""
    options = parse(
        Watching,
        arguments,
        f"{PROGRAM} watch",
        "A page in the browser that shows a run as it plays: its envs, curves and roles. It only looks on: open or "
        "closed, it changes nothing in the run.",
    )
    from watch.attach import newest_run
    from watch.page.server import listen, serve
    from watch.page.source import Source

    listening = listen(options.port)
    source = Source(options.run or newest_run())
    os.nice(LEAST_URGENT)

    def ready(address: str) -> None:
        goes_on = "" if source.lives else ", which has ended: what its files tell"
        print(f"{source.run_dir}{goes_on}\n  {address}\nCtrl-C ends the page; the run goes on without it.", flush=True)
        if options.open and not webbrowser.open(address):
            print("No browser was found here: open the address yourself.", flush=True)

    with suppress(KeyboardInterrupt):
        serve(source, listening, ready)
    return 0
