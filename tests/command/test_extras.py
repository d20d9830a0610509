"""Extras of setup.cfg: a command that lacks one says so in a sentence with its name, and the others need none."""

import os
import re
import sys
from configparser import ConfigParser
from pathlib import Path
from unittest.mock import Mock

import pytest
from packaging.requirements import Requirement

from ringside.records.optional_events import event_log_class
from ringside.records.own_metrics import OwnMetrics
from ringside.records.preparation import RunFiles
from shared.root import ROOT
from tests.conftest import Launch, Refused
from tests.support.runs import finish, records, start, summary

COMMANDS = {
    "completion": ["completion"],
    "export": ["export pong --onnx x.onnx"],
    "hub": ["zoo push pong --repo me/pong", "zoo pull me/pong"],
    "ray": ["suite --games pong --ray auto", "--game pong --ray auto"],
    "report": ["report .", "suite --games pong"],
    "track": ["--game pong --track wandb"],
    "tune": ["tune --game pong"],
    "video": ["play pong --video a.gif", "--game pong --eval-video --eval-every-steps 1000"],
}
"""Commands that need an extra."""


def extras() -> dict[str, list[str]]:
    """Modules of the packages of each extra, but for the tools of contributors."""
    setup, named = ConfigParser(), {"grpcio": "grpc", "pillow": "PIL"}
    setup.read(ROOT / "setup.cfg")
    lines = {extra: text.split() for extra, text in setup["options.extras_require"].items() if extra != "dev"}
    found = {extra: [Requirement(line).name for line in each] for extra, each in lines.items()}
    return {extra: [named.get(name, name) for name in names] for extra, names in found.items()}


@pytest.mark.parametrize("extra", extras())
def test_a_missing_extra_is_named_in_a_sentence(extra: str, refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    packages = extras()[extra]
    for package in packages:
        monkeypatch.setitem(sys.modules, package, None)
    for module in ("completion", "study"):
        monkeypatch.delitem(sys.modules, f"ringside.command.{module}", raising=False)
    for words in COMMANDS[extra]:
        says = rf"needs the package ({'|'.join(packages)}), .* --editable '\.\[{extra}\]'` "
        assert re.search(says, refused(*words.split()))
    assert not os.listdir()


def test_a_run_needs_required_packages_alone(launched: Launch, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """And no calls that conda's Python lacks. torch brings jinja2."""
    hidden = {package for packages in extras().values() for package in packages} - {"jinja2"}
    lacking = "import os, fcntl, sys; vars(os).pop('memfd_create', 0), vars(fcntl).pop('F_OFD_SETLK', 0)"
    (tmp_path / "sitecustomize.py").write_text(f"{lacking}\nsys.modules |= dict.fromkeys({hidden})\n")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{ROOT}")
    assert "the extra video" in launched("play", "pong", "--video", "a.mp4").stderr
    run, few = tmp_path / "run", {"eval_every_steps": "480", "eval_episodes": "1", "eval_max_frames": "400"}
    finish(start(run, total_steps="960", learning_starts="480", **few))
    assert summary(run)["finished"]
    assert (len(records(run, "evaluation")), (run / "tensorboard").exists()) == (2, False)
    words = ("eval", str(run), "--episodes", "1", "--eval-max-frames", "400", "--device", "cpu")
    assert "episode 0 returned " in launched(*words).stdout
    for task in ("doctor", "watch", "zoo"):
        assert launched(task, "--help").returncode == 0


def test_records_and_own_metrics_need_no_tensorboard(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delitem(sys.modules, "ringside.records.events", raising=False)
    monkeypatch.setitem(sys.modules, "tensorboard.compat.proto.event_pb2", None)
    event_log_class.cache_clear()
    own = OwnMetrics(tmp_path, tmp_path, 0, print)
    own.add({"steps": 8, "round": 0, "kind": "round"}, {"gap": 1.5})
    own.close()
    assert [path.name for path in tmp_path.iterdir()] == ["own-metrics.jsonl"]
    assert RunFiles(Mock(), tmp_path, print).events is None
    event_log_class.cache_clear()
