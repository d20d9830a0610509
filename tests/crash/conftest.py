"""Fixtures of the crash tests: undisturbed runs to compare with, and the tally of the storms."""

from zlib import crc32

import pytest

from tests.crash.storm import FLAGS, LONGEST_SECONDS, TALLIES, Result, Undisturbed, result_of
from tests.support.made_once import made_once
from tests.support.runs import finish, start, summary


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    """Undisturbed runs, one for each number of steps and each set of changed flags that is asked for."""

    def run(total_steps: str, **changes: str) -> Result:
        flags = FLAGS | {"total_steps": total_steps} | changes
        name = f"undisturbed-{crc32(repr(sorted(flags.items())).encode()):x}"
        run_dir = made_once(tmp_path_factory, name, lambda path: finish(start(path, **flags), LONGEST_SECONDS))
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
