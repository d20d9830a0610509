"""The place of a learner of several ranks: what is asked for, and what is refused before Ray is asked."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import msgspec
import psutil
import pytest

from ringside.cluster import learner_place
from ringside.cluster.learner_place import HeldPlace, Place, refusal_of, request_of
from shared.config.settings import ResolvedMachine
from shared.errors import ConfigError
from tests.support.remote_world import make_plan
from tests.support.waiting import until


def machine(**settings: object) -> ResolvedMachine:
    """Settings of a machine."""
    return make_plan(0).config.with_settings(**settings).machine


def test_each_rank_asks_for_its_threads_or_for_a_gpu() -> None:
    assert request_of(machine(learner_ranks=2)) == ("CPU", 2, 1)
    assert request_of(machine(learner_ranks=4, learner_threads=2)) == ("CPU", 4, 6), "three teams"
    assert request_of(machine(learner_ranks=4, device="cuda:0")) == ("GPU", 4, 1)


def test_a_gpu_that_the_user_chose_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"Ray chooses the GPUs of --learner-ranks: pass --device cuda, not cuda:1\."):
        request_of(machine(learner_ranks=2, device="cuda:1"))


def test_a_machine_with_too_few_is_refused() -> None:
    assert not refusal_of("CPU", 2, 3, 6)
    assert refusal_of("CPU", 2, 3, 5) == (
        "--learner-ranks 2 need 6 CPUs of this machine, and its node of the cluster has 5: pass fewer, or start that "
        "node with --num-cpus 0, so that Ray leaves them to this run."
    )


def test_a_program_that_ends_without_an_answer_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learner_place, "PROGRAM", "ringside.cluster.there_is_none")
    with pytest.raises(ConfigError, match=r"gives no place for --learner-ranks: .*No module named"):
        HeldPlace(machine(learner_ranks=2), "127.0.0.2:1")


def test_a_place_whose_program_was_killed_is_reserved_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "holder.py").write_text("import os, sys\nprint(os.environ['ANSWER'], flush=True)\nsys.stdin.read()\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(learner_place, "PROGRAM", "holder")

    def answers(**fields: object) -> None:
        monkeypatch.setenv("ANSWER", msgspec.json.encode(Place(**fields)).decode())

    def holders() -> list[psutil.Process]:
        return [child for child in psutil.Process().children() if "holder" in child.cmdline()]

    def kill() -> str:
        """Kill the program; return the sentence about the next one."""
        assert not held.keep()
        (holder,) = holders()
        holder.kill()
        said: list[str] = []
        until(lambda: said.append(held.keep()) or len(list(filter(None, said))) == 2)
        died, then = filter(None, said)
        assert died == "The program that reserves the learner's place in the cluster died; another one is started."
        return then

    answers(gpus=("0", "1"))
    with closing(HeldPlace(machine(learner_ranks=2), "10.0.0.1:1")) as held:
        assert held.place.gpus == ("0", "1")
        assert kill() == "The learner's place in the cluster is reserved again."
        answers(gpus=("1", "2"))
        assert kill().startswith("The cluster reserves the GPUs 1, 2 now, but the learner is on 0, 1:")
        answers(refusal="Other programs have them.")
        assert kill() == "Other programs have them. The learner continues without a reserved place."
        assert not held.keep()
    assert not holders()
