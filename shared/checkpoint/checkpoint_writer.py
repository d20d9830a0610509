"""Checkpoints: a manifest over pieces that never change.

In `RUN_DIR/checkpoints/`:

    segment-K.ring             slots of a stretch of ticks, of the replay or the last round: segments.py
    tail-R.ring                those from the newest segment to the boundary before round R, where it ends none
    boundary-R.safetensors     the state of all roles at the boundary before round R
    weights-R.safetensors      the parameters of version R by name, for anyone
    best.safetensors           the parameters that did best in evaluation
    checkpoint-R.json          the manifest: names, sizes and SHA-256 of its pieces; written last

A checkpoint exists when its manifest does. A manifest is renamed into place after all its pieces are on the disk, so a
writer killed at any moment leaves the older checkpoints unchanged. The newest two stay. Pieces that no kept manifest
names are deleted, after the new manifest is in place. Readers: finding.py, segments.py and
weights_file.py.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save as safetensors_save

from shared.checkpoint.finding import manifests_in
from shared.checkpoint.manifest import Manifest, Piece, encode_manifest, file_name, read_manifest
from shared.checkpoint.segments import IDENTITY, Segment, first_needed, identity, segments_needed, write_segment
from shared.checkpoint.weights_file import METADATA, WEIGHTS_FORMAT, describe_weights
from shared.config.run_schedule import RunSchedule
from shared.config.settings import Config
from shared.errors import CheckpointError
from shared.files.atomic import make_directory, remove_temporaries, sync, write_atomic
from shared.files.plain_files import open_to_read
from shared.files.run_file_names import BEST_FILE, CHECKPOINTS
from shared.machine.facts import arithmetic
from shared.network_parameters import parameters_of
from shared.network_spec import OwnTorso, network_of

KEPT = 2
"""Checkpoints that stay: the newest, and the one before it should the newest be damaged."""

_PIECE_NAME = re.compile(r"(segment|tail|boundary|weights)-(\d{8,})\.(?:ring|safetensors)")


class CheckpointWriter:
    """Writes the checkpoints of one run. One process at a time may hold one for a run directory.

    After a restart it finds its finished files. Adding a segment or saving a boundary again changes nothing.
    """

    def __init__(
        self,
        run_dir: Path,
        config: Config,
        run_schedule: RunSchedule,
        actions: int,
        heartbeat: Callable[[], None] = lambda: None,
        own_torso: OwnTorso | None = None,
    ) -> None:
        """Open or make `run_dir`/checkpoints, list its files, and remove half-written ones.

        Args:
            actions: size of the action set.
            heartbeat: called before every step that a slow disk may delay.
            own_torso: of a network of the user; None: the network is built in.

        Raises:
            CheckpointError: the directory holds checkpoints of another configuration.
            OSError: the system refuses.
        """
        self.directory = run_dir / CHECKPOINTS
        self._heartbeat = heartbeat
        self._config = config
        self._experiment, self._machine = config.experiment(), arithmetic(config.machine.device, config.machine.acts_on)
        self._run_schedule = run_schedule
        self._network = network_of(config, actions, own_torso)
        self._segments: dict[str, Piece] = {}
        """Segments on the disk, by name."""
        self._unforced: set[str] = set()
        """Segments of which a loss of power may leave a part."""
        make_directory(self.directory)
        sync(run_dir)
        for manifest in self._readable():
            if manifest.experiment != self._experiment:
                raise CheckpointError(
                    f"{self.directory} holds checkpoints of another configuration; choose another --run-dir."
                )
            self._segments |= manifest.segments
        remove_temporaries(self.directory)
        self._segments = {name: piece for name, piece in self._segments.items() if self._is_there(piece)}
        self._named = set(self._segments)
        for _, _, path in self._pieces_on_disk():
            if path.suffix == ".ring" and path.name not in self._segments:
                # Unfinished, or left by another run: it is compressed again from the ring when it is needed.
                path.unlink()

    def missing_segments(self, boundary: int) -> list[Segment]:
        """Segments that a checkpoint of `boundary` names and that are not on the disk: those to add before `save`."""
        needed = self._segments_named(boundary)
        for segment in needed:
            if segment.name in self._segments and not self._is_there(self._segments[segment.name]):
                self.discard_segment(segment.name)  # another program removed or changed it
        return [segment for segment in needed if segment.name not in self._segments]

    def _segments_named(self, boundary: int) -> list[Segment]:
        """Segments that a checkpoint of `boundary` names: without the replay none."""
        return segments_needed(self._run_schedule, boundary) if self._config.run.checkpoint_replay else []

    def _is_there(self, piece: Piece) -> bool:
        """True if a piece lies on the disk with its size."""
        try:
            return (self.directory / piece.name).lstat().st_size == piece.bytes
        except FileNotFoundError:
            return False

    def add_segment(self, segment: Segment, ring: Mapping[str, np.ndarray]) -> None:
        """Compress a segment from the ring, once; then delete those that neither a checkpoint nor the next one names.

        The `save` that names the segment forces it to the disk. A fast run has dozens of rounds a second, and forcing
        each segment would take longer than compressing it.

        Args:
            segment: its ticks are committed.
            ring: the ring's fields, [lanes, capacity, lane_envs, ...].

        Raises:
            OSError: the system refuses (a full disk); nothing half-written counts.
        """
        if segment.name in self._segments:
            return
        self._segments[segment.name] = write_segment(self.directory, segment, ring, self._experiment)
        self._unforced.add(segment.name)
        # The next checkpoint may be of a boundary that is a little older than the newest segment.
        end = (segment.first_tick + segment.ticks) // self._run_schedule.round_ticks
        oldest = first_needed(self._run_schedule, max(0, end - (KEPT + 1) * self._run_schedule.segment_rounds))
        for kind, number, path in self._pieces_on_disk():
            if kind == "segment" and number < oldest and path.name not in self._named:
                self.discard_segment(path.name)

    def save(
        self,
        boundary: int,
        arrays: Mapping[str, np.ndarray],
        weights: NDArray[np.float32],
        counters: Mapping[str, int | float],
    ) -> int:
        """Write the checkpoint of a boundary, then delete the files that it replaces. To repeat it changes nothing.

        Args:
            boundary: the round that is played next.
            arrays: the state of the roles, by name.
            weights: float32[P], the parameters of version `boundary`.
            counters: counters that a resumed run continues.

        Returns:
            The bytes of all its pieces.

        Raises:
            ValueError: a segment of the window was not added.
            OSError: the system refuses; the older checkpoints are untouched.
        """
        if missing := self.missing_segments(boundary):
            raise ValueError(f"{[each.name for each in missing]} of boundary {boundary} were not added.")
        named = [segment.name for segment in self._segments_named(boundary)]
        held = {**arrays, IDENTITY: identity(boundary, self._experiment)}
        state = {name: np.ascontiguousarray(array) for name, array in held.items()}
        contents = {
            file_name("boundary", boundary): safetensors_save(state),
            file_name("weights", boundary): self._weights_bytes(weights, boundary, {}),
        }
        pieces = [self._segments[name] for name in named]
        pieces += [Piece(name, len(data), hashlib.sha256(data).hexdigest()) for name, data in contents.items()]
        path = self.directory / file_name("checkpoint", boundary)
        for name in sorted(self._unforced.intersection(named)):
            self._force(name)
        if not any(each.path == path and list(each.pieces) == pieces for each in self._readable()):
            # A manifest that stands here belongs to other pieces: it must not be seen beside the new ones.
            path.unlink(missing_ok=True)
            sync(self.directory)
        for name, data in contents.items():
            write_atomic(self.directory / name, data)
        write_atomic(path, encode_manifest(self._values(boundary, pieces, counters)))
        self.prune()
        return sum(piece.bytes for piece in pieces)

    def _values(self, boundary: int, pieces: list[Piece], counters: Mapping[str, int | float]) -> dict[str, Any]:
        """Values of the manifest of a boundary."""
        return {
            "boundary": boundary,
            "game": self._config.play.played,
            "network": asdict(self._network),
            "config": self._config.to_json(),
            "counters": dict(counters),
            "has_replay": self._config.run.checkpoint_replay or not segments_needed(self._run_schedule, boundary),
            "pieces": [asdict(piece) for piece in pieces],
            "machine": self._machine,
        }

    def best_mean(self) -> float | None:
        """Mean return of the best weights; None if there are none that can be read."""
        try:
            return describe_weights(self.directory / BEST_FILE).mean_return
        except (CheckpointError, FileNotFoundError):
            return None

    def save_best(self, weights: NDArray[np.float32], version: int, mean_return: float) -> bool:
        """Keep the parameters of an evaluated version if it beat all before it; an equal one does not.

        A resume keeps them, also where it plays the rounds before that version again.

        Args:
            weights: float32[P].
            version: the round that was, or would have been, played with them.
            mean_return: of the evaluation.

        Returns:
            True if it is the best.
        """
        best = self.best_mean()
        if not mean_return > (-math.inf if best is None else best):
            return False
        data = self._weights_bytes(weights, version, {"mean_return": float(mean_return)})
        write_atomic(self.directory / BEST_FILE, data)
        return True

    def adopt(self, manifest: Manifest) -> None:
        """Take over the segments of a checkpoint in another directory, by copying them."""
        for piece in manifest.segments.values():
            self._heartbeat()
            with open_to_read(manifest.directory / piece.name) as original:
                write_atomic(self.directory / piece.name, partial(shutil.copyfileobj, original))
        self._segments |= manifest.segments

    def cut_back(self, boundary: int) -> None:
        """Forget everything after `boundary`: for a run that resumes there, before it writes anything.

        With `--schedule free` what comes then is not what came before.
        """
        for number, path in manifests_in(self.directory):
            if number > boundary:
                path.unlink()
        sync(self.directory)
        for kind, number, path in self._pieces_on_disk():
            if number > (boundary // self._run_schedule.segment_rounds - 1 if kind == "segment" else boundary):
                self.discard_segment(path.name)
        if boundary == 0:  # a run begins, and the file there is another run's
            (self.directory / BEST_FILE).unlink(missing_ok=True)
        sync(self.directory)

    def prune(self) -> None:
        """Delete checkpoints but the newest `KEPT`, then the pieces that none of those names.

        Segments newer than the newest checkpoint stay: the next one will name them. A manifest that cannot be read
        does not count and stays for inspection.
        """
        readable = self._readable()
        for manifest in readable[KEPT:]:
            manifest.path.unlink()
        # The manifests must be gone for good before their pieces go.
        sync(self.directory)
        kept = readable[:KEPT]
        self._named = {piece.name for manifest in kept for piece in manifest.pieces}
        end = kept[0].boundary // self._run_schedule.segment_rounds if kept else 0
        for kind, number, path in self._pieces_on_disk():
            if path.name not in self._named and (kind != "segment" or number < end):
                self.discard_segment(path.name)

    def _readable(self) -> list[Manifest]:
        """The manifests that can be read, newest first."""
        manifests = []
        for _, path in manifests_in(self.directory):
            with suppress(CheckpointError):
                manifests.append(read_manifest(path))
        return manifests

    def _force(self, name: str) -> None:
        """Force a segment to the disk."""
        self._heartbeat()
        try:
            sync(self.directory / name)
        except OSError:
            self.discard_segment(name)  # what could not be written may pass for written at the next try
            raise
        self._unforced.discard(name)

    def discard_segment(self, name: str) -> None:
        """Delete a segment, which a later call of `add_segment` may write again, or another piece."""
        (self.directory / name).unlink(missing_ok=True)
        self._segments.pop(name, None)
        self._unforced.discard(name)

    def _weights_bytes(self, weights: NDArray[np.float32], version: int, more: dict[str, float]) -> bytes:
        """A weights file: named parameters, and what they are of."""
        play = self._config.play
        about: dict[str, Any] = {
            "format": WEIGHTS_FORMAT,
            "network": asdict(self._network),
            "game": play.played,
            "protocol": play.protocol,
            "eval_epsilon": self._config.evaluate.eval_epsilon,
            "eval_max_frames": self._config.evaluate.eval_max_frames,
            "eval_actions": self._config.evaluate.eval_actions,
            "version": version,
            "weights_sha256": hashlib.sha256(weights.tobytes()).hexdigest(),
        } | more
        if self._config.run.plugin is not None:
            about["plugin"] = self._config.run.plugin
        # One entry of JSON, because safetensors writes several entries in an order that differs between processes.
        metadata = {METADATA: json.dumps(about, sort_keys=True)}
        return safetensors_save(parameters_of(self._network).split(np.ascontiguousarray(weights)), metadata)

    def _pieces_on_disk(self) -> list[tuple[str, int, Path]]:
        """Kind, number and path of every file named like a piece."""
        found = [(match, entry) for entry in self.directory.iterdir() if (match := _PIECE_NAME.fullmatch(entry.name))]
        return [(match[1], int(match[2]), entry) for match, entry in found]
