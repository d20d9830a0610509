"""From the board and the ring to a record: shares and speeds, values of a method, and the names of its metrics."""

import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from ringside.records.bottleneck import LEARNING, NEWEST, Sample, find_bottleneck, load_between
from ringside.records.metric_names import _METRICS, displayed, metric_of, record_scalars
from ringside.records.metrics import MetricsLog, read_metrics
from ringside.records.scribe import outside_support, record_values
from ringside.records.summary import _load_fields, make_summary
from shared.config import method_declaration as declarations
from shared.config.method_declaration import DQN, PPO, RECORD_FIELDS
from shared.config.settings import Config
from shared.memory.board import RECORD_METRICS, Phase
from shared.memory.plan import Elsewhere, Plan
from shared.memory.process_table import Role
from shared.memory.run_memory import Memory

EPISODE = [0, 0, 0, 12]
"""Rewards whose returns, discounted by a half, are from the last tick to the first 12, 6, 3 and 1.5."""


OUTSIDE = [
    (EPISODE, {}, {}, 2 / 4),
    ([0, 0, 0, -12], {}, {}, 2 / 4),
    ([4, 0, 0, 0], {}, {}, 0),  # the support's end is of it
    (EPISODE, {}, {"clip_rewards": True}, 0),
    (EPISODE, {}, {"clip_rewards": True, "v_max": 0.75}, 1 / 4),
    *((EPISODE, {end: 1}, {}, 2 / 4) for end in ("terminated", "truncated", "life_lost")),  # another return begins
    (EPISODE, {"terminated": 2}, {}, 1 / 4),
    (EPISODE, {"invalid": 2, "terminated": 1}, {}, 1 / 3),  # a tick between episodes is no state
    (EPISODE, {"invalid": 3}, {}, 0),
    ([0] * 14 + EPISODE, {}, {}, 2 / 4),  # around the ring
    ([12] * 14 + [0, 0, 0, 0], {}, {}, 0),
    ([], {}, {}, 0),
]


@pytest.mark.parametrize(("rewards", "marks", "settings", "share"), OUTSIDE)
def test_returns_outside_the_support_are_counted(
    rewards: list[float], marks: dict[str, int], settings: dict[str, object], share: float
) -> None:
    """The newest four ticks of one env, in a ring of 16."""
    ring = {name: np.zeros((1, 16, 1)) for name in ("raw_reward", "valid", "terminated", "truncated", "life_lost")}
    for tick, reward in enumerate(rewards):
        ring["raw_reward"][0, tick % 16, 0] = reward
        ring["valid"][0, tick % 16, 0] = marks.get("invalid") != tick
    for name in ring.keys() & marks:
        ring[name][0, marks[name], 0] = 1
    config = Config().with_settings(method="c51", clip_rewards=False, discount=0.5, v_min=-4.0, v_max=4.0)
    stop = max(4, len(rewards))
    assert outside_support(ring, stop - 4, stop, config.with_settings(**settings)) == share


def test_the_figures_of_a_record_follow_from_its_ticks_and_commits() -> None:
    """The session began at 10 s, after 100 s of former ones, and committed at 12 and 16 s.

    Rounds have 40 steps; epsilon and the learning rate change with them.
    """
    sizes = {"envs": 4, "round_steps": 40, "replay_size": 400, "learning_starts": 40, "total_steps": 400}
    sizes |= {"train_every": 4, "actors": 1, "inference_batch": 4}
    anneal = {"learning_rate": 0.5, "learning_rate_end": 0.0, "anneal_steps": 80}
    anneal |= {"epsilon_start": 1.0, "epsilon_end": 0.2, "epsilon_steps": 80}
    config = Config().with_settings(network="small", device="cpu", run_dir=Path(), **sizes, **anneal)
    annealing = Memory.create(Plan(config, 4))
    board, names = annealing.board, annealing.board.metric_names
    board.begun_ns[0], board.before[0] = 10_000_000_000, 100.0
    board.commits.publish(2)
    places = [names.index(name) for name in ("updates", "committed_at", "boundary")]
    board.metrics[:2, places] = (0, 12.0, 1), (10, 16.0, 2)
    annealing.ring.field["valid"][:, :20] = 1
    annealing.ring.field["valid"][0, 3:6, 0] = 0
    kept = Sample(annealing, board.samples[NEWEST])
    first, second = (record_values(annealing, stop - 1, stop, kept, held=True) for stop in (1, 2))
    per_second = [f"{name}_per_second" for name in ("steps", "frames", "updates")]
    wanted = ("frames", "updates", "samples_per_step", "valid_steps", "seconds", *per_second)
    assert [first[name] for name in wanted] == [160, 0, 0.0, 37, 102.0, 20.0, 80.0, 0.0]
    assert [second[name] for name in wanted] == [320, 10, 8.0, 40, 106.0, 10.0, 40.0, 2.5]
    assert [first["epsilon"], second["epsilon"]] == pytest.approx([1.0, 0.6])
    assert record_values(annealing, 0, 1, kept, held=False)["valid_steps"] is None
    board.metrics[1, names.index("boundary")] = 2 + 256
    reused = [record_values(annealing, stop - 1, stop, Sample.take(annealing, 1), held=True) for stop in (2, 3, 4)]
    assert "seconds" not in reused[0]
    rates = [values["learning_rate"] for values in (first, *reused)]
    assert rates == [0.5, 0.25, 0.0, 0.0], "of the last round"


SECOND = 1_000_000_000
CONFIG = Config().with_settings(
    **{"game": "pong", "envs": 4, "lane_envs": 2, "actors": 2, "network": "small", "run_dir": Path("runs/pong")},
    **{"total_steps": 400, "round_steps": 40, "replay_size": 100, "learning_starts": 80},
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
    load = load_between(memory, old, after_four_seconds(memory))
    limit = find_bottleneck(load, 4)
    assert (load.seconds, load.steps_per_second, load.updates_per_second) == (4.0, 30.0, 2.5)
    inference, learner, scribe, *actors = load.roles
    assert (inference.busy, inference.state) == (share, phase.name.lower())
    assert (learner.name, learner.busy, learner.cores, learner.restarts) == ("learner", 1.0, 1.5, 0)
    assert (scribe.busy, scribe.cores) == (None, 0.0)
    assert [(actor.name, actor.busy, actor.restarts) for actor in actors] == [("actor 0", 0.5, 0), ("actor 1", 0.5, 1)]
    assert (limit.kind, limit.share, limit.steps_per_second) == ("learner", 1.0, 30.0)


def test_waits_for_evaluations_make_them_the_limit(memory: Memory) -> None:
    old = Sample.take(memory, 10 * SECOND)
    memory.board.evaluation_wait_ns[0] = SECOND
    new = after_four_seconds(memory)
    new.busy[Role.LEARNER], new.waited[Role.LEARNER] = 3 * SECOND, SECOND
    found = find_bottleneck(load_between(memory, old, new), 4)
    assert found.sentence.startswith("Evaluation limits the run: the learner waits 25% of the time for a free")


def test_cores_of_others_between_two_samples(memory: Memory) -> None:
    board = memory.board
    nothing_known = Sample.take(memory, 10 * SECOND)
    board.contention[:] = 10 * SECOND, 5 * SECOND, SECOND
    old = Sample.take(memory, 10 * SECOND)
    new = after_four_seconds(memory)
    load = load_between(memory, nothing_known, new)
    assert (load.others, load.stolen) == (None, None)
    assert load_between(memory, old, new).others is None, "there was no reading in between"
    board.contention[:] = 13 * SECOND, 11 * SECOND, SECOND
    load = load_between(memory, old, Sample.take(memory, 14 * SECOND))
    assert (load.others, load.stolen) == (2.0, 0.0)
    assert find_bottleneck(load, 4).sentence.endswith("Other programs use 2.0 of 4 cores.")
    board.samples[LEARNING], board.samples[NEWEST] = old.words, Sample.take(memory, 14 * SECOND).words
    limit = _load_fields(memory)["limit"]
    assert (limit["other_programs_cores"], limit["stolen_cores"]) == (2.0, 0.0)


def test_a_sample_is_kept_as_words_and_does_not_follow_the_board(memory: Memory) -> None:
    sample = after_four_seconds(memory)
    memory.board.samples[NEWEST] = sample.words
    memory.board.busy_ns[:] = 99 * SECOND
    memory.board.samples[LEARNING] = 0
    kept = Sample(memory, memory.board.samples[NEWEST])
    assert (kept.at, kept.steps, kept.updates) == (14 * SECOND, 120, 10)
    assert np.array_equal(kept.words, sample.words)
    memory.board.samples[NEWEST] = 0
    assert kept.busy[Role.LEARNER] == 4 * SECOND


def test_no_time_between_two_samples_gives_no_shares(memory: Memory) -> None:
    sample = after_four_seconds(memory)
    load = load_between(memory, sample, sample)
    assert (load.steps_per_second, load.updates_per_second, find_bottleneck(load, 4).kind) == (None, None, "starting")
    assert {(role.busy, role.cores) for role in load.roles} == {(None, None)}


def test_a_process_taken_for_working_that_was_dead_gives_no_negative_share(memory: Memory) -> None:
    memory.board.phase[ACTOR] = Phase.WORKING
    old = Sample.take(memory, 13 * SECOND)  # silent for three seconds
    memory.board.phase[ACTOR] = Phase.STARTING
    memory.board.waited_ns[ACTOR] = SECOND
    actor = load_between(memory, old, Sample.take(memory, 14 * SECOND)).roles[-2]
    assert (actor.name, actor.busy) == ("actor 0", 0.0)


def test_the_summary_says_what_limited_the_run_since_the_beginning_of_learning(memory: Memory, tmp_path: Path) -> None:
    board = memory.board
    former = {"limit": {"name": "learner"}, "roles": {"learner": {"busy": 1.0}}, "steps": 9}
    with closing(MetricsLog(tmp_path / "metrics.jsonl")) as log:
        board.samples[[LEARNING, NEWEST]] = Sample.take(memory, 10 * SECOND).words
        at_once = make_summary(memory, log, -1, {}, former)  # a start that has recorded nothing
        board.samples[NEWEST] = after_four_seconds(memory).words
        board.private_bytes[Role.LEARNER], board.device_bytes[Role.LEARNER] = 700_000_000, 8_000_000_000
        board.replay_device_bytes[0] = 7_000_000_000
        board.busy_ns[ACTOR:] += 99 * SECOND  # after the newest record
        found = make_summary(memory, log, -1, {}, former)
    assert (at_once["limit"], at_once["roles"], at_once["steps"]) == (former["limit"], former["roles"], 0)
    speeds = {"steps_per_second": 30.0, "limit_steps_per_second": 30.0, "seconds": 4.0}
    assert found["limit"].items() >= ({"role": "learner", "share_of_limit": 1.0} | speeds).items()
    assert found["roles"]["actor 1"] == {"busy": 0.5, "cores": 0.0, "restarts": 1}
    sizes = {"private_bytes": {"learner": 700_000_000}, "device_bytes": {"learner": 8_000_000_000}}
    sizes |= {"shared_bytes": memory.arena.layout.size, "replay_device_bytes": 7_000_000_000}
    assert found["memory"] == sizes


def test_a_gateway_has_a_node(memory: Memory) -> None:
    memory = Memory.create(Plan(memory.plan.config, 6, Elsewhere(1)))
    board, gateways = memory.board, memory.gateways
    board.heartbeat[:] = 10 * SECOND
    board.lane_owner[:2] = memory.plan.config.machine.actors
    gateways.transfer_ns[0], gateways.sent_bytes[0], gateways.received_bytes[0] = SECOND, 1_000, 100
    old = Sample.take(memory, 10 * SECOND)
    gateways.transfer_ns[0], gateways.sent_bytes[0], gateways.received_bytes[0] = 2 * SECOND, 9_000, 500
    gateways.write_name(0, "näher" + 80 * "x")
    gateways.losses[0] = 3
    load = load_between(memory, old, Sample.take(memory, 14 * SECOND))
    node = load.roles[-1].node
    assert (node.lanes, node.losses, node.transfer, node.sent, node.received) == (2, 3, 0.25, 2_000, 100)
    assert node.name.startswith("näherx")
    assert all(role.node is None for role in load.roles[:-1])


def test_an_observer_reads_the_newest_sentences_of_a_gateway(memory: Memory) -> None:
    gateways = Memory.create(Plan(memory.plan.config, 6, Elsewhere(2))).gateways
    for number in range(11):
        gateways.tell(1, f"sentence {number}")
    assert gateways.notices.values.tolist() == [0, 11]
    assert gateways.sentences(1, 9, 11) == ["sentence 9", "sentence 10"]
    assert gateways.sentences(1, 0, 11)[0] == "sentence 3"  # older ones are overwritten


def test_no_metric_may_have_the_name_of_a_field_of_a_record(tmp_path: Path) -> None:
    """All fields that a record of any method has are reserved, also those of c51 alone, and of workers."""
    memory = Memory.create(Plan(CONFIG.with_settings(method="c51"), actions=6))
    memory.board.commits.publish(1)
    memory.board.metrics[0] = 0.5
    memory.board.metrics[0, -1] = 1
    values = record_values(memory, 0, 1, Sample.take(memory, 1), held=True)
    with closing(MetricsLog(tmp_path / "metrics.jsonl")) as log:
        log.log_round(0, 40, values, [], envs=4)
    memory.arena.close()
    (record,) = read_metrics(tmp_path / "metrics.jsonl")
    assert record.keys() - set(DQN.metrics) | {*RECORD_METRICS, "workers_busy"} == RECORD_FIELDS


def test_metrics_of_built_in_methods_are_explained() -> None:
    built_in = {name for each in declarations._REGISTRY.values() for name in each.metrics if each.name != "theirs"}
    assert built_in <= _METRICS.keys()
    assert all(metric_of(name).meaning.endswith(".") and len(metric_of(name).meaning) < 100 for name in _METRICS)
    dqn, ppo = ([metric_of(name).label for name in displayed(method.metrics)] for method in (DQN, PPO))
    shown = ["loss", "mean value", "entropy", "KL", "explained variance", "clip fraction"]
    assert (dqn, ppo, metric_of("mean_baseline").label) == (["loss", "mean Q"], shown, "mean baseline")


def test_dashboards_show_metrics_under_cleanrls_names() -> None:
    record = {"kind": "round", "round": 3, "steps": 40, "frames": 160, "seconds": 1.5, "epsilon": 0.1, "episodes": 2}
    policy = record_scalars(record | dict.fromkeys(PPO.metrics, 0.5))
    names = ("loss", "mean_value", "gradient_norm", "entropy", "approx_kl", "explained_variance", "clipfrac")
    assert policy.keys() == {"charts/epsilon", *(f"losses/{name}" for name in names)}, "its loss is no TD error"
    assert {"losses/td_loss", "losses/q_values"} <= record_scalars(record | dict.fromkeys(DQN.metrics, 0.5)).keys()
    theirs = record_scalars(record | {"loss": 0.5, "mean_baseline": 0.25, "entropy": None})
    assert theirs == {"charts/epsilon": 0.1, "losses/loss": 0.5, "losses/mean_baseline": 0.25}
