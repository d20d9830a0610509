"""Search for the newest whole checkpoint in a directory."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from shared.checkpoint.manifest import MANIFEST_NAME, Manifest, read_manifest
from shared.errors import CheckpointError
from shared.files.run_file_names import CHECKPOINTS, CONFIG_FILE
from shared.text import refused

T = TypeVar("T")

MOST_REFUSALS = 3
"""Manifests whose faults are reported; of the others, the number."""


def find_checkpoint(path: Path) -> Manifest:
    """The newest whole checkpoint at `path`, with every piece verified.

    Args:
        path: a run directory, its `checkpoints` directory, or one manifest.

    Raises:
        CheckpointError: there is none, or none that is whole; the message names the fault of each.
    """
    return newest_usable(path, Manifest.verified)


def newest_checkpoint(run_dir: Path) -> str | None:
    """Name of the newest checkpoint of a run, whole or not; None: there is none."""
    return max((path.name for path in (run_dir / CHECKPOINTS).glob("checkpoint-*.json")), default=None)


def newest_usable(path: Path, use: Callable[[Manifest], T]) -> T:
    """Result of `use` for the manifest at `path`, or for the newest in a directory that it does not refuse."""
    if os.path.isfile(path):  # which raises for no path
        _require_manifest_name(path)
        return _use_one(path, use)
    directory = path / CHECKPOINTS if os.path.isdir(path / CHECKPOINTS) else path
    if not os.path.isdir(directory):
        raise CheckpointError(f"There is no file or directory {path}.")
    faults: list[str] = []
    with refused(f"{directory} cannot be read", by=CheckpointError):
        candidates = manifests_in(directory)
    for _, candidate in candidates:
        try:
            return _use_readable(candidate, lambda manifest: use(replace(manifest, refused=_shortened(faults))))
        except CheckpointError as error:
            faults.append(f"{candidate.name} cannot be used: {error}")
    if faults:
        raise CheckpointError(f"No checkpoint in {directory} is whole. " + " ".join(_shortened(faults)))
    if directory == path and not os.path.lexists(path / CONFIG_FILE):
        raise CheckpointError(f"There is no run and no checkpoint in {path}.")
    raise CheckpointError(f"There is no checkpoint in {directory}: name another run.")


def _require_manifest_name(path: Path) -> None:
    """Raise `CheckpointError` for a file that by its name is no manifest."""
    if path.suffix == ".safetensors":
        raise CheckpointError(
            f"{path.name} holds weights, not the state of a run: name a run directory or a checkpoint, or begin a new "
            "run from the weights with --init-from."
        )
    if path.suffix != ".json":
        raise CheckpointError(f"{path.name} is neither a checkpoint (.json) nor a file of weights (.safetensors).")


def _use_one(path: Path, use: Callable[[Manifest], T]) -> T:
    """Result of `use` for one manifest; a refusal names the newest usable one beside it."""
    try:
        return _use_readable(path, use, follow=True)
    except CheckpointError as error:
        try:
            _, other = newest_usable(path.parent, lambda manifest: (use(manifest), manifest.path))
        except CheckpointError:
            raise error from None
        raise CheckpointError(f"{error} The newest whole one beside it is {other}.") from error


def _use_readable(path: Path, use: Callable[[Manifest], T], *, follow: bool = False) -> T:
    """Result of `use` for one manifest. One that cannot be read counts as damaged: a `CheckpointError`."""
    try:
        return use(read_manifest(path, follow=follow))
    except OSError as error:
        name = os.path.basename(error.filename or path)
        raise CheckpointError(f"{name} cannot be read: {error.strerror}.") from error


def manifests_in(directory: Path) -> list[tuple[int, Path]]:
    """Boundary and path of everything named like a manifest, newest first."""
    named = ((MANIFEST_NAME.fullmatch(entry.name), entry) for entry in directory.iterdir())
    return sorted(((int(match[1]), entry) for match, entry in named if match is not None), reverse=True)


def _shortened(faults: Sequence[str]) -> tuple[str, ...]:
    """The first refusals and the number of the others: a stranger's directory may hold thousands of manifests."""
    more = len(faults) - MOST_REFUSALS
    return (*faults[:MOST_REFUSALS], *([f"{more} more cannot be used."] if more > 0 else []))
