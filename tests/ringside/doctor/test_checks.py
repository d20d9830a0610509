"""Every check in every color, on facts that are made up."""

from __future__ import annotations

from pathlib import Path

import pytest

import ringside
from ringside import planning
from ringside.doctor import checks, examination, run_directories
from ringside.doctor.checks import GB, MB, Check
from shared.config.settings import Config
from shared.errors import ConfigError
from shared.machine.facts import Gpu
from shared.memory.plan import Plan

H200 = Gpu("NVIDIA H200", "570.1", 140 * GB, 139 * GB)


@pytest.fixture(scope="module")
def plan() -> Plan:
    """A run of 100,000 steps of replay (0.7 GB) with 12 actors."""
    return planning.check(
        Config().with_settings(game="pong", replay_size=100_000, actors=12, device="cpu", run_dir="r")
    )


@pytest.mark.parametrize(
    ("version", "ranges", "inside"),
    [
        ("3.11.7", ">=3.11,<3.14", True),
        ("3.10.9", ">=3.11,<3.14", False),
        ("3.14.0rc1", ">=3.11,<3.14", False),
        ("2.13.0+cpu", ">=2.11", True),
        ("2.9.1", ">=2.11", False),
        ("6", ">=6", True),
        ("unknown", ">=6", False),
    ],
)
def test_versions(version: str, ranges: str, inside: bool) -> None:
    assert checks.within(version, ranges) is inside
    assert checks.python(version, ranges).color == ("green" if inside else "red")


def test_packages() -> None:
    ranges = {"torch": ">=2.11", "numpy": ">=2.1"}
    assert checks.packages(ranges, {"torch": "2.13.0+cpu", "numpy": "2.4.6"}).color == "green"
    old = checks.packages(ranges, {"torch": "2.1.0", "numpy": "2.4.6"})
    assert (old.color, old.found) == ("red", "Of another version: torch 2.1.0.")
    missing = checks.packages(ranges, {"torch": None, "numpy": "2.4.6"})
    assert (missing.color, missing.found) == ("red", "Not installed: torch.")


def test_more_actors_than_cores_take_turns() -> None:
    assert checks.cores(12, 16, 32).found == "16 of 32 processors may be used, by 12 actors and the learner's side."
    assert checks.cores(2, 2, 2).color == "green"
    assert checks.cores(2, 2, 2, workers=16).found == "2 of 2 processors may be used, by 16 workers in 2 processes."
    few = checks.cores(12, 2, 32)
    assert (few.color, few.found) == ("yellow", "--actors 12 share 2 cores.")


def test_a_learner_with_more_threads_than_cores_is_warned_of(plan: Plan) -> None:
    def with_threads(count: int, device: str = "cpu") -> Plan:
        return Plan(plan.config.with_settings(learner_threads=count, device=device), plan.actions)

    assert checks.threads(with_threads(1), 1) == []
    assert checks.threads(with_threads(4), 16) == []
    assert checks.threads(with_threads(4, "cuda:0"), 16) == []
    (spinning,) = checks.threads(with_threads(4), 9)
    assert spinning.color == "yellow"
    assert spinning.sentence.startswith("--learner-threads 4 keep 12 cores busy, of which there are 9. ")
    assert "--learner-threads 2 is faster, but changes the last bits" in spinning.sentence
    (beside_a_gpu,) = checks.threads(with_threads(16, "cuda:0"), 16)
    assert "--learner-threads 1 is faster, but changes the last bits" in beside_a_gpu.sentence


def test_other_programs_on_the_cores_are_warned_of() -> None:
    busy = checks.contention(1.9, 0.0, 2)
    assert (busy.color, busy.found) == ("yellow", "Other programs use 1.9 of 2 cores.")
    assert "Figures measured now will be too low" in busy.advice
    assert checks.contention(0.0, 0.3, 2).found == "The hypervisor takes 0.3 of 2 cores (steal time)."
    assert (checks.contention(0.1, 0.0, 2).color, checks.contention(0.1, 0.0, 2).found) == (
        "green",
        "They use 0.1 of 2 cores.",
    )
    assert checks.contention(None, None, 2).color == "green"


def test_memory(plan: Plan) -> None:
    need = plan.layout.size + checks.memory_need.own_bytes(plan)
    assert checks.memory(plan, 2 * need, 64 * GB).color == "green"
    tight = checks.memory(plan, need, None)
    assert (tight.color, "--replay-size" in tight.advice) == ("yellow", True)
    over = checks.memory(plan, need - 1, None)
    assert over.color == "red"
    assert "would fit" in over.found


def test_open_files(plan: Plan) -> None:
    assert checks.descriptors(plan, 128, 4096).color == "green"
    assert checks.descriptors(plan, -1, -1).color == "green"
    low = checks.descriptors(plan, 127, 4096)
    assert (low.color, low.advice) == ("red", "Run first: ulimit -n 128")
    assert "Fewer --actors" in checks.descriptors(plan, 20, 20).advice


def test_processes(plan: Plan) -> None:
    assert checks.tasks(plan, None).color == "green"
    assert checks.tasks(plan, 1_000).color == "green"
    assert checks.tasks(plan, 50).color == "red"


@pytest.mark.parametrize(
    ("asked", "gpus", "devices", "build", "driver", "color", "says"),
    [
        ("auto", [], 0, None, False, "green", "No NVIDIA driver is loaded."),
        ("cuda:0", [], 0, "13.0", False, "red", "No NVIDIA driver"),
        ("auto", [], 0, None, True, "yellow", "built without CUDA"),
        ("cpu", [], 0, None, True, "green", "built without CUDA"),
        ("cuda", [H200], 0, "13.0", True, "red", "no device to this process"),
        ("auto", [H200], 1, "13.0", True, "green", "NVIDIA H200 with 139.0 of 140.0 GB free, driver 570.1"),
        ("auto", [], 1, "13.0", True, "green", "1 CUDA devices"),
        ("auto", [Gpu("T4", "1", 16 * GB, GB)], 1, "13.0", True, "yellow", "T4 with 1.0 of 16.0 GB free"),
    ],
)
def test_devices(
    asked: str, gpus: list[Gpu], devices: int, build: str | None, driver: bool, color: str, says: str
) -> None:
    answer = checks.device(asked, gpus, devices, build, driver=driver)
    assert (answer.color, says in answer.found) == (color, True), answer
    assert bool(answer.advice) is (color != "green")


def test_mps_is_no_must() -> None:
    assert checks.mps(active=True).color == "green"
    assert checks.mps(active=False).color == "yellow"


def test_disk(plan: Plan) -> None:
    assert checks.disk_space(plan, 10 * GB).color == "green"
    assert checks.disk_space(plan, 110 * MB).color == "yellow"
    assert checks.disk_space(plan, 99 * MB).color == "red"
    assert checks.disk_speed(200 * MB).color == "green"
    assert checks.disk_speed(2 * MB).color == "yellow"


def test_run_directory(tmp_path: Path) -> None:
    assert checks.run_directory(tmp_path / "a" / "b", continues=False).color == "green"
    assert run_directories.nearest_directory(tmp_path / "a" / "b") == tmp_path
    (tmp_path / "file").write_text("")
    assert checks.run_directory(tmp_path / "file", continues=False).color == "red"


def test_the_order_of_stores_is_that_of_x86() -> None:
    assert checks.processor("x86_64").color == "green"
    refused = checks.processor("aarch64")
    assert (refused.color, refused.sentence) == (
        "red",
        "This processor is aarch64; Ringside needs x86-64. Take such a machine.",
    )


def test_games() -> None:
    assert checks.games(104, "pong").color == "green"
    assert checks.games(0, "pong").color == "red"


def test_the_first_red_refuses_a_start() -> None:
    green, yellow = Check("a", "green", "Fine."), Check("b", "yellow", "Odd.", "Look.")
    checks.refuse([green, yellow])
    with pytest.raises(ConfigError, match=r"^Bad\. Mend it\.$"):
        checks.refuse([green, Check("c", "red", "Bad.", "Mend it."), Check("d", "red", "Worse.")])


def test_a_start_asks_the_same_checks(plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = plan.config.with_settings(run_dir=tmp_path / "run", actors=2)
    names = [answer.name for answer in checks.before_start(planning.check(config), continues=False)]
    assert names == [
        "settings",
        "processor",
        "cores",
        "memory",
        "open files",
        "processes",
        "run directory",
        "disk space",
    ]
    monkeypatch.setattr(checks.facts, "descriptors", lambda: (20, 20))
    with pytest.raises(ConfigError, match="opens up to"):
        ringside.plan(config)


def test_a_wheel_requires_what_setup_cfg_says(tmp_path: Path) -> None:
    python, packages = examination.requirements()
    installed_python, installed = examination.requirements(tmp_path)
    assert set(installed_python.split(",")) == set(python.split(","))
    assert {name.lower() for name in installed} == {name.lower() for name in packages}
