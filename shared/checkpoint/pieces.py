"""Pieces: the files of a checkpoint, each with a name, a size and a SHA-256 that its manifest records."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as safetensors_load

from shared.errors import CheckpointError, FileError
from shared.files.plain_files import file_sha256, open_to_read
from shared.text import printable

_PIECE_LIMIT = 16 << 30
"""Most bytes of a piece; a sparse file says any size."""
_MANIFEST_NAME = re.compile(r"checkpoint-(\d{8,})\.json")


def boundary_name(boundary: int) -> str:
    """File name of the roles' state at a boundary."""
    return f"boundary-{boundary:08d}.safetensors"


def weights_name(boundary: int) -> str:
    """File name of the parameters of a boundary."""
    return f"weights-{boundary:08d}.safetensors"


def manifest_name(boundary: int) -> str:
    """File name of a boundary's manifest."""
    return f"checkpoint-{boundary:08d}.json"


def boundary_in_name(name: str) -> int | None:
    """The boundary in the file name of a manifest; None: no manifest has such a name."""
    match = _MANIFEST_NAME.fullmatch(name)
    return None if match is None else int(match[1])


@dataclass(frozen=True)
class Piece:
    """One file of a checkpoint."""

    name: str
    bytes: int
    sha256: str

    @classmethod
    def describe(cls, path: Path) -> Piece:
        """Describe a plain file. Raises `FileError` when it is none, or `OSError`."""
        with open_to_read(path) as file:
            size = os.fstat(file.fileno()).st_size
            return cls(path.name, size, file_sha256(file, size))


def check_piece(directory: Path, piece: Piece, *, content: bool = True) -> Path:
    """Compare a file with its description; with `content`, its SHA-256 too.

    Raises:
        CheckpointError: it differs. OSError: the system refuses.
    """
    with _open_piece(directory, piece) as file:
        if content and file_sha256(file, piece.bytes) != piece.sha256:
            raise CheckpointError(f"{piece.name} is damaged: its content does not match its checksum.")
    return directory / piece.name


def read_piece(directory: Path, piece: Piece, most: int = _PIECE_LIMIT) -> bytes:
    """The content of a file that agrees with its description. Else as `check_piece`.

    Args:
        most: bytes that it may have; a larger one is refused before anything is read.
    """
    if piece.bytes > most:
        raise CheckpointError(f"{piece.name} has {piece.bytes:,} bytes; in this run it may have at most {most:,}.")
    with _open_piece(directory, piece) as file:
        data = file.read(piece.bytes)
    if hashlib.sha256(data).hexdigest() != piece.sha256:
        raise CheckpointError(f"{piece.name} is damaged: its content does not match its checksum.")
    return data


def _open_piece(directory: Path, piece: Piece) -> BinaryIO:
    """A file of the size in its description, open to read. Else as `check_piece`."""
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
