"""Objects on nodes: what they say about their machine, the programs that they start, and their lease.

A launcher that hears nothing of a node has the work done elsewhere. So the node, which cannot know, must end it too:
without a call for the time of its lease an object ends its program and its process.

Nodes with other software than the launcher's, or with another hash of what they compute, might compute other weights.

The launcher sees such an object as a `Host`: `ray_hosts` makes hosts of Ray actors; tests make them of plain objects in
the same process, with faults.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import math
import os
import platform
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

from multiprocess.reduction import ForkingPickler

from shared.errors import RunFailed
from shared.machine.facts import LIBRARIES, processor
from shared.machine.subprocesses import die_with, kill_and_reap, read_output, terminate_and_reap
from shared.memory.plan import Plan
from shared.process.library_env import choose_workspace, pinned_thread_env
from shared.root import ROOT
from shared.text import refused


class NodeLost(Exception):
    """A node, or our process on it, died or is silent. The message ends a sentence: "node 10.0.0.7 died"."""


class Host(Protocol):
    """A `NodeObject` that answers calls one after another."""

    def ready(self, seconds: float) -> bool:
        """Wait at most `seconds`; True if the object has been placed on a node. Raises `NodeLost`."""

    def call(self, method: str, *arguments: Any, seconds: float, meanwhile: Callable[[], None] = lambda: None) -> Any:
        """Call a method of the object and return its answer.

        Args:
            seconds: after which a missing answer counts as the loss of the node.
            meanwhile: called several times a second while the answer is awaited.

        Raises:
            NodeLost: there is no answer. Any error that the method itself raises.
        """

    def release(self, *, gently: bool = False) -> None:
        """End the process of the object, if it lives; give its place on the node back.

        Args:
            gently: call its method `close` first, and wait for it a moment.
        """


class Hosts(Protocol):
    """A cluster that places objects on its nodes."""

    def place(self, kind: type, *arguments: Any) -> Host:
        """Ask for a new object `kind(*arguments)` on a node with enough free resources; does not wait."""

    def leave_out(self, host: Host) -> None:
        """Place nothing more on the node of an object that is there. Raises `NodeLost`."""


LEASE_SECONDS = 60.0
"""Longest time without a call."""
PROBE = "learner.numerics_probe"
PROBE_SECONDS = 120.0
"""Longest time of the probe; it takes a second and the start of torch."""
KEPT_LINES = 20
"""Last lines of a program's output that are told."""
_KEPT_BYTES = 1 << 16
_POLL_SECONDS = 0.5
_PACKAGES = ("actors", "learner", "shared", "ringside", "workers")
_SOURCES = "sources of Ringside"
_DIGITS = 12
"""Digits of a digest that a sentence shows."""
_OF_RAY = ("RAY_", "OMP_NUM_THREADS")
"""Beginnings of variables that Ray sets or reads. Programs do not get them: the token is among them, and the number of
threads is a setting of a run."""


class Node(NamedTuple):
    """Description of the machine of an object."""

    name: str
    software: dict[str, str]
    """As from `fingerprint`."""
    processor: str
    """Model of its processor."""

    def difference(self, ours: Mapping[str, str]) -> str | None:
        """Sentence with the first difference to the software of this machine; None if there is none."""
        for name, own in ours.items():
            other = self.software.get(name)
            if other != own:
                shown = f"has {name} {other}" if other else f"lacks {name}"
                return (
                    f"Node {self.name} {shown}, this machine {own}: weights could differ. Install the same versions "
                    "there."
                )
        return None

    @property
    def other_bits(self) -> str:
        """Sentence about a node that rounds differently."""
        return (
            f"Node {self.name} ({self.processor}) computes other last bits than this machine ({processor()}): the run "
            "would not be exact. Use nodes with the same type of processor, or pass --mixed-numerics."
        )


class NodeObject:
    """An object of ours on a node, with at most one program at a time; call its methods from one thread."""

    leave_seconds: ClassVar[float]
    """Longest time of the program to end after it was asked to stop; then it is killed."""

    def __init__(self, lease_seconds: float = LEASE_SECONDS, end: Callable[[int], object] = os._exit) -> None:
        """Begin the lease.

        Args:
            lease_seconds: longest time without a call.
            end: ends this process with an exit code when the lease has run out.
        """
        self._program: subprocess.Popen[bytes] | None = None
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  (`close` closes it)
        self._renewed_at, self._closed = time.monotonic(), threading.Event()
        threading.Thread(target=self._watch, args=(lease_seconds, end), daemon=True).start()

    def answer(self, method: str, *arguments: Any) -> Any:
        """Call a method for the launcher. The lease begins again when it returns."""
        self._renewed_at = math.inf
        try:
            return getattr(self, method)(*arguments)
        finally:
            self._renewed_at = time.monotonic()

    def describe(self) -> Node:
        """Name, software and processor of this machine."""
        return Node(os.uname().nodename, fingerprint(), processor())

    def close(self) -> None:
        """Kill the program, if it lives, and give everything back."""
        self._closed.set()
        if self._program is not None:
            kill_and_reap(self._program)
            self._program = None
        self._log.close()

    def _start_program(
        self,
        words: Sequence[str],
        directory: str,
        *,
        question: bytes = b"",
        cores: Sequence[int] = (),
        pass_fds: Sequence[int] = (),
    ) -> None:
        """Start a program of Python, which is asked to stop when this process ends.

        Args:
            words: arguments of Python.
            directory: working directory.
            question: its standard input.
            cores: CPUs that it is bound to; none: all.
            pass_fds: descriptors that it inherits.
        """
        self._log.close()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  (`close` closes it)
        self._program = subprocess.Popen(
            [sys.executable, *words],
            cwd=directory,
            env=node_environment(),
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
            preexec_fn=partial(_begin, os.getpid(), tuple(cores)),
            pass_fds=pass_fds,
        )
        assert self._program.stdin is not None, "it is a pipe"
        with self._program.stdin as pipe:
            pipe.write(question)

    def _last_lines(self) -> list[str]:
        """Last lines of the program's output."""
        log = self._log.fileno()  # whose offset is the program's, too
        content = os.pread(log, _KEPT_BYTES, max(0, os.fstat(log).st_size - _KEPT_BYTES))
        return content.decode(errors="replace").strip().splitlines()[-KEPT_LINES:]

    def _watch(self, seconds: float, end: Callable[[int], object]) -> None:
        """End the program and this process once the launcher is out of reach."""
        while not self._closed.wait(min(_POLL_SECONDS, seconds)):
            if time.monotonic() - self._renewed_at > seconds:
                if self._program is not None:
                    terminate_and_reap(self._program, self.leave_seconds)
                self.close()
                end(1)


def _begin(parent: int, cores: tuple[int, ...]) -> None:
    """In the new process: take the cores, and stop when the host ends."""
    if cores:
        os.sched_setaffinity(0, cores)
    die_with(parent, signal.SIGTERM)


def node_environment() -> dict[str, str]:
    """The variables of this process without those of Ray, with our modules in PYTHONPATH."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_OF_RAY)}
    return kept | {"PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [kept.get("PYTHONPATH")])])}


def fingerprint(root: Path = ROOT) -> dict[str, str]:
    """Version of each library, and a digest of our sources, by name. Libraries that are missing have no entry."""
    total = hashlib.sha256()
    files = [root / "launch.py", *(path for package in _PACKAGES for path in (root / package).rglob("*.py"))]
    for path in sorted(files):
        content = path.read_bytes()
        total.update(f"{path.relative_to(root)} {len(content)}\n".encode() + content)
    found = {"Python": platform.python_version(), _SOURCES: total.hexdigest()[:_DIGITS]}
    for library in (*LIBRARIES, "zstandard"):
        with suppress(importlib.metadata.PackageNotFoundError):
            found[library] = importlib.metadata.version(library)
    return found


def numerics(plan: Plan) -> str:
    """Hash of the network's answers on this machine, from a program of its own: this package never loads torch.

    Raises:
        RunFailed: it cannot be computed here.
    """
    choose_workspace()
    words, question = [sys.executable, "-m", PROBE], bytes(ForkingPickler.dumps(plan)).hex()
    node = f"Node {os.uname().nodename}"
    try:
        with pinned_thread_env(), refused(f"{node} cannot start {PROBE}", by=RunFailed):
            return read_output(words, PROBE_SECONDS, stdin=question, env=node_environment()).strip()
    except subprocess.TimeoutExpired as error:
        raise RunFailed(f"{node} did not answer {PROBE} in {PROBE_SECONDS:.0f} s.") from error
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or [f"exit code {error.returncode}"])[-1]
        raise RunFailed(f"{node} cannot compute the network: {last}") from error
