"""Attaching an observer to a run: find the run, read its configuration, map its memory read-only.

The processes of a run do not know of observers. An observer opens the region through the launcher's entry in /proc,
which the kernel grants to the same user (and root) only, and maps it without the right to write. It rings no doorbell
and takes no lock, so the run does not notice a slow, stopped or killed observer.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from shared.config import validate
from shared.config.run_schedule import make_run_schedule
from shared.config.settings import Config, ResolvedConfig
from shared.config.trust import require_loaded_plugin
from shared.errors import ConfigError, FileError
from shared.files.run_file_names import CONFIG_FILE
from shared.files.strict_json import read_json
from shared.memory.layout import LayoutError
from shared.memory.plan import Elsewhere, Plan
from shared.memory.run_memory import Memory
from shared.process.live import LIVE_FILE, Live, LiveError
from shared.text import nearest, refused

RUNS = Path("runs")
"""Default directory of runs."""
_REGION = "/memfd:ringside"


@contextmanager
def _refusals(path: Path) -> Iterator[None]:
    """Turn what a file or the system says against watching into a sentence for the user."""
    try:
        yield
    except (FileNotFoundError, ProcessLookupError):
        raise
    except PermissionError as error:
        raise ConfigError(f"{path} belongs to another user; only that user can watch it.") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be watched: {error.strerror}.") from error
    except (FileError, ConfigError, LiveError, LayoutError) as error:
        raise ConfigError(f"{path} cannot be watched. {error}") from error


def runs_below(runs: Path) -> list[tuple[float, Path]]:
    """Runs under `runs` and in suites there, each with the moment of its configuration, in seconds since 1970.

    Raises `ConfigError` when the directory belongs to another user.
    """
    found = []
    with _refusals(runs):
        for config in (*runs.glob(f"*/{CONFIG_FILE}"), *runs.glob(f"*/*/{CONFIG_FILE}")):  # and the runs of suites
            with suppress(FileNotFoundError):  # removed since it was listed
                status = config.lstat()
                if not stat.S_ISLNK(status.st_mode):
                    found.append((status.st_mtime, config.parent))
    return found


def read_config(run_dir: Path) -> Config:
    """Configuration of a run. Raises `ConfigError` if this program and this user cannot read one."""
    if not os.path.isdir(run_dir):  # never raises
        near = nearest(run_dir.name, [each.name for each in run_dir.parent.glob("*/")])
        raise ConfigError(f"There is no run {run_dir}{near if '?' in near else ': name its directory.'}")
    try:
        with _refusals(run_dir):
            sections = read_json(run_dir / CONFIG_FILE)
            run = sections.get("run")
            require_loaded_plugin(run.get("plugin") if isinstance(run, dict) else None, what="It")
            return validate.recorded(sections)
    except FileNotFoundError:
        raise ConfigError(f"{run_dir} is not a run: it has no {CONFIG_FILE}. Name the directory of a run.") from None


def living(run_dir: Path) -> Live | None:
    """The launcher of a run of this version that plays in a directory; None: there is none."""
    with suppress(LiveError, OSError):
        return Live.read(run_dir)
    return None


def attach(run_dir: Path, config: Config) -> tuple[Memory, Live] | None:
    """Memory of a living run, read-only, and its launcher; None if the run has ended or has not begun.

    Close the memory's arena and drop the memory when the run ends: the kernel keeps all of it until then.

    Raises `ConfigError` if the run belongs to another user or has another format.
    """
    try:
        with _refusals(run_dir):
            live = Live.read(run_dir)
            return None if live is None else (_map(config, live), live)
    except (FileNotFoundError, ProcessLookupError):
        return None  # it has just ended


def _map(config: Config, live: Live) -> Memory:
    """Map the memory by the plan that a launcher made of a configuration. Raises `LayoutError` if none can have."""
    with refused(f"Its {CONFIG_FILE} is not the configuration of a run:", ConfigError, LayoutError):
        resolved = ResolvedConfig.from_config(config)
        validate.ranges(resolved)
        validate.resolved(resolved)
    actions = len(live.action_names)
    if not actions or not 0 <= live.gateways <= make_run_schedule(resolved).lanes:
        raise LayoutError(f"Its {LIVE_FILE} names {actions} actions and {live.gateways} gateways.")
    link = f"/proc/{live.process}/fd/{live.descriptor}"
    if not os.readlink(link).startswith(_REGION):
        raise LayoutError(f"Its {LIVE_FILE} leads to something that is not the memory of a run.")
    descriptor = os.open(link, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with ExitStack() as unless_attached:
        unless_attached.callback(os.close, descriptor)
        memory = Memory.attach(
            descriptor, Plan(resolved, actions, Elsewhere(live.gateways), own_torso=live.own_torso), writable=False
        )
        unless_attached.pop_all()
    return memory
