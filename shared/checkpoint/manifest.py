"""Reader of checkpoints: manifests and the pieces they name. checkpoint_writer.py says what they are.

Nothing that is read is trusted: sizes are compared before memory is asked for, names cannot lead out of the directory,
and no file can make the reader execute anything.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as safetensors_load

from shared.checkpoint.segments import read_segment_into, segment_name, segment_shape, segments_needed
from shared.config.run_schedule import RunSchedule
from shared.config.settings import ARITHMETIC, MAY_CHANGE_ON_RESUME, Config, digest_of
from shared.errors import CheckpointError, FileError
from shared.files.atomic import open_to_read, read_json, sha256_of
from shared.network_spec import Network
from shared.text import PLAIN_NAME, flag_of, printable

KIND = "ringside-checkpoint"
FORMAT = 2
CHECKPOINTS = "checkpoints"
"""The directory of checkpoints in a run directory."""
BEST_FILE = "best.safetensors"
"""In there, the weights of the best evaluation beside training."""
FORMER_BEST_FILE = "best-former.safetensors"
"""Those that were the best at the newest checkpoint, where better ones came after it."""

MOST_REFUSALS = 3
"""Manifests of which it is said what is wrong with them; of others, how many there are."""

T = TypeVar("T")

_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_MANIFEST_NAME = re.compile(r"checkpoint-(\d{8,})\.json")
_PIECE_FIELDS: dict[str, type] = {"name": str, "bytes": int, "sha256": str}

# Bytes at most: of a manifest, of any piece, of all pieces of a checkpoint; a sparse file says any size.
_MANIFEST_LIMIT = 64 << 20
_PIECE_LIMIT = 16 << 30
_TOTAL_LIMIT = 64 << 30


def boundary_name(boundary: int) -> str:
    """File name of what the roles need to go on from a boundary."""
    return f"boundary-{boundary:08d}.safetensors"


def weights_name(boundary: int) -> str:
    """File name of the parameters of a boundary."""
    return f"weights-{boundary:08d}.safetensors"


def manifest_name(boundary: int) -> str:
    """File name of a boundary's manifest."""
    return f"checkpoint-{boundary:08d}.json"


@dataclass(frozen=True)
class Piece:
    """One file of a checkpoint."""

    name: str
    bytes: int
    sha256: str

    @classmethod
    def of(cls, path: Path) -> Piece:
        """Describe a plain file. Raises `FileError` when it is none, or `OSError`."""
        with open_to_read(path) as file:
            size = os.fstat(file.fileno()).st_size
            return cls(path.name, size, sha256_of(file, size))


@dataclass(frozen=True)
class Manifest:
    """A checkpoint that can be read."""

    path: Path
    boundary: int
    """The round that is played next."""
    config: dict[str, Any]
    config_digest: str
    counters: dict[str, int | float]
    game: str
    network: Network
    segments: range
    """Numbers of the segments that hold the replay; empty if it was not kept."""
    has_replay: bool
    """Whether the replay was kept, so that a resumed run is the same run."""
    pieces: dict[str, Piece]
    refused: tuple[str, ...] = ()
    """What is wrong with newer checkpoints beside this one: sentences, newest first."""

    @property
    def directory(self) -> Path:
        """Where the pieces lie."""
        return self.path.parent

    @property
    def run_dir(self) -> Path:
        """The directory above, in which the other files of its run lie, if it was not taken out of there."""
        return Path(os.path.normpath(self.directory / ".."))

    def piece(self, name: str) -> Piece:
        """A named piece. Raises `CheckpointError` if the manifest does not name it."""
        if name not in self.pieces:
            raise CheckpointError(f"{self.path.name} names no piece {name}.")
        return self.pieces[name]

    def verify(self, alive: Callable[[], None] = lambda: None) -> None:
        """Compare every piece with its size and SHA-256. Raises `CheckpointError` at the first that differs.

        `alive` is called before each.
        """
        if (total := sum(piece.bytes for piece in self.pieces.values())) > _TOTAL_LIMIT:
            raise CheckpointError(
                f"{self.path.name} names pieces of {total:,} bytes; they may have at most {_TOTAL_LIMIT:,}."
            )
        for piece in self.pieces.values():
            alive()
            check_piece(self.directory, piece)

    @property
    def experiment(self) -> str:
        """What `Config.experiment` was of the run that made it."""
        return digest_of(self.config, ARITHMETIC)

    def require(self, config: Config) -> None:
        """Raise `CheckpointError` unless a run with `config` continues this one, exactly but for its arithmetic."""
        if self.config_digest != digest_of(self.config):
            raise CheckpointError(f"{self.path} is damaged: its configuration does not match its digest.")
        if differences := self._differences(config, MAY_CHANGE_ON_RESUME | ARITHMETIC):
            raise CheckpointError(
                f"{self.path} was made with {', '.join(differences)}; resume with the same settings, "
                "or begin a new run from its weights with --init-from."
            )

    def arithmetic_differences(self, config: Config) -> list[str]:
        """Settings, with both values, for which a run with `config` continues this one, but not bit for bit."""
        return self._differences(config, frozenset(config.to_flat()) - ARITHMETIC)

    def _differences(self, config: Config, without: frozenset[str]) -> list[str]:
        """Settings that differ, as flags with both values, but those named `without`."""
        theirs = {name: value for section in self.config.values() for name, value in section.items()}
        return [
            f"{flag_of(name)} {theirs.get(name)!r:.80} (now {value!r:.80})"
            for name, value in config.to_flat().items()
            if name not in without and theirs.get(name) != value
        ]


def find_checkpoint(path: Path, alive: Callable[[], None] = lambda: None) -> Manifest:
    """The newest whole checkpoint at `path`, every piece verified.

    Args:
        path: a run directory, its `checkpoints` directory, or one manifest.
        alive: called before each piece, which may take a slow disk long.

    Raises:
        CheckpointError: there is none, or none that is whole; says what is wrong with each.
    """

    def verified(manifest: Manifest) -> Manifest:
        manifest.verify(alive)
        return manifest

    return newest_usable(path, verified)


def load_boundary(
    manifest: Manifest, expected: Mapping[str, tuple[str, tuple[int, ...]]] | None = None
) -> dict[str, np.ndarray]:
    """The arrays that `CheckpointWriter.save` was given.

    Args:
        expected: dtype and shape by name of arrays that must be there, compared.

    Raises:
        CheckpointError: the piece is damaged, of another round or run, or does not have what is expected.
    """
    name = boundary_name(manifest.boundary)
    arrays = arrays_in(read_piece(manifest.directory, manifest.piece(name)), name)
    for key, (dtype, shape) in (expected or {}).items():
        if key not in arrays:
            raise CheckpointError(f"{name} does not hold {key!r}.")
        found = arrays[key]
        if found.dtype != np.dtype(dtype) or found.shape != tuple(shape):
            raise CheckpointError(f"{name} has {found.dtype}{found.shape} for {key!r}; this run needs {dtype}{shape}.")
    for key, own in identity_arrays(manifest.boundary, manifest.experiment).items():
        if not np.array_equal(arrays.pop(key, own), own):  # older files have none
            raise CheckpointError(
                f"{name} is of another run or another round: its {key!r} is not that of its manifest."
            )
    return arrays


def identity_arrays(boundary: int, experiment: str) -> dict[str, np.ndarray]:
    """What a boundary's piece holds beside the arrays of the roles: the round and the run that it is of.

    Args:
        boundary: the round that is played next.
        experiment: as of `Config.experiment`.
    """
    return {
        "identity.boundary": np.array([boundary], np.int64),
        "identity.experiment": np.frombuffer(bytes.fromhex(experiment), np.uint8),
    }


def load_segments(
    manifest: Manifest,
    run_schedule: RunSchedule,
    ring: Mapping[str, np.ndarray],
    alive: Callable[[], None] = lambda: None,
) -> None:
    """Read the replay of a checkpoint into the rings.

    Args:
        ring: the ring's fields, [lanes, capacity, lane_envs, ...]; each tick comes to its slot, `tick % capacity`.
        alive: called before each segment.

    Raises:
        CheckpointError: a segment is damaged, of other sizes or of another run; the rings' content is undefined then.
    """
    if not manifest.has_replay:
        raise CheckpointError(
            f"{manifest.path} was made without the replay (--checkpoint-replay), which is needed here."
        )
    for index in segments_needed(run_schedule, manifest.boundary):
        alive()
        # The segment's own checksum covers its content.
        path = check_piece(manifest.directory, manifest.piece(segment_name(index)), content=False)
        read_segment_into(path, index, segment_shape(run_schedule), ring, manifest.experiment)


def newest_usable(path: Path, use: Callable[[Manifest], T]) -> T:
    """What `use` makes of the manifest at `path`, or of the newest in a directory that it does not refuse."""
    if os.path.isfile(path):  # which raises for no path
        return _use_one(path, use)
    directory = path / CHECKPOINTS if os.path.isdir(path / CHECKPOINTS) else path
    if not os.path.isdir(directory):
        raise CheckpointError(f"There is no file or directory {path}.")
    refused: list[str] = []
    for _, candidate in _found_in(directory):
        try:
            return _use_readable(candidate, lambda manifest: use(replace(manifest, refused=_shortened(refused))))
        except CheckpointError as error:
            refused.append(f"{candidate.name} cannot be used: {error}")
    if refused:
        raise CheckpointError(f"No checkpoint in {directory} is whole. " + " ".join(_shortened(refused)))
    raise CheckpointError(f"There is no checkpoint in {directory}: its run ended before the first one. Name another.")


def _shortened(refused: Sequence[str]) -> tuple[str, ...]:
    """The first refusals and the number of the others: a stranger's directory may hold thousands of manifests."""
    more = len(refused) - MOST_REFUSALS
    return (*refused[:MOST_REFUSALS], *([f"{more} more cannot be used."] if more > 0 else []))


def _use_one(path: Path, use: Callable[[Manifest], T]) -> T:
    """What `use` makes of one manifest; a refusal names the newest beside it that would do."""
    try:
        return _use_readable(path, use, follow=True)
    except CheckpointError as error:
        for _, other in _found_in(path.parent):
            try:
                _use_readable(other, use)
            except CheckpointError:
                continue
            raise CheckpointError(f"{error} The newest whole one beside it: --resume {other}") from error
        raise


def _use_readable(path: Path, use: Callable[[Manifest], T], *, follow: bool = False) -> T:
    """What `use` makes of one manifest. What cannot be read is as good as damaged: a `CheckpointError`."""
    try:
        return use(read_manifest(path, follow=follow))
    except OSError as error:
        name = os.path.basename(error.filename or path)
        raise CheckpointError(f"{name} cannot be read: {error.strerror}.") from error


def _found_in(directory: Path) -> list[tuple[int, Path]]:
    """As `manifests_in`. Raises `CheckpointError` where the directory cannot be read."""
    try:
        return manifests_in(directory)
    except OSError as error:
        raise CheckpointError(f"{directory} cannot be read: {error.strerror}.") from error


def manifests_in(directory: Path) -> list[tuple[int, Path]]:
    """Boundary and path of everything named like a manifest, newest first."""
    found = [(match, entry) for entry in directory.iterdir() if (match := _MANIFEST_NAME.fullmatch(entry.name))]
    return sorted(((int(match[1]), entry) for match, entry in found), reverse=True)


def plain_field(values: dict[str, Any], name: str, kind: type, where: str) -> Any:
    """A value of a manifest, of the given type and, if a number, neither negative nor absurd."""
    value = values.get(name)
    # An exact comparison, because JSON's true and false are ints to isinstance.
    if type(value) is not kind or (isinstance(value, int) and not 0 <= value < 1 << 62):
        raise CheckpointError(f"{where} is damaged: {name} is {value!r:.80}.")
    return value


def plain_network(values: Any, where: str) -> Network:
    """What a file says of its network. Raises `CheckpointError` when that is none."""
    try:
        return Network.from_json(values)
    except ValueError as error:
        raise CheckpointError(f"{where} describes an invalid network: {error}.") from error


def plain_name(values: dict[str, Any], name: str, where: str) -> str:
    """The name of an env, a game or a protocol in a file: nothing that a terminal would obey."""
    value: str = plain_field(values, name, str, where)
    if not PLAIN_NAME.fullmatch(value):
        raise CheckpointError(f"{where} is damaged: {name} is {value!r:.80}.")
    return value


def read_manifest(path: Path, *, follow: bool = False) -> Manifest:
    """Read and check a manifest; its pieces are only named, not yet looked at.

    Args:
        follow: whether it may be a symbolic link, as what a user names.

    Raises:
        CheckpointError: it is none that is whole. OSError: as the system says it.
    """
    values, where = _values_of(path, follow=follow), path.name

    def get(name: str, kind: type) -> Any:
        return plain_field(values, name, kind, where)

    counters = get("counters", dict)
    for name, value in counters.items():
        if type(value) not in (int, float) or not 0 <= value < 1 << 62:
            raise CheckpointError(f"{where} is damaged: the counter {name:.40} is {value!r:.80}.")
    config = get("config", dict)
    if not all(isinstance(section, dict) for section in config.values()):
        raise CheckpointError(f"{where} is damaged: a section of its configuration is not an object.")
    pieces = {}
    for item in get("pieces", list):
        if not isinstance(item, dict):
            raise CheckpointError(f"{where} is damaged: a piece is {item!r:.80}.")
        piece = Piece(*(plain_field(item, name, kind, where) for name, kind in _PIECE_FIELDS.items()))
        if not _PLAIN_NAME.fullmatch(piece.name):
            raise CheckpointError(f"{where} names the piece {piece.name!r:.120}, which is not a plain file name.")
        pieces[piece.name] = piece
    first, stop = get("first_segment", int), get("stop_segment", int)
    return Manifest(
        path=path,
        boundary=get("boundary", int),
        config=config,
        config_digest=get("config_digest", str),
        counters=counters,
        game=plain_name(values, "game", where),
        network=plain_network(values.get("network"), where),
        segments=range(first, stop),
        has_replay=get("has_replay", bool),
        pieces=pieces,
    )


def _values_of(path: Path, *, follow: bool) -> dict[str, Any]:
    """The values of a manifest of this format, whole by its checksum, and not yet looked at."""
    where = path.name
    try:
        values = read_json(path, _MANIFEST_LIMIT, follow=follow)
    except FileNotFoundError as error:  # a living run has just replaced it
        raise CheckpointError(f"{where} is gone.") from error
    except FileError as error:
        raise CheckpointError(str(error)) from error
    if values.get("kind") != KIND:
        raise CheckpointError(f"{where} is not a Ringside checkpoint.")
    if values.get("format") != FORMAT:
        raise CheckpointError(
            f"{where} has format {values.get('format')!r:.40}; this program knows format {FORMAT}. "
            "Use the version of Ringside that wrote it."
        )
    checked = dict(values)
    if checked.pop("checksum", None) != checksum_of(checked):
        raise CheckpointError(f"{where} is damaged: it does not match its checksum.")
    return values


def checksum_of(values: dict[str, Any]) -> str:
    """SHA-256 (hex) over a manifest without its checksum."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def check_piece(directory: Path, piece: Piece, *, content: bool = True) -> Path:
    """Compare a file with its description; with `content`, its SHA-256 too.

    Raises:
        CheckpointError: it differs. OSError: as the system says it.
    """
    with _open_piece(directory, piece) as file:
        if content and sha256_of(file, piece.bytes) != piece.sha256:
            raise CheckpointError(f"{piece.name} is damaged: its content does not match its checksum.")
    return directory / piece.name


def read_piece(directory: Path, piece: Piece) -> bytes:
    """The content of a file that is what its description says. Else as `check_piece`."""
    with _open_piece(directory, piece) as file:
        data = file.read(piece.bytes)
    if hashlib.sha256(data).hexdigest() != piece.sha256:
        raise CheckpointError(f"{piece.name} is damaged: its content does not match its checksum.")
    return data


def _open_piece(directory: Path, piece: Piece) -> BinaryIO:
    """A file of the size that its description says, open to read. Else as `check_piece`."""
    try:
        file = open_to_read(directory / piece.name)
    except FileNotFoundError as error:
        raise CheckpointError(f"{piece.name} is missing.") from error
    except FileError as error:
        raise CheckpointError(str(error)) from error
    size = os.fstat(file.fileno()).st_size
    if size != piece.bytes or piece.bytes > _PIECE_LIMIT:
        file.close()
        raise CheckpointError(f"{piece.name} is truncated or foreign: {size} bytes, not {piece.bytes}.")
    return file


def arrays_in(data: bytes, where: str) -> dict[str, np.ndarray]:
    """The arrays of a safetensors file. Raises `CheckpointError` when it is none."""
    try:
        return safetensors_load(data)
    except (SafetensorError, KeyError, ValueError, TypeError) as error:
        words = printable(f"{error}")  # the library quotes the file
        raise CheckpointError(f"{where} is damaged: {words:.200}.") from error
