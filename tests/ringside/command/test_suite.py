"""`launch.py suite` over a program that trains nothing: what is begun, continued and left alone."""

import importlib.metadata
import json
import re
import shutil
import signal
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from ringside.cluster import placing
from ringside.cluster.placing import ClusterOptions, LocalPrograms, programs_in
from ringside.command import suite
from ringside.command.arguments import parse_choices
from ringside.command.report import write_report
from ringside.command.suite import SUITES, games_of, words_to_train
from ringside.command.train import configuration
from ringside.run import planning
from shared.checkpoint.finding import find_checkpoint
from shared.checkpoint.weights_file import load_weights
from shared.config.resolve import resolve
from shared.errors import ConfigError
from shared.files.lock import locked
from shared.machine.facts import processor
from shared.process.ownership import LOCK_FILE
from shared.root import ROOT
from tests.support import checkpoints
from tests.support.runs import finish, start_words
from tests.support.waiting import until

FAKE = """
import json, os, sys, time
from pathlib import Path
words = sys.argv[1:]
with open(os.environ["FAKE_LOG"], "a") as log: log.write(json.dumps(words) + "\\n")
if words[0] == "eval":
    target, load = (Path(words[words.index(flag) + 1]) for flag in ("--json", "--load"))
    run = load if load.is_dir() else load.parents[1]
    told = {name: json.loads((run / name).read_text()) for name in ("config.json", "summary.json")}
    judged = {"mean": 1.0, "sd": 0.0, "median": 1.0, "best": 1.0, "episodes": 30, "eval_steps": None}
    judged |= {"eval_epsilon": 0.05, "eval_max_frames": 18000, "version": told["summary.json"]["rounds"]}
    if told["config.json"]["play"]["protocol"] == "dopamine":
        judged |= {"episodes": 7, "eval_steps": 125000}
    if "--episodes" in words:
        judged |= {"episodes": int(words[words.index("--episodes") + 1]), "eval_steps": None}
    judged["returns"] = [float(os.environ.get("FAKE_RETURN", 1))] * judged["episodes"]
    target.write_text(json.dumps(judged))
    sys.exit(0)
from tests.support.written_runs import write_run
from shared.config.run_schedule import make_run_schedule
from shared.config.settings import Config
from shared.config.resolve import resolve
flags = dict(zip(words[::2], words[1::2]))
path = Path(flags.get("--run-dir") or flags["--resume"])
if path.name == os.environ.get("FAKE_FAILS"): sys.exit("it failed")
if path.name == os.environ.get("FAKE_SLOW"):
    (path / "checkpoints").mkdir(parents=True)
    (path / "checkpoints" / "checkpoint-00000001.json").touch()
    Path(os.environ["FAKE_LOG"] + ".slow").touch()
    time.sleep(60)
if "--resume" in flags:
    __import__("shutil").rmtree(path)
if "--config" in flags:
    flags["--batch-size"] = json.loads(Path(flags["--config"], "config.json").read_text())["learn"]["batch_size"]
game, _, seed = path.name.removesuffix("-repeat").rpartition("-")
numbers = {"batch_size": int(flags.get("--batch-size", 32)), "learning_starts": 1000, "eval_episodes": 30}
numbers["protocol"] = flags.get("--protocol", "nature")
write_run(path, game, int(seed), [1.0, 2.0], [], **numbers)
config = Config.from_json(json.loads((path / "config.json").read_text()))
config = resolve(config.with_settings(device="cpu", precision="fp32", run_dir=path))
(path / "config.json").write_text(json.dumps(config.to_json()))
schedule, summary = make_run_schedule(config), json.loads((path / "summary.json").read_text())
rounds, steps = schedule.rounds, schedule.rounds * schedule.round_steps
(path / "summary.json").write_text(json.dumps(summary | {"rounds": rounds, "steps": steps}))
"""


class Program:
    """The suite as a user calls it, with the fake under it. Its report is only noted: to draw one takes seconds.

    `patch` changes more.
    """

    def __init__(self, tmp_path: Path, patch: pytest.MonkeyPatch, printed: Any = None) -> None:
        self.out, self.told_in = tmp_path / "out", tmp_path / "told.jsonl"
        self.patch, self._printed = patch, printed
        self.report = Mock(side_effect=lambda runs, out: (out, ()))
        (tmp_path / "fake.py").write_text(FAKE)
        patch.setattr(placing, "LAUNCHER", tmp_path / "fake.py")
        patch.setattr(suite, "write_report", self.report)
        patch.setenv("FAKE_LOG", str(self.told_in))
        patch.setenv("PYTHONPATH", str(ROOT))

    def __call__(self, *words: str) -> tuple[int, list[list[str]]]:
        """Train two games; the exit code, and with which words the fake was called."""
        return self.run("--games", "pong,Freeway", "--seeds", "1", "--total-steps", "2000", *self.more, *words)

    def run(self, *words: str) -> tuple[int, list[list[str]]]:
        """As a call, with just these words."""
        self.told_in.write_text("")
        code = suite.main(words)
        return code, [json.loads(line) for line in self.told_in.read_text().splitlines()]

    def said(self) -> str:
        """All that was printed since the last time."""
        return "".join(self._printed.readouterr())

    @property
    def more(self) -> tuple[str, ...]:
        return "--learning-starts", "1000", "--device", "cpu", "--precision", "fp32", "--out", str(self.out)


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Program:
    return Program(tmp_path, monkeypatch, capsys)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of a suite that has trained and evaluated both games."""
    with pytest.MonkeyPatch.context() as patch:
        program = Program(tmp_path_factory.mktemp("done"), patch)
        assert program()[0] == 0
    return program.out


@pytest.fixture
def ended(program: Program, done: Path) -> Program:
    """As `program`, after the call that has done all."""
    shutil.copytree(done, program.out)
    return program


def kinds(told: list[list[str]]) -> list[str]:
    """Calls, by run."""
    named = []
    for words in told:
        flag = "--load" if words[0] == "eval" else "--resume" if "--resume" in words else "--run-dir"
        path = Path(words[words.index(flag) + 1])
        named.append(f"eval {path.parents[1].name}" if words[0] == "eval" else f"{flag[2:]} {path.name}")
    return named


def test_games_are_a_list_or_names() -> None:
    assert games_of("atari5") == list(SUITES["atari5"])
    assert games_of("SpaceInvaders, pong,pong") == ["space_invaders", "pong"]


def test_each_seed_of_all_games_then_the_next_each_evaluated_and_a_report(program: Program) -> None:
    program.report.side_effect = write_report
    code, told = program("--batch-size", "64", "--seeds", "2")
    runs = ("pong-1", "freeway-1", "pong-2", "freeway-2")
    assert (code, kinds(told)) == (0, [f"{what} {run}" for run in runs for what in ("run-dir", "eval")])
    first, evaluation, *_ = told
    for flag, value in (("--game", "pong"), ("--seed", "1"), ("--batch-size", "64"), ("--preset", "nature")):
        assert first[first.index(flag) + 1] == value
    assert "--network" not in first  # what is as the preset says is not said again
    assert "--episodes" not in evaluation, "it is as the protocol says"
    assert (program.out / "report" / "report.html").exists()
    assert not list(program.out.rglob("*.part"))


def test_a_run_of_an_on_policy_method_gets_no_flag_that_it_refuses(tmp_path: Path) -> None:
    """Another method than the preset's resets settings, and these are no flags of the user."""
    words = ("--preset", "quick", "--method", "a2c", "--envs", "16", "--round-steps", "160", "--batch-size", "160")
    more = ("--games", "pong", "--seeds", "1", "--device", "cpu", "--out", str(tmp_path / "out"))
    options = parse_choices(suite.Options, [*words, *more], "suite")
    (job,) = suite.jobs_of(options)
    told = words_to_train(options, job)
    assert told[told.index("--method") + 1] == "a2c"
    assert resolve(configuration(told)).experiment() == job.config.experiment()


def test_the_same_command_does_what_is_left(ended: Program) -> None:
    assert (ended(), ended.said().count("finished already")) == ((0, []), 2)
    (ended.out / "pong-1" / "evaluation-final.json").unlink()
    assert kinds(ended()[1]) == ["eval pong-1"]
    assert kinds(ended("--final-episodes", "5")[1]) == ["eval pong-1", "eval freeway-1"]
    # This total rounds up to the same boundary, and a resume would be refused: there is nothing to play.
    assert kinds(ended("--total-steps", "1_990", "--final-episodes", "5")[1]) == []
    assert kinds(ended("--total-steps", "90_000")[1])[0] == "run-dir pong-1", "it was shorter"


def test_a_protocol_that_counts_steps_gets_no_episodes(program: Program) -> None:
    _, told = program("--protocol", "dopamine")
    assert ["--episodes" in words for words in told if words[0] == "eval"] == [False, False]
    assert program("--protocol", "dopamine") == (0, [])
    _, told = program("--protocol", "dopamine", "--final-episodes", "5")
    assert [words[words.index("--episodes") + 1] for words in told] == ["5", "5"]


def break_off(program: Program) -> Path:
    """Leave the second run as it is after its first checkpoint."""
    broken = program.out / "freeway-1"
    (broken / "summary.json").unlink()
    (broken / "checkpoints").mkdir()
    (broken / "checkpoints" / "checkpoint-00000001.json").touch()
    return broken


def test_a_broken_run_is_continued(ended: Program) -> None:
    break_off(ended)
    code, told = ended()
    assert (code, kinds(told)) == (0, ["resume freeway-1", "eval freeway-1"])
    assert ("--preset" in told[0], told[0][told[0].index("--total-steps") + 1]) == (False, "2_000")


@pytest.mark.parametrize("other", ["cpu", "torch"])
def test_a_run_is_begun_anew_on_another_model_of_cpu_or_with_another_library(ended: Program, other: str) -> None:
    cell = break_off(ended) / "cell.json"
    noted = json.loads(cell.read_text())
    assert (noted["cpu"], noted["torch"]) == (processor(), importlib.metadata.version("torch"))
    assert noted["arguments"][noted["arguments"].index("--game") + 1] == "freeway"
    cell.write_text(json.dumps(noted | {other: "another one"}))
    code, told = ended()
    assert (code, kinds(told)) == (0, ["run-dir freeway-1", "eval freeway-1"])
    assert f"begins anew, since it began with {other} another one (now {noted[other]})." in ended.said()
    assert json.loads(cell.read_text())[other] == noted[other]
    assert len([*ended.out.glob("freeway.*/checkpoints/checkpoint-00000001.json")]) == 1, "nothing played is lost"


def test_an_ended_run_keeps_its_weights_without_the_replay(tmp_path: Path) -> None:
    """All its manifests say so, also one whose segments were deleted in part."""
    config, run = checkpoints.CONFIG.with_settings(game="breakout"), tmp_path / "run"
    checkpoints.write_run(run, 3, config)
    weights, job = load_weights(run), suite.Job(config, run)
    before = {path.name for path in (run / "checkpoints").iterdir()}
    assert find_checkpoint(run).segments
    sorted((run / "checkpoints").glob("*.ring"))[0].unlink()
    job.drop_replay()
    assert {path.name for path in (run / "checkpoints").iterdir()} == {name for name in before if "ring" not in name}
    for path in (run / "checkpoints").glob("checkpoint-*.json"):
        found = find_checkpoint(path)
        assert (found.has_replay, list(found.segments)) == (False, [])
    assert (load_weights(run).flat == weights.flat).all()
    resumed = config.with_settings(resume=run, run_dir=run, total_steps=8_000, device="cpu")
    with pytest.raises(ConfigError, match="keeps no replay"):
        planning.resumed_checkpoint(planning.check(resumed))


@pytest.mark.parametrize(("words", "kept"), [((), False), (("--keep-replay",), True)])
def test_the_replay_is_dropped_when_a_run_has_ended(program: Program, words: tuple[str, ...], kept: bool) -> None:
    dropped: list[str] = []
    program.patch.setattr(suite.Job, "drop_replay", lambda job: dropped.append(job.directory.name))
    program.patch.setenv("FAKE_FAILS", "pong-1")
    program(*words)
    assert dropped == ([] if kept else ["freeway-1"])


def test_a_repetition_is_compared(ended: Program) -> None:
    first, again = ended.out / "freeway-1", ended.out / "freeway-1-repeat"
    (first / "evaluation-final.json").unlink()
    ended("--final-episodes", "5")
    words = ("--repeat", "freeway-1", "--out", str(ended.out))
    code, told = ended.run(*words)
    assert (code, kinds(told)) == (0, ["run-dir freeway-1-repeat", "eval freeway-1-repeat"])
    assert told[0][:4] == ["--config", str(first), "--total-steps", "2_000"]
    assert told[1][told[1].index("--episodes") + 1] == "5", "as many as the first time"
    said = ended.said()
    for same in ("weights_sha256: 0123456789abcdef", "returns: [1.0, 1.0, 1.0, 1.0, 1.0]"):
        assert f"The same {same}" in said
    (again / "evaluation-final.json").unlink()
    ended.patch.setenv("FAKE_RETURN", "2")
    assert ended.run(*words)[0] == 1
    said = ended.said()
    assert f"Not the same returns: [1.0, 1.0, 1.0, 1.0, 1.0] in {first}, [2.0, 2.0, 2.0, 2.0, 2.0] in {again}" in said
    assert "Not the same weights_sha256" not in said
    summary = json.loads((again / "summary.json").read_text())
    (again / "summary.json").write_text(json.dumps(summary | {"weights_sha256": "fedc"}))
    assert ended.run(*words)[0] == 1
    assert "Not the same weights_sha256: 0123456789abcdef in" in ended.said()
    assert not (ended.out / "report").exists()


@pytest.mark.parametrize("broken", ["", "config.json", "summary.json", "evaluation-final.json"])
def test_only_a_run_that_has_ended_is_repeated(ended: Program, broken: str) -> None:
    named = "pong-1" if broken else "pong-2"
    if broken:
        (ended.out / named / broken).unlink()
    with pytest.raises(ConfigError, match=f"--repeat {named}: .*{named} is no evaluated run"):
        suite.main(["--repeat", named, "--out", str(ended.out)])


NO_REPEAT = [
    (("--batch-size", "64", "--n-step", "3"), "takes its settings from .*pong-1: omit --batch-size, --n-step"),
    (("--init-from", "w"), "--repeat pong-1: omit --init-from, as that run did"),
    (("--stop-at", "3"), "--stop-at is not for suites"),
    (("--network", "mine:Net"), "takes its settings from .*pong-1: omit --network"),
]


@pytest.mark.parametrize(("words", "says"), NO_REPEAT)
def test_a_repetition_has_the_settings_of_its_run(ended: Program, words: tuple[str, ...], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        suite.main(["--repeat", "pong-1", "--out", str(ended.out), *words])


def test_a_repetition_takes_no_code_from_a_file_and_says_where_weights_may_differ(ended: Program) -> None:
    first = ended.out / "pong-1"
    (first / "cell.json").write_text(json.dumps({"cpu": "an abacus"}))
    assert ended.run("--repeat", "pong-1", "--out", str(ended.out), "--actors", "1")[0] == 0
    assert f"the first run had cpu an abacus (now {processor()})." in ended.said()
    recorded = json.loads((first / "config.json").read_text())
    recorded["learn"]["network"] = "mine:Net"
    (first / "config.json").write_text(json.dumps(recorded))
    with pytest.raises(ConfigError, match="pass --network mine:Net if you trust it"):
        suite.main(["--repeat", "pong-1", "--out", str(ended.out)])


def test_a_failure_stops_no_other_run(program: Program) -> None:
    program.patch.setenv("FAKE_FAILS", "pong-1")
    code, told = program()
    assert (code, kinds(told)) == (1, ["run-dir pong-1", "run-dir freeway-1", "eval freeway-1"])
    assert "pong, seed 1 was not finished: exit code 1" in program.said()
    assert [path.name for path in program.report.call_args.args[0]] == ["freeway-1"]
    program.patch.delenv("FAKE_FAILS")
    code, told = program()
    assert (code, kinds(told)) == (0, ["run-dir pong-1", "eval pong-1"])


def test_a_program_that_loses_its_node_is_given_up(program: Program) -> None:
    run, lost = LocalPrograms.run, [True, False, True]  # the first training, and the second evaluation

    def lose(programs: LocalPrograms, words: Callable[[], Sequence[str]], title: str, run_dir: Path) -> int | None:
        return None if lost.pop(0) else run(programs, words, title, run_dir)

    program.patch.setattr(LocalPrograms, "run", lose)
    code, told = program()
    assert (code, len(told)) == (1, 1)
    said = program.said()
    assert "pong, seed 1 was not finished: its node was lost 5 times in a row without a new checkpoint" in said
    assert "The final weights of freeway, seed 1 could not be evaluated: its node was lost again and again" in said


def test_other_settings_are_refused_before_anything_starts(ended: Program) -> None:
    for word, named in (("--batch-size=64", "--batch-size"), ("--method=qr-dqn", "--atoms, --method")):
        says = f"{ended.out / 'pong-1'} holds a run with other settings ({named})"
        with pytest.raises(ConfigError, match=re.escape(says)):
            ended(word)
    config = ended.out / "pong-1" / "config.json"
    config.write_text(config.read_text().replace('"init_from": null', '"init_from": "w"'))
    with pytest.raises(ConfigError, match=r"holds a run with other settings \(--init-from\)"):
        ended()
    config.write_text('{"play": {}}')
    with pytest.raises(ConfigError, match=r"cannot be continued: name another --out\. .*another version"):
        ended()


def test_a_signal_ends_the_present_run(program: Program) -> None:
    program.patch.setenv("FAKE_SLOW", "freeway-1")
    program.patch.setenv("FAKE_FAILS", "pong-1")
    words = ["--games", "pong,freeway", "--seeds", "2", "--total-steps", "2000", *program.more]
    code = f"import sys; from ringside.cluster import placing; placing.LAUNCHER = {str(placing.LAUNCHER)!r}; "
    code += f"from ringside.command import suite; sys.exit(suite.main({words!r}))"
    process = start_words(program=("-c", code))
    until(program.told_in.with_suffix(".jsonl.slow").exists)
    process.send_signal(signal.SIGTERM)
    output = finish(process, seconds=30, code=1)
    assert ("The same command continues where it was" in output, "seed 2" in output) == (True, False)
    assert "pong, seed 1 was not finished: exit code 1" in output
    assert not (program.out / "report").exists()


BAD_INPUT = [
    (("--games", "atari7"), "neither a list of games (atari5, atari26, atari57) nor a game; did you mean atari57?"),
    (("--games", "pong,brakout"), "--games pong,brakout: There is no game 'brakout'; did you mean breakout?"),
    (("--games", ","), "names no game"),
    (("--no-checkpoint-replay",), "--no-checkpoint-replay is not for suites"),
    (("--stop-at", "3"), "--stop-at is not for suites"),
    (("--seeds", "1e15"), "--seeds 1_000_000_000_000_000 must lie between 1 and 1_000"),
    (("--final-episodes", "0"), "--final-episodes 0 must lie between 1 and 100_000"),
    (("--game", "pong"), "omit it and use --games"),
    (("--seed=3",), "use --seeds"),
    (("--run_dir", "x"), "use --out"),
    (("--batch-size", "0"), "--batch-size 0 must be at least 1"),
    (("--ray", "auto", "--cpus-per-run", "0"), "--cpus-per-run 0 must be at least 1"),
    *((("--ray", "auto", "--gpus-per-run", n), f"{n} must be from 0 to 1") for n in ("-1.0", "1.5", "nan")),
    (("--gpus-per-run", "0.5"), "are for clusters: pass --ray, too"),
]


@pytest.mark.parametrize(("words", "says"), BAD_INPUT)
def test_bad_input_is_a_sentence(program: Program, words: tuple[str, ...], says: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(says)):
        program(*words)
    assert not program.out.exists()


def test_two_suites_do_not_share_a_directory(program: Program) -> None:
    goes_on = pytest.raises(ConfigError, match="a suite that is still going on")
    with programs_in(program.out, "another suite", ClusterOptions()), goes_on:
        program()


def test_a_cluster_that_is_refused_leaves_no_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse = Mock(side_effect=ConfigError("It has no token."))
    monkeypatch.setattr("ringside.cluster.placing.connected", refuse)
    placed = programs_in(tmp_path / "out", "a suite that is still going on", ClusterOptions(ray="auto"))
    with pytest.raises(ConfigError, match="It has no token"), placed:
        pass
    assert refuse.call_args.args == ("auto",)
    assert not list(tmp_path.iterdir())


def test_a_run_waits_for_that_of_a_suite_that_was_killed(program: Program) -> None:
    program.patch.setattr("shared.files.lock.POLL_SECONDS", 0.01)
    directory = program.out / "pong-1"
    directory.mkdir(parents=True)
    said: list[str] = []
    with ExitStack() as held:
        held.enter_context(locked(directory / LOCK_FILE, "--run-dir", "a test"))

        def say(title: str, sentence: str) -> None:
            said.append(f"{title}: {sentence}")
            if "may still be saving" in sentence:
                assert program.told_in.read_text() == "", "its directory is in use"
                held.close()

        program.patch.setattr(suite, "say", say)
        code, told = program()
    assert said[0].startswith(f"[1/2] pong, seed 1: {directory} is in use by a run that may still be saving")
    assert (code, kinds(told)[:2]) == (0, ["run-dir pong-1", "eval pong-1"])


def test_a_directory_that_another_run_uses_is_left_to_it(ended: Program) -> None:
    ended.patch.setattr(suite, "FORMER_RUN_SECONDS", 0.0)
    with locked(ended.out / "pong-1" / LOCK_FILE, "--run-dir", "a test"):
        assert ended()[0] == 1
    assert "pong, seed 1 was not finished: another run still uses its directory" in ended.said()
