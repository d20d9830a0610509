"""Reports of benchmarks: shares, what could not run, what was wrong, JSON; and the benchmarks' own checks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console

from ringside.bench.bench_command import Benchmark, Common, find_benchmark, run
from ringside.bench.harness.tables import CannotRun, Report, WrongResult
from ringside.bench.limits import Options
from ringside.bench.system_parts.emulator import Bare
from shared.errors import ConfigError
from shared.root import ROOT

QUICK = Options(repeats=1, seconds=0.001, window_steps=2_000)


@pytest.fixture
def report() -> Report:
    return Report("limits", "Limits.", ["limits"], console=Console(quiet=True), machine={"threads_per_core": 1})


def test_shares_are_taken_repeat_by_repeat(report: Report) -> None:
    report.add("memcpy", "GB/s", [10.0, 20.0, 40.0])
    row = report.add("gather", "GB/s", [5.0, 15.0, 10.0], limit="memcpy")
    assert row.ratios == (0.5, 0.75, 0.25)
    assert (row.median, row.ratio) == (10.0, 0.5)
    given = report.add("env", "steps/s", [100.0], limit="bare emulator", ratios=[0.9])
    assert given.ratio == 0.9
    assert report.row("gather") is row


def test_a_name_stands_for_one_row(report: Report) -> None:
    report.add("memcpy", "GB/s", [10.0])
    with pytest.raises(ValueError, match="two rows named 'memcpy'"):
        report.add("memcpy", "GB/s", [20.0])


def test_a_part_without_its_limit_is_missing_and_the_rest_goes_on(report: Report) -> None:
    with report.measuring("first"):
        report.add("gather", "GB/s", [5.0], limit="memcpy")
    with report.measuring("second"):
        raise CannotRun("There is no GPU.")
    with report.measuring("third"):
        report.add("memcpy", "GB/s", [10.0])
    assert report.missing == {
        "first": "It is measured against 'memcpy', which is missing.",
        "second": "There is no GPU.",
    }
    assert [(row.part, row.name) for row in report.rows] == [("third", "memcpy")]
    assert report.code == 0


def test_a_wrong_part_loses_its_rows_and_the_command_fails(report: Report) -> None:
    with report.measuring("right"):
        report.add("memcpy", "GB/s", [10.0])
    with report.measuring("wrong"):
        report.add("gather", "GB/s", [9.0])
        raise WrongResult("Other frames came out.")
    assert [row.name for row in report.rows] == ["memcpy"]
    assert report.wrong == {"wrong": "Other frames came out."}
    assert report.code == 1


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_result_that_is_no_number_is_wrong(value: float, report: Report) -> None:
    """It could not be written down either: JSON knows only numbers."""
    with report.measuring("memory"):
        report.add("memcpy", "GB/s", [10.0, value])
    assert report.wrong == {"memory": f"memcpy came out as 10, {value} GB/s."}
    assert not report.rows


def test_the_file_holds_all_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def measure(options: Common, report: Report) -> None:
        with report.measuring("memory"):
            report.add("memcpy", "GB/s", [10.0, 30.0])
            report.add("gather", "GB/s", [5.0, 6.0], limit="memcpy", note="cold")
        with report.measuring("broken"):
            raise WrongResult("It is wrong.")
        report.note("A sentence.")
        raise KeyboardInterrupt

    path = tmp_path / "report.json"
    benchmark = Benchmark("limits", "Title.\n\nMore.", Common, measure)
    assert run(benchmark, Common(repeats=2, json=path), ["--repeats", "2"]) == 1
    held = json.loads(path.read_text())
    assert held["command"] == "python launch.py bench limits --repeats 2"
    assert [(row["name"], row["median"], row["ratio"]) for row in held["rows"]] == [
        ("memcpy", 20.0, None),
        ("gather", 5.5, pytest.approx(0.35)),
    ]
    assert held["missing"] == {"the rest": "It was interrupted."}
    assert held["wrong"] == {"broken": "It is wrong."}
    assert held["notes"] == ["A sentence."]
    assert held["machine"]["usable_cores"] >= 1
    shown = capsys.readouterr().out
    for words in ("Title.", "gather  cold", "0.350", "wrong broken: It is wrong.", "A sentence."):
        assert words in shown
    assert "More." not in shown


def test_an_emulator_that_stands_still_is_seen() -> None:
    bare = Bare("pong", seed=1)
    bare.play(0, [1] * 50)
    bare.check()
    bare.steps += 10
    with pytest.raises(WrongResult, match="instead of"):
        bare.check()


def test_frames_of_another_way_are_seen(report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    from ringside.bench.system_parts import actor_side

    right = actor_side.slow_step
    monkeypatch.setattr(actor_side, "slow_step", lambda ale, number: (right(ale, number)[0] ^ 1, 0.0))
    actor_side.measure(QUICK, report)
    assert report.wrong == {"actors, breakout": "The frame of step 0 differs from that of the slow way."}
    assert not report.rows


def test_a_gather_of_other_frames_is_seen(report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    from ringside.bench.system_parts import memory_paths

    monkeypatch.setattr(memory_paths.HostFrames, "select", lambda self, rows, mask, out: out.fill_(1))
    memory_paths.measure(QUICK, report)
    assert "other blocks" in report.wrong["memory"]
    assert not report.rows


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (Options(games="brakout"), "no game 'brakout'; did you mean breakout?"),
        (Options(games=""), "no game ''"),
        (Options(parts="memory,emulater"), "--parts emulater is not one of"),
        (Options(seconds=0.0), "--seconds 0.0"),
        (Options(window_steps=10), "2_000 is the least"),
        (Options(batches="32,x"), "'x' is not a number from 1"),
        (Options(seconds=float("nan")), "--seconds nan must be a finite number"),
        (Options(learner_threads=0), "--learner-threads 0"),
        (Options(json=Path("/dev/full")), "--json /dev/full cannot be written: it is not an ordinary file"),
        (Options(json=Path()), "it names no file"),
        (Options(json=Path("/")), "cannot be written"),
        (Options(json=Path("/no/such/file")), "its directory does not exist"),
    ],
)
def test_impossible_options_are_refused_before_anything_runs(options: Options, says: str) -> None:
    with pytest.raises(ConfigError) as raised:
        run(find_benchmark("limits"), options, [])
    assert says in str(raised.value)


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory\nframe")])
def test_too_little_memory_for_one_part_is_noted_and_the_rest_goes_on(error: Exception, report: Report) -> None:
    with report.measuring("large"):
        raise error
    assert report.missing["large"].startswith("There is too little memory for it.")
    assert "frame" not in report.missing["large"]
    fault = "an illegal memory access was encountered"
    with pytest.raises(RuntimeError, match=fault), report.measuring("broken"):
        raise RuntimeError(f"CUDA error: {fault}")


@pytest.mark.parametrize("error", [CannotRun("no GPU"), WrongResult("it is off")])
def test_a_benchmark_that_breaks_off_still_reports(tmp_path: Path, error: Exception) -> None:
    def measure(options: Options, report: Report) -> None:
        raise error

    file = tmp_path / "out.json"
    benchmark = Benchmark("broken", "Breaks off.", Options, measure)
    assert run(benchmark, Options(json=file), []) == 1
    written = json.loads(file.read_text())
    assert {**written["missing"], **written["wrong"]} == {"all": str(error)}


@pytest.mark.parametrize(("error", "code"), [(CannotRun("no GPU"), 1), (KeyboardInterrupt(), 130)])
def test_a_benchmark_without_a_figure_leaves_an_earlier_result(
    tmp_path: Path, error: BaseException, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    def measure(options: Options, report: Report) -> None:
        raise error

    file = tmp_path / "out.json"
    file.write_text("figures")
    assert run(Benchmark("broken", "Breaks off.", Options, measure), Options(json=file), []) == code
    assert file.read_text() == "figures"
    assert "Nothing was measured" in capsys.readouterr().out


def test_a_benchmark_with_a_mistake_of_its_own_writes_that_down(tmp_path: Path) -> None:
    def measure(options: Options, report: Report) -> None:
        raise ZeroDivisionError("by zero")

    file = tmp_path / "out.json"
    with pytest.raises(ZeroDivisionError):
        run(Benchmark("broken", "Breaks off.", Options, measure), Options(json=file), [])
    assert json.loads(file.read_text())["missing"] == {
        "all": "The benchmark itself failed: ZeroDivisionError('by zero')."
    }


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks" / "results").glob("*.json")), ids=lambda path: path.name)
def test_the_command_of_a_kept_result_gives_that_file(path: Path) -> None:
    command = json.loads(path.read_text())["command"]
    words = command.split() if isinstance(command, str) else command
    assert words[words.index("--json") + 1] in (str(path.relative_to(ROOT)), path.name)
