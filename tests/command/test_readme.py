"""Every command of the README is run, made small by a few more words; and the two starts that stay as they are."""

import json
import os
import re
import shlex
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from ringside.command.train import configuration
from shared.config.presets import PRESETS
from shared.memory.board import Phase
from shared.memory.process_table import Role
from shared.root import ROOT
from tests.conftest import Launch
from tests.exact.conftest import stop_at
from tests.support.runs import SMALL, begun, finish, memory_of, start_words, summary, wait_until

README = (ROOT / "README.md").read_text()
RUN = re.compile(r"runs/[a-z]+-20260101-120000")
TINY = SMALL | {"--actors": "1", "--total-steps": "960", "--run-dir": "{out}"}
SHORT = " ".join(f"{flag} {value}" for flag, value in TINY.items() if flag != "--game") + " --plain"

MORE = {
    "make play": "--video {out}.gif --seconds 1",
    'make run ARGS="--game pong --preset ppo-quick"': (
        "--envs 4 --actors 1 --round-steps 160 --batch-size 80 --total-steps 640 --run-dir {out} --plain"
    ),
    "make check": None,
    "launch.py --actors 12 --game breakout": None,
    "launch.py --resume RUN": "--plain",
    "launch.py eval RUN --episodes 30": "--episodes 2",
    "launch.py play RUN --video breakout.mp4": "--episodes 1 --video {out}.mp4",
    "launch.py report RUN": "--out {out}",
    "launch.py suite --games pong,breakout --seeds 3 --preset ppo-quick": None,
    "launch.py --env tests.support.pixel_game:factory --network small --preset quick": SHORT,
}
"""By command, the words that make it small; None: tested below or in test_suite.py, or `make check` itself."""

LONG = ("make run", "launch.py --resume", "launch.py play", "launch.py --env")
"""Beginnings of those that take long, or differ little from another."""
RUN_HERE = [command for command, more in MORE.items() if more is not None]
COMMANDS = [pytest.param(each, marks=[pytest.mark.stress] * each.startswith(LONG)) for each in RUN_HERE]


def commands() -> list[str]:
    """The commands that stand on lines of their own, runs called RUN, without what explains them."""
    found = re.findall(r"^    (?:systemd-run .* )?(?:python )?((?:make|launch\.py) .*)$", README, flags=re.MULTILINE)
    return [RUN.sub("RUN", command.partition("#")[0].strip()) for command in found]


def test_every_field_of_a_runs_files_is_explained(evaluated_run: Path) -> None:
    explained = (ROOT / "docs" / "files.md").read_text()
    lines = [json.loads(line) for line in (evaluated_run / "metrics.jsonl").read_text().splitlines()]
    assert {line["kind"] for line in lines} == {"episode", "round", "evaluation"}
    told = {name for line in [*lines, summary(evaluated_run)] for name in line}
    assert [name for name in sorted(told) if f"`{name}`" not in explained] == []
    assert [path.name for path in evaluated_run.iterdir() if path.name not in explained] == []


def test_the_list_is_whole() -> None:
    assert sorted({*commands()}) == sorted(MORE)


@pytest.mark.timeout(200)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_works(command: str, five_rounds: Path, tmp_path: Path) -> None:
    """The command is given an ended run; where it is to go on, one that was stopped early."""
    run = five_rounds
    if "--resume" in command:
        run = tmp_path / "run"
        stop_at(*begun(run, total_steps="2_400"), 3, signal.SIGINT)
    words = shlex.split(command)
    if words[0] == "make":
        words = _recipe(words)
    assert words.pop(0) == "launch.py"
    more = MORE[command]
    words = [str(run) if word == "RUN" else word for word in words]
    finish(start_words(*words, *more.format(run=run, out=tmp_path / "out").split()), seconds=150.0)


@pytest.mark.parametrize(("target", "more"), [("run", []), ("run-cgroup", ["--cgroup"])])
def test_make_trains_breakout_with_the_default_number_of_actors(target: str, more: list[str]) -> None:
    """Twelve actors, say, would be warned of on two cores."""
    assert _recipe(["make", target]) == ["launch.py", *more, "--game", "breakout"]


def _recipe(words: list[str]) -> list[str]:
    """The words after Python's of the last line that `make` would run."""
    # `make check` runs this test in a make of its own, whose flags would add lines.
    plain = {
        name: value for name, value in os.environ.items() if name not in ("ARGS", "MAKEFLAGS", "MAKELEVEL", "MFLAGS")
    }
    shown = subprocess.check_output(["make", "--dry-run", *words[1:]], cwd=ROOT, env=plain, text=True)
    last = shlex.split(shown.strip().splitlines()[-1])
    assert Path(last[0]).name.startswith("python"), last
    return last[1:]


def test_the_words_in_running_text_name_tasks_that_there_are(launch: Launch) -> None:
    named = set(re.findall(r"`(?:python )?launch\.py ([a-z]+)", README))
    assert named
    for task in named:
        assert launch(task, "--help").returncode == 0, task


WORDS = ("launch.py", "--actors", "12", "--game", "breakout")
NEEDED_BYTES = 11e9
"""Replay of a million steps, and the processes."""


def test_the_words_are_taken() -> None:
    config = configuration(WORDS[1:])
    assert (config.machine.actors, config.play.game, config.learn.total_steps) == (12, "breakout", 50_000_000)
    assert config == PRESETS["nature"].with_settings(actors=12, game="breakout")


@pytest.mark.stress
@pytest.mark.timeout(240)
def test_twelve_actors_play_breakout(tmp_path: Path) -> None:
    if psutil.virtual_memory().available < NEEDED_BYTES:
        pytest.skip("needs 11 GB of free memory")
    (tmp_path / "launch.py").symlink_to(ROOT / "launch.py")
    process = start_words(*WORDS, program=(), cwd=tmp_path)
    wait_until(process, lambda: any(tmp_path.glob("runs/breakout-*/config.json")))
    (run_dir,) = tmp_path.glob("runs/breakout-*")
    memory = memory_of(process, run_dir)
    wait_until(process, lambda: bool((memory.board.lane_done.values > 2).all()), seconds=120)
    actors = memory.board.phase[memory.plan.processes.slice_of(Role.ACTOR)]
    assert (len(actors), (actors != Phase.STARTING).all()) == (12, True)
    process.send_signal(signal.SIGINT)
    finish(process)
