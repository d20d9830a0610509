"""`--cgroup`: the run as one systemd scope with resource limits; when the launcher ends, all its processes end.

The launcher becomes `systemd-run --scope`, which puts itself into a fresh control group and becomes the launcher again:
process, terminal, signals and exit code stay the same. Inside, the run adapts to the limits, as in any control group
(shared/machine/control_groups.py).

Children of the launcher die with it (parent-death signal), but processes that they started do not. So a guard process
waits until the launcher has ended for any reason, and makes systemd kill the remaining processes.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from shared.errors import ConfigError
from shared.machine.control_groups import InForce
from shared.machine.proc_files import FILESYSTEM
from shared.process.signals import TELL_STACKS

TASKS = 4096
"""Limit of processes and threads: many times the need of a run, as a bound for faults."""
OOM_POLICY_SINCE = 253
"""The first version of systemd whose scopes know OOMPolicy; those before end a scope at the first kill."""
LEAST_MEMORY = 100_000_000
"""Least limit of memory: more than PyTorch alone takes."""
LEAVE_SECONDS = 5.0
"""Time for processes that outlive the launcher to clean up, before they are killed."""
_INSIDE = "RINGSIDE_SCOPE"
"""Environment variable: the scope that a launcher was put into. It names the process, so that none can inherit it."""
_MAY_NOT = "systemd may not limit {} here; as root, or with control groups of version 2, it can."
_WITHOUT = (
    "Omit --cgroup: a run respects the limits of any control group that it is started in, and its processes end "
    "with it (docs/reliability.md)."
)


@dataclass(frozen=True)
class Limits:
    """Limits of a scope; None: no limit."""

    cpus: float | None
    """Processor time, in cores."""
    memory: int | None
    """Bytes."""

    def missing(self, found: InForce) -> list[str]:
        """Sentences about requested limits that are not in force."""
        sentences = []
        if self.cpus is not None and (found.cores is None or found.cores > self.cpus * 1.01):
            sentences.append(f"--cpus {self.cpus:g} is not in force: {_MAY_NOT.format('processor time')}")
        if self.memory is not None and (found.memory is None or found.memory > self.memory):
            sentences.append(f"--memory of {self.memory / 1e9:.1f} GB is not in force: {_MAY_NOT.format('memory')}")
        return sentences


def make_limits(cpus: float | None, memory: str | None) -> Limits:
    """Parse limits from the command line; memory is like "16G", in powers of 1024 as in systemd.

    Raises `ConfigError` for an invalid limit.
    """
    if cpus is not None and not 0.01 <= cpus < 1e6:
        raise ConfigError(f"--cpus {cpus:g} must be 0.01 to 1,000,000 cores.")
    if memory is None:
        return Limits(cpus, None)
    found = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)([KMGT]?)(?:I?B)?", memory.upper())
    size = int(float(found[1]) * 1024 ** " KMGT".index(found[2] or " ")) if found else 0
    if size < LEAST_MEMORY:
        fault = f"is {size:,} bytes, in which nothing runs" if found else "is no amount of memory"
        raise ConfigError(f"--memory {memory} {fault}; write it like 16G or 800M.")
    return Limits(cpus, size)


def inside() -> bool:
    """True if this process was started in a scope by `--cgroup`."""
    return os.environ.get(_INSIDE) == _unit()


def enter(limits: Limits, command: Sequence[str], root: Path = FILESYSTEM) -> None:
    """Become `command` in a scope with these limits. It returns only by raising.

    Args:
        limits: of the scope.
        command: program and arguments: this very command, which then finds itself `inside`.
        root: where /run is found.

    Raises:
        ConfigError: there is no systemd that could do it.
    """
    manager = _manager(root)
    words = systemd_run(limits, command, manager, _version())
    os.environ[_INSIDE] = _unit()
    _leave_guard(manager)
    signal.pthread_sigmask(signal.SIG_BLOCK, {TELL_STACKS})  # until `enable_stack_dumps`, which `command` calls
    os.execvp(words[0], words)


def systemd_run(limits: Limits, command: Sequence[str], manager: str, version: int) -> list[str]:
    """The command line that starts `command` in a scope.

    Args:
        limits: of the scope.
        command: program and arguments.
        manager: --system or --user.
        version: of systemd.
    """
    properties = [f"TasksMax={TASKS}", "KillMode=control-group", "TimeoutStopSec=10"]
    if limits.cpus is not None:
        properties.append(f"CPUQuota={f'{limits.cpus * 100:.1f}'.removesuffix('.0')}%")  # old versions take no more
    if limits.memory is not None:
        properties.append(f"MemoryMax={limits.memory}")
    if version >= OOM_POLICY_SINCE:
        properties.append("OOMPolicy=continue")  # the run restarts the one process that was killed
    options = [f"--property={each}" for each in properties]
    return ["systemd-run", "--scope", manager, "--quiet", "--collect", f"--unit={_unit()}", *options, "--", *command]


def _unit() -> str:
    return f"ringside-{os.getpid()}.scope"


def _manager(root: Path) -> str:
    """The manager that makes the scope: --system for root, --user for a user with a session, which is exported.

    Raises `ConfigError` when there is none.
    """
    if shutil.which("systemd-run") is None or not (root / "run/systemd/system").is_dir():
        raise ConfigError(f"--cgroup needs systemd, which does not run here. {_WITHOUT}")
    if os.getuid() == 0:
        return "--system"
    session = os.environ["XDG_RUNTIME_DIR"] = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    if not os.path.exists(root / session.lstrip("/") / "systemd/private"):  # pathlib's raises where it is closed
        raise ConfigError(
            f"--cgroup needs systemd's manager of this user, which does not run; `loginctl enable-linger` starts it. "
            f"{_WITHOUT}"
        )
    return "--user"


def _version() -> int:
    """Version of systemd; 0: unknown."""
    answer = subprocess.run(["systemd-run", "--version"], capture_output=True, text=True, timeout=30, check=False)
    found = re.match(r"systemd (\d+)", answer.stdout)
    return int(found[1]) if found else 0


def _is_active(manager: str, unit: str) -> bool:
    """True if a process of the scope is left, as far as systemd answers in time."""
    words = ["systemctl", manager, "is-active", "--quiet", unit]
    try:
        return subprocess.run(words, check=False, timeout=LEAVE_SECONDS).returncode == 0
    except subprocess.TimeoutExpired:
        return True


def _leave_guard(manager: str) -> None:
    """Fork a guard process that makes systemd kill the rest of the scope when this process has ended."""
    unit, launcher = _unit(), os.getpid()
    if os.fork():
        return
    os.setsid()  # Ctrl-C in the terminal must not reach the guard
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    while os.getppid() == launcher:  # which becomes systemd-run, and keeps its id
        time.sleep(0.1)
    deadline = time.monotonic() + LEAVE_SECONDS
    while _is_active(manager, unit):
        if time.monotonic() > deadline:
            os.execvp("systemctl", ["systemctl", manager, "kill", "--signal=SIGKILL", unit])
        time.sleep(0.1)
    os._exit(0)
