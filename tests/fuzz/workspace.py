"""The directory in which cases are tried: a copy of a run, and everything beside it that no case may touch.

runs/           whole runs, to copy from
case/run/       the copy that is mutated
case/work/      the current directory, for what a reader is asked to write
outside/        canaries: files that links may lead to, and that must stay as they are
code/           a module whose import leaves a mark
mark            that mark
tmp/            TMPDIR
"""

import os
import shutil
import stat
from operator import attrgetter
from pathlib import Path

from tests.fuzz.odd import MARKER

_CODE = """
from pathlib import Path
Path({mark!r}).write_text("executed")
def factory(**settings):
    raise RuntimeError("executed")
"""

VICTIMS = {"victim.txt": b"This is nobody's run.\n", "victim.json": b'{"format": 1}\n'}
"""Files that links lead to, by their names."""

MOST_CHARACTERS = 2_000
"""Longest sentence, in characters."""

_HELD = attrgetter("st_mode", "st_size", "st_mtime_ns", "st_ino", "st_uid", "st_gid")
Signature = dict[str, tuple[int, ...]]
"""Kind and rights, size, times, number and owner of every file, by its path."""


def flaw_of(sentence: str) -> str | None:
    """Reason why a sentence is not fit for a user; None if it is."""
    if "Traceback" in sentence:
        return "a traceback"
    if len(sentence) > MOST_CHARACTERS:
        return f"{len(sentence):,} characters"
    if not sentence.strip():
        return "nothing"
    strange = next((sign for sign in sentence if not sign.isprintable()), None)
    return None if strange is None else f"the character {strange!a}"


def signature(directory: Path) -> Signature:
    """Everything about the files below a directory that a write would change, but their content and access times."""
    found: Signature = {}
    for at, directories, files in os.walk(directory):
        for name in (".", *directories, *files):
            path = os.path.join(at, name)
            found[os.path.relpath(path, directory)] = _HELD(os.lstat(path))
    return found


def difference(before: Signature, after: Signature) -> str | None:
    """The first file that is not as it was; None: all are."""
    return min((name for name in before.keys() | after.keys() if before.get(name) != after.get(name)), default=None)


def contents(directory: Path) -> dict[str, bytes]:
    """The content of every plain file below a directory, by its path."""
    files = [path for path in sorted(directory.rglob("*")) if stat.S_ISREG(path.lstat().st_mode)]
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


class Workspace:
    """The directory of one worker.

    Attributes:
        runs: whole runs.
        case: the directory of the run that is mutated.
        run: the run that is mutated.
        work: directory that a reader may write to.
        outside: directory that no case may touch.
        code: a directory for the search path of Python.
        mark: there as soon as foreign code was executed.
        temporary: directory of temporary files.
    """

    def __init__(self, root: Path) -> None:
        self.runs, self.case, self.outside, self.code = (root / name for name in ("runs", "case", "outside", "code"))
        self.run, self.work = self.case / "run", self.case / "work"
        self.mark, self.temporary = root / "mark", root / "tmp"
        self._copied: dict[str, Signature] = {}
        """The signature of the run in `case`, as it was copied, by its name."""

    def make(self, run: Path) -> None:
        """Make everything but the whole runs; `run` is copied to the outside, too."""
        for directory in (self.work, self.outside / "same", self.code, self.temporary):
            directory.mkdir(parents=True, exist_ok=True)
        if not (self.outside / "run").exists():
            shutil.copytree(run, self.outside / "run")
            os.mkfifo(self.outside / "pipe")
        (self.code / f"{MARKER}.py").write_text(_CODE.format(mark=str(self.mark)))

    def renew(self, whole: str) -> None:
        """Put a whole run, and nothing else, where cases are tried. What is still as it was copied stays."""
        copied = self._copied.get(whole)
        if copied is None or not self._mend(self.runs / whole, copied):
            remove(self.case)
            self.case.mkdir()
            shutil.copytree(self.runs / whole, self.run)
            self._copied.clear()
            self._copied[whole] = signature(self.run)
        for directory in (self.work, self.outside / "same", self.temporary):
            if not directory.is_dir() or any(directory.iterdir()):
                remove(directory)
                directory.mkdir()
        for name, content in VICTIMS.items():
            path = self.outside / name
            # A mutation of a link may have changed it, into a file of any size.
            size, links = (path.stat().st_size, path.stat().st_nlink) if path.is_file() else (0, 0)
            if (size, links) != (len(content), 1) or path.read_bytes() != content:
                remove(path)
                path.write_bytes(content)
        self.mark.unlink(missing_ok=True)

    def flaw(self, beside: Signature) -> str | None:
        """Traces that a case left and may not leave; `beside` is the signature of the outside before it."""
        if touched := difference(beside, signature(self.outside)):
            return f"a file outside was touched: {touched}"
        if self.mark.exists():
            return "foreign code was executed"
        left = sorted(os.listdir(self.temporary))
        return f"{left[0]} was left in the directory for temporary files" if left else None

    def _mend(self, whole: Path, copied: Signature) -> bool:
        """Copy again what a case changed in the run; False: more than plain files is changed."""
        found = signature(self.run)
        beside = {path.name for path in self.case.iterdir()}
        if beside != {self.run.name, self.work.name} or _directories(found) != _directories(copied):
            return False
        for name in copied.keys() | found.keys():
            if copied.get(name) != found.get(name) and not (whole / name).is_dir():
                path = self.run / name
                path.unlink(missing_ok=True)
                if name in copied:
                    shutil.copy2(whole / name, path)
        copied.clear()
        copied.update(signature(self.run))
        return True


def _directories(found: Signature) -> set[tuple[str, int, int]]:
    """The directories of a signature, with their rights and owners."""
    return {(name, item[0], item[4]) for name, item in found.items() if stat.S_ISDIR(item[0])}


def remove(path: Path) -> None:
    """Remove a file, or a directory that may hold anything; links are removed, and not followed."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    for at, directories, _ in os.walk(path):
        for name in directories:
            inner = Path(at, name)
            if not inner.is_symlink():
                inner.chmod(0o700)
    shutil.rmtree(path)
