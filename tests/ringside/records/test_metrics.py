"""metrics.jsonl and TensorBoard events: no record twice or in part, whichever process is killed."""

import copy
import errno
import math
import os
from collections.abc import Callable
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import metadata

from ringside.records.events import EventLog
from ringside.records.metrics import Episode, MetricsLog, cut_metrics, episodes_in, read_metrics
from shared.errors import FileError
from shared.memory.ring import SLOT_FIELDS


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file of records."""
    return tmp_path / "metrics.jsonl"


def episodes_slowly(ring: dict[str, np.ndarray], first: int, stop: int) -> list[Episode]:
    lanes, capacity, lane_envs = ring["valid"].shape
    found = []
    for tick, lane, j in product(range(first, stop), range(lanes), range(lane_envs)):
        place = lane, tick % capacity, j
        if (ring["terminated"][place] or ring["truncated"][place]) and ring["valid"][place]:
            total, length = ring["episode_return"][place], ring["episode_steps"][place]
            found.append(Episode(lane * lane_envs + j, tick, float(total), int(length)))
    return found


def test_episodes_come_in_order_and_end_by_termination_or_truncation_at_valid_ticks_only() -> None:
    rng = np.random.default_rng(0)
    ring = {name: np.zeros((3, 17, 2, *shape), dtype) for name, dtype, shape in SLOT_FIELDS}
    for name in ("terminated", "truncated", "life_lost", "valid"):
        ring[name][:] = rng.random(ring[name].shape) < 0.4
    ring["episode_return"][:] = rng.standard_normal(ring["episode_return"].shape)
    ring["episode_steps"][:] = rng.integers(1, 999, ring["episode_steps"].shape)
    for first, stop in ((0, 17), (30, 40), (11, 11), (5, 20)):
        found = episodes_in(ring, first, stop)
        assert found == episodes_slowly(ring, first, stop)
    assert len(found) > 5
    ring["terminated"][:] = ring["truncated"][:] = 0
    ring["life_lost"][:] = 1
    assert episodes_in(ring, 0, 17) == []


def episodes_of(round_: int, count: int = 3) -> list[Episode]:
    return [Episode(env=i, tick=round_ * 10 + i, total=round_ + i / 10, length=100 + i) for i in range(count)]


def log_rounds(log: MetricsLog, rounds: range) -> None:
    for round_ in rounds:
        log.log_round(round_, (round_ + 1) * 40, {"loss": 0.25 * round_}, episodes_of(round_), envs=4)


def test_records_are_read_back_with_their_statistics(path: Path) -> None:
    with closing(MetricsLog(path)) as log:
        assert log.totals.mean_return_100 is None
        log.log_round(0, 40, {"loss": math.nan, "epsilon": 1.0}, [], envs=4)
        log_rounds(log, range(1, 3))
        log.log_evaluation(0, 2, 80, {"mean_return": 1.5, "episodes": 30})
    records = list(read_metrics(path))
    assert [record["kind"] for record in records] == ["round", *(["episode"] * 3 + ["round"]) * 2, "evaluation"]
    nothing = {"episodes": 0, "mean_return_100": None, "best_return": None}
    assert records[0] == {"kind": "round", "round": 0, "steps": 40, "loss": None, "epsilon": 1.0} | nothing
    played = {"env": 1, "tick": 11, "return": 1.1, "length": 101}
    assert records[2] == {"kind": "episode", "round": 1, "steps": 48} | played
    assert (records[-2]["episodes"], records[-2]["best_return"]) == (6, 2.2)
    assert records[-2]["mean_return_100"] == pytest.approx((1.0 + 1.1 + 1.2 + 2.0 + 2.1 + 2.2) / 6)


def test_the_mean_is_of_the_newest_hundred_also_after_opening_again(path: Path) -> None:
    returns = np.random.default_rng(0).normal(0, 10, 250)
    with closing(MetricsLog(path)) as log:
        for round_, some in enumerate(np.split(returns, 10)):
            metrics = {"mean_return": 9.0}  # of a plug-in
            log.log_round(round_, 0, metrics, [Episode(0, i, float(x), 1) for i, x in enumerate(some)], envs=1)
        before = log.totals.mean_return_100, log.totals.best_return, log.totals.episodes
    assert before[0] == pytest.approx(returns[-100:].mean())
    assert before[1:] == (returns.max(), 250)
    with closing(MetricsLog(path)) as log:
        assert (log.totals.mean_return_100, log.totals.best_return, log.totals.episodes) == before
        assert log.totals.evaluation is None


def test_nothing_is_written_twice(path: Path) -> None:
    with closing(MetricsLog(path)) as log:
        log_rounds(log, range(4))
        log.log_evaluation(0, 2, 80, {})
    before = path.read_bytes()
    with closing(MetricsLog(path)) as log:
        assert (log.last_round, log.evaluations) == (3, {0})
        for each in (3, 1):
            log.log_round(each, 40 * each + 40, {}, episodes_of(each), envs=4)
        log.log_evaluation(0, 2, 80, {})
        assert log.totals.episodes == 12
    assert path.read_bytes() == before


def test_a_file_cut_at_any_byte_opens_and_grows_to_the_same(path: Path) -> None:
    def grown() -> bytes:
        with closing(MetricsLog(path)) as log:
            log_rounds(log, range(log.last_round + 1, 3))
            log.log_evaluation(0, 1, 40, {"mean_return": 1.0})
            log_rounds(log, range(log.last_round + 1, 5))
        return path.read_bytes()

    whole = grown()
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        assert all(record["round"] <= 4 for record in read_metrics(path))
        assert grown() == whole


def test_nonsense_at_the_end_is_cut_and_in_the_middle_left_out(path: Path) -> None:
    with closing(MetricsLog(path)) as log:
        log_rounds(log, range(2))
    whole = path.read_bytes()
    for tail in (b"\0" * 4096, b'{"kind": "round"}\n', b"[1]\n\n", b'{"kind": "other", "round": 1}\n', b"\n{"):
        path.write_bytes(whole + tail)
        with closing(MetricsLog(path)) as log:
            assert log.last_round == 1
        assert path.read_bytes() == whole
    lines = whole.splitlines(keepends=True)
    damaged = b"".join([*lines[:2], b"\0" * 4096, *lines[2:-1], b"\0\n", lines[-1]])
    path.write_bytes(damaged)
    with pytest.raises(FileError, match="line 3 is not a record, but line"):
        list(read_metrics(path))
    with closing(MetricsLog(path)) as log:
        log_rounds(log, range(log.last_round + 1, 3))
    kept = path.read_bytes()
    assert b"\0" not in kept
    assert [line for line in kept.splitlines(keepends=True) if line in lines] == [*lines[:2], *lines[3:]]
    path.write_bytes(damaged)
    cut_metrics(path, 2)
    assert path.read_bytes() == b"".join([*lines[:2], *lines[3:]])


def refusing(*results: Any) -> Callable[..., Any]:
    """A call of the system that gives these results, functions of its arguments, and then refuses."""
    left = iter(results)

    def call(*arguments: Any) -> Any:
        for result in left:
            return result(*arguments)
        raise OSError(errno.EIO, "Input/output error")

    return call


@pytest.mark.parametrize("cuts", [False, True])
def test_a_refused_write_leaves_no_half_record(path: Path, monkeypatch: pytest.MonkeyPatch, *, cuts: bool) -> None:
    """A truncation that fails is repeated before the next record."""
    write = os.write
    with closing(MetricsLog(path)) as log:
        log_rounds(log, range(2))
        content, totals = path.read_bytes(), copy.deepcopy(vars(log.totals))
        with monkeypatch.context() as disk:
            disk.setattr(os, "write", refusing(lambda fd, data: write(fd, data[:100])))
            if not cuts:
                disk.setattr(os, "ftruncate", refusing())
            with pytest.raises(OSError, match="Input/output"):
                log_rounds(log, range(2, 3))
        assert (len(path.read_bytes()) - len(content), vars(log.totals)) == (0 if cuts else 100, totals)
        log_rounds(log, range(2, 3))
    assert [record["round"] for record in read_metrics(path) if record["kind"] == "round"] == [0, 1, 2]


def test_a_record_that_was_not_synced_is_written_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(MetricsLog(path)) as log:
        log_rounds(log, range(2))
        content, former = path.read_bytes(), path.stat().st_ino
        with monkeypatch.context() as disk:
            disk.setattr(os, "fsync", refusing())
            with pytest.raises(OSError, match="Input/output"):
                log.sync()
        log.sync()
        log_rounds(log, range(2, 3))
        assert path.stat().st_ino != former
        assert path.read_bytes()[: len(content)] == content != path.read_bytes()


def test_cutting_back_to_a_boundary_drops_what_is_played_again(path: Path) -> None:
    cut_metrics(path, 3)
    assert not path.exists()
    with closing(MetricsLog(path)) as log:
        log_rounds(log, range(3))
        at_boundary = path.read_bytes()
        log_rounds(log, range(3, 4))
        log.log_evaluation(0, 3, 120, {})
        log.log_evaluation(1, 4, 160, {})
        log_rounds(log, range(4, 6))
    evaluation = b'{"kind": "evaluation", "evaluation": 0, "round": 3, "steps": 120}\n'
    with open(path, "ab") as file:
        file.write(b'{"kind": "episode", "round": 6, "ste')
    cut_metrics(path, 3)
    assert path.read_bytes() == at_boundary + evaluation
    cut_metrics(path, 3)
    with closing(MetricsLog(path)) as log:
        assert (log.last_round, log.totals.episodes) == (2, 9)
        log_rounds(log, range(3, 6))
    cut_metrics(path, 0)
    assert path.read_bytes() == b""


def test_an_unfinished_round_before_an_evaluation_is_not_taken_for_another_rounds(path: Path) -> None:
    with closing(MetricsLog(path)) as log:
        log_rounds(log, range(2))
    with open(path, "ab") as file:
        file.write(b'{"kind": "episode", "round": 2, "steps": 90, "return": 99.0}\n')
        file.write(b'{"kind": "evaluation", "round": 1, "steps": 80, "evaluation": 0}\n')
    with closing(MetricsLog(path)) as log:
        assert (log.totals.best_return, log.evaluations) == (1.2, {0})
    assert 99.0 not in [record.get("return") for record in read_metrics(path)]
    cut_metrics(path, 2)
    assert b"99.0" not in path.read_bytes()


def scalars(directory: Path) -> dict[str, list[tuple[int, float]]]:
    reader = EventAccumulator(str(directory), size_guidance={"scalars": 0}).Reload()
    return {tag: [(e.step, e.value) for e in reader.Scalars(tag)] for tag in reader.Tags()["scalars"]}


def test_tensorboard_reads_the_events(tmp_path: Path) -> None:
    log = EventLog(tmp_path, steps=0)
    values = {"loss": 0.5, "mean_q": 2.0, "epsilon": 1.0, "steps_per_second": 400.0, "gradient_norm": math.nan}
    values |= {"learner_busy": 0.75, "actors_busy": None}
    log.round(40, {**values, "valid_steps": 3.0}, episodes_of(0), envs=4)
    log.evaluation(40, {"mean_return": 1.5, "protocol": "nature"})
    log.close()
    found = scalars(tmp_path)
    charts = {f"charts/{name}" for name in ("episodic_return", "episodic_length", "SPS", "epsilon")}
    assert found.keys() == charts | {"losses/td_loss", "losses/q_values", "busy/learner", "eval/mean_return"}
    assert found["charts/episodic_length"] == [(4, 100.0), (8, 101.0), (12, 102.0)]
    assert (found["losses/td_loss"], found["eval/mean_return"]) == ([(40, 0.5)], [(40, 1.5)])


def test_settings_are_in_the_tab_of_hyperparameters(tmp_path: Path) -> None:
    log = EventLog(tmp_path, steps=0)
    log.settings({"game": "pong", "learning_rate": 2.5e-4, "batch_size": 32, "checkpoint_replay": True, "env": None})
    log.close()
    found = EventAccumulator(str(tmp_path)).Reload().SummaryMetadata(metadata.SESSION_START_INFO_TAG)
    session = metadata.parse_session_start_info_plugin_data(found.plugin_data.content)
    values = {name: getattr(value, value.WhichOneof("kind")) for name, value in session.hparams.items()}
    assert values == {"game": "pong", "learning_rate": 2.5e-4, "batch_size": 32.0, "checkpoint_replay": True}
    assert session.group_name == "", "no run shares its line with another one"


def test_a_resumed_run_replaces_what_it_plays_again(tmp_path: Path) -> None:
    for rounds, steps, loss in ((range(4), 0, 1.0), (range(2, 5), 80, 2.0)):
        log = EventLog(tmp_path, steps=steps)
        for round_ in rounds:
            log.round((round_ + 1) * 40, {"loss": loss}, [], envs=4)
        log.close()
    assert scalars(tmp_path)["losses/td_loss"] == [(40, 1.0), (80, 1.0), (120, 2.0), (160, 2.0), (200, 2.0)]


def test_records_show_after_seconds_and_evaluations_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("ringside.records.events.time.monotonic", lambda: now[0])
    log = EventLog(tmp_path, steps=0)
    shown = []
    for seconds, steps in ((1, 40), (3, 80), (1, 120), (1, 160)):
        now[0] += seconds
        log.round(steps, {"loss": 1.0}, [], envs=4)
        shown.append(len(scalars(tmp_path).get("losses/td_loss", ())))
    assert shown == [0, 0, 3, 3], "five seconds after the start"
    log.evaluation(160, {"mean_return": 1.0})
    assert len(scalars(tmp_path)["losses/td_loss"]) == 4
    log.round(200, {"loss": 1.0}, [], envs=4)
    log.flush()
    assert len(scalars(tmp_path)["losses/td_loss"]) == 5
    log.close()
