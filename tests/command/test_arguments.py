"""The command line as a user types it: what is refused is one sentence and exit code 2, before anything starts."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

import ringside
from ringside.command.train import configuration
from shared.root import ROOT
from shared.text import whole_number
from tests.command.conftest import SCRIPT
from tests.conftest import Launch, Refused

COMMAND = (sys.executable, str(ROOT / "launch.py"))
SMALL = ("--envs", "8", "--device", "cpu", "--run-dir", "run")


IMPOSSIBLE = [
    (("--game", "brakout"), "no game 'brakout'; did you mean breakout?"),
    (("--env", "NoSuchEnv-v0"), "NoSuchEnv"),
    (("--env", "nosuchmodule:make"), "nosuchmodule"),
    (("--envs", "4", "--actors", "12"), "--actors 12 is more than the 2 lanes"),
    (("--replay-size", "100_000_000_000", "--total-steps", "1_000_000_000_000"), "would fit."),
    (("--run-dir", "/dev/null/run"), "--run-dir /dev/null/run cannot be written"),
    (("--resume", "nowhere"), "--resume nowhere"),
    (("--init-from", "nowhere"), "--init-from nowhere does not exist"),
    (("--resume", "nowhere", "--preset", "quick"), "omit --preset"),
    (("eval", "--load", "nowhere"), "--load nowhere does not exist"),
    (("--nodes", "2"), "--nodes, --head-plays, --mixed-numerics and --ray-insecure need --ray."),
    (("--run-dir", ""), "The value of --run-dir is empty: give a path, or omit it."),
    (("export", "--load", "pong", "--onnx", "x", "--frames", "1e12"), "must lie between 1 and 100_000."),
    (("report",), "Name at least one run directory"),
    (("--game", "pong", "eval"), "eval is a task, the first word of the command"),
    (("eval", "pong", "breakout"), "'breakout' follows no option: --help lists the options."),
    (("eval", "pong", "--load", "breakout"), "pong and --load breakout name two agents: pass one of them."),
    (("--render",), "no option --render: launch.py watch shows a run, and launch.py play RUN an agent."),
    (("--steps=1e6",), "no option --steps: pass --total-steps to train, --episodes to evaluate."),
    (("--preset", "vtrace"), "vtrace is a method, not a preset: pass --method vtrace, or --preset with one of impala."),
    (("--preset", "sarsa"), "sarsa is a method, not a preset: pass --method sarsa.\n"),
    (("--plain", "rainbow"), "'rainbow' follows no option: pass --preset rainbow."),
    (("breakot",), "There is no task 'breakot'; did you mean --game breakout?"),
    (("record", "--load", "pong"), "record is a part of play: pass play --load AGENT --video FILE.mp4"),
    (("xyzzy9",), "There is no task 'xyzzy9': choose one of train, watch, "),
    (("zoo", "pusch", "pong"), "The zoo has no task 'pusch': pass none, or add, push, pull; did you mean push?"),
    (("zoo", "pong"), "pong is an agent of the zoo, not a task: "),
    (("zoo", "push"), "zoo push needs an agent of the zoo or a run behind it: zoo push pong --repo USER/pong"),
    (("zoo", "push", "pong"), "--push pong needs the repository of the Hub to upload to: --repo USER/NAME."),
    (("zoo", "push", "pong", "me/pong"), "me/pong follows no option: pass --repo me/pong."),
    (("SpaceInvaders",), "SpaceInvaders is a game, not a task: pass --game space_invaders."),
    (("--game", "pong", ""), "'' follows no option"),
    (("rainbow",), "rainbow is a preset, not a task: pass --preset rainbow."),
    (("--env", "X-v0", "--game", "pong"), "--game and an env, perhaps that of --config, both say"),
    (("--env", "X-v0", "--protocol", "machado"), "--protocol is the rules of Atari games"),
    (("eval", "--load", "pong", "--env", "X-v0", "--env-kwargs", "a=1"), "omit --env X-v0@a=1"),
    (("eval", "--load", "pong", "--eval-epsilon", "1.5"), "--eval-epsilon 1.5 must lie between 0 and 1"),
    (("doctor", "--json", "no/such/directory.json"), "--json no/such/directory.json cannot be written"),
    (("doctor", "--ray-insecure"), "--ray-insecure is for a cluster: pass --ray, too."),
    (("--memory", "4G"), "pass --cgroup, too"),
    (("--plugin", "no_such"), "--plugin no_such is not found: put its directory into PYTHONPATH."),
    (("--plugin", "a/b.py"), "--plugin 'a/b.py' is not the dotted name of a module"),
    (("tune", "--run-dir", "x"), "omit it and use --out"),
    (("tune", "--space", "nowhere.toml"), "--space nowhere.toml cannot be read"),
    # As typed, though both are the defaults.
    (("--method", "a2c", "--train-every=4"), "--train-every has no effect with --method a2c"),
    (("--preset", "quick", "--method", "a2c", "--no-double"), "--no-double has no effect with --method a2c"),
]


@pytest.mark.parametrize(("arguments", "says"), IMPOSSIBLE)
def test_impossible_arguments(refused: Refused, tmp_path: Path, arguments: tuple[str, ...], says: str) -> None:
    assert says in refused(*arguments)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("program", [COMMAND, (str(SCRIPT),)])
def test_the_program_ends_with_the_code_and_the_sentence(tmp_path: Path, program: tuple[str, ...]) -> None:
    done = subprocess.run([*program, "evla"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"{Path(program[-1]).name}: There is no task 'evla'; did you mean eval?\n"


@pytest.mark.parametrize("task", ["report", "play"])
def test_a_slow_task_says_that_it_loads(launch: Launch, monkeypatch: pytest.MonkeyPatch, task: str) -> None:
    for in_terminal in (True, False):
        monkeypatch.setattr(sys.stdout, "isatty", lambda in_terminal=in_terminal: in_terminal)
        done = launch(task)
        assert (done.returncode, "Ringside is loading" in done.stdout) == (2, in_terminal)


def test_a_forbidden_file_is_named(refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    """As root nothing is refused, so here it is by hand."""

    def refuse(path: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "iterdir", refuse)
    told = f"launch.py: --load {ROOT} cannot be used. {ROOT} cannot be read: Permission denied.\n"
    assert refused("eval", "--load", str(ROOT)) == told
    monkeypatch.setattr("ringside.command.eval.main", lambda _: refuse(ROOT))
    assert refused("eval") == f"launch.py: This user may not read or write {ROOT}.\n"


def test_keyword_arguments_become_part_of_the_name_of_the_env() -> None:
    words = ["--env", "m:f", "--env-kwargs", "size=5,hard=true"]
    assert configuration(words).play.env == "m:f@size=5,hard=true"


def test_a_reader_that_goes_ends_the_output_without_a_traceback() -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([*COMMAND, "--help"], stdout=write, stderr=subprocess.PIPE, text=True, timeout=60)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("words", [("--help",), ("version",), ("zoo",)])
def test_a_full_disk_of_the_output_is_one_sentence(words: tuple[str, ...]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([*COMMAND, *words], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "The disk of standard output" in done.stderr


def test_closed_streams_lead_nowhere() -> None:
    for words, code in ((["--help"], 0), (["evla"], 2)):
        command = ["/bin/sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", sys.executable, str(ROOT / "launch.py"), *words]
        assert subprocess.run(command, timeout=60, check=False).returncode == code
    child = "import launch, os; launch.main = lambda _: os.system('test -e /dev/fd/2') >> 8; launch.cli()"
    assert subprocess.run([*command[:5], "-c", child], cwd=ROOT, timeout=60, check=False).returncode == 0


def test_a_directory_that_holds_a_run_is_not_overwritten(refused: Refused, five_rounds: Path, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text("mine")
    for words in (("--resume", "run"), ("eval", "--load", "run"), (*SMALL[:-1], "other", "--init-from", "run")):
        assert "no checkpoint" in refused(*words)
    (tmp_path / "run" / "checkpoints").mkdir()
    (tmp_path / "run" / "checkpoints" / "checkpoint-00000001.json").write_text("mine")
    for words in (SMALL, ("--resume", str(five_rounds), "--total-steps", "4_800", "--run-dir", "run")):
        assert "already holds a run" in refused(*words)
    assert (tmp_path / "run" / "config.json").read_text() == "mine"


@pytest.mark.parametrize("words", [("--help",), ("doctor",), ("--game", "pong"), ("watch",)])
def test_a_python_without_the_packages_is_one_sentence(words: tuple[str, ...]) -> None:
    command = [sys.executable, "-S", str(ROOT / "launch.py"), *words]  # -S: without site-packages
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert f"is not installed for {sys.executable}. Run make install, which fills .venv." in done.stderr


def test_the_version_is_that_of_the_package(launch: Launch) -> None:
    for words in (("version",), ("--version",), ("eval", "--version")):
        assert launch(*words).stdout == f"Ringside {ringside.__version__}\n"
    assert f"\nversion: {ringside.__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_whole_numbers_are_written_as_people_do() -> None:
    for word in ("1_000_000", "1000000", "1e6", "1M", "1.0m", "1000k", "0.001G"):
        assert configuration(["--total-steps", word]).learn.total_steps == 1_000_000
    for word in ("1e-6", "1.5", "k", "1_000k0", "1e", "", "1e400", "1" * 200):
        assert whole_number(word) is None
