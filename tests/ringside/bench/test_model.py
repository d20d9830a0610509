"""Tables of `launch.py bench model`, with parts and runs that a test chooses."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from ringside.bench.harness.measured_plans import make_plan
from ringside.bench.harness.measured_runs import Throughput
from ringside.bench.harness.tables import CannotRun, Report
from ringside.bench.performance_model import predicted_runs
from ringside.bench.performance_model.part_times import Acting, Actors, Answering, Learning, Parts, Playing
from ringside.bench.performance_model.predicted_runs import LINKS, Checked, Options, median_times, times_in
from ringside.bench.performance_model.published_scaling import CURVES
from ringside.doctor import checks
from ringside.load.expectation import conditions, expected
from shared.errors import ConfigError
from shared.performance.throughput_model import core_seconds, predict
from tests.conftest import Refused
from tests.shared.performance.test_throughput_model import SHAPE, TIMES

PARTS = Parts(
    playing=Playing(alone=Acting(400e-6, 0.3), together=Acting(500e-6, 0.3)),
    answering=Answering(300e-6, 60e-6, 0.6),
    learning=Learning(busiest_thread=8e-3, all_threads=17e-3, ahead=4e-3, wall=10.2e-3, commit=10e-3, beside=1.3),
    wake=50e-6,
    cores=2,
    on_gpu=False,
)


def test_parts_become_service_times() -> None:
    times = PARTS.service_times()
    assert times.crowding == pytest.approx(0.8)
    assert times.update_overhead == pytest.approx(10.2 / 8.5)
    assert times.contention == pytest.approx(1.3 / ((17 + 4) / 10.2 / 2))
    assert (times.update, times.update_cores, times.update_ahead, times.commit) == (8e-3, 17e-3, 4e-3, 10e-3)


class ToldTimes:
    """A child that answers with the times that it was told."""

    def __init__(self, times: Sequence[tuple[float, float]]) -> None:
        self._times = iter(times)

    def tell(self, word: str) -> None:
        """Do nothing: the times are known."""

    def answer(self, seconds: float) -> tuple[float, float]:
        """The next of the times."""
        return next(self._times)


def test_actors_are_measured_in_turn_and_one_stall_widens_no_spread() -> None:
    alone, together = [(400e-6, 0.3), (440e-6, 0.3), (460e-6, 9.0), (460e-6, 0.3)], [(480e-6, 0.3), (520e-6, 0.3)] * 2
    in_turn = [each for pair in zip(alone, together, strict=True) for each in pair]
    children = [ToldTimes(in_turn), ToldTimes([(500e-6, 0.3)] * 4)]
    found = Actors(children).measure(4.0)  # type: ignore[arg-type]
    assert (found.alone.step_seconds, found.together.step_seconds) == (pytest.approx(440e-6), pytest.approx(500e-6))
    assert (found.alone.spread, found.together.spread) == (0.3, 0.3)


def test_parts_that_no_machine_has_are_refused() -> None:
    with pytest.raises(CannotRun, match="gives no service times"):
        replace(PARTS, playing=PARTS.playing._replace(alone=Acting(0.0, 0.3))).service_times()


def test_times_are_read_as_they_were_written(tmp_path: Path) -> None:
    report = Report("model", "a table", ["model"])
    predicted_runs._add_times(report, [TIMES, TIMES])
    report.conditions = {"cpu": "one", "precision": "bf16"}
    report.write(tmp_path / "model.json")
    found = times_in(tmp_path / "model.json", report)
    assert found.to_json() == pytest.approx(TIMES.to_json())
    assert not report.notes
    report.conditions = {"cpu": "another", "precision": "bf16"}
    times_in(tmp_path / "model.json", report)
    assert report.notes == ["The service times are those of another machine or other libraries (cpu)."]


def test_times_of_other_settings_are_refused(tmp_path: Path) -> None:
    report = Report("model", "a table", ["model"])
    predicted_runs._add_times(report, [TIMES])
    words = ("--device", "cpu", "--precision", "fp32")
    report.conditions = conditions(make_plan("breakout", list(words)))
    report.write(tmp_path / "model.json")
    with pytest.raises(ConfigError, match=r"has times of other settings \(algorithm\): measure these anew"):
        predicted_runs.measure(
            Options(from_=tmp_path / "model.json", words=(*words, "--double")), Report("model", "a table", ["model"])
        )


def run_of(speed: float) -> Throughput:
    """A run of this speed that used one core and a half."""
    cores = {"actor": 1.2, "inference": 0.3}
    return Throughput("", speed, 25.0, 8.0, 1_000, 10.0, 1, 0.0, 1.0, {}, None, {}, cores)


def test_the_error_is_that_of_the_repeats() -> None:
    report = Report("model", "a table", ["model"])
    speed = predict(TIMES, SHAPE).steps_per_second
    checked = [Checked("1 actor, learning", (), SHAPE, learns=True), Checked("2 actors, learning", (), SHAPE, True)]
    found = {"1 actor, learning": [run_of(speed), run_of(speed / 1.1), run_of(speed / 2)]}
    assert predicted_runs._add_check(report, [TIMES] * 3, checked, found) == {"1 actor, learning": pytest.approx(0.1)}
    assert report.row("1 actor, learning, by the model").ratio == pytest.approx(1.1)
    core_time = report.row("1 actor, learning, core time of a step")
    assert core_time.median == pytest.approx(1e6 * 1.5 / (speed / 1.1))
    inference, model = 1e6 * 0.3 / (speed / 1.1), 1e6 * core_seconds(TIMES, SHAPE)
    assert core_time.note == f"actor {4 * inference:,.0f}, inference {inference:,.0f}; by the model {model:,.0f}"
    assert report.row("1 actor, learning, by the model").note.startswith("+10% from median times; ")
    assert report.notes[0].startswith("The model is off by 10.0% at most (1 actor, learning): ")


def test_a_file_of_times_gives_all_tables_without_a_measurement(tmp_path: Path) -> None:
    report = Report("model", "a table", ["model"])
    predicted_runs._add_times(report, [TIMES])
    report.conditions = conditions(make_plan("breakout", ["--device", "cpu", "--precision", "fp32"]))
    report.write(tmp_path / "model.json")
    report = Report("model", "a table", ["model"])
    options = Options(
        from_=tmp_path / "model.json",
        picture=tmp_path / "model.png",
        cores="1,16",
        nodes="2",
        words=("--device", "cpu", "--precision", "fp32"),
    )
    predicted_runs.measure(options, report)
    assert not report.missing
    assert not report.wrong
    names = [row.name for row in report.rows]
    assert names[:4] == ["1 core, no GPU", "16 cores, no GPU", "1 core, one GPU", "16 cores, one GPU"]
    assert names[4:6] == ["2 nodes of 16 cores, 1 GbE", "2 nodes of 16 cores, 10 GbE"]
    assert report.row("1 core, no GPU").median < report.row("16 cores, no GPU").median
    assert (tmp_path / "model.png").read_bytes().startswith(b"\x89PNG")


def test_a_version_travels_to_nodes_as_acting_rounds_it() -> None:
    """In bf16 all parameters but the first weights and the last layer have half of the bytes."""
    seconds, rounded = {}, 0
    for precision in ("fp32", "bf16"):
        words = ("--device", "cpu", "--precision", precision, "--round-steps", "960")
        plan, report = make_plan("breakout", list(words)), Report("model", "a table", ["model"])
        predicted_runs._add_nodes(Options(words=words), report, plan, TIMES, [4])
        assert not report.missing
        seconds[precision] = 960 / report.row("4 nodes of 16 cores, 1 GbE").median
        rounded = plan.parameters.count - 4 * 8 * 8 * 32 - 513 * plan.actions
    assert seconds["fp32"] - seconds["bf16"] == pytest.approx(4 * 2 * rounded / LINKS["1 GbE"])


@pytest.mark.parametrize(("load", "kept"), [(0.0, True), (99_999.0, False)])
def test_times_of_a_busy_machine_are_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, load: float, *, kept: bool
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    plan = make_plan("breakout", ["--device", "cpu", "--precision", "fp32"])
    report = Report("model", "a table", ["model"], machine={"load_average": [load]})
    assert expected(plan) is None
    predicted_runs._keep(report, plan, TIMES)
    found = expected(plan)
    assert (found is not None) is kept
    assert bool(report.notes) is not kept
    if found is not None:
        assert checks.speed(found).found.endswith(f"steps/s by the model: {found.reason}.")
        assert (
            expected(make_plan("breakout", ["--device", "cpu", "--precision", "fp32", "--train-every", "8"])) != found
        )
        assert expected(make_plan("breakout", ["--device", "cpu", "--precision", "bf16"])) is None


def test_medians_are_taken_by_service_time() -> None:
    low, high = median_times([TIMES]), TIMES.to_json() | {"step": 900e-6}
    assert low == TIMES
    assert median_times([TIMES, type(TIMES)(**high), type(TIMES)(**high)]).step == 900e-6


@pytest.mark.parametrize("curve", CURVES, ids=lambda curve: f"{curve.program}, {curve.machine}")
def test_published_curves_pass_through_the_points_that_were_fitted(curve: object) -> None:
    assert curve.predicted(1) == pytest.approx(curve.speeds[1])  # type: ignore[attr-defined]
    assert curve.predicted(curve.cores) == pytest.approx(curve.speeds[curve.cores], rel=1e-5)  # type: ignore[attr-defined]


def test_published_curves_lie_where_the_page_says() -> None:
    """Within 8% for six of eight, and within 13% for the others (docs/model.md), rounded."""
    errors = sorted(curve.greatest_error() for curve in CURVES)
    assert errors[5] < 0.085
    assert errors[7] < 0.135


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--cores", "1,two"), "--cores 1,two: 'two' is not a number from 1 to 1_000_000"),
        (("--nodes", "0"), "--nodes 0: '0' is not a number from 1 to 1_000_000"),
        (("--from", "missing.json"), "--from missing.json cannot be read"),
        (("--picture", "nowhere/x.png"), "--picture nowhere/x.png cannot be written"),
        (("--picture", "x.xyz"), "--picture x.xyz: the suffix says the format; choose"),
        (("--", "--actors", "2"), "--actors is what this benchmark varies"),
    ],
)
def test_mistakes_are_one_sentence(refused: Refused, words: tuple[str, ...], says: str) -> None:
    assert says in refused("bench", "model", *words)


def test_other_files_hold_no_times(tmp_path: Path) -> None:
    for content in ("{}", '{"rows": []}', '{"rows": [{"name": "step"}]}', json.dumps({"rows": 3})):
        (tmp_path / "file").write_text(content)
        report = Report("model", "a table", ["model"])
        with pytest.raises(ConfigError, match="holds no service times"):
            predicted_runs.measure(Options(from_=tmp_path / "file", words=("--device", "cpu")), report)
