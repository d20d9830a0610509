"""Reading checkpoints: manifests, the pieces they name, and weights. What they are stands in shared/checkpoint.py.

Nothing that is read is trusted: sizes are compared before memory is asked for, names cannot lead out of the directory,
and no file can make the reader execute anything.
"""

from __future__ import annotations

import hashlib
import json
import re
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load as safetensors_load

from shared.config import MAY_CHANGE_ON_RESUME, Config
from shared.files import sha256_of
from shared.parameters import CONVOLUTIONS, parameters_of
from shared.segments import CheckpointError, read_segment_into, segment_name, segment_shape, segments_needed
from shared.sizes import Sizes

KIND = "ringside-checkpoint"
FORMAT = 1
DIRECTORY = "checkpoints"
"""The directory of checkpoints in a run directory."""

T = TypeVar("T")

_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_MANIFEST_NAME = re.compile(r"checkpoint-(\d{8,})\.json")
_PIECE_FIELDS: dict[str, type] = {"name": str, "bytes": int, "sha256": str}

_METADATA = "ringside"
_ACTIONS_LIMIT = 4096

# Bytes at most: of a manifest, of what a weights file holds beside its parameters, of any piece.
_MANIFEST_LIMIT = 64 << 20
_HEADER_LIMIT = 1 << 20
_PIECE_LIMIT = 16 << 30


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
        """Describe a file."""
        return cls(path.name, path.stat().st_size, sha256_of(path))


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
    protocol: str
    network: str
    actions: int
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

    def piece(self, name: str) -> Piece:
        """A named piece. Raises `CheckpointError` if the manifest does not name it."""
        if name not in self.pieces:
            raise CheckpointError(f"{self.path.name} names no piece {name}.")
        return self.pieces[name]

    def verify(self) -> None:
        """Compare every piece with its size and SHA-256. Raises `CheckpointError` at the first that differs."""
        for piece in self.pieces.values():
            _check_piece(self.directory, piece)

    def require(self, config: Config) -> None:
        """Raise `CheckpointError` unless a run with `config` continues this one exactly."""
        differences = []
        for section, values in config.to_json().items():
            theirs = self.config.get(section)
            theirs = theirs if isinstance(theirs, dict) else {}
            for name, value in values.items():
                if name not in MAY_CHANGE_ON_RESUME and theirs.get(name) != value:
                    flag = "--" + name.replace("_", "-")
                    differences.append(f"{flag} {theirs.get(name)!r:.80} (now {value!r:.80})")
        if differences:
            raise CheckpointError(
                f"{self.path} was made with {', '.join(differences)}; resume with the same settings, "
                "or begin a new run from its weights with --init-from."
            )
        if self.config_digest != config.digest():
            raise CheckpointError(f"{self.path} is damaged: its configuration does not match its digest.")


@dataclass(frozen=True)
class Weights:
    """The parameters of one network, and what they were trained for."""

    network: str
    actions: int
    game: str
    protocol: str
    version: int
    """The round that is, or would be, played with them."""
    flat: NDArray[np.float32]
    """float32[P], in the order of `parameters_of(network, actions)`."""

    def require(self, *, network: str, actions: int, game: str | None = None) -> None:
        """Raise `CheckpointError` unless the weights fit that network, action set and, where given, game."""
        if self.network != network:
            raise CheckpointError(f"The weights are of the network {self.network!r}, not {network!r}.")
        if self.actions != actions:
            raise CheckpointError(f"The weights choose among {self.actions} actions; the game here has {actions}.")
        if game is not None and self.game != game:
            raise CheckpointError(f"The weights were trained on {self.game}, not on {game}.")


def find_checkpoint(path: Path) -> Manifest:
    """The newest whole checkpoint at `path`, every piece verified.

    Args:
        path: a run directory, its `checkpoints` directory, or one manifest.

    Raises:
        CheckpointError: there is none, or none that is whole; says what is wrong with each.
    """
    return _newest(path, _verified)


def load_boundary(
    manifest: Manifest, expected: Mapping[str, tuple[str, tuple[int, ...]]] | None = None
) -> dict[str, np.ndarray]:
    """The arrays that `CheckpointWriter.save` was given.

    Args:
        expected: dtype and shape by name of arrays that must be there, compared.

    Raises:
        CheckpointError: the piece is damaged or does not have what is expected.
    """
    name = boundary_name(manifest.boundary)
    arrays = _load_safetensors(manifest.directory, manifest.piece(name))
    for key, (dtype, shape) in (expected or {}).items():
        if key not in arrays:
            raise CheckpointError(f"{name} does not hold {key!r}.")
        found = arrays[key]
        if found.dtype != np.dtype(dtype) or found.shape != tuple(shape):
            raise CheckpointError(f"{name} has {found.dtype}{found.shape} for {key!r}; this run needs {dtype}{shape}.")
    return arrays


def load_segments(manifest: Manifest, sizes: Sizes, ring: Mapping[str, np.ndarray]) -> None:
    """Read the replay of a checkpoint into the rings.

    Args:
        ring: the ring's fields, [lanes, capacity, lane_envs, ...]; each tick comes to its slot, `tick % capacity`.

    Raises:
        CheckpointError: a segment is damaged or of other sizes; the rings' content is undefined then.
    """
    if not manifest.has_replay:
        raise CheckpointError(
            f"{manifest.path} was made without the replay (--checkpoint-replay), which is needed here."
        )
    for index in segments_needed(sizes, manifest.boundary):
        # The segment's own checksum covers its content.
        path = _check_piece(manifest.directory, manifest.piece(segment_name(index)), content=False)
        read_segment_into(path, index, segment_shape(sizes), ring)


def load_weights(path: Path) -> Weights:
    """The parameters at `path`; of a directory, those of the newest checkpoint whose weights are whole.

    Args:
        path: a run directory, its `checkpoints` directory, a manifest, or a weights file.

    Raises:
        CheckpointError: there are none, or they are damaged, not finite, or of no known network.
    """
    if path.is_file() and path.suffix == ".safetensors":
        return _read_weights(path.parent, Piece.of(path))
    return _newest(path, _weights_of)


def _weights_of(manifest: Manifest) -> Weights:
    """The parameters that a manifest names."""
    weights = _read_weights(manifest.directory, manifest.piece(weights_name(manifest.boundary)))
    weights.require(network=manifest.network, actions=manifest.actions, game=manifest.game)
    return weights


def _verified(manifest: Manifest) -> Manifest:
    manifest.verify()
    return manifest


def _newest(path: Path, use: Callable[[Manifest], T]) -> T:
    """What `use` makes of the manifest at `path`, or of the newest in a directory that it does not refuse."""
    if path.is_file():
        return use(read_manifest(path))
    directory = path / DIRECTORY if (path / DIRECTORY).is_dir() else path
    if not directory.is_dir():
        raise CheckpointError(f"There is no file or directory {path}.")
    refused: list[str] = []
    for _, candidate in manifests_in(directory):
        try:
            return use(replace(read_manifest(candidate), refused=tuple(refused)))
        except CheckpointError as error:
            refused.append(f"{candidate.name} cannot be used: {error}")
    if refused:
        raise CheckpointError(f"No checkpoint in {directory} is whole. " + " ".join(refused))
    raise CheckpointError(f"There is no checkpoint in {directory}.")


def manifests_in(directory: Path) -> list[tuple[int, Path]]:
    """Boundary and path of everything named like a manifest, newest first."""
    found = [(match, entry) for entry in directory.iterdir() if (match := _MANIFEST_NAME.fullmatch(entry.name))]
    return sorted(((int(match[1]), entry) for match, entry in found), reverse=True)


def _field(values: dict[str, Any], name: str, kind: type, where: str) -> Any:
    """A value of a manifest, of the given type and, if a number, neither negative nor absurd."""
    value = values.get(name)
    # An exact comparison, because JSON's true and false are ints to isinstance.
    if type(value) is not kind or (isinstance(value, int) and not 0 <= value < 1 << 62):
        raise CheckpointError(f"{where} is damaged: {name} is {value!r:.80}.")
    return value


def read_manifest(path: Path) -> Manifest:
    """Read and check a manifest; its pieces are only named, not yet looked at."""
    where = path.name
    try:
        if path.stat().st_size > _MANIFEST_LIMIT:
            raise CheckpointError(f"{where} has {path.stat().st_size} bytes, too many for a manifest.")
        values = json.loads(path.read_bytes())
    except FileNotFoundError as error:  # a living run has just replaced it
        raise CheckpointError(f"{where} is gone.") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{where} is truncated or damaged: it is not JSON.") from error
    if not isinstance(values, dict) or values.get("kind") != KIND:
        raise CheckpointError(f"{where} is not a Ringside checkpoint.")
    if values.get("format") != FORMAT:
        raise CheckpointError(f"{where} has format {values.get('format')!r:.40}; this program knows format {FORMAT}.")
    checked = dict(values)
    if checked.pop("checksum", None) != checksum_of(checked):
        raise CheckpointError(f"{where} is damaged: it does not match its checksum.")

    def get(name: str, kind: type) -> Any:
        return _field(values, name, kind, where)

    counters = get("counters", dict)
    if not all(type(value) in (int, float) for value in counters.values()):
        raise CheckpointError(f"{where} is damaged: a counter is not a number.")
    pieces = {}
    for item in get("pieces", list):
        if not isinstance(item, dict):
            raise CheckpointError(f"{where} is damaged: a piece is {item!r:.80}.")
        piece = Piece(*(_field(item, name, kind, where) for name, kind in _PIECE_FIELDS.items()))
        if not _PLAIN_NAME.fullmatch(piece.name):
            raise CheckpointError(f"{where} names the piece {piece.name!r:.120}, which is not a plain file name.")
        pieces[piece.name] = piece
    first, stop = get("first_segment", int), get("stop_segment", int)
    return Manifest(
        path=path,
        boundary=get("boundary", int),
        config=get("config", dict),
        config_digest=get("config_digest", str),
        counters=counters,
        game=get("game", str),
        protocol=get("protocol", str),
        network=get("network", str),
        actions=get("actions", int),
        segments=range(first, stop),
        has_replay=get("has_replay", bool),
        pieces=pieces,
    )


def checksum_of(values: dict[str, Any]) -> str:
    """SHA-256 (hex) over a manifest without its checksum."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def _check_piece(directory: Path, piece: Piece, *, content: bool = True) -> Path:
    """Compare a file with its description; with `content`, its SHA-256 too. Raises `CheckpointError`."""
    path = directory / piece.name
    try:
        status = path.lstat()
    except FileNotFoundError as error:
        raise CheckpointError(f"{piece.name} is missing.") from error
    if not stat.S_ISREG(status.st_mode):
        raise CheckpointError(f"{piece.name} is not a plain file.")
    if status.st_size != piece.bytes or piece.bytes > _PIECE_LIMIT:
        raise CheckpointError(f"{piece.name} is truncated or foreign: {status.st_size} bytes, not {piece.bytes}.")
    if content and sha256_of(path) != piece.sha256:
        raise CheckpointError(f"{piece.name} is damaged: its content does not match its checksum.")
    return path


def _load_safetensors(directory: Path, piece: Piece) -> dict[str, np.ndarray]:
    """The arrays of a verified piece."""
    path = _check_piece(directory, piece)
    try:
        return safetensors_load(path.read_bytes())
    except (SafetensorError, KeyError, ValueError, TypeError) as error:
        raise CheckpointError(f"{piece.name} is damaged: {error}.") from error


def weights_metadata(about: dict[str, str | int | float]) -> dict[str, str]:
    """What a weights file says of itself, as metadata of safetensors.

    One entry, of JSON: safetensors writes several in an order of its own, different in every process.
    """
    return {_METADATA: json.dumps(about, sort_keys=True)}


def read_weights_metadata(path: Path) -> dict[str, Any]:
    """What a weights file says of itself. Raises `CheckpointError` if it is none that Ringside wrote."""
    try:
        with safe_open(path, framework="numpy") as file:
            about = json.loads((file.metadata() or {}).get(_METADATA, "null"))
    except (SafetensorError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path.name} is damaged: {error}.") from error
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise CheckpointError(f"{path.name} holds no weights that Ringside wrote in format {FORMAT}.")
    return about


def _read_weights(directory: Path, piece: Piece) -> Weights:
    """Read a weights file and compare it with the network that it says it is of."""
    about = read_weights_metadata(_check_piece(directory, piece))
    network, actions, version, game, protocol = (
        _field(about, name, kind, piece.name)
        for name, kind in (("network", str), ("actions", int), ("version", int), ("game", str), ("protocol", str))
    )
    if network not in CONVOLUTIONS or not 1 <= actions <= _ACTIONS_LIMIT:
        raise CheckpointError(f"{piece.name} is of the network {network!r:.40} with {actions} actions, which is none.")
    spec = parameters_of(network, actions)
    if piece.bytes > 4 * spec.count + _HEADER_LIMIT:
        raise CheckpointError(f"{piece.name} has {piece.bytes} bytes, too many for the network {network!r}.")
    arrays = _load_safetensors(directory, piece)
    flat = np.empty(spec.count, np.float32)
    views = spec.split(flat)
    if arrays.keys() != views.keys():
        raise CheckpointError(f"{piece.name} does not hold the parameters of the network {network!r}.")
    for name, view in views.items():
        if arrays[name].dtype != np.float32 or arrays[name].shape != view.shape:
            found = f"{arrays[name].dtype}{arrays[name].shape}"
            raise CheckpointError(f"{piece.name} has {found} for {name}; the network has float32{view.shape}.")
        view[...] = arrays[name]
    if not np.isfinite(flat).all():
        raise CheckpointError(f"{piece.name} holds parameters that are not finite.")
    return Weights(network, actions, game, protocol, version, flat)
