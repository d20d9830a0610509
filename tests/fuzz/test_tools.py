"""The tools of these tests: cases follow from their numbers, leave nothing behind, and what is no sentence is seen."""

import os
import random
from pathlib import Path

import pytest

from tests.fuzz.mutate import Case, mutate
from tests.fuzz.readers import RESUME_PLACES
from tests.fuzz.workspace import Workspace, contents, flaw_of, signature
from tests.support.checkpoints import write_run


def workspace_at(root: Path) -> Workspace:
    """A workspace with one run, without processes."""
    workspace = Workspace(root)
    (workspace.runs / "written" / "logs").mkdir(parents=True)
    write_run(workspace.runs / "written", 5)
    workspace.make(workspace.runs / "written")
    return workspace


def mutated(workspace: Workspace, number: int) -> Case:
    workspace.renew("written")
    case = Case(random.Random(number), workspace.run, workspace.outside / "run", workspace.outside)
    mutate(case, RESUME_PLACES)
    return case


def test_a_case_follows_from_its_number_and_is_undone(tmp_path: Path) -> None:
    one, other = workspace_at(tmp_path / "one"), workspace_at(tmp_path / "other")
    cases = [(mutated(one, number).done, mutated(other, number).done) for number in range(60)]
    assert all(done == again for done, again in cases)
    assert len({str(done) for done, _ in cases}) > 50
    one.renew("written")
    assert contents(one.run) == contents(one.runs / "written")


def rights(path: str) -> tuple[int, int, int]:
    status = os.lstat(path)
    return status.st_mode, status.st_uid, status.st_gid


def test_no_mutation_changes_what_it_leads_to(tmp_path: Path) -> None:
    """Tests may run as root: what a mutated run leads to must be as it was, whatever is done to it afterwards."""
    workspace, places = workspace_at(tmp_path), {"*": 1, "*/*": 1}
    beside = ("/", "/dev/zero", "/dev/tty", "/proc/self/mem", str(tmp_path))
    before = {path: rights(path) for path in beside}
    for number in range(20):
        workspace.renew("written")
        whole = signature(workspace.outside)
        case = Case(random.Random(number), workspace.run, workspace.outside / "run", workspace.outside)
        for _ in range(8):
            mutate(case, places)
        after, names = signature(workspace.outside), [name for name in whole if not name.startswith(("same", "."))]
        assert {name: after[name] for name in names} == {name: whole[name] for name in names}
    assert {path: rights(path) for path in beside} == before


UNFIT = ["", "One.\nAnother.", "\x1b[2J", "\u202egnp", "\ud800", "Traceback (most recent call last)", "x" * 2_001]


@pytest.mark.parametrize("sentence", UNFIT)
def test_output_that_is_no_sentence_is_found(sentence: str) -> None:
    assert flaw_of(sentence)
    assert flaw_of("checkpoint-00000005.json is damaged: it does not match its checksum.") is None
