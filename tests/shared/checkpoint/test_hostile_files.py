"""Run directories from elsewhere: nothing outside of them is written, nothing is waited for, and sentences say why."""

import json
import os
import re
import socket
from collections.abc import Callable
from contextlib import chdir
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import launch
import ringside
from ringside.cluster.placing import ClusterOptions, programs_in
from ringside.command import report
from ringside.command.suite import Job
from ringside.records.metrics import Follower, MetricsLog, cut_metrics, evaluations_in, read_metrics, require_readable
from ringside.report.records import load
from ringside.run import planning, training
from ringside.run.checks import require_run_directory
from ringside.watch.attach import read_config, runs_below
from ringside.watch.source import Curves
from ringside.zoo.catalogue import find_weights
from shared.checkpoint.checkpoint_writer import CheckpointWriter
from shared.checkpoint.finding import find_checkpoint
from shared.checkpoint.manifest import Piece, open_piece
from shared.checkpoint.weights_file import describe_weights, load_weights
from shared.config import validate
from shared.config.settings import Config
from shared.errors import CheckpointError, ConfigError, FileError
from shared.files.atomic import remove_temporaries, write_atomic
from shared.files.lock import locked
from shared.files.plain_files import open_to_write, read_bytes
from shared.files.result_files import require_writable
from shared.files.strict_json import json_object, read_json
from shared.memory.plan import Plan
from shared.process.live import Live, LiveError
from shared.process.ownership import require_writable_run
from shared.text import flag_of
from tests.support.checkpoints import ACTIONS, CONFIG, SIZES, assert_rejected, random_weights, rewrite, write_run
from tests.support.configurations import settled
from tests.support.written_runs import write_run as write_records

OUTSIDE = b"somebody else's"


def link(path: Path) -> None:
    target = path.parent / "outside"
    target.write_bytes(OUTSIDE)
    path.symlink_to(target)


def link_to_itself(path: Path) -> None:
    path.symlink_to(path)


def pipe(path: Path) -> None:
    os.mkfifo(path)


def directory(path: Path) -> None:
    path.mkdir()


def socket_file(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound, chdir(path.parent):  # a socket's address is short
        bound.bind(path.name)


KINDS = (link, link_to_itself, pipe, directory, socket_file)
Maker = Callable[[Path], None]


READERS = [
    (lambda path: read_bytes(path, 100), "file", FileError),
    (read_json, "file", FileError),
    (lambda path: Live.read(path.parent), "live.json", LiveError),
    (lambda path: read_config(path.parent), "config.json", ConfigError),
    (lambda path: load(path.parent), "config.json", ConfigError),
    (lambda path: list(read_metrics(path)), "metrics.jsonl", FileError),
    (describe_weights, "best.safetensors", CheckpointError),
    (lambda path: open_piece(path.parent, Piece(path.name, 1, "")), "segment-00000000.ring", CheckpointError),
    (lambda path: find_checkpoint(path.parent), "checkpoint-00000001.json", CheckpointError),
]


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize(("read", "name", "error"), READERS)
def test_a_file_that_is_not_plain_is_neither_read_nor_waited_for(
    read: Callable[[Path], object], name: str, error: type[Exception], make: Maker, tmp_path: Path
) -> None:
    make(tmp_path / name)
    assert_rejected(read, tmp_path / name, "damaged" if name == "live.json" else "not a plain file", error)


def test_a_page_shows_no_curves_of_what_is_no_plain_file(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").symlink_to(write_records(tmp_path / "run") / "metrics.jsonl")
    (curves := Curves(tmp_path)).read()
    assert not any(series.rows for series in curves.series.values())


def lock(path: Path) -> None:
    with locked(path, "--run-dir", "a run"):
        pass


WRITERS = [
    (lambda path: open_to_write(path, os.O_RDWR), OSError, r"metrics\.jsonl"),
    (MetricsLog, OSError, r"metrics\.jsonl"),
    (lock, ConfigError, r"--run-dir .* cannot be written"),
]


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize(("write", "error", "says"), WRITERS)
def test_nothing_is_written_in_place_but_plain_files(
    write: Callable[[Path], object], error: type[Exception], says: str, make: Maker, tmp_path: Path
) -> None:
    make(tmp_path / "metrics.jsonl")
    assert_rejected(write, tmp_path / "metrics.jsonl", says, error)
    assert all(path.read_bytes() == OUTSIDE for path in tmp_path.glob("outside"))


@pytest.mark.parametrize("linked", [".summary.json.tmp", "summary.json"])
def test_a_link_in_place_of_a_file_or_its_temporary_is_not_written_through(linked: str, tmp_path: Path) -> None:
    link(tmp_path / linked)
    write_atomic(tmp_path / "summary.json", b"{}")
    assert (tmp_path / "outside").read_bytes() == OUTSIDE
    assert not (tmp_path / "summary.json").is_symlink()
    assert (tmp_path / "summary.json").read_bytes() == b"{}"


def test_only_plain_files_count_as_temporaries(tmp_path: Path) -> None:
    for make in KINDS:
        make(tmp_path / f".{make.__name__}.tmp")
    (tmp_path / ".segment.tmp").write_bytes(b"half")
    remove_temporaries(tmp_path)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {f".{make.__name__}.tmp" for make in KINDS} | {"outside"}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run directory without files."""
    for folder in ("checkpoints", "logs"):
        (tmp_path / "run" / folder).mkdir(parents=True)
    return tmp_path / "run"


def assert_unwritable(run: Path, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        require_writable_run(run, "--run-dir")


FILES = [
    *("config.json", "metrics.jsonl", "summary.json", "live.json", "lock", "suite.lock", "track.json"),
    *("evaluation-final.json", "evaluation-best.json", "evaluation-best.part"),
    *("checkpoints/best.safetensors", "checkpoints/best-00000009.safetensors"),
    *("checkpoints/checkpoint-00000009.json", "checkpoints/segment-00000009.ring", "logs/learner.log"),
]


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("name", FILES)
def test_a_run_directory_with_something_else_as_a_file_is_refused(name: str, make: Maker, run: Path) -> None:
    make(run / name)
    assert_unwritable(run, rf"--run-dir cannot be used: .*{name} is not a plain file but a")


def test_a_log_that_has_another_name_elsewhere_is_not_written(run: Path) -> None:
    outside = run.with_name("outside")
    outside.write_bytes(OUTSIDE)
    os.link(outside, run / "logs" / "learner.log")
    assert_unwritable(run, r"learner\.log has another name elsewhere \(a hard link\)")


@pytest.mark.parametrize("make", [link, link_to_itself, pipe, socket_file])
@pytest.mark.parametrize("name", ["checkpoints", "logs", "tensorboard", "report", "wandb"])
def test_a_run_directory_with_something_else_as_a_folder_is_refused(name: str, make: Maker, tmp_path: Path) -> None:
    make(tmp_path / name)
    assert_unwritable(tmp_path, f"--run-dir cannot be used: .*{name} is not a directory but a")
    (tmp_path / name).unlink()
    (tmp_path / name).touch()
    assert_unwritable(tmp_path, f"{name} is not a directory but a plain file")


@pytest.mark.parametrize("name", ["lock", "config.json", "metrics.jsonl", "checkpoints", "logs"])
def test_a_run_begins_in_no_directory_with_links(name: str, tmp_path: Path) -> None:
    link(tmp_path / name)
    ready = Plan(settled(run_dir=tmp_path), ACTIONS)
    with pytest.raises(ConfigError, match="but a symbolic link"), training._owned(ready):
        pass
    with pytest.raises(ConfigError, match="but a symbolic link"):
        require_run_directory(tmp_path, continues=True)
    assert (tmp_path / "outside").read_bytes() == OUTSIDE
    assert {path.name for path in tmp_path.iterdir()} == {name, "outside"}


def test_the_run_directory_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(tmp_path, 1)
    require_writable_run(tmp_path, "--run-dir")
    monkeypatch.setattr("os.geteuid", lambda: tmp_path.stat().st_uid + 1)
    assert_unwritable(tmp_path, "belongs to the user with the number")


def test_a_run_directory_may_be_reached_through_a_link_and_hold_more(tmp_path: Path) -> None:
    write_run(tmp_path / "run", 1)
    (tmp_path / "run" / "notes").mkdir()
    (tmp_path / "run" / "checkpoints" / ".x.tmp").mkdir()
    (tmp_path / "run" / "newest").symlink_to("checkpoints")
    (tmp_path / "named").symlink_to("run")
    require_writable_run(tmp_path / "named", "--run-dir")
    require_writable_run(tmp_path / "absent", "--run-dir")
    CheckpointWriter(tmp_path / "named", CONFIG, SIZES, ACTIONS)


def test_a_name_that_is_too_long_is_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 300)
    with pytest.raises(ConfigError, match=r"--json .* cannot be written: File name too long\."):
        require_writable("--json", path)
    assert_rejected(find_weights, path, "does not exist: no such run", ConfigError)
    assert_unwritable(path, "File name too long")
    assert_rejected(load_weights, path, "There is no file or directory")
    assert_rejected(load, path, "File name too long", OSError)
    assert_rejected(read_config, path, "There is no run", ConfigError)


def test_an_agent_is_not_replaced_by_what_is_made_of_it(tmp_path: Path) -> None:
    agent, named = tmp_path / "weights.safetensors", tmp_path / "result"
    agent.write_bytes(b"mine")
    named.symlink_to(agent)
    for path in (agent, named):
        with pytest.raises(ConfigError, match=r"--json .* cannot be written: it is the agent itself\."):
            require_writable("--json", path, beside=agent)
    require_writable("--json", tmp_path / "other", beside=agent)
    require_writable("--json", agent, beside=Path("pong"))


NOT_STRICT = [
    b'{"a": ' + b"9" * 310 + b"}",
    b'{"a": -' + b"9" * 5_000 + b"}",
    b'{"a": 9223372036854775808}',
    b'{"a": 1e999}',
    b'{"a": ' + b"9" * 400 + b".0}",
    b'{"a": NaN}',
    b'{"a": -Infinity}',
    b'{"a": ' + b"[" * 40 + b"]" * 40 + b"}",
    b'{"a": ' * 40 + b"1" + b"}" * 40,
    b"[" * 100_000,
    b'{"a": "\\ud800"}',
    b'{"\\udfff": 1}',
    b'{"a": "\xff"}',
    b'{"a": "\xed\xa0\x80"}',
    b'\xef\xbb\xbf{"a": 1}',
    '{"a": 1}'.encode("utf-16"),
    b'{"a": 1} {}',
    b"[1]",
    b"",
]


@pytest.mark.parametrize("content", NOT_STRICT)
def test_content_that_is_not_strictly_json_is_none(content: bytes, tmp_path: Path) -> None:
    assert json_object(content) is None
    (tmp_path / "file").write_bytes(content)
    assert_rejected(read_json, tmp_path / "file", "file is truncated or damaged: it holds no JSON object", FileError)


def test_strict_json_is_read() -> None:
    value = {"a": [1, -(1 << 63), (1 << 63) - 1, 1.5, 1e308, None, True, "\U0001f3ae \u001b"], "b": {"a": {"a": []}}}
    assert json_object(json.dumps(value).encode()) == value
    assert json_object(json.dumps(value, ensure_ascii=False).encode()) == value
    flat = {str(i): [] for i in range(100)}
    assert json_object(json.dumps(flat).encode()) == flat


def test_a_file_is_not_read_beyond_its_limit(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 101)
    with pytest.raises(FileError, match="has 101 bytes; it may have at most 100"):
        read_bytes(tmp_path / "file", 100)
    assert read_bytes(tmp_path / "file", 101) == b"x" * 101
    assert read_bytes(Path("/proc/version"), 100) == b""


# --- checkpoints and weights


def sparse(path: Path, size: int) -> Path:
    """A file that is extended to a size without taking that room on the disk."""
    path.touch()
    os.truncate(path, size)
    return path


def test_a_large_sparse_file_of_weights_is_refused_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = random_weights(tmp_path)
    monkeypatch.setattr("hashlib.sha256", lambda *_: pytest.fail("read"))
    assert_rejected(load_weights, sparse(path, 20 << 30), "too many for the network small")
    path.write_bytes(b"\xff" * 100)
    assert_rejected(load_weights, sparse(path, 20 << 30), "does not begin with a header")


def unreadable(path: Path) -> None:
    path.touch()
    path.chmod(0)


@pytest.mark.parametrize("make", [*KINDS, unreadable])
@pytest.mark.parametrize("name", ["checkpoint-00000004.json", "segment-00000003.ring", "weights-00000004.safetensors"])
def test_the_older_checkpoint_is_used_where_the_newer_cannot_be_read(
    name: str, make: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(tmp_path, 4)
    path, really = tmp_path / "checkpoints" / name, os.open
    path.unlink()
    make(path)

    def refuse(path: Path, *more: int) -> int:
        if make is unreadable and Path(path).name == name:  # root may read all files
            raise PermissionError(13, "Permission denied", str(path))
        return really(path, *more)

    monkeypatch.setattr("os.open", refuse)
    found = find_checkpoint(tmp_path)
    assert found.boundary == 3
    says = f"{name} cannot be read: Permission denied" if make is unreadable else "not a plain file"
    assert says in found.refused[0]


def test_a_file_of_metrics_without_lines_is_not_read_whole(tmp_path: Path) -> None:
    assert Follower(sparse(tmp_path / "metrics.jsonl", 1 << 40)).read().records == []


@pytest.mark.parametrize("take_up", [MetricsLog, require_readable, evaluations_in, partial(cut_metrics, boundary=1)])
def test_a_file_of_metrics_that_is_too_large_is_not_taken_up(take_up: Callable[[Path], object], tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"metrics\.jsonl has 21,474,836,480 bytes; it may have at most"):
        take_up(sparse(tmp_path / "metrics.jsonl", 20 << 30))


def test_a_run_whose_file_of_metrics_is_too_large_is_not_continued(tmp_path: Path) -> None:
    write_run(tmp_path, 1, planning.check(CONFIG).config)
    (tmp_path / "metrics.jsonl").touch()
    config = ringside.starting_point(None, tmp_path)
    ringside.plan(config)
    sparse(tmp_path / "metrics.jsonl", 20 << 30)
    with pytest.raises(ConfigError, match=r"cannot be continued\. metrics\.jsonl has 21,474,836,480 bytes"):
        ringside.plan(config)


def forge(run: Path, section: str, name: str, value: object) -> None:
    """Change a setting in the configuration of a run."""
    settings = json.loads((run / "config.json").read_text())
    settings[section][name] = value
    (run / "config.json").write_text(json.dumps(settings))


@pytest.mark.parametrize("game", ["pong\x1b[2J", "", "a b", "pong\n", "x" * 201, "\u202epong"])
def test_a_game_that_a_terminal_would_obey_is_refused(game: str, tmp_path: Path) -> None:
    write_run(tmp_path / "run", 1)
    rewrite(find_checkpoint(tmp_path / "run").path, game=game)
    assert_rejected(find_checkpoint, tmp_path / "run", "game is")
    records = write_records(tmp_path / "records")
    forge(records, "play", "game", game)
    assert_rejected(load, records, "lacks game", ConfigError)


def test_the_name_of_an_env_may_be_in_any_letters(tmp_path: Path) -> None:
    assert load(write_records(tmp_path / "run", env="größe.环境:Make-v0")).game == "größe.环境:Make-v0"


# --- records


IMPOSSIBLE = [("play", "envs", 0), ("play", "envs", -4), ("learn", "round_steps", 0), ("play", "envs", (1 << 63) - 1)]


@pytest.mark.parametrize(("section", "name", "value"), IMPOSSIBLE)
def test_a_configuration_that_cannot_be_is_refused(section: str, name: str, value: int, tmp_path: Path) -> None:
    run = write_records(tmp_path / "run")
    forge(run, section, name, value)
    assert_rejected(read_config, run, f"cannot be watched. {flag_of(name)}", ConfigError)


def test_runs_whose_configuration_is_a_link_are_not_looked_for(tmp_path: Path) -> None:
    run = write_records(tmp_path / "runs" / "good")
    for name in ("loop", "other"):
        (tmp_path / "runs" / name).mkdir()
    link_to_itself(tmp_path / "runs" / "loop" / "config.json")
    (tmp_path / "runs" / "other" / "config.json").symlink_to(run / "config.json")
    assert [found for _, found in runs_below(tmp_path / "runs")] == [run]


NO_RECORDS = [
    b'{"kind": "round", "round": 1}\n',
    b'{"kind": "round", "round": 1, "steps": "many"}\n',
    b'{"kind": "episode", "round": 1, "steps": 1}\n',
    b'{"kind": "episode", "round": 1, "steps": 1, "return": ' + b"9" * 310 + b"}\n",
    b'{"kind": "evaluation", "round": 1, "steps": 1, "evaluation": []}\n',
    b'{"kind": [], "round": 1, "steps": 1}\n',
    b'"' + b"x" * (3 << 20) + b'"\n',
]


@pytest.mark.parametrize("line", NO_RECORDS)
def test_a_line_that_lacks_what_readers_need_is_no_record(line: bytes, tmp_path: Path) -> None:
    run = write_records(tmp_path / "run")
    path = run / "metrics.jsonl"
    whole = path.read_bytes()
    path.write_bytes(line + whole)
    assert_rejected(load, run, "line 1 is not a record", ConfigError)
    path.write_bytes(whole + line)
    assert load(run).steps > 0
    assert Follower(path).read().records


# --- commands


UNREADABLE = [
    *(
        ({name: os.fsdecode(b"run-\xff")}, rf"{flag_of(name)} .*\\udcff.* is not UTF-8")
        for name in ("run_dir", "init_from", "resume")
    ),
    *(({"env": env}, r"--env .* cannot be the name of an env") for env in ("pong\x1b]0;x\x07", "a b:make", "")),
    *(
        ({name: value}, r"must be below|is not a finite number")
        for name, value in (("seed", 1 << 64), ("total_steps", 10**310), ("checkpoint_every_minutes", 10**310))
    ),
]


@pytest.mark.parametrize(("settings", "says"), UNREADABLE)
def test_settings_that_readers_would_refuse_are_refused_before_the_start(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        validate.settings(Config().with_settings(**settings))


def test_sentences_hold_nothing_that_a_terminal_would_obey(capsys: pytest.CaptureFixture[str]) -> None:
    assert launch.main(["report", "no\x1b[2J\u202erun-\udcff ä"]) == 2
    said = capsys.readouterr().err
    assert r"There is no no\x1b[2J\u202erun-\udcff ä: name" in said
    assert "\x1b" not in said


def test_a_report_is_not_written_through_links(tmp_path: Path) -> None:
    run = write_records(tmp_path / "run", game="adventure")
    outside = tmp_path / "outside"
    outside.mkdir()
    (run / "report").symlink_to(outside)
    with pytest.raises(ConfigError, match="report is not a directory but a symbolic link"):
        report.main([str(run)])
    assert not list(outside.iterdir())
    (outside / "picture").write_bytes(OUTSIDE)
    out = tmp_path / "out"
    out.mkdir()
    for name in ("report.html", "report.json", "scores.png", "curve-adventure-steps.png", "curve-adventure-hours.png"):
        (out / name).symlink_to(outside / "picture")
    report.write_report([run], out)
    assert (outside / "picture").read_bytes() == OUTSIDE
    assert (out / "report.html").read_bytes().startswith(b"<!DOCTYPE html>")


def test_a_run_whose_directory_is_no_text_can_be_reported(tmp_path: Path) -> None:
    run = write_records(tmp_path / os.fsdecode(b"run-\xff"), game="adventure")
    page, _ = report.write_report([run], tmp_path / "out")
    assert rb"run-\udcff" in page.read_bytes()


def test_a_suite_writes_through_no_links(tmp_path: Path) -> None:
    (tmp_path / "report").symlink_to(tmp_path / "elsewhere")
    programs = programs_in(tmp_path, "another suite", ClusterOptions())
    with pytest.raises(ConfigError, match="report is not a directory but a symbolic link"), programs:
        pass


@pytest.mark.parametrize("content", [b'{"learn": 3}', b'{"learn": {"total_steps": "x"}}', b"[]"])
def test_a_suite_takes_no_forged_run_for_finished(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(content)
    (tmp_path / "summary.json").write_bytes(b'{"finished": true, "steps": "many"}')
    assert not Job(CONFIG, tmp_path).finished


def test_nothing_is_written_beside_a_checkpoint_that_lies_in_no_run(tmp_path: Path) -> None:
    write_run(tmp_path / "run", 1)
    (tmp_path / "run" / "checkpoints").rename(tmp_path / "copied")
    assert ringside.starting_point(None, tmp_path / "copied").run.run_dir is None
    (tmp_path / "copied").rename(tmp_path / "run" / "checkpoints")
    for place in (tmp_path / "run", tmp_path / "run" / "checkpoints", find_checkpoint(tmp_path / "run").path):
        assert ringside.starting_point(None, place).run.run_dir == tmp_path / "run"


def test_json_is_parsed_in_one_place() -> None:
    """`json.loads` and its like know no bounds."""
    allowed = {"shared/files/strict_json.py"}
    root = Path(launch.__file__).parent
    packages = ("actors", "learner", "shared", "ringside", "workers", "examples", ".")
    files = {file for package in packages for file in (root / package).glob("*.py" if package == "." else "**/*.py")}
    parsing = re.compile(r"json\.loads?\(|JSONDecoder|json\.Decoder|safe_open")
    assert {str(file.relative_to(root)) for file in files if parsing.search(file.read_text())} == allowed
