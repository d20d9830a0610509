"""Mutations of a run directory: what a failing disk, a stranger or a forger may leave there. All follow from a seed.

A forger computes the checksums anew, so that the reader comes to what lies behind them.
"""

import fnmatch
import hashlib
import json
import math
import os
import random
import shutil
import stat
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import zstandard

from shared.checkpoint.manifest import manifest_checksum
from shared.files.run_file_names import CHECKPOINTS
from shared.process.live import LIVE_FILE, process_start
from tests.fuzz.odd import NAMES, odd_json
from tests.fuzz.workspace import remove
from tests.shared.checkpoint.test_hostile_files import socket_file

SPARSE_BYTES = 20 << 30
"""Size of a sparse file that must not be read."""
MOST_SEALED = 64 << 20
"""Bytes of a piece whose checksum a forger here computes."""
_DEVICES = ((1, 5), (1, 3), (1, 7), (5, 0))
"""Numbers of /dev/zero, null, full and tty."""
_NOT_AS_WRITTEN = (ValueError, LookupError, TypeError, AttributeError, RecursionError, struct.error)
"""Errors of reading a file that was changed before."""


@dataclass
class Case:
    """A copy of a run, and what was done to it."""

    rng: random.Random
    run: Path
    other: Path
    """Another run, whole, that pieces may come from."""
    outside: Path
    """Files that are not the run's: links may lead there."""
    done: list[str] = field(default_factory=list)
    """Words for what was done."""
    touched: set[str] = field(default_factory=set)
    """Names, in the run, of files that are not as they were."""

    def note(self, path: Path, words: str) -> None:
        """Write down what was done to a file."""
        self.touched.add(str(path.relative_to(self.run)))
        self.done.append(f"{path.relative_to(self.run)}: {words}")


def mutate(case: Case, places: Mapping[str, int]) -> None:
    """Change one to three files among those that match the patterns `places`, by their weights."""
    rng = case.rng
    if rng.random() < 0.5:
        _leave_one_checkpoint(case)
    if rng.random() < 0.06:
        _add(case)
    for _ in range(rng.choices((1, 2, 3), (8, 1, 1))[0]):
        pattern = rng.choices(list(places), list(places.values()))[0]
        found = sorted(path for path in case.run.glob(pattern) if _is_inside(case, path))
        if found:
            _mutate_one(case, rng.choice(found))


def _is_own(path: Path) -> bool:
    """True for a plain file of moderate size that nothing outside is another name of."""
    status = path.lstat()
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and status.st_size <= MOST_SEALED


def _is_inside(case: Case, path: Path) -> bool:
    """True if a path is in the run itself, and not behind a link that an earlier mutation has put there."""
    return path.parent.resolve() == case.run.resolve() / path.parent.relative_to(case.run)


def _leave_one_checkpoint(case: Case) -> None:
    """Take all manifests but one away: no older checkpoint steps in for what is changed."""
    for path in filter(_is_own, sorted((case.run / CHECKPOINTS).glob("checkpoint-*.json"))[:-1]):
        path.unlink()
        case.note(path, "removed")


def _mutate_one(case: Case, path: Path) -> None:
    """Change one file or directory."""
    by_suffix = {
        ".json": {_change_json: 7, _change_bytes: 2},
        ".jsonl": {_change_line: 7, _change_bytes: 2},
        ".safetensors": {_change_tensors: 6, _change_bytes: 3},
        ".ring": {_change_segment: 6, _change_bytes: 3},
    }
    ways: dict[Callable[[Case, Path], None], int] = {_replace: 3}
    if _is_own(path) and path.name == LIVE_FILE:
        ways |= {_change_json: 6, _change_bytes: 2, _point_elsewhere: 3}
    elif _is_own(path):
        ways |= by_suffix.get(path.suffix, {_change_bytes: 2})
    change = case.rng.choices(list(ways), list(ways.values()))[0]
    try:
        change(case, path)
    except _NOT_AS_WRITTEN:
        _change_bytes(case, path)


def _add(case: Case) -> None:
    """Add files that no run has, or none yet."""
    rng = case.rng
    victim = case.outside / "victim.txt"
    checkpoints = case.run / CHECKPOINTS
    if checkpoints.is_symlink() or not checkpoints.is_dir():
        return
    kind = rng.choice(("manifest", "manifests", "temporaries", "pieces to come"))
    if kind == "manifest":
        number = rng.choice(("99999999", "9" * 200, "00000006", "\u0660" * 8, "00000005\u0661"))
        path = checkpoints / f"checkpoint-{number}.json"
        manifests = [each for each in sorted(checkpoints.glob("checkpoint-*.json")) if _is_own(each)]
        path.write_bytes(rng.choice((b"{}", b"", *(each.read_bytes() for each in manifests))))
        case.note(path, "added")
    elif kind == "manifests":
        for number in range(6, 306):
            (checkpoints / f"checkpoint-{number:08d}.json").write_bytes(b"{}")
        case.note(checkpoints, "300 manifests added")
    elif kind == "temporaries":
        for name in ("config.json", "metrics.jsonl", "live.json", "summary.json", "track.json"):
            (case.run / f".{name}.tmp").symlink_to(victim)
        for name in ("checkpoint-00000005.json", "weights-00000005.safetensors", "best.safetensors"):
            (checkpoints / f".{name}.tmp").symlink_to(victim)
        case.note(case.run, "temporaries that are links added")
    else:
        for name in ("checkpoint-00000006.json", "segment-00000005.ring", "best-00000006.safetensors"):
            if not (checkpoints / name).exists():
                (checkpoints / name).symlink_to(victim)
        case.note(checkpoints, "pieces to come that are links added")


# --- bytes


def _change_bytes(case: Case, path: Path) -> None:
    """Do to the content of a file what disks and transfers do."""
    rng, data = case.rng, path.read_bytes()
    kinds = ("flip", "flip", "truncate", "append", "exchange", "zero", "sparse", "empty", "insert", "noise")
    kind, place, half = rng.choice(kinds), rng.randrange(len(data) + 1), len(data) // 2
    data = {
        "flip": _flipped(rng, data),
        "truncate": data[: rng.choice((place, max(0, len(data) - 1), min(8, len(data))))],
        "append": data + rng.choice((b"\0", b"\n", b"{}", rng.randbytes(100), bytes(5_000))),
        "exchange": data[half:] + data[:half],
        "zero": data[:place] + bytes(len(data[place : place + 512])) + data[place + 512 :],
        "empty": b"",
        "insert": data[:place] + rng.randbytes(rng.choice((1, 7, 64))) + data[place:],
        "noise": rng.randbytes(min(len(data), 5_000)),
    }.get(kind, data)
    path.write_bytes(data)
    if kind == "sparse":
        os.truncate(path, SPARSE_BYTES)
    case.note(path, f"{kind} at {place}")
    if path.parent.name == CHECKPOINTS and kind in ("truncate", "append", "empty", "noise"):
        _seal_pieces(case, 0.5)


def _flipped(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8)) if data else 0):
        changed[rng.randrange(min(len(data), rng.choice((16, 400, 1 << 30))))] ^= 1 << rng.randrange(8)
    return bytes(changed)


# --- what stands in a file's place


def _replace(case: Case, path: Path) -> None:
    """Put something else in the place of a file or a directory, or take it away.

    The process may be root's, so nothing here follows a link that leads out of the run.
    """
    rng, kept, was_directory = case.rng, case.run.parent / "replaced", path.is_dir() and not path.is_symlink()
    contents = (b"", b"{}\n", b"[]", b"\xff\xfe{}", bytes(100))
    kinds: dict[str, Callable[[], object]] = {
        "link": lambda: _put_link(case, path, kept, was_directory),
        "loop": lambda: path.symlink_to(path.name),
        # A second name of a file outside: a write in place reaches it.
        "hard link": lambda: os.link(case.outside / rng.choice(("victim.txt", "victim.json")), path),
        "pipe": lambda: os.mkfifo(path),
        "socket": lambda: socket_file(path),
        "directory": path.mkdir,
        "full directory": lambda: shutil.copytree(case.other / "logs", path),
        "nothing": lambda: None,
        "file": lambda: path.write_bytes(rng.choice(contents)),
        "another": lambda: _put_another(case, path),
        "other run's": lambda: _put_other_run(case, path),
        # A device, which may have no end; it takes root to make one.
        "device": lambda: os.geteuid() or os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(*rng.choice(_DEVICES))),
    }
    kind = rng.choice((*kinds, "mode"))
    if kind == "mode":
        _change_mode(case, path, was_directory)
    else:
        path.rename(kept)
        kinds[kind]()
        remove(kept)
    case.note(path, f"replaced by {kind}")


def _put_link(case: Case, path: Path, kept: Path, was_directory: bool) -> None:
    """A symbolic link to the outside, to nowhere, to what has no end, or along many others."""
    rng = case.rng
    same, run = case.outside / "same", case.outside / "run"
    targets = [case.outside / "victim.txt", case.outside / "gone", Path("/dev/zero"), same]
    targets += [run if was_directory else run / "config.json"]
    targets += [Path("/proc/self/mem"), Path("/dev/tty"), case.outside / "pipe", path.parent, case.outside]
    target = rng.choice(targets)
    if target == same and (was_directory or _is_own(kept)):
        _copy(kept, same / path.name)
        target = same / path.name
    for number in range(rng.choice((0, 0, 0, 3, 60))):
        link = case.run / f"link-{len(case.done)}-{number}"
        link.symlink_to(target)
        target = link
    path.symlink_to(target)


def _put_another(case: Case, path: Path) -> None:
    """Another file of the same run, of the same kind more often than not."""
    files = [each for each in sorted(case.run.rglob("*")) if _is_own(each)]
    if not files:
        return
    alike = [each for each in files if each.suffix == path.suffix]
    _copy_file(case.rng.choice(alike if alike and case.rng.random() < 0.8 else files), path)
    _seal_pieces(case, 0.7)


def _put_other_run(case: Case, path: Path) -> None:
    """The file of the same name in another run."""
    source = case.other / path.relative_to(case.run)
    if source.exists():
        _copy(source, path)
    _seal_pieces(case, 0.5)


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True, copy_function=_copy_file)
    else:
        _copy_file(source, target)


def _copy_file(source: str | Path, target: str | Path) -> None:
    """Copy a file; a sparse one as another sparse one, since its zeros would fill the disk."""
    size = os.stat(source).st_size
    if size < SPARSE_BYTES:
        shutil.copyfile(source, target)
    else:
        with open(source, "rb") as file:
            Path(target).write_bytes(file.read(1 << 20))  # more than a file of the run had before it was extended
        os.truncate(target, size)


def _change_mode(case: Case, path: Path, was_directory: bool) -> None:
    """Another owner, or other rights; not of what another name outside leads to."""
    if not was_directory and not _is_own(path):
        return
    if os.geteuid() == 0 and case.rng.random() < 0.5:
        os.chown(path, 65_534, 65_534, follow_symlinks=False)
    else:
        path.chmod(case.rng.choice((0o000, 0o200, 0o444, 0o666, 0o777, 0o4755)))


# --- JSON


def _change_json(case: Case, path: Path) -> None:
    """Change a value of a JSON file; a manifest's checksum is often made to suit."""
    rng = case.rng
    words, changed = _changed(rng, json.loads(path.read_bytes()))
    text = changed.text
    if fnmatch.fnmatch(path.name, "checkpoint-*.json") and rng.random() < 0.8:
        text = _with_checksum(changed)
        words += ", forged"
    if rng.random() < 0.05:
        text = rng.choice(("\ufeff" + text, text + text, text + "x", f"[{text}]", "\n" * 3 + text))
    path.write_bytes(text.encode("utf-16" if rng.random() < 0.02 else "utf-8", "surrogatepass"))
    case.note(path, words)


def _point_elsewhere(case: Case, path: Path) -> None:
    """Have a run's announcement lead to a living process, and to any of its descriptors."""
    process = case.rng.choice((os.getpid(), os.getpid(), os.getppid(), 1))
    values = json.loads(path.read_bytes())
    values |= {"process": process, "started": process_start(process), "descriptor": case.rng.randrange(16)}
    path.write_text(json.dumps(values))
    case.note(path, f"leads to {process}, {values['descriptor']}")


def _change_line(case: Case, path: Path) -> None:
    """Change a record of a file that has one JSON object a line, or the order of its lines."""
    rng = case.rng
    lines = path.read_bytes().splitlines(keepends=True)
    place = rng.randrange(len(lines))
    if rng.random() < 0.25:
        words = rng.choice(("twice", "gone", "exchanged", "backwards", "blank"))
        other = rng.randrange(len(lines))
        if words == "exchanged":
            lines[place], lines[other] = lines[other], lines[place]
        elif words == "backwards":
            lines.reverse()
        else:
            lines[place : place + 1] = {"twice": 2 * [lines[place]], "gone": [], "blank": [b"\n"]}[words]
    else:
        words, changed = _changed(rng, json.loads(lines[place]))
        lines[place] = changed.text.encode("utf-8", "surrogatepass") + b"\n"
    path.write_bytes(b"".join(lines))
    case.note(path, f"line {place + 1}: {words}")


@dataclass
class _Changed:
    """JSON values of which one is written as a text of its own."""

    values: Any
    mark: str
    raw: str

    @property
    def text(self) -> str:
        """The document."""
        return json.dumps(self.values).replace(json.dumps(self.mark), self.raw)


def _changed(rng: random.Random, values: Any) -> tuple[str, _Changed]:
    """Change one value, name or order in a tree of JSON values; returns words for it, and the tree."""
    mark, raw = f"mark-{rng.randrange(1 << 40)}", odd_json(rng)
    if rng.random() < 0.03:
        return f"all is {raw:.60}", _Changed(mark, mark, raw)
    places = list(_places(values))
    shallow = [place for place in places if place[0] is values]
    container, key = rng.choice(shallow if rng.random() < 0.3 else places)
    kind = rng.choice(("odd",) * 5 + ("near",) * 3 + ("gone", "renamed", "doubled", "added", "exchanged", "wrapped"))
    value = container[key]
    if kind == "near":
        raw = json.dumps(_near(rng, value))
    if kind in ("odd", "near"):
        container[key] = mark
    elif kind == "gone":
        del container[key]
    elif kind == "wrapped":
        container[key] = rng.choice(([value], {"value": value}, str(value)))
    elif kind == "exchanged":
        other, name = rng.choice(places)
        container[key], other[name] = other[name], container[key]
        try:
            json.dumps(values)
        except ValueError:  # one was in the other
            container[key], other[name] = None, None
            return "exchanged", _Changed(None, mark, raw)
    elif isinstance(container, list):
        container.insert(key, mark)
    elif kind == "added":
        container[rng.choice((*NAMES, key + "_"))] = mark
    elif kind == "renamed":
        container[rng.choice(NAMES)] = container.pop(key)
    else:  # the same name twice in one object
        container[key] = mark
        raw = f"{json.dumps(value)}, {json.dumps(key)}: {raw}"
    return f"{key!s:.40} {kind} {raw:.60}", _Changed(values, mark, raw)


def _places(values: Any) -> Any:
    """Container and key of every value in a tree."""
    items = values.items() if isinstance(values, dict) else enumerate(values) if isinstance(values, list) else ()
    for key, value in items:
        yield values, key
        yield from _places(value)


def _near(rng: random.Random, value: Any) -> Any:
    """A value of the same kind that is almost right."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return rng.choice((value + 1, value - 1, value * 2, -value, value * (1 << 32), float(value), 0, int(value)))
    if isinstance(value, str):
        return rng.choice((value + "\n", value.upper(), value[:-1], value[::-1], f" {value}", value + "\u00e9"))
    return rng.choice(({}, [], None)) if value is None else type(value)()


def _with_checksum(changed: _Changed) -> str:
    """A manifest's text with the checksum that its reader computes; as it is where it cannot be read."""
    with suppress(*_NOT_AS_WRITTEN):
        read = json.loads(changed.text)
        del read["checksum"]
        changed.values["checksum"] = manifest_checksum(read)
    return changed.text


# --- pieces


def _change_tensors(case: Case, path: Path) -> None:
    """Change a file of tensors: names, shapes, kinds, offsets, what it says of itself, numbers that are none."""
    rng, data = case.rng, path.read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    head, body = data[8 : 8 + length], bytearray(data[8 + length :])
    header = json.loads(head)
    kind = rng.choice(("metadata",) * 4 + ("header",) * 5 + ("length", "numbers"))
    if kind == "metadata" and "__metadata__" in header:
        name = next(iter(header["__metadata__"]))
        words, changed = _changed(rng, json.loads(header["__metadata__"][name]))
        header["__metadata__"][name] = changed.text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
        head = json.dumps(header).encode()
    elif kind == "numbers":
        words = _spoil_number(rng, header, body)
    elif kind != "length":
        words, changed = _changed(rng, header)
        head = changed.text.encode("utf-8", "surrogatepass")
    head += b" " * (-len(head) % 8)
    length = len(head)
    if kind == "length":
        length = rng.choice((0, 1, length - 1, length + 1, len(data), 1 << 32, 1 << 62, (1 << 64) - 1))
        words = str(length)
    path.write_bytes(struct.pack("<Q", length) + head + body)
    case.note(path, f"{kind}: {words}")
    _seal_pieces(case, 0.9)


def _spoil_number(rng: random.Random, header: Mapping[str, Any], body: bytearray) -> str:
    """Put a number that no run has into one of the tensors; returns words for it."""
    spoilt = {
        "F32": (struct.pack("<f", math.nan), struct.pack("<f", math.inf)),
        "I64": (b"\xff" * 8, b"\xff" * 7 + b"\x7f"),
    }
    name, item = rng.choice([(name, item) for name, item in header.items() if item.get("dtype") in spoilt])
    first, stop = item["data_offsets"]
    number = rng.choice(spoilt[item["dtype"]])
    if stop > first:
        place = first + rng.randrange((stop - first) // len(number)) * len(number)
        body[place : place + len(number)] = number
    return f"{number.hex()} in {name}"


def _change_segment(case: Case, path: Path) -> None:
    """Change the header of a segment, its content, or the words around its header."""
    rng = case.rng
    head, _, body = path.read_bytes().partition(b"\n")
    kind = rng.choice(("header", "header", "header", "content", "prefix"))
    words = kind
    if kind == "header":
        words, changed = _changed(rng, json.loads(head))
        head = changed.text.encode("utf-8", "surrogatepass")
    elif kind == "content":
        body = rng.choice((body[: len(body) // 2], body + body, b"", _bomb(), rng.randbytes(len(body))))
    else:
        values = json.loads(head)
        values["format"] = rng.choice((values["format"], values["format"] + 1, 0))
        head = rng.choice((b"", b"RINGSEGX", b"\n")) + json.dumps(values).encode()
    path.write_bytes(head + rng.choice((b"\n", b"\n", b"")) * (kind == "prefix") + b"\n" * (kind != "prefix") + body)
    case.note(path, f"{kind}: {words}")
    _seal_pieces(case, 0.9)


@cache
def _bomb() -> bytes:
    """Some kilobytes of zstd that hold 256 MiB."""
    compressor = zstandard.ZstdCompressor().compressobj()
    return b"".join([compressor.compress(bytes(1 << 20)) for _ in range(256)]) + compressor.flush()


def _seal_pieces(case: Case, chance: float) -> None:
    """With this chance, make the sizes and checksums in all manifests suit the pieces as they are now."""
    if case.rng.random() >= chance or (case.run / CHECKPOINTS).is_symlink():
        return
    for path in filter(_is_own, sorted((case.run / CHECKPOINTS).glob("checkpoint-*.json"))):
        with suppress(*_NOT_AS_WRITTEN, OSError):
            values = json.loads(path.read_bytes())
            for piece in values["pieces"]:
                if _is_own(path.parent / piece["name"]):
                    data = (path.parent / piece["name"]).read_bytes()
                    piece["bytes"], piece["sha256"] = len(data), hashlib.sha256(data).hexdigest()
            del values["checksum"]
            path.write_text(json.dumps(values | {"checksum": manifest_checksum(values)}))
