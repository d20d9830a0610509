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
from shared.files.plain_files import open_to_read
from shared.text import printable

_PIECE_LIMIT = 16 << 30
"""Most bytes of a piece; a sparse file says any size."""
_CHUNK = 1 << 20
SEGMENT_NAME = re.compile(r"segment-(\d{8,})\.ring")
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


def verify_piece(directory: Path, piece: Piece) -> None:
    """Compare a file with the size and the SHA-256 in its description. Raises as `open_piece`."""
    digest = hashlib.sha256()
    with open_piece(directory, piece) as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    if digest.hexdigest() != piece.sha256:
        raise CheckpointError(f"{piece.name} is damaged: its content does not match its checksum.")


def open_piece(directory: Path, piece: Piece, most: int = _PIECE_LIMIT) -> BinaryIO:
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
        file = open_to_read(directory / piece.name)
    except FileNotFoundError as error:
        raise CheckpointError(f"{piece.name} is missing.") from error
    except FileError as error:
        raise CheckpointError(str(error)) from error
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
