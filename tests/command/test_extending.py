"""The examples of docs/extending.md: their code is added to a copy of the program, which trains with it."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.runs import ROOT, SMALL

ROOMS = ("actors", "learner", "shared", "ringside")
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.fixture
def blocks() -> list[str]:
    """The Python blocks of the page: the method and the preset."""
    return BLOCK.findall((ROOT / "docs" / "extending.md").read_text())


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A copy of the program, compiled kernels included."""
    copy = tmp_path / "program"
    for room in ROOMS:
        shutil.copytree(ROOT / room, copy / room)
    for file in ROOT.glob("*.py"):
        shutil.copy2(file, copy)
    return copy


def trained(program: Path, run_dir: Path, *words: str) -> list[float]:
    """The losses of the rounds of a small run."""
    flags = [word for flag in SMALL.items() for word in flag if flag[0] != "--total-steps"]
    command = [sys.executable, str(program / "launch.py"), "--plain", *flags, "--total-steps", "1_920", *words]
    done = subprocess.run(
        [*command, "--run-dir", str(run_dir)],
        cwd=run_dir.parent,
        capture_output=True,
        text=True,
        timeout=140,
        check=False,
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert json.loads((run_dir / "summary.json").read_text())["finished"]
    records = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    return [record["loss"] for record in records if record["kind"] == "round" and record.get("loss") is not None]


@pytest.mark.timeout(240)
def test_a_declared_file_and_a_preset_are_a_new_algorithm(program: Path, blocks: list[str], tmp_path: Path) -> None:
    method, declaration, preset = blocks
    (program / "learner" / "methods" / "log_cosh.py").write_text(method)
    declared = program / "shared" / "config" / "method_declaration.py"
    declared.write_text(f"{declared.read_text()}\n{declaration}")
    presets, config = program / "shared" / "config" / "presets.py", program / "shared" / "config" / "settings.py"
    presets.write_text(f"{presets.read_text()}\n{preset}")
    config.write_text(config.read_text().replace('Literal["nature", "quick"', 'Literal["log-cosh", "nature", "quick"'))
    losses = trained(program, tmp_path / "run", "--preset", "log-cosh", "--device", "cpu")
    assert losses
    assert all(math.isfinite(loss) and loss > 0 for loss in losses)
    settings = json.loads((tmp_path / "run" / "config.json").read_text())
    assert settings["algorithm"]["method"] == "log-cosh"
    assert settings["algorithm"]["n_step"] == 3
