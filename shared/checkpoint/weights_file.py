"""Files of weights: named parameters of a network, and what they were trained for. Nothing that is read is trusted."""

from __future__ import annotations

import hashlib
import os
import struct
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from shared.checkpoint.finding import newest_usable
from shared.checkpoint.manifest import Manifest, Natural, PlainName, arrays_in, converted, file_name, verify_piece
from shared.config.sections import EvalActions
from shared.errors import CheckpointError
from shared.files.plain_files import open_to_read
from shared.files.strict_json import json_object
from shared.network_parameters import parameters_of
from shared.network_spec import Network
from shared.text import refused

METADATA = "ringside"
"""Key of the description, which is JSON, in the metadata of safetensors."""
WEIGHTS_FORMAT = 3
_HEADER_BYTES = struct.Struct("<Q")
"""Beginning of a safetensors file: the length of its header."""
_HEADER_LIMIT = 1 << 20
"""Bytes that a file may hold beside its parameters."""
_MOST_PARAMETERS = 1 << 30
"""Parameters that a file may hold; a sparse file has any size."""


@dataclass(frozen=True, kw_only=True)
class Description:
    """Description of weights, as their file has it."""

    network: Network
    game: PlainName
    protocol: PlainName
    version: Natural
    """The round that is, or would be, played with them."""
    eval_epsilon: float
    """Chance of a random action in the evaluations of the run."""
    eval_max_frames: Natural
    """Emulator frames after which its evaluations cut an episode."""
    eval_actions: EvalActions
    """Choice of actions in its evaluations."""
    plugin: str | None = None
    """Module that registered the method of the run; only compared with what the user names."""
    mean_return: float | None = None
    """Mean return of the evaluation in which they were the best."""
    weights_sha256: str
    """SHA-256 (hex) of the parameters."""


@dataclass(frozen=True, kw_only=True)
class StoredWeights(Description):
    """The parameters of one network, and what they were trained for."""

    flat: NDArray[np.float32]
    """float32[P], in the order of `parameters_of(network)`."""

    def require(self, network: Network, game: str | None = None) -> None:
        """Raise `CheckpointError` unless the weights are of that network and, where given, of that game."""
        require_same_network(self.network, network)
        if game is not None and self.game != game:
            raise CheckpointError(f"The weights were trained on {self.game}, not on {game}.")


def require_same_network(found: Network, here: Network) -> None:
    """Raise `CheckpointError` unless stored weights are of the network that is to have them."""
    if found == here:
        return
    if found.actions != here.actions:
        raise CheckpointError(f"The weights choose among {found.actions} actions; the game here has {here.actions}.")
    if found == replace(here, own=found.own):
        raise CheckpointError(f"The parameters of --network {here.name} have changed since: restore that class.")
    raise CheckpointError(f"The weights are of another network: {found}, here {here}. Pass the options of their run.")


def load_weights(path: Path) -> StoredWeights:
    """The parameters at `path`; for a directory, those of the newest checkpoint with whole weights.

    Args:
        path: a run directory, its `checkpoints` directory, a manifest, or a weights file.

    Raises:
        CheckpointError: there are none, or they are damaged, not finite, or of no known network.
    """
    if _is_weights_file(path):
        with refused(f"{path} cannot be read", by=CheckpointError):
            return _read_weights(path, follow=True)
    return newest_usable(path, _weights_of)


def weights_file(path: Path) -> Path:
    """The file that `load_weights(path)` reads. Raises `CheckpointError` as it does."""
    if _is_weights_file(path):
        return path
    found = newest_usable(path, lambda manifest: (_weights_of(manifest), manifest))[1]
    return found.directory / file_name("weights", found.boundary)


def _is_weights_file(path: Path) -> bool:
    """True if a user who names this path means the file, and not a directory or a manifest."""
    return path.suffix == ".safetensors" and os.path.isfile(path)


def _weights_of(manifest: Manifest) -> StoredWeights:
    """The parameters that a manifest names."""
    piece = manifest.piece(file_name("weights", manifest.boundary))
    verify_piece(manifest.directory, piece)
    weights = _read_weights(manifest.directory / piece.name)
    if weights.version != manifest.boundary:
        raise CheckpointError(f"{piece.name} holds the weights of round {weights.version}, not {manifest.boundary}.")
    weights.require(manifest.network, manifest.game)
    return weights


def describe_weights(path: Path) -> Description:
    """Description of the weights in a file.

    Raises:
        CheckpointError: it is none that Ringside wrote. OSError: the system refuses.
    """
    with open_to_read(path, error=CheckpointError) as file:
        return _description_in(file, path.name)


def _description_in(file: BinaryIO, name: str) -> Description:
    """Description in the header of an open weights file. Raises `CheckpointError`."""
    begin = file.read(_HEADER_BYTES.size)
    length = _HEADER_BYTES.unpack(begin)[0] if len(begin) == _HEADER_BYTES.size else 0
    header = json_object(file.read(length)) if length <= _HEADER_LIMIT else None
    if header is None:
        raise CheckpointError(f"{name} is damaged: it does not begin with a header of safetensors.")
    metadata = header.get("__metadata__")
    written = metadata.get(METADATA) if isinstance(metadata, dict) else None
    about = json_object(written.encode()) if isinstance(written, str) else None
    if about is None or about.get("format") != WEIGHTS_FORMAT:
        raise CheckpointError(f"{name} holds no weights that Ringside wrote in format {WEIGHTS_FORMAT}.")
    return converted(about, Description, name)


def _read_weights(path: Path, *, follow: bool = False) -> StoredWeights:
    """Read a file of weights, and compare it with the network that its metadata describe."""
    where = path.name
    with open_to_read(path, follow=follow, error=CheckpointError) as file:
        about, size = _description_in(file, where), os.fstat(file.fileno()).st_size
        network, spec = about.network, parameters_of(about.network)
        if spec.count > _MOST_PARAMETERS:
            raise CheckpointError(
                f"{where} describes a network of {spec.count:,} parameters; a file may hold at most "
                f"{_MOST_PARAMETERS:,}."
            )
        least = spec.count * np.dtype(np.float32).itemsize
        if not least <= size <= least + _HEADER_LIMIT:
            fault = "few" if size < least else "many"
            raise CheckpointError(f"{where} has {size:,} bytes, too {fault} for the network {network}.")
        file.seek(0)
        data = file.read(size)
    arrays = arrays_in(data, where)
    flat = np.empty(spec.count, np.float32)
    views = spec.split(flat)
    if arrays.keys() != views.keys():
        raise CheckpointError(f"{where} does not hold the parameters of the network {network}.")
    for name, view in views.items():
        if arrays[name].dtype != np.float32 or arrays[name].shape != view.shape:
            found = f"{arrays[name].dtype}{arrays[name].shape}"
            raise CheckpointError(f"{where} has {found} for {name}; the network has float32{view.shape}.")
        view[...] = arrays[name]
    if hashlib.sha256(flat.tobytes()).hexdigest() != about.weights_sha256:
        raise CheckpointError(f"{where} is damaged: its parameters do not match their checksum.")
    if not np.isfinite(flat).all():
        raise CheckpointError(f"{where} holds parameters that are not finite.")
    return StoredWeights(**vars(about), flat=flat)
