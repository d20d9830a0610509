"""From two samples of the board to shares, speeds and a bottleneck."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from ringside.records.board_samples import LEARNING, NEWEST, Sample, load_between
from ringside.records.metrics import MetricsLog
from ringside.records.summary import _load_fields, make_summary
from shared.config.sections import Learn, Machine, Play, Run
from shared.config.settings import Config
from shared.memory.board import Phase
from shared.memory.plan import Elsewhere, Plan
from shared.memory.process_table import Role
from shared.memory.run_memory import Memory

SECOND = 1_000_000_000
CONFIG = Config(
    play=Play(game="pong", envs=4, lane_envs=2),
    learn=Learn(total_steps=400, round_steps=40, replay_size=100, learning_starts=80, network="small"),
    machine=Machine(actors=2),
    run=Run(run_dir=Path("runs/pong")),
)
ACTOR = int(Role.ACTOR)


@pytest.fixture
def memory() -> Memory:
    memory = Memory.create(Plan(CONFIG, actions=6))
    memory.board.heartbeat[:] = 10 * SECOND
    memory.board.begun_ns[0] = time.monotonic_ns()
    return memory


def after_four_seconds(memory: Memory) -> Sample:
    """The learner worked all the time, the actors half of it; what inference counted ends two seconds ago."""
    board = memory.board
    board.lane_done.publish_all([25, 35])  # of lanes of two envs
    board.updates[0] = 10
    board.heartbeat[:] = 14 * SECOND
    board.busy_ns[Role.LEARNER] = 4 * SECOND
    board.cpu_ns[Role.LEARNER] = 6 * SECOND
    board.busy_ns[ACTOR : ACTOR + 2] = board.waited_ns[ACTOR : ACTOR + 2] = 2 * SECOND
    board.busy_ns[Role.INFERENCE], board.waited_ns[Role.INFERENCE] = SECOND, SECOND
    board.heartbeat[Role.INFERENCE] = 12 * SECOND
    board.restarts[ACTOR + 1] = 1
    return Sample.take(memory, 14 * SECOND)


@pytest.mark.parametrize(("phase", "share"), [(Phase.WORKING, 0.75), (Phase.WAITING, 0.25), (Phase.DONE, 0.5)])
def test_shares_and_speeds_between_two_samples(memory: Memory, phase: Phase, share: float) -> None:
    old = Sample.take(memory, 10 * SECOND)
    memory.board.phase[Role.INFERENCE] = phase
    load = load_between(memory, old, after_four_seconds(memory), usable_cores=4)
    assert (load.seconds, load.activity.steps_per_second, load.updates_per_second) == (4.0, 30.0, 2.5)
    inference, learner, scribe, *actors = load.activity.roles
    assert (inference.busy, inference.state) == (share, phase.name.lower())
    assert (learner.name, learner.busy, learner.cores, learner.restarts) == ("learner", 1.0, 1.5, 0)
    assert (scribe.busy, scribe.cores) == (None, 0.0)
    assert [(actor.name, actor.busy, actor.restarts) for actor in actors] == [("actor 0", 0.5, 0), ("actor 1", 0.5, 1)]
    assert (load.bottleneck.kind, load.bottleneck.share, load.bottleneck.steps_per_second) == ("learner", 1.0, 30.0)


def test_waits_for_evaluations_make_them_the_limit(memory: Memory) -> None:
    old = Sample.take(memory, 10 * SECOND)
    memory.board.evaluation_wait_ns[0] = SECOND
    new = after_four_seconds(memory)
    assert load_between(memory, old, new, usable_cores=4).bottleneck.kind == "learner", "which is never idle"
    new.busy[Role.LEARNER], new.waited[Role.LEARNER] = 3 * SECOND, SECOND
    found = load_between(memory, old, new, usable_cores=4).bottleneck
    assert found.sentence.startswith("Evaluation limits the run: the learner waits 25% of the time for a free")


def test_cores_of_others_between_two_samples(memory: Memory) -> None:
    board = memory.board
    nothing_known = Sample.take(memory, 10 * SECOND)
    board.contention[:] = 10 * SECOND, 5 * SECOND, SECOND
    old = Sample.take(memory, 10 * SECOND)
    new = after_four_seconds(memory)
    load = load_between(memory, nothing_known, new, usable_cores=4)
    assert (load.activity.others, load.activity.stolen) == (None, None)
    assert load_between(memory, old, new, usable_cores=4).activity.others is None, "there was no reading in between"
    board.contention[:] = 13 * SECOND, 11 * SECOND, SECOND
    load = load_between(memory, old, Sample.take(memory, 14 * SECOND), usable_cores=4)
    assert (load.activity.others, load.activity.stolen) == (2.0, 0.0)
    assert load.bottleneck.sentence.endswith("Other programs use 2.0 of 4 cores.")
    board.samples[LEARNING], board.samples[NEWEST] = old.words, Sample.take(memory, 14 * SECOND).words
    limit = _load_fields(memory)["limit"]
    assert (limit["other_programs_cores"], limit["stolen_cores"]) == (2.0, 0.0)


def test_a_sample_is_kept_as_words_and_does_not_follow_the_board(memory: Memory) -> None:
    sample = after_four_seconds(memory)
    memory.board.samples[NEWEST] = sample.words
    memory.board.busy_ns[:] = 99 * SECOND
    memory.board.samples[LEARNING] = 0
    kept = Sample.kept(memory, NEWEST)
    assert (kept.at, kept.steps, kept.updates) == (14 * SECOND, 120, 10)
    assert np.array_equal(kept.words, sample.words)
    memory.board.samples[NEWEST] = 0
    assert kept.busy[Role.LEARNER] == 4 * SECOND


def test_no_time_between_two_samples_gives_no_shares(memory: Memory) -> None:
    sample = after_four_seconds(memory)
    load = load_between(memory, sample, sample, usable_cores=2)
    assert (load.activity.steps_per_second, load.updates_per_second, load.bottleneck.kind) == (None, None, "starting")
    assert {(role.busy, role.cores) for role in load.activity.roles} == {(None, None)}


def test_a_process_taken_for_working_that_was_dead_gives_no_negative_share(memory: Memory) -> None:
    memory.board.phase[ACTOR] = Phase.WORKING
    old = Sample.take(memory, 13 * SECOND)  # silent for three seconds
    memory.board.phase[ACTOR] = Phase.STARTING
    memory.board.waited_ns[ACTOR] = SECOND
    actor = load_between(memory, old, Sample.take(memory, 14 * SECOND), usable_cores=2).activity.roles[-2]
    assert (actor.name, actor.busy) == ("actor 0", 0.0)


def test_the_summary_says_what_limited_the_run_since_the_beginning_of_learning(memory: Memory, tmp_path: Path) -> None:
    board = memory.board
    former = {"limit": {"name": "learner"}, "roles": {"learner": {"busy": 1.0}}, "steps": 9}
    with MetricsLog(tmp_path / "metrics.jsonl") as log:
        board.samples[[LEARNING, NEWEST]] = Sample.take(memory, 10 * SECOND).words
        at_once = make_summary(memory, log, -1, former)  # a start that has recorded nothing
        board.samples[NEWEST] = after_four_seconds(memory).words
        board.private_bytes[Role.LEARNER] = 700_000_000
        board.device_bytes[Role.LEARNER] = 8_000_000_000
        board.replay_device_bytes[0] = 7_000_000_000
        board.busy_ns[ACTOR:] += 99 * SECOND  # after the newest record
        found = make_summary(memory, log, -1, former)
    assert (at_once["limit"], at_once["roles"], at_once["steps"]) == (former["limit"], former["roles"], 0)
    speeds = {"steps_per_second": 30.0, "limit_steps_per_second": 30.0, "seconds": 4.0}
    assert found["limit"].items() >= ({"role": "learner", "share_of_limit": 1.0} | speeds).items()
    assert found["roles"]["actor 1"] == {"busy": 0.5, "cores": 0.0, "restarts": 1}
    assert found["memory"] == {
        "shared_bytes": memory.arena.layout.size,
        "private_bytes": {"learner": 700_000_000},
        "device_bytes": {"learner": 8_000_000_000},
        "replay_device_bytes": 7_000_000_000,
    }


def test_a_gateway_has_a_node(memory: Memory) -> None:
    memory = Memory.create(Plan(memory.plan.config, 6, Elsewhere(1)))
    board, gateways = memory.board, memory.gateways
    assert gateways is not None
    board.heartbeat[:] = 10 * SECOND
    board.lane_owner[:2] = memory.plan.config.machine.actors
    old = Sample.take(memory, 10 * SECOND)
    gateways.transfer_ns[0], gateways.sent_bytes[0], gateways.received_bytes[0] = SECOND, 8_000, 400
    gateways.write_name(0, "näher" + 80 * "x")
    gateways.losses[0], gateways.audits[0] = 3, 5
    load = load_between(memory, old, Sample.take(memory, 14 * SECOND), usable_cores=4)
    node = load.activity.roles[-1].node
    assert node is not None
    assert (node.lanes, node.losses, node.audits, node.transfer) == (2, 3, 5, 0.25)
    assert (node.sent, node.received) == (2_000, 100)
    assert node.name.startswith("näherx")
    assert all(role.node is None for role in load.activity.roles[:-1])


def test_an_observer_reads_the_newest_sentences_of_a_gateway(memory: Memory) -> None:
    gateways = Memory.create(Plan(memory.plan.config, 6, Elsewhere(2))).gateways
    assert gateways is not None
    for number in range(11):
        gateways.tell(1, f"sentence {number}")
    assert gateways.notices.values.tolist() == [0, 11]
    assert gateways.sentences(1, 9, 11) == ["sentence 9", "sentence 10"]
    assert gateways.sentences(1, 0, 11)[0] == "sentence 3"  # older ones are overwritten
