"""The harness: interleaved cases, shares, failures, interrupts, files; and the workers."""

import errno
import json
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from benchmarks import __main__ as command
from benchmarks import harness
from benchmarks.harness import CannotRun, Case, Figure, Report, WrongResult, measure_at_once, speed_case
from shared.errors import ConfigError, DeviceFault
from shared.root import ROOT


def cases(**values: Iterable[float | BaseException]) -> list[Case]:
    """Cases that give one value after the other, or raise it."""
    return [speed_case(name, Mock(side_effect=each)) for name, each in values.items()]


def values(report: Report) -> dict[str, tuple[float, ...]]:
    return {name: row.values for name, row in report.rows.items()}


def test_shares_are_taken_repeat_by_repeat_of_a_limit_before_or_after(report: Report) -> None:
    gather = speed_case("gather", Mock(side_effect=(5.0, 15.0, 10.0)), "GB/s", "memcpy", part="memory", note="cold")
    given = Case("env", lambda found: [Figure("env", 2 * found["gather"], limit="no row", ratio=0.9)])
    report.run([gather, speed_case("memcpy", Mock(side_effect=(10.0, 20.0, 40.0)), "GB/s"), given], 3)
    row = report.rows["gather"]
    assert (row.values, row.ratios, row.median, row.ratio) == ((5.0, 15.0, 10.0), (0.5, 0.75, 0.25), 10.0, 0.5)
    assert (row.part, row.unit, row.note) == ("memory", "GB/s", "cold")
    assert (report.rows["env"].values, report.rows["env"].ratio) == ((10.0, 30.0, 20.0), 0.9)
    assert (report.rows["memcpy"].ratio, report.code) == (None, 0)


def test_cases_take_turns_and_those_that_fail_are_left_out(report: Report) -> None:
    asked = []

    def measure(name: str, fails_at: int) -> float:
        asked.append(name)
        if asked.count(name) == fails_at:
            raise (CannotRun if name == "b" else WrongResult)(f"{name} failed.")
        return float(asked.count(name))

    taking = [speed_case(name, lambda n=name, f=at: measure(n, f)) for name, at in (("a", 0), ("b", 2), ("c", 1))]
    on_b = Case("d", lambda found: [Figure("d", found["a"] + found["b"])])
    report.run([*taking, on_b], 3)
    assert (asked, values(report)) == (["a", "b", "c", "a", "b", "a"], {"a": (1.0, 2.0, 3.0)})
    assert report.missing == {"b": "b failed.", "d": "It is measured against 'b', which is missing."}
    assert (report.wrong, report.code) == ({"c": "c failed."}, 1)


@pytest.mark.parametrize(
    ("second", "kept"),
    [((3, KeyboardInterrupt()), {"a": (1,), "b": (3,)}), ((KeyboardInterrupt(),), {"a": (1,)})],
    ids=["whole repeats", "what there is of the first"],
)
def test_an_interrupt_keeps(report: Report, second: tuple[float | BaseException, ...], kept: dict[str, object]) -> None:
    with pytest.raises(KeyboardInterrupt):
        report.run(cases(a=(1, 2), b=second), 5)
    assert values(report) == kept


def test_a_case_that_failed_before_an_interrupt_has_no_row(report: Report) -> None:
    with pytest.raises(KeyboardInterrupt):
        report.run(cases(a=(1, 2), b=(3, WrongResult("b failed.")), c=(4, KeyboardInterrupt())), 5)
    assert (values(report), report.wrong) == ({"a": (1,), "c": (4,)}, {"b": "b failed."})


def test_a_row_that_a_repeat_lacks_is_left_out_and_a_name_stands_for_one_row(report: Report) -> None:
    rows = iter([["a", "b"], ["a"]])
    report.run([Case("a", lambda found: [Figure(name, 1.0) for name in next(rows)])], 2)
    assert values(report) == {"a": (1.0, 1.0)}
    with pytest.raises(AssertionError, match="two rows named 'a'"):
        report.run(cases(a=(1,)), 1)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_result_that_is_no_number_is_wrong(value: float, report: Report) -> None:
    report.run(cases(a=(10.0, value)), 2)
    assert (report.wrong, report.rows) == ({"a": f"a came out as {value} steps/s."}, {})


def test_faults_of_this_project_are_missing_and_others_are_not_hidden(report: Report) -> None:
    with pytest.raises(ZeroDivisionError):
        report.run(cases(a=(1,), b=(DeviceFault("The GPU is lost."),), c=(ZeroDivisionError(),)), 1)
    assert (values(report), report.missing) == ({"a": (1,)}, {"b": "The GPU is lost."})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The file of a report, which holds something."""
    (tmp_path / "out.json").write_text("figures")
    return tmp_path / "out.json"


CodeOf = Callable[[Callable[[Report], None]], int]


@pytest.fixture
def code_of(file: Path, monkeypatch: pytest.MonkeyPatch) -> CodeOf:
    """Exit code of the command with a benchmark that does what it is given."""
    module = SimpleNamespace(__doc__="Title.\n\nMore.", NAMES=("a",), DEFAULTS={"only": "all", "seconds": 1.0})
    monkeypatch.setattr(command.importlib, "import_module", lambda name: module)

    def main(measure: Callable[[Report], None]) -> int:
        module.run = lambda options, report: measure(report)
        return command.main(["limits", "--json", str(file), "--", "--envs", "8"])

    return main


def test_file_and_table_hold_all(code_of: CodeOf, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def measure(report: Report) -> None:
        gather = speed_case("gather", Mock(side_effect=(5.0, 9.0)), limit="memcpy", note="cold")
        report.run([*cases(memcpy=(10.0, 30.0), broken=(WrongResult("It is wrong."),)), gather], 2)
        report.notes["subject"] = "A sentence."
        raise KeyboardInterrupt

    assert code_of(measure) == 1, "a wrong result"
    held = json.loads(file.read_text())
    rows = [(row["name"], row["median"], row["ratio"]) for row in held["rows"]]
    assert rows == [("memcpy", 20.0, None), ("gather", 7.0, pytest.approx(0.4))]
    assert held["machine"]["usable_cores"] >= 1
    assert {name: held[name] for name in ("command", "missing", "wrong", "notes")} == {
        "command": f"python -m benchmarks limits --json {file} -- --envs 8",
        "missing": {"the rest": "It was interrupted."},
        "wrong": {"broken": "It is wrong."},
        "notes": ["A sentence."],
    }
    shown = capsys.readouterr().out
    words = ("Title.", "gather  cold", "0.400", "wrong broken: It is wrong.", "not measured the rest", "A sentence.")
    assert [word for word in (*words, "More.") if word not in shown] == ["More."]


@pytest.mark.parametrize(("error", "code"), [(CannotRun("no GPU"), 1), (KeyboardInterrupt(), 130)])
def test_a_benchmark_without_a_figure_leaves_an_earlier_result(
    code_of: CodeOf, file: Path, error: BaseException, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (code_of(lambda report: report.run(cases(a=(error,)), 1)), file.read_text()) == (code, "figures")
    assert "Nothing was measured" in capsys.readouterr().out


def test_a_full_disk_hides_no_figure(
    code_of: CodeOf, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(harness, "write_atomic", Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
    assert code_of(lambda report: report.run(cases(a=(1,)), 1)) == 2
    assert "steps/s" in capsys.readouterr().out


def test_a_benchmark_with_a_mistake_keeps_its_figures(code_of: CodeOf, file: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        code_of(lambda report: report.run(cases(a=(1,), b=(ZeroDivisionError(),)), 1))
    assert [row["name"] for row in json.loads(file.read_text())["rows"]] == ["a"]


def test_names_are_chosen_in_the_known_order() -> None:
    assert harness.names_in_list("all", ["a", "b"]) == ["a", "b"]
    assert harness.names_in_list("b, a", ["a", "b", "c"]) == ["a", "b"]
    with pytest.raises(ConfigError, match="--only d is not one of a, b"):
        harness.names_in_list("a,d", ["a", "b"])


def test_calls_are_timed_in_slices_until_each_had_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    spent: list[float] = []
    monkeypatch.setattr("benchmarks.harness.time", SimpleNamespace(perf_counter=lambda: sum(spent)))
    actions = [partial(spent.append, seconds) for seconds in (0.001, 0.5)]
    assert harness.seconds_per_call(actions, 2.0) == pytest.approx([0.001, 0.5])
    assert sum(spent) == pytest.approx(2 * 0.001 + 2 * 0.5 + 0.01 * 200 + 200 * 0.5, abs=0.6)


def _measuring(answer: float | BaseException) -> Callable[[float], float]:
    return lambda seconds: seconds + Mock(side_effect=[answer])()


def test_workers_measure_at_once_and_say_what_is_wrong() -> None:
    assert measure_at_once([(_measuring, 1.0), (_measuring, 2.0)], 0.5) == [1.5, 2.5]
    for error, kind, says in (
        (WrongResult("It is off."), WrongResult, "It is off."),
        (DeviceFault("The GPU is lost."), CannotRun, "The GPU is lost."),
        (RuntimeError("CUDA out of memory\nmore"), CannotRun, r"RuntimeError: CUDA out of memory$"),
        (SystemExit(1), CannotRun, "ended early"),
    ):
        with pytest.raises(kind, match=says):
            measure_at_once([(_measuring, error)], 0.5)


def test_a_kept_result_names_its_file() -> None:
    for path in sorted((ROOT / "benchmarks" / "results").glob("*.json")):
        command = json.loads(path.read_text())["command"]
        words = command.split() if isinstance(command, str) else command
        assert words[words.index("--json") + 1] in (str(path.relative_to(ROOT)), path.name)
