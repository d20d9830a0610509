"""`launch.py report` as a user types it."""

from pathlib import Path

import pytest

from tests.conftest import Launch, Refused
from tests.support.written_runs import write_run


def test_a_report_of_one_run_lies_in_it_and_one_of_several_lies_here(launch: Launch, tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "a", seed=1)
    write_run(tmp_path / "runs" / "b", seed=2)
    done = launch("report", "runs/a")
    assert (done.returncode, done.stdout) == (0, "The report is in runs/a/report/report.html.\n"), done.stderr
    done = launch("report", "runs/a", "runs/b", "--title", "Two seeds")
    assert (done.returncode, done.stdout, done.stderr) == (0, "The report is in report/report.html.\n", "")
    assert "<h1>Two seeds</h1>" in (tmp_path / "report" / "report.html").read_text()


def test_an_unreadable_run_is_left_out_and_named(launch: Launch, refused: Refused, tmp_path: Path) -> None:
    write_run(tmp_path / "good")
    write_run(tmp_path / "empty")
    (tmp_path / "empty" / "metrics.jsonl").unlink()
    done = launch("report", "good", "empty", "--out", "out")
    assert done.returncode == 0
    assert done.stderr.startswith("launch.py: empty has no complete round yet")
    assert "empty has no complete round yet" in (tmp_path / "out" / "report.html").read_text()
    assert "never started" in refused("report", "empty")


BAD_INPUT = [
    (("report", "nowhere", "run", "neither"), "There is no nowhere and no neither: name"),
    (("report", "."), "not a run directory; it contains 2 of them: pass ./*"),
    (("report", "run", "sticky"), "different protocols"),
    (("report", "run", "--out", "run/config.json"), "--out run/config.json is a file: name a directory"),
]


@pytest.mark.parametrize(("words", "says"), BAD_INPUT)
def test_bad_input_is_one_sentence(refused: Refused, tmp_path: Path, words: tuple[str, ...], says: str) -> None:
    write_run(tmp_path / "run")
    write_run(tmp_path / "sticky", protocol="machado")
    assert says in refused(*words)
