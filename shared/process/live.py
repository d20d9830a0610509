"""Address of a living run for observers: `live.json` in the run directory, which exists as long as the memory.

The launcher writes the file once the memory exists, and removes it with the memory. A killed launcher leaves the file
behind. So the file names the process by its id *and* the moment of its start, and a reader checks that this process
lives. File and memory are for the run's owner only: the kernel opens `/proc/PID/fd` to no other user.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

import msgspec

from shared.errors import FileError
from shared.files.atomic import write_atomic
from shared.files.strict_json import read_json, read_object
from shared.machine.proc_files import stat_fields
from shared.network_spec import OwnTorso

LIVE_FILE = "live.json"
"""Name of the file in a run directory."""
FORMAT = 2
_NAME_LENGTH = 24


class LiveError(ValueError):
    """`live.json` cannot be used. The message is a sentence for the user."""


@dataclass(frozen=True)
class Live:
    """A launcher, and where it holds its run's memory."""

    format: int
    process: int
    started: int
    """Moment of the process's start, in clock ticks since boot."""
    descriptor: int
    """Descriptor of the shared region in that process."""
    action_names: tuple[str, ...]
    gateways: int = 0
    """Actors whose lanes are played on other nodes."""
    own_torso: OwnTorso | None = None
    """Findings about a network of the user, which no observer imports."""
    made: int = 0
    """Moment of this address, in nanoseconds of the monotonic clock: one process may train several times."""

    @classmethod
    def for_this_process(
        cls, descriptor: int, action_names: Sequence[str], gateways: int = 0, own_torso: OwnTorso | None = None
    ) -> Self:
        """This process, which holds the region behind `descriptor`."""
        process, names = os.getpid(), tuple(name[:_NAME_LENGTH] for name in action_names)
        started = process_start(process) or 0
        return cls(FORMAT, process, started, descriptor, names, gateways, own_torso, time.monotonic_ns())

    def write(self, run_dir: Path) -> None:
        """Leave it in the run directory. Raises `OSError`."""
        write_atomic(run_dir / LIVE_FILE, json.dumps(asdict(self)).encode() + b"\n")

    @classmethod
    def read(cls, run_dir: Path) -> Self | None:
        """The file of a run directory; None where there is none, or the launcher that left it has ended.

        Raises:
            LiveError: it is none of this version. OSError: the system refuses.
        """
        path = run_dir / LIVE_FILE
        try:
            found = read_json(path)
            if found.get("format") != FORMAT and type(found.get("format")) is int:
                raise LiveError(
                    f"{path} has format {found['format']}, and this program knows format {FORMAT}: watch it with the "
                    "version of Ringside that plays the run."
                )
            live = msgspec.convert(found, cls)
        except FileNotFoundError:
            return None
        except (FileError, msgspec.ValidationError) as error:
            raise LiveError(f"{path} is damaged: remove it; the run does not need it.") from error
        return live if process_start(live.process) == live.started else None


def withdraw(run_dir: Path) -> None:
    """Remove the file of this process, whose memory goes. A directory that is gone, or another run's, stays so."""
    with suppress(OSError):
        if read_object(run_dir / LIVE_FILE).get("process") in (None, os.getpid()):
            (run_dir / LIVE_FILE).unlink()


def process_start(process: int) -> int | None:
    """Start of a process in clock ticks since boot; None when it is gone, or dead and not yet reaped."""
    fields = stat_fields(Path(f"/proc/{process}/stat"))
    return None if not fields or fields[0] in "ZX" else int(fields[19])  # field 22
