"""Every check in every color, on facts that are made up."""

from pathlib import Path

import pytest

import ringside
from ringside.command import doctor as examination
from ringside.run import checks, planning
from ringside.run.checks import GB, MB, Check
from shared.config.settings import Config
from shared.errors import ConfigError
from shared.files.run_file_names import CONFIG_FILE
from shared.machine.facts import Gpu
from shared.memory.plan import Plan

H200 = Gpu("NVIDIA H200", "570.1", 140 * GB, 139 * GB)


@pytest.fixture(scope="module")
def plan() -> Plan:
    """A run of 100,000 steps of replay (0.7 GB) with 12 actors."""
    settings = {"game": "pong", "replay_size": 100_000, "actors": 12, "device": "cpu", "learner_members": 1}
    return planning.check(Config().with_settings(run_dir="r", **settings))


def test_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {"torch": "2.13.0+cpu", "numpy": "2.4.6", "rich": "14.0rc1"}
    monkeypatch.setattr(examination.importlib.metadata, "version", lambda name: versions[name])
    assert examination.packages(["torch>=2.11", "numpy>=2.1", "rich>=13.9"]).color == "green"
    old = examination.packages(["torch>=2.14", "numpy>=2.1,<2.4"])
    assert old.color == "red"
    assert old.found == "torch>=2.14 is required, not 2.13.0+cpu; numpy<2.4,>=2.1 is required, not 2.4.6."
    monkeypatch.undo()
    missing = examination.packages(["numpy>=2.1", "no-such-package>=1"])
    assert (missing.color, missing.found) == ("red", "no-such-package>=1 is not installed.")


def test_a_wheel_requires_what_setup_cfg_says(tmp_path: Path) -> None:
    for needed in (examination.requirements(), examination.requirements(tmp_path)):
        assert "torch>=2.11" in [name.replace(" ", "").lower() for name in needed]


def test_more_actors_than_cores_are_warned_of(plan: Plan) -> None:
    few = checks.cores(plan, 2)
    assert (few.color, few.found) == ("yellow", "--actors 12 share 2 cores.")
    enough = checks.cores(plan, 12)
    assert (enough.color, enough.found) == ("green", "12 cores may be used, by 12 actors.")


def test_memory(plan: Plan) -> None:
    need = plan.layout.size + checks.memory_need.own_bytes(plan)
    assert checks.memory(plan, 2 * need).color == "green"
    tight = checks.memory(plan, need)
    assert (tight.color, "--replay-size" in tight.advice) == ("yellow", True)
    over = checks.memory(plan, need - 1)
    assert (over.color, "would fit" in over.found) == ("red", True)


def test_open_files_and_processes(plan: Plan) -> None:
    assert [checks.descriptors(plan, *limits).color for limits in ((128, 4096), (-1, -1))] == ["green", "green"]
    low = checks.descriptors(plan, 127, 4096)
    assert (low.color, low.advice) == ("red", "Run first: ulimit -n 128")
    assert "Fewer --actors" in checks.descriptors(plan, 20, 20).advice
    assert [checks.tasks(plan, limit).color for limit in (None, 1_000, 50)] == ["green", "green", "red"]


DEVICES = [
    ("auto", [], 0, None, False, "green", "No NVIDIA driver is loaded."),
    ("cuda:0", [], 0, "13.0", False, "red", "No NVIDIA driver"),
    ("auto", [], 0, None, True, "yellow", "built without CUDA"),
    ("cpu", [], 0, None, True, "green", "built without CUDA"),
    ("cuda", [H200], 0, "13.0", True, "red", "no device to this process"),
    ("auto", [H200], 1, "13.0", True, "green", "NVIDIA H200 with 139.0 of 140.0 GB free, driver 570.1"),
    ("auto", [], 1, "13.0", True, "green", "1 CUDA devices"),
    ("auto", [Gpu("T4", "1", 16 * GB, GB)], 1, "13.0", True, "yellow", "T4 with 1.0 of 16.0 GB free"),
]


@pytest.mark.parametrize(("asked", "gpus", "devices", "build", "driver", "color", "says"), DEVICES)
def test_devices(
    asked: str, gpus: list[Gpu], devices: int, build: str | None, driver: bool, color: str, says: str
) -> None:
    answer = examination.device(asked, gpus, devices, build, driver=driver)
    assert (answer.color, says in answer.found) == (color, True), answer
    assert bool(answer.advice) is (color != "green")


def test_mps_is_no_must() -> None:
    assert examination.mps(active=True).color == "green"
    absent = examination.mps(active=False)
    assert (absent.color, "nvidia-cuda-mps-control -d" in absent.advice) == ("yellow", True)


@pytest.mark.parametrize(("free", "color"), [(10 * GB, "green"), (110 * MB, "yellow"), (99 * MB, "red")])
def test_disk_space(plan: Plan, free: int, color: str) -> None:
    assert checks.disk_space(plan, free).color == color


def test_run_directories(tmp_path: Path) -> None:
    checks.require_run_directory(tmp_path / "new" / "run", continues=False)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    for path, says in (("file", "is not a directory but a plain file"), ("file/below", "cannot be written")):
        with pytest.raises(ConfigError, match=says):
            checks.require_run_directory(tmp_path / path, continues=False)
    (tmp_path / CONFIG_FILE).write_text("{}")
    checks.require_run_directory(tmp_path, continues=False)  # of a run that never came to a checkpoint
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "checkpoint-00000000.json").write_text("{}")
    with pytest.raises(ConfigError, match="already holds a run"):
        checks.require_run_directory(tmp_path, continues=False)
    with pytest.raises(ConfigError, match=r"--resume .* --env m:E-v0 --plugin mine\."):
        checks.require_run_directory(tmp_path, continues=False, env="m:E-v0", plugin="mine")
    (tmp_path / "summary.json").write_text('{"finished": true}')
    with pytest.raises(ConfigError, match=r"--resume .* --total-steps N\."):  # else it would be refused
        checks.require_run_directory(tmp_path, continues=False)
    checks.require_run_directory(tmp_path, continues=True)


def test_the_order_of_stores_is_that_of_x86() -> None:
    says = "This processor is aarch64; Ringside needs x86-64. Take such a machine."
    found = [checks.processor(kind) for kind in ("x86_64", "aarch64")]
    assert [(each.color, each.sentence) for each in found] == [("green", "x86_64."), ("red", says)]


def test_the_first_red_refuses_a_start() -> None:
    green, yellow = Check("a", "green", "Fine."), Check("b", "yellow", "Odd.", "Look.")
    checks.refuse([green, yellow])
    with pytest.raises(ConfigError, match=r"^Bad\. Mend it\.$"):
        checks.refuse([green, Check("c", "red", "Bad.", "Mend it."), Check("d", "red", "Worse.")])


def test_a_start_asks_the_same_checks(plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = plan.config.with_settings(run_dir=tmp_path / "run", actors=2)
    names = [answer.name for answer in checks.before_start(planning.check(config), continues=False)]
    assert names[:4] == ["settings", "processor", "cores", "memory"]
    assert names[4:] == ["open files", "processes", "run directory", "disk space"]
    doubted = checks.before_start(planning.check(config.with_settings(optimizer="adam")), continues=False)
    assert [answer.color for answer in doubted if answer.name == "settings"] == ["yellow"]
    checks.refuse(doubted)
    (tmp_path / "file").touch()
    refused = planning.check(config.with_settings(run_dir=tmp_path / "file"))
    colors = {answer.name: answer.color for answer in checks.before_start(refused, continues=False)}
    assert colors["run directory"] == "red"
    monkeypatch.setattr(checks.resource, "getrlimit", lambda kind: (20, 20))
    with pytest.raises(ConfigError, match="opens up to"):
        ringside.plan(config)
