"""Fixtures of the crash tests: undisturbed runs to compare with, and the tally of the storms."""

from functools import cache

import pytest

from tests.crash.storm import FLAGS, LONGEST_SECONDS, TALLIES, Result, Undisturbed, result_of
from tests.support.runs import finish, start, summary


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    """Undisturbed runs, one for each number of steps and each set of changed flags that is asked for."""

    @cache
    def run(total_steps: str, **changes: str) -> Result:
        run_dir = tmp_path_factory.mktemp("undisturbed") / "run"
        finish(start(run_dir, **(FLAGS | {"total_steps": total_steps} | changes)), LONGEST_SECONDS)
        assert summary(run_dir)["restarts"] == 0
        return result_of(run_dir)

    return run


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many processes were killed."""
    if not TALLIES:
        return
    terminalreporter.section("storms")
    whole = f"{len(TALLIES)} runs in all", sum(kills for _, kills in TALLIES)
    for name, kills in (*TALLIES, whole):
        terminalreporter.line(f"{name}: {kills:,} kills, same weights")
