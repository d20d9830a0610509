"""A process that tries cases: each a run that is mutated, read, and compared with what a whole run reads as.

    python -m tests.fuzz.worker ROOT TARGET FIRST STOP

ROOT is a workspace (tests/fuzz/workspace.py) with whole runs. ROOT/results.jsonl gets a JSON line as a case ends. The
worker limits itself: the processor time and the wall clock of a case, and its memory.
"""

import faulthandler
import fnmatch
import gc
import json
import os
import random
import resource
import signal
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO, NamedTuple

from shared.checkpoint.finding import manifests_in
from shared.files.run_file_names import CHECKPOINTS
from tests.fuzz.mutate import Case, mutate
from tests.fuzz.odd import MARKER
from tests.fuzz.readers import COMMANDS, TARGETS, Target
from tests.fuzz.workspace import Signature, Workspace, contents, difference, flaw_of, signature

WALL_SECONDS = 20.0
"""The longest that a case may wait; far more than any takes, for a machine under load."""
MEMORY_BYTES = 2 << 30
"""Address space that cases may take beside what is loaded."""
ROOT = str(Path(__file__).resolve().parents[2])


class OutOfTime(BaseException):
    """A case took too long. No reader catches it."""


class Outcome(NamedTuple):
    """End of a case: `same`, `refused`, or a `fault`."""

    kind: str
    words: str
    """The sentence; or, of a fault, its cause and where."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise `OutOfTime` where the body takes longer, of a processor or of the clock."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise OutOfTime("processor" if number == signal.SIGPROF else "clock")

    signal.signal(signal.SIGPROF, stop)
    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, WALL_SECONDS + seconds)
    faulthandler.dump_traceback_later(2 * (WALL_SECONDS + seconds), exit=True)  # code that lets no signal through
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.setitimer(signal.ITIMER_REAL, 0.0)


def place_of(error: BaseException) -> str:
    """Innermost line of Ringside's own code in an error's traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if frame.filename.startswith(ROOT) and "/tests/" not in frame.filename]
    return f"{os.path.relpath(ours[-1].filename, ROOT)}:{ours[-1].name}" if ours else "tests"


def tried(target: Target, workspace: Workspace, whole: str) -> tuple[Outcome, list[str]]:
    """Read the run as it is now; returns how that ended, and the parts of the answer."""
    try:
        with limited(target.seconds):
            return Outcome("same", ""), target.read(workspace, whole)
    except target.errors as error:
        flaw = flaw_of(str(error))
        if flaw is None or isinstance(error, OSError):
            return Outcome("refused", str(error)), []
        return Outcome("fault", f"a sentence with {flaw} from {place_of(error)}: {str(error)[:200]!a}"), []
    except (Exception, OutOfTime, SystemExit, KeyboardInterrupt) as error:  # noqa: BLE001  (they are what is looked for)
        return Outcome("fault", f"{type(error).__name__} from {place_of(error)}: {str(error)[:200]!a}"), []


class Worker:
    """Tries cases of one target."""

    def __init__(self, root: Path, target: Target, results: BinaryIO) -> None:
        self._target, self._workspace, self._results = target, Workspace(root), results
        self._workspace.make(self._workspace.runs / ("breakout" if target.runs.keys() == {"catch"} else "catch"))
        sys.path.append(str(self._workspace.code))
        tempfile.tempdir = str(self._workspace.temporary)
        if "living" in target.runs:
            self._living = _pretend(self._workspace)
        self._known = {part for whole in target.runs for part in self._parts_of(whole)}
        self._files = contents(self._workspace.outside / "run")
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY_BYTES, resource.RLIM_INFINITY))

    def _parts_of(self, whole: str) -> set[str]:
        """The parts of what the target answers about a whole run, and about an older checkpoint of it."""
        workspace, found = self._workspace, set[str]()
        newest = manifests_in(workspace.runs / whole / CHECKPOINTS)[:1] if "living" not in whole else []
        for without in [None, *(path.name for _, path in newest)]:
            workspace.renew(whole)
            if without is not None:
                (workspace.run / CHECKPOINTS / without).unlink()
            outcome, parts = tried(self._target, workspace, whole)
            reads = outcome.kind == "same" or self._target.refuses or without is not None
            assert reads, (self._target.name, whole, without, outcome)
            found |= set(parts)
            if self._target.also is not None:
                found |= set(self._target.also(workspace, whole))
        return found

    def case(self, number: int) -> None:
        """Try one case, and write down how it ended."""
        target, workspace = self._target, self._workspace
        rng = random.Random(f"{target.name}/{number}")
        whole = rng.choices(list(target.runs), list(target.runs.values()))[0]
        workspace.renew(whole)
        case = Case(rng, workspace.run, workspace.outside / "run", workspace.outside)
        mutate(case, target.places)
        before = signature(workspace.run), signature(workspace.outside), _descriptors()
        outcome, parts = tried(target, workspace, whole)
        if outcome.kind != "fault" and (words := self._fault(case, parts, *before)):
            outcome = Outcome("fault", words)
        sys.modules.pop(MARKER, None)
        found = {"case": number, "run": whole, "done": case.done, **outcome._asdict()}
        self._results.write(json.dumps(found).encode() + b"\n")
        self._results.flush()

    def _fault(self, case: Case, parts: list[str], run: Signature, beside: Signature, opened: set[int]) -> str | None:
        """Words for an answer of no whole run, or for traces of a case; the last arguments were so before it."""
        target, workspace = self._target, self._workspace
        unchecked = any(fnmatch.fnmatch(name, each) for name in case.touched for each in target.unchecked)
        if (strange := set(parts) - self._known) and not unchecked:
            return f"another answer than any whole checkpoint gives: {min(strange):.60}"
        if not target.writes and (moved := difference(run, signature(workspace.run))):
            return f"the run was written to: {moved}"
        if flaw := workspace.flaw(beside):
            return flaw
        left = set() if target.writes else _opened_since(opened)
        return f"{len(left)} descriptors were left open" if left else None

    def finish(self) -> None:
        """Compare the contents outside: a write may have left times as they were."""
        assert contents(self._workspace.outside / "run") == self._files, "a file outside was written to"


def _opened_since(before: set[int]) -> set[int]:
    """Descriptors that were opened and are held by more than what waits to be collected."""
    if _descriptors() - before:
        gc.collect()
    return _descriptors() - before


def _descriptors() -> set[int]:
    """Open descriptors; that by which they are listed is closed again."""
    return {number for number in map(int, os.listdir("/proc/self/fd")) if Path(f"/proc/self/fd/{number}").is_symlink()}


def _pretend(workspace: Workspace) -> Any:
    """Pretend to play a run, whose directory goes to the whole ones, beside regions that are not whole."""
    from tests.support.watched import Pretended

    whole = workspace.runs / "living"
    pretended = Pretended(whole)
    pretended.play(30)
    for name in ("metrics.jsonl", "summary.json"):
        (whole / name).write_bytes((workspace.runs / "breakout" / name).read_bytes())
    region = os.pread(pretended.memory.arena.fd, pretended.memory.arena.layout.size, 0)
    return pretended, [_region(content) for content in (b"", bytes(4096), region[:4096], region[: len(region) // 2])]


def _region(content: bytes) -> int:
    """A descriptor of a region that is called like a run's, and is none."""
    descriptor = os.memfd_create("ringside")
    os.write(descriptor, content)
    return descriptor


def main(words: list[str]) -> None:
    """Try the cases [FIRST, STOP) of a target."""
    root, name, first, stop = Path(words[0]), words[1], int(words[2]), int(words[3])
    (target,) = (each for each in (*TARGETS, *COMMANDS) if each.name == name)
    os.umask(0o022)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    # A writer that is refused leaves some to the end of its process.
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with open(root / "results.jsonl", "ab") as results:
        worker = Worker(root, target, results)
        for number in range(first, stop):
            worker.case(number)
        worker.finish()


if __name__ == "__main__":
    main(sys.argv[1:])
