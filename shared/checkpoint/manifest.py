"""Manifests of checkpoints and their pieces, for reading. checkpoint_writer.py describes the files.

Nothing that is read is trusted: sizes are compared before memory is asked for, names cannot lead out of the directory,
and no file can make the reader execute anything.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import dataclass, field
from io import BufferedReader
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

import msgspec
import numpy as np
from msgspec import Meta
from safetensors import SafetensorError
from safetensors.numpy import load as safetensors_load

from shared.config.settings import ARITHMETIC, MAY_CHANGE_ON_RESUME, Config, digest_of, flat_of
from shared.errors import CheckpointError, FileError
from shared.files.plain_files import open_to_read
from shared.files.strict_json import read_json
from shared.machine.facts import arithmetic, changes
from shared.memory.evaluation_queue import EvaluationHistory
from shared.network_spec import Network
from shared.text import PLAIN_NAME, flag_of, printable

# Most bytes of a manifest, and of all pieces of a checkpoint; a sparse file says any size.
_MANIFEST_LIMIT = 64 << 20
_TOTAL_LIMIT = 64 << 30
MANIFEST_NAME = re.compile(r"checkpoint-(\d{8,})\.json")


_SUFFIX = {"checkpoint": "json", "boundary": "safetensors", "weights": "safetensors", "segment": "ring", "tail": "ring"}


def file_name(kind: str, number: int) -> str:
    """File name of a manifest, which is a `checkpoint`, or of a piece of that kind.

    Args:
        kind: a key of `_SUFFIX`.
        number: of the segment; for all others the boundary.
    """
    return f"{kind}-{number:08d}.{_SUFFIX[kind]}"


Natural = Annotated[int, Meta(ge=0, lt=1 << 62)]
"""A number that is neither negative nor absurd."""
PlainName = Annotated[str, Meta(pattern=rf"^{PLAIN_NAME.pattern}\Z")]
"""The name of an env, a game or a protocol: nothing that a terminal would obey."""
T = TypeVar("T")


@dataclass(frozen=True)
class Piece:
    """One file of a checkpoint."""

    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}\Z")]
    bytes: Natural
    sha256: str


def verify_piece(directory: Path, piece: Piece) -> None:
    """Compare a file with the size and the SHA-256 in its description. Raises as `open_piece`."""
    with open_piece(directory, piece) as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != piece.sha256:
        raise CheckpointError(f"{piece.name} is damaged: its content does not match its checksum.")


def open_piece(directory: Path, piece: Piece, most: int = _TOTAL_LIMIT) -> BufferedReader:
    """Open a file of the size in its description, to read.

    Args:
        directory: of the pieces.
        piece: its description.
        most: bytes that it may have; a larger one is not opened.

    Raises:
        CheckpointError: it is missing, larger, or differs. OSError: the system refuses.
    """
    if piece.bytes > most:
        raise CheckpointError(f"{piece.name} has {piece.bytes:,} bytes; in this run it may have at most {most:,}.")
    try:
        file = open_to_read(directory / piece.name, error=CheckpointError)
    except FileNotFoundError as error:
        raise CheckpointError(f"{piece.name} is missing.") from error
    size = os.fstat(file.fileno()).st_size
    if size != piece.bytes:
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


EVALUATIONS = ("evaluations_before", "evaluations_since_boundary")
"""Counters of a run that was resumed with another --eval-every-steps (`Board.evaluation_history`)."""
KIND = "ringside-checkpoint"
FORMAT = 4


@dataclass(frozen=True)
class Manifest:
    """A checkpoint that can be read."""

    path: Path
    boundary: Natural
    """The round that is played next."""
    config: dict[str, dict[str, Any]]
    counters: dict[str, Natural | Annotated[float, Meta(ge=0, lt=1 << 62)]]
    game: PlainName
    network: Network
    has_replay: bool
    """True if the replay was kept, or none is needed, so that a resumed run is the same run."""
    pieces: tuple[Piece, ...]
    machine: dict[str, str] = field(default_factory=dict)
    """`facts.arithmetic` where it was made; empty: of an older version."""
    refused: tuple[str, ...] = ()
    """Faults of newer checkpoints beside this one: sentences, newest first."""

    @property
    def segments(self) -> dict[str, Piece]:
        """Segments that hold the replay, or the last round, by name; empty if it was not kept or is not needed."""
        return {piece.name: piece for piece in self.pieces if piece.name.endswith(".ring")}

    @property
    def directory(self) -> Path:
        """Directory of the pieces."""
        return self.path.parent

    @property
    def run_dir(self) -> Path:
        """The directory above, in which the other files of its run lie, if it was not taken out of there."""
        return Path(os.path.normpath(self.directory / ".."))

    def piece(self, name: str) -> Piece:
        """A named piece. Raises `CheckpointError` if the manifest does not name it."""
        for piece in self.pieces:
            if piece.name == name:
                return piece
        raise CheckpointError(f"{self.path.name} names no piece {name}.")

    def verified(self) -> Self:
        """The same manifest, once every piece has its size and SHA-256. Raises `CheckpointError` at the first other."""
        if (total := sum(piece.bytes for piece in self.pieces)) > _TOTAL_LIMIT:
            raise CheckpointError(
                f"{self.path.name} names pieces of {total:,} bytes; they may have at most {_TOTAL_LIMIT:,}."
            )
        for piece in self.pieces:
            verify_piece(self.directory, piece)
        return self

    @property
    def experiment(self) -> str:
        """`Config.experiment` of the run that made it."""
        return digest_of(self.config, ARITHMETIC)

    @property
    def evaluations(self) -> EvaluationHistory:
        """Evaluations of the run, and since which boundary its --eval-every-steps holds."""
        every = flat_of(self.config)["eval_every_steps"]
        return EvaluationHistory(every, *(int(self.counters.get(name, 0)) for name in EVALUATIONS))

    def require(self, config: Config) -> None:
        """Raise `CheckpointError` unless a run with `config` continues this one, exactly but for its arithmetic."""
        if differences := self._differences(config, MAY_CHANGE_ON_RESUME | ARITHMETIC):
            raise CheckpointError(
                f"{self.path} was made with {', '.join(differences)}; resume with the same settings, "
                "or begin a new run from its weights with --init-from."
            )

    def arithmetic_differences(self, config: Config) -> list[str]:
        """Settings, processors and libraries that are others now, with both values. A resume is no longer exact."""
        here = arithmetic(config.machine.device, config.machine.acts_on)
        others = [f"{name} {theirs!r:.80} (now {ours!r:.80})" for name, theirs, ours in changes(self.machine, here)]
        return self._differences(config, frozenset(config.to_flat()) - ARITHMETIC) + others

    def _differences(self, config: Config, without: frozenset[str]) -> list[str]:
        """Settings that differ, as flags with both values, but those named `without`."""
        theirs = flat_of(self.config)
        return [
            f"{flag_of(name)} {theirs.get(name)!r:.80} (now {value!r:.80})"
            for name, value in config.to_flat().items()
            if name not in without and theirs.get(name) != value
        ]


def converted(values: dict[str, Any], kind: type[T], where: str) -> T:
    """The values of a file as a class of that `kind`, with a network. Raises `CheckpointError` for the first fault."""
    try:
        return msgspec.convert(values | {"network": Network.from_json(values.get("network"))}, kind)
    except msgspec.ValidationError as error:
        fault, at, place = str(error).rpartition(" - at `$.")
        if at:
            found: Any = values
            for part in re.findall(r"\w+", place):
                found = found[int(part) if part.isdecimal() else part]
            fault = f"{place.rstrip('`')} is {found!r:.80}"
        raise CheckpointError(f"{where} is damaged: {fault or error}.") from error
    except ValueError as error:
        raise CheckpointError(f"{where} describes an invalid network: {error}.") from error


def read_manifest(path: Path, *, follow: bool = False) -> Manifest:
    """Read and check a manifest; its pieces are not examined.

    Args:
        follow: True if it may be a symbolic link, as a path that a user names.

    Raises:
        CheckpointError: it is none that is whole. OSError: the system refuses.
    """
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
    if values.pop("checksum", None) != manifest_checksum(values):
        raise CheckpointError(f"{where} is damaged: it does not match its checksum.")
    manifest = converted(values | {"path": path, "refused": ()}, Manifest, where)
    if MANIFEST_NAME.fullmatch(where) and where != file_name("checkpoint", manifest.boundary):
        raise CheckpointError(f"{where} is a renamed copy: it holds the checkpoint of boundary {manifest.boundary}.")
    return manifest


def encode_manifest(values: dict[str, Any]) -> bytes:
    """Return the content of a manifest with these values."""
    marked = {"kind": KIND, "format": FORMAT, **values}
    return json.dumps(marked | {"checksum": manifest_checksum(marked)}, indent=1).encode()


def manifest_checksum(values: dict[str, Any]) -> str:
    """SHA-256 (hex) over a manifest without its checksum."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
