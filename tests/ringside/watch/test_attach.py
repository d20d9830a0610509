"""Looking on from outside: which run, and its memory for reading alone."""

import errno
import json
import os
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from ringside.watch.attach import attach, read_config, runs_below
from shared.errors import ConfigError
from shared.network_spec import OwnTorso
from tests.support.watched import NAMES, Pretended

OTHERS = (("replay_size", 240), ("lane_envs", 1), ("network", "nature"), ("actors", 3))


def test_the_memory_is_seen_and_cannot_be_written(run: Pretended) -> None:
    memory, live = attach(run.run_dir, read_config(run.run_dir))
    run.play(3)
    played = memory.board.lane_done.values.tolist()
    assert (played, live, memory.plan.actions) == ([3, 3, 3], run.live, len(NAMES))
    assert not any(view.flags.writeable for view in memory.ring.field.values())
    with pytest.raises(ValueError, match="read-only"):
        memory.board.stop[0] = 1
    memory.arena.close()


UNREADABLE = [
    ({"run": {"plugin": "antigravity"}}, "with the plug-in antigravity; pass --plugin antigravity if you trust it"),
    ({"run": {"plugin": ["antigravity"]}}, "which is no module: it is damaged"),
    ({"learn": {"strange": 1}}, "another version of Ringside"),
    (None, "damaged"),
]


@pytest.mark.parametrize(("change", "says"), UNREADABLE)
def test_a_configuration_that_cannot_be_read_is_refused(run: Pretended, change: Any, says: str) -> None:
    file = run.run_dir / "config.json"
    sections = json.loads(file.read_text())
    for name, settings in (change or {}).items():
        sections[name] |= settings
    file.write_text("{" if change is None else json.dumps(sections))
    with pytest.raises(ConfigError, match=says):
        read_config(run.run_dir)
    assert "antigravity" not in sys.modules


def test_a_run_that_has_ended_or_not_begun_has_no_memory(run: Pretended) -> None:
    config = read_config(run.run_dir)
    (run.run_dir / "live.json").unlink()
    assert attach(run.run_dir, config) is None
    replace(run.live, descriptor=1_000_000).write(run.run_dir)  # it has just been closed
    assert attach(run.run_dir, config) is None


def test_a_network_of_the_user_is_neither_imported_nor_asked_for(tmp_path: Path) -> None:
    torso = OwnTorso(16, 512, (("layer.weight", (16, 9)), ("scale", ())))
    run = Pretended(tmp_path / "run", network="nowhere:Net", own_torso=torso)
    memory, _ = attach(run.run_dir, read_config(run.run_dir))
    assert memory.plan.parameters == run.memory.plan.parameters
    memory.arena.close()


OTHER_CONFIGURATIONS = [
    *(({name: value}, r"cannot be watched\. The memory region") for name, value in OTHERS),
    ({"actors": None}, "actors None"),  # no launcher writes that
    ({"envs": 0}, "--envs 0"),
]


@pytest.mark.parametrize(("change", "says"), OTHER_CONFIGURATIONS)
def test_the_memory_of_another_configuration_is_refused(run: Pretended, change: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        attach(run.run_dir, run.config.with_settings(**change))


def test_a_live_file_of_something_else_is_refused(run: Pretended, tmp_path: Path) -> None:
    with open(tmp_path / "secret", "w+b") as other:
        for change, says in (
            ({"action_names": ("NOOP",) * 100}, "cannot be watched"),
            ({"descriptor": other.fileno()}, "not the memory of a run"),
        ):
            replace(run.live, **change).write(run.run_dir)  # type: ignore[arg-type]
            with pytest.raises(ConfigError, match=says):
                attach(run.run_dir, run.config)


def test_another_users_run_is_refused_with_a_sentence(run: Pretended, monkeypatch: pytest.MonkeyPatch) -> None:
    attach_to = partial(attach, config=run.config)
    for call, look in (("open", read_config), ("open", attach_to), ("readlink", attach_to)):
        with monkeypatch.context() as patch:
            patch.setattr(os, call, Mock(side_effect=PermissionError(errno.EACCES, "Permission denied")))
            with pytest.raises(ConfigError, match="another user"):
                look(run.run_dir)


def test_a_run_removed_while_runs_are_listed_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = [tmp_path / name / "config.json" for name in ("gone", "there")]
    listed[1].parent.mkdir()
    listed[1].touch()
    monkeypatch.setattr(Path, "glob", lambda path, pattern: listed if pattern.count("*") == 1 else [])
    assert [run for _, run in runs_below(tmp_path)] == [tmp_path / "there"]


def test_runs_and_those_of_suites_are_found_with_their_moments(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    assert runs_below(runs) == []
    for age, name in enumerate(("first", "suite/second")):
        config = runs / name / "config.json"
        config.parent.mkdir(parents=True)
        config.touch()
        os.utime(config, (1_000 + age, 1_000 + age))
    assert sorted(runs_below(runs)) == [(1_000, runs / "first"), (1_001, runs / "suite" / "second")]
