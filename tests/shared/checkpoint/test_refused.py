"""Checkpoints and weights that are damaged, foreign or hostile: refused with a sentence, never executed."""

import hashlib
import importlib.metadata
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import ringside
from shared.checkpoint.checkpoint_writer import CheckpointWriter
from shared.checkpoint.finding import find_checkpoint
from shared.checkpoint.manifest import file_name, read_manifest
from shared.checkpoint.segments import load_boundary, load_segments
from shared.checkpoint.weights_file import WEIGHTS_FORMAT, load_weights
from shared.config.settings import Config
from shared.errors import CheckpointError, ConfigError
from shared.machine.facts import processor
from shared.memory.boundary import capture, restore
from shared.memory.evaluation_queue import EvaluationHistory
from shared.memory.plan import Plan
from shared.memory.run_memory import Memory
from shared.network_parameters import parameters_of
from shared.network_spec import Network
from tests.support.checkpoints import (
    ACTIONS,
    CONFIG,
    SIZES,
    SMALL,
    Fields,
    assert_rejected,
    boundary_in,
    describe,
    empty_ring,
    parameters,
    random_weights,
    rewrite,
    write_run,
)

DAMAGED = r"damaged|an invalid network"
STATE = [file_name("boundary", number) for number in range(5)]
WRITTEN = asdict(SMALL)
RULES = {"eval_epsilon": 0.05, "eval_max_frames": 108_000, "eval_actions": "greedy"}
ABOUT = {"format": WEIGHTS_FORMAT, "game": "pong", "protocol": "nature", "version": 7} | RULES
"""Words of a file of weights about itself, beside its network."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The manifest of a run with one checkpoint."""
    write_run(tmp_path, 1)
    return find_checkpoint(tmp_path).path


def test_a_damaged_newest_checkpoint_gives_way_to_the_one_before_and_is_named(tmp_path: Path) -> None:
    write_run(tmp_path, 4)
    newest = find_checkpoint(tmp_path).path
    newest.write_bytes(newest.read_bytes()[:-20])
    found = find_checkpoint(tmp_path)
    assert (found.boundary, len(found.refused)) == (3, 1)
    assert "checkpoint-00000004.json" in found.refused[0]
    assert_rejected(find_checkpoint, newest, r"truncated or damaged.*whole one beside it is .*00000003\.json")
    for other in (tmp_path / "checkpoints").glob("checkpoint-*"):
        other.write_bytes(b"{}")
    assert_rejected(find_checkpoint, tmp_path, r"No checkpoint .* is whole.*00000004.*00000003")
    (tmp_path / "empty").mkdir()
    assert_rejected(find_checkpoint, tmp_path / "empty", "There is no run and no checkpoint")
    assert_rejected(find_checkpoint, tmp_path / "absent", "no file or directory")


@pytest.mark.parametrize("piece", ["segment-00000003.ring", STATE[4], file_name("weights", 4)])
def test_every_damaged_region_of_every_piece_is_refused(piece: str, tmp_path: Path) -> None:
    write_run(tmp_path, 4)
    manifest, path = find_checkpoint(tmp_path).path, tmp_path / "checkpoints" / piece
    whole = path.read_bytes()
    for place in (0, 7, 8, 100, len(whole) // 2, len(whole) - 1):
        broken = bytearray(whole)
        broken[place] ^= 0x10
        path.write_bytes(broken)
        assert_rejected(find_checkpoint, manifest, f"{piece} is damaged")
    path.write_bytes(whole[:-1])
    assert_rejected(find_checkpoint, manifest, "truncated")
    path.unlink()
    assert_rejected(find_checkpoint, manifest, "missing")
    path.symlink_to("/etc/hostname")
    assert_rejected(find_checkpoint, manifest, "not a plain file")
    path.unlink()
    path.write_bytes(whole)
    assert find_checkpoint(manifest).boundary == 4


def test_every_flipped_bit_of_a_manifest_is_refused_or_harmless(tmp_path: Path) -> None:
    write_run(tmp_path, 3)
    path = find_checkpoint(tmp_path).path
    whole, original, refused = path.read_bytes(), read_manifest(path), 0
    for place in range(0, len(whole), 3):
        broken = bytearray(whole)
        broken[place] ^= 1 << (place % 7)
        path.write_bytes(broken)
        try:
            assert read_manifest(path) == original
        except CheckpointError:
            refused += 1
    assert refused > 50


def test_foreign_files_are_refused_with_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint-00000001.json"
    for text, message in (
        ("[1, 2]", "no JSON object"),
        ('{"step": 3}', "not a Ringside checkpoint"),
        ('{"kind": "ringside-checkpoint", "format": 99}', "format 99; this program knows format 4"),
    ):
        path.write_text(text, encoding="latin-1")
        assert_rejected(read_manifest, path, message)
    os.truncate(path, 1 << 40)
    assert_rejected(read_manifest, path, "has 1,099,511,627,776 bytes; it may have at most")


def one_piece(name: object, size: int, sha256: str = "0" * 64) -> dict[str, object]:
    return {"pieces": [{"name": name, "bytes": size, "sha256": sha256}]}


FORGED_MANIFESTS = [
    *(
        (one_piece(name, 1), r"is damaged: pieces\[0\]\.name is")
        for name in ("../weights", "/etc/passwd", "a/b", "..", ".hidden", "", "a\0b", "x" * 200, "a/../../secret")
    ),
    *(({"boundary": value}, DAMAGED) for value in (-1, 1 << 80, True, "4")),
    *(({"network": value}, DAMAGED) for value in ("small", None)),
    *(({"network": WRITTEN | {"actions": value}}, DAMAGED) for value in (None, True)),
    *(({"network": WRITTEN | part}, DAMAGED) for part in ({"atoms": 1 << 40}, {"noisy": 1e300}, {"more": 1})),
    *(({"counters": {"steps": value}}, DAMAGED) for value in ("many", -1, 1 << 70)),
    *(({"config": value}, DAMAGED) for value in ({"play": 3}, [])),
    *(({"pieces": value}, DAMAGED) for value in (["weights"], {})),
    (one_piece("weights", -4, ""), DAMAGED),
    ({"has_replay": 1}, DAMAGED),
    (one_piece(STATE[1], 1 << 40), "they may have at most"),
    (
        {"pieces": [{"name": f"piece-{i}", "bytes": 16 << 30, "sha256": ""} for i in range(5)]},
        "names pieces of 85,899,345,920 bytes",
    ),
]


@pytest.mark.parametrize(("changes", "says"), FORGED_MANIFESTS)
def test_a_forged_manifest_is_refused_before_its_pieces_are_read(
    changes: dict[str, object], says: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rewrite(path, **changes)
    monkeypatch.setattr("shared.checkpoint.manifest.open_to_read", lambda *_: pytest.fail("read"))
    assert_rejected(find_checkpoint, path, says)


def test_a_state_larger_than_its_arrays_is_refused_unread(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    piece = path.with_name(STATE[1])
    load_boundary(read_manifest(path), 30_000)
    os.truncate(piece, 8 << 30)
    rewrite(path, **one_piece(piece.name, 8 << 30))
    monkeypatch.setattr("shared.checkpoint.manifest.open_to_read", lambda *_: pytest.fail("opened"))
    with pytest.raises(CheckpointError, match=r"has 8,589,934,592 bytes; in this run it may have at most 1,078,576\."):
        load_boundary(read_manifest(path), 30_000)


def test_a_renamed_copy_of_a_manifest_does_not_count(tmp_path: Path) -> None:
    write_run(tmp_path, 4)
    older = tmp_path / "checkpoints" / file_name("checkpoint", 3)
    copy = older.with_name(file_name("checkpoint", 9))
    copy.write_bytes(older.read_bytes())
    found = find_checkpoint(tmp_path)
    assert found.boundary == 4
    assert "checkpoint-00000009.json is a renamed copy: it holds the checkpoint of boundary 3." in found.refused[0]
    assert_rejected(find_checkpoint, copy, "is a renamed copy")
    plain = older.with_name("mine.json")  # a name that says no boundary
    plain.write_bytes(older.read_bytes())
    assert find_checkpoint(plain).boundary == 3


def test_a_run_with_other_settings_does_not_continue(path: Path) -> None:
    manifest = read_manifest(path)
    manifest.require(CONFIG.with_settings(total_steps=1_600))
    manifest.require(CONFIG.with_settings(actors=7, learner_members=2))
    other = CONFIG.with_settings(precision="bf16", learner_parts=8)
    manifest.require(other)
    assert manifest.arithmetic_differences(other) == ["--precision 'auto' (now 'bf16')", "--learner-parts None (now 8)"]
    assert manifest.arithmetic_differences(CONFIG.with_settings(plain=True)) == []
    moved = replace(manifest, machine=manifest.machine | {"cpu": "an abacus", "torch": "0.1"})
    said = [f"torch '0.1' (now {importlib.metadata.version('torch')!r})", f"cpu 'an abacus' (now {processor()!r})"]
    assert moved.arithmetic_differences(CONFIG) == said
    assert not replace(manifest, machine={}).arithmetic_differences(CONFIG), "an older version noted none"
    assert manifest.experiment == other.experiment()
    assert CheckpointWriter(path.parents[1], other, SIZES, ACTIONS).missing_segments(1) == []
    with pytest.raises(CheckpointError, match=r"--game 'breakout' \(now 'pong'\), --batch-size 32 \(now 64\)"):
        manifest.require(CONFIG.with_settings(game="pong", batch_size=64))
    with pytest.raises(CheckpointError, match=r'of another run.*"lane_envs": 2, .*, not .*"lane_envs": 4, '):
        load_segments(manifest, replace(SIZES, envs=8, lane_envs=4), empty_ring())


def test_weights_for_another_game_network_or_action_set_are_refused(path: Path) -> None:
    weights = load_weights(path)
    weights.require(SMALL, "breakout")
    assert_rejected(weights.require, Network("nature", ACTIONS), "another network: small, here nature")
    assert_rejected(weights.require, replace(SMALL, dueling=True), "small, here small dueling=True")
    assert_rejected(weights.require, Network("small", 18), "choose among 4 actions")
    with pytest.raises(CheckpointError, match="trained on breakout, not on pong"):
        weights.require(SMALL, "pong")


def test_weights_are_read_even_when_the_replay_is_damaged(tmp_path: Path) -> None:
    write_run(tmp_path, 3)
    (tmp_path / "checkpoints" / "segment-00000001.ring").unlink()
    assert_rejected(find_checkpoint, tmp_path, "No checkpoint")
    assert load_weights(tmp_path).version == 3


def test_weights_that_are_foreign_not_finite_or_mislabelled_are_refused(tmp_path: Path) -> None:
    flat, path = parameters(1), tmp_path / "weights.safetensors"
    arrays = parameters_of(SMALL).split(flat)
    good = ABOUT | {"network": WRITTEN, "weights_sha256": hashlib.sha256(flat.tobytes()).hexdigest()}

    def refused(arrays: Fields, about: dict[str, object], message: str) -> None:
        save_file(arrays, path, {"ringside": json.dumps(about)})
        assert_rejected(load_weights, path, message)

    save_file(arrays, path, {"ringside": json.dumps(good), "format": "pt"})
    found = load_weights(path)
    assert {name: getattr(found, name) for name in ("version", *RULES)} == {"version": 7, **RULES}
    for part, message in (
        ({"weights_sha256": "0"}, "its parameters do not match their checksum"),
        ({"weights_sha256": None}, "weights_sha256 is None"),
        ({"version": None}, "version is None"),
        ({"protocol": "a b"}, "protocol is 'a b'"),
        ({"format": WEIGHTS_FORMAT - 1}, "no weights that Ringside wrote"),
        ({"eval_epsilon": "all"}, "eval_epsilon is 'all'"),
        ({"eval_max_frames": -1}, "eval_max_frames is -1"),
        ({"eval_actions": "guess"}, "eval_actions is 'guess'"),
        ({"eval_actions": [1]}, r"eval_actions is \[1\]"),
        ({"network": "small"}, "does not say what it is"),
    ):
        refused(arrays, good | part, message)
    for part, message in (
        ({"actions": 99999999}, "actions is 99999999"),
        ({"actions": -4}, "actions is -4"),
        ({"actions": 6}, "the network has float32"),
        ({"name": "resnet"}, "no network 'resnet'"),
        ({"width": 10**6}, "width is 1000000"),
        ({"noisy": 0.5}, "too few for the network small"),
        ({"dueling": 1}, "dueling is 1"),
        ({"method": "iqn"}, "fractions is 0"),
        ({"recurrent": 64}, "recurrent is not 0 in a network without"),
        ({"conv_norm": 1}, "conv_norm is 1"),
        ({"conv_norm": True}, "does not hold the parameters"),
        ({"name": "impala", "conv_norm": True}, "conv_norm is True with the network impala"),
    ):
        refused(arrays, good | {"network": WRITTEN | part}, message)
    refused(arrays, {"weights_sha256": good["weights_sha256"]}, "no weights that Ringside wrote")
    refused(arrays | {"more": np.zeros(3, np.float32)}, good, "does not hold the parameters")
    refused(arrays | {"more": np.zeros(1 << 20, np.float32)}, good, "too many for the network")
    refused({k: v.astype(np.float64) for k, v in arrays.items()}, good, "float64|too many")
    flat[5] = np.nan
    broken = {"weights_sha256": hashlib.sha256(flat.tobytes()).hexdigest()}
    refused(parameters_of(SMALL).split(flat), good | broken, "not finite")
    for content in (b"\x80\x04\x95 pickled", (20).to_bytes(8, "little") + b"[" * 20):
        path.write_bytes(content)
        assert_rejected(load_weights, path, "is damaged")


def test_a_forged_configuration_is_refused_with_a_sentence(path: Path) -> None:
    config = Config.from_json(CONFIG.to_json()).to_json()
    config["play"]["envs"] = "many"
    rewrite(path, config=config)
    with pytest.raises(ConfigError, match=r"cannot be resumed.*is damaged: envs .* is not"):
        ringside.starting_point(None, path)


PAST = EvaluationHistory(every=40)


@pytest.fixture
def memory() -> Iterator[Memory]:
    """Memory of a run that evaluates every round and has not begun."""
    config = CONFIG.with_settings(actors=1, eval_every_steps=PAST.every, eval_episodes=1, eval_envs=1)
    made = Memory.create(Plan(config, ACTIONS))
    yield made
    made.arena.close()


@pytest.fixture
def whole(memory: Memory) -> Fields:
    """Contents of a boundary file of that run, with a version to evaluate."""
    for lane in range(memory.run_schedule.lanes):
        memory.lane_snapshots.write(lane, 2, b"abc")
    memory.learner_snapshots.write(2, lambda out: None)
    memory.evaluations.queued.publish(1)
    arrays = capture(memory, 2)
    memory.lane_snapshots.clear()
    memory.learner_snapshots.clear()
    return dict(arrays)


FORGED_ARRAYS = [
    *(("lanes.length", np.array(value), "snapshots of lanes have") for value in ([1 << 40, 6], [6 - (1 << 40), 9])),
    ("lanes.length", np.array([4, 4]), r"it has uint8\(6,\) for 'lanes.bytes'; this run needs uint8\(8,\)"),
    ("lanes.bytes", np.zeros((2, 3), np.uint8), r"uint8\(2, 3\) for 'lanes.bytes'"),
    ("evaluation.data", np.zeros((9, 9), np.float32), r"float32\(9, 9\) for 'evaluation.data'"),
    ("evaluation.data", np.array(0, np.float32), r"float32\(\) for 'evaluation.data'"),
    *(("evaluation.counts", np.array([value, 0]), "evaluations were queued and") for value in (-1, 1 << 40)),
    ("evaluation.step", -1, r"of the steps \[0, 0, 0, -1\]"),
    ("moment1", np.zeros(51, np.float32), r"float32\(51,\) for 'moment1'; this run needs float32\(\d{5},\)\."),
    ("evaluation.counts", np.zeros(2), r"has float64\(2,\) for 'evaluation.counts'; this run needs int64\(2,\)"),
    ("opening.frame", None, r"does not hold 'opening\.frame'"),
    *(
        (name, value, f"'{name}' holds numbers that are not finite")
        for name in ("online", "moment1", "evaluation.data")
        for value in (np.nan, np.inf, -np.inf)
    ),
]


@pytest.mark.parametrize(("name", "value", "says"), FORGED_ARRAYS)
def test_a_forged_boundary_is_never_committed(name: str, value: Any, says: str, memory: Memory, whole: Fields) -> None:
    """Another array in the place of one, or a number in the place of its last one."""
    forged = {key: array.copy() for key, array in whole.items() if key != name or value is not None}
    if isinstance(value, np.ndarray):
        forged[name] = value
    elif value is not None:
        forged[name].flat[-1] = value
    with pytest.raises(CheckpointError, match=says):
        restore(memory, 2, forged, PAST)
    assert memory.board.committed == -1
    restore(memory, 2, whole, PAST)
    assert memory.board.committed == 2


def load(run: Path) -> None:
    """Read what a resume reads."""
    load_segments(find_checkpoint(run), SIZES, empty_ring())
    boundary_in(run)
    load_weights(find_checkpoint(run).path)


FOREIGN_PIECES = [
    (file_name("weights", 3), "ours", file_name("weights", 2), "the weights of round 2, not 3"),
    ("segment-00000002.ring", "theirs", "segment-00000002.ring", "or of another run or revision"),
    (STATE[3], "ours", STATE[2], rf"{STATE[3]} is of another run or another"),
    (STATE[3], "theirs", STATE[3], "is of another run or another round"),
]


@pytest.mark.parametrize(("name", "run", "other", "says"), FOREIGN_PIECES)
def test_a_piece_of_another_round_or_run_is_refused(name: str, run: str, other: str, says: str, tmp_path: Path) -> None:
    """A file of the same sizes, which the manifest describes."""
    write_run(tmp_path / "ours", 3)
    write_run(tmp_path / "theirs", 3, CONFIG.with_settings(seed=2))
    load(tmp_path / "ours")
    manifest = find_checkpoint(tmp_path / "ours")
    (manifest.directory / name).write_bytes((tmp_path / run / "checkpoints" / other).read_bytes())
    rewrite(manifest.path, pieces=[asdict(describe(manifest.directory / piece.name)) for piece in manifest.pieces])
    assert_rejected(load, tmp_path / "ours", says)


@pytest.mark.parametrize("kind", ["\x1b[2J\x1b]0;mine\x07", "\u202egnp.exe", "x" * 100_000])
def test_a_header_is_not_quoted_at_length_nor_as_a_terminal_would_obey_it(kind: str, tmp_path: Path) -> None:
    path = random_weights(tmp_path)
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    header["conv1.bias"]["dtype"] = kind
    head = json.dumps(header).encode()
    path.write_bytes(len(head).to_bytes(8, "little") + head + data[8 + length :])
    with pytest.raises(CheckpointError, match="is damaged") as refused:
        load_weights(path)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 400


def test_the_newest_of_many_damaged_manifests_are_named_and_the_others_counted(tmp_path: Path) -> None:
    write_run(tmp_path, 1)
    for number in range(2, 102):
        (tmp_path / "checkpoints" / file_name("checkpoint", number)).write_text("{}")
    named = [sentence.split()[0] for sentence in find_checkpoint(tmp_path).refused]
    assert named == [*(file_name("checkpoint", number) for number in (101, 100, 99)), "97"]
    (tmp_path / "checkpoints" / "checkpoint-00000001.json").unlink()
    assert_rejected(find_checkpoint, tmp_path, r"checkpoint-00000099\.json cannot.* 97 more cannot be used\.$")


def test_versions_that_a_future_had_queued_are_not_taken_for_ones_of_the_past(memory: Memory, whole: Fields) -> None:
    """`queue_evaluation` looks at the step of the newest version in the queue."""
    step = memory.run_schedule.round_steps
    for queued, kept in ((7 * step, 2 * step), (step, step)):
        whole["evaluation.step"][:] = queued
        restore(memory, 2, whole, PAST)
        assert set(memory.evaluations.step.tolist()) == {kept}


def test_a_small_file_that_describes_a_large_network_is_refused_before_memory_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "weights.safetensors"
    monkeypatch.setattr("shared.checkpoint.weights_file.arrays_in", lambda *_: pytest.fail("read"))

    def write(actions: int, atoms: int) -> None:
        network = asdict(Network("nature", actions, method="c51", atoms=atoms, v_min=-1.0, v_max=1.0))
        about = ABOUT | {"weights_sha256": "", "network": network}
        save_file({"a": np.zeros(1, np.float32)}, path, {"ringside": json.dumps(about)})

    write(4096, 4096)
    os.truncate(path, 40 << 30)  # a file of holes, as large as its parameters would be
    assert_rejected(load_weights, path, r"network of 8,\d\d\d,\d\d\d,\d\d\d parameters; a file may hold at most")
    write(4096, 51)
    assert_rejected(load_weights, path, r"has \d{3} bytes, too few for the network nature")


def test_a_run_with_settings_of_its_method_continues_and_another_support_does_not(path: Path) -> None:
    config = CONFIG.with_settings(method="c51", atoms=11)
    rewrite(path, config=config.to_json())
    manifest = read_manifest(path)
    manifest.require(config)
    assert_rejected(manifest.require, config.with_settings(v_max=5.0), r"--v-max 10\.0 \(now 5\.0\)")
