"""`launch.py doctor` as a user types it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

import ringside
from ringside.doctor import checks, examination, selftest
from ringside.doctor.checks import Check
from ringside.tasks.train import configuration
from shared.config.method_declaration import method_declaration
from shared.config.presets import PRESETS
from shared.config.settings import Config
from shared.machine import facts
from shared.root import ROOT
from tests.conftest import Launch, Refused

SMALL = ("--game", "pong", "--network", "small", "--device", "cpu", "--replay-size", "20_000")
NAMES = (
    *("Python", "packages", "games", "GPU", "settings", "processor", "cores", "memory", "open files", "processes"),
    *("run directory", "disk space", "other programs", "disk speed", "self-test", "arithmetic"),
)


@pytest.mark.timeout(420)
def test_a_good_machine(launched: Launch, tmp_path: Path) -> None:
    done = launched("doctor", *SMALL, "--actors", "1", "--json", "found.json", timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    assert tuple(each["name"] for each in found["checks"]) == NAMES
    assert found["color"] in ("green", "yellow")
    assert "4 rounds committed, weights moved, nothing left behind" in found["checks"][-2]["found"]
    assert found["suggested"].startswith(f"{sys.executable} {ROOT / 'launch.py'} --actors ")
    assert "--game pong" in found["suggested"]
    assert "--json" not in found["suggested"]
    assert found["suggested"] in done.stdout
    for name in NAMES:
        assert name in done.stdout
    assert os.listdir(tmp_path) == ["found.json"]  # no run directory was made


@pytest.mark.parametrize("preset", PRESETS)
def test_the_small_run_has_the_network_of_the_plan(preset: str) -> None:
    """Source of the initial weights."""
    config = configuration(["--preset", preset, "--device", "cpu"])
    if not (config.play.workers or method_declaration(config.algorithm.method).on_policy):
        config = config.with_settings(replay_size=100_000, learning_starts=10_000, value_rescaling=preset == "nature")
    plan = ringside.plan(config)
    small = selftest.small_plan(plan)
    assert small.network == plan.network
    assert small.config.algorithm == plan.config.algorithm


def test_recurrent_workers_have_their_self_test() -> None:
    plan = ringside.plan(configuration(["--preset", "a3c-async", "--recurrent", "--game", "pong"]))
    small = selftest.small_plan(plan)
    assert small.network == plan.network
    assert small.run_schedule.recurrent_units == 256


CATCH = "tests.support.pixel_game:factory"


@pytest.mark.parametrize(
    "words",
    [
        ["--env", CATCH, "--preset", "quick"],
        ["--env", CATCH, "--preset", "ppo-quick", "--frame-size", "64"],
        ["--env", CATCH, "--preset", "a3c"],
        ["--game", "pong", "--preset", "quick", "--frame-size", "64", "--frame-stack", "2"],
        ["--game", "pong", "--preset", "quick", "--schedule", "free", "--eval-every-steps", "100_000"],
    ],
)
def test_the_small_run_plays_and_learns_as_the_plan(words: list[str]) -> None:
    plan = ringside.plan(configuration([*words, "--device", "cpu"]))
    small = selftest.small_plan(plan)
    assert small.network == plan.network
    assert (small.config.play.played, small.config.play.frames) == (plan.config.play.played, plan.config.play.frames)
    assert small.config.learn.schedule == plan.config.learn.schedule


@pytest.mark.timeout(420)
def test_an_env_has_its_self_test() -> None:
    words = ["--env", CATCH, "--preset", "quick", "--network", "small", "--frame-size", "64", "--device", "cpu"]
    checks = selftest.check(ringside.plan(configuration(words)))
    assert checks[0].color == "green", checks[0].found


def test_an_on_policy_method_has_its_self_test_and_suggestion(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["--preset", "quick", "--method", "a2c", "--envs", "16", "--round-steps", "160", "--batch-size", "160"]
    plan = ringside.plan(configuration([*words, "--device", "cpu", "--game", "pong", "--schedule", "alternate"]))
    small = selftest.small_plan(plan)
    assert small.config.algorithm == plan.config.algorithm
    assert small.run_schedule.rounds == selftest.ROUNDS
    monkeypatch.setattr(facts, "usable_cores", lambda: 4)
    monkeypatch.setattr(facts, "usable_memory", lambda: 2_000_000_000)
    assert examination.suggestion(plan, ["--game", "pong"]).endswith(" --actors 4 --game pong")


VERBOSE = """\
onednn_verbose,v1,info,cpu,isa:Intel AVX-512
onednn_verbose,v1,primitive,exec,cpu,convolution,brg_conv_fwd:avx512_core_bf16,forward,src:bf16:a wei:bf16:b,,alg,mb,1
onednn_verbose,v1,primitive,exec,cpu,matmul,brg_matmul:avx512_core,undef,src:f32::blocked:ab wei:f32,,,4x4:4x4,6.5
onednn_verbose,v1,primitive,exec,cpu,reorder,jit:uni,undef,src:bf16::blocked dst:bf16,,,32x64,5.0
Another line of the log.
onednn_verbose,v1
"""


def test_kernels_are_read_from_the_report_of_onednn() -> None:
    assert selftest.kernels_in(VERBOSE) == {
        selftest.Kernel("avx512_core_bf16", bf16=True),
        selftest.Kernel("avx512_core", bf16=False),
    }


@pytest.mark.parametrize(
    ("precision", "offered", "instructions", "color", "says"),
    [
        ("bf16", ["avx512_bf16"], "avx512_core_bf16", "green", "compute in bf16 with avx512_core_bf16."),
        ("bf16", ["amx_bf16", "avx512_bf16"], "avx10_1_512_amx", "green", "has amx_bf16 and avx512_bf16 for bfloat16"),
        ("bf16", [], "avx2", "yellow", "has no instructions for bfloat16"),
        ("fp32", ["avx512_bf16"], "avx512_core", "yellow", "--precision bf16 is about twice as fast"),
        ("fp32", [], "avx2", "green", "compute in fp32 with avx2."),
    ],
)
def test_arithmetic_that_the_processor_does_not_have_is_warned_of(
    precision: str, offered: list[str], instructions: str, color: str, says: str
) -> None:
    kernels = {selftest.Kernel(instructions, precision == "bf16"), selftest.Kernel("sse41", precision != "bf16")}
    found = selftest.arithmetic(precision, offered, kernels)
    assert (found.color, found.name) == (color, "arithmetic")
    assert says in found.sentence
    assert "sse41" not in found.sentence


def test_a_machine_that_others_use_is_not_all_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def look(seconds: float) -> None:
        stat = tmp_path / "proc" / "stat"
        busy = {cpu: 100 + round(seconds * 90) * stat.exists() for cpu in os.sched_getaffinity(0)}
        stat.parent.mkdir(exist_ok=True)
        stat.write_text("cpu\n" + "".join(f"cpu{cpu} {ticks} 0 0 500 0 0 0 0 0 0\n" for cpu, ticks in busy.items()))

    look(0.0)
    monkeypatch.setattr("psutil.PROCFS_PATH", str(tmp_path / "proc"))
    monkeypatch.setattr(examination.time, "sleep", look)
    monkeypatch.setattr(examination.time, "monotonic_ns", iter([10**9, 2 * 10**9]).__next__)
    monkeypatch.setattr(examination.time, "process_time_ns", lambda: 0)
    found = examination._contention(tmp_path)
    cores = len(os.sched_getaffinity(0))
    assert (found.color, found.found) == ("yellow", checks.contention(0.9 * cores, 0.0, cores).found)


def test_a_red_check_is_shown_and_sets_the_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("ringside.doctor.selftest.check", lambda plan: [Check("self-test", "green", "It works.")])
    monkeypatch.setenv("COLUMNS", "80")
    config = Config().with_settings(
        device="cuda:99",
        precision="tf32",
        game="pong",
        replay_size=10**11,
        total_steps=10**12,
        run_dir=tmp_path / "run",
    )
    words = ["--game", "pong", "--replay-size", "100_000_000_000", "--json=x", "--device", "cuda:99"]
    assert examination.examine(config, words, tmp_path / "found.json") == 1
    found = json.loads((tmp_path / "found.json").read_text())
    colors = {each["name"]: each["color"] for each in found["checks"]}
    assert [name for name, color in colors.items() if color == "red"] == ["GPU", "memory"]
    assert found["color"] == "red"
    assert "100_000_000_000" not in found["suggested"]
    assert "--device cpu" in found["suggested"]
    assert "--replay-size" in found["suggested"]
    printed = capsys.readouterr().out
    assert "fix the red checks" in printed
    table = printed[: printed.index("A run would fail")]
    assert max(map(len, table.splitlines())) <= 80


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("doctor", "--game", "brakout"), "did you mean breakout?"),
        (("doctor", "--envs", "97"), "--envs 97 cannot be divided"),
        (("doctor", "--json", "no/such/directory.json"), "--json no/such/directory.json cannot be written"),
        (("doctor", "--resume", "nowhere"), "--resume nowhere"),
        (("doctor", "--ray-insecure"), "--ray-insecure is for a cluster: pass --ray, too."),
        (("doctor", "--ray", "nonsense"), "--ray nonsense"),
        (("--cgroup", "--memory", "much"), "--memory much is no amount of memory"),
        (("--cgroup", "--cpus", "0"), "--cpus 0 must be 0.01 to 1,000,000 cores"),
        (("--memory", "4G"), "pass --cgroup, too"),
    ],
)
def test_options_that_contradict_themselves(refused: Refused, arguments: tuple[str, ...], says: str) -> None:
    assert says in refused(*arguments)


def test_help(launch: Launch) -> None:
    printed = launch("doctor", "--help").stdout
    assert "Examine whether this machine can do a run" in printed
    assert "--json PATH" in printed
    assert "--cgroup" not in printed
    assert "--cgroup" in launch("--help", "all").stdout
