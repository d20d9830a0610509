"""The bottleneck: which role limits a run, and how far the run is from that limit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ringside.load.bottleneck import Activity, Bottleneck, find_bottleneck
from ringside.load.role_status import NodeStatus, RoleStatus, groups_of


def roles(
    learner: float,
    inference: float,
    *actors: float,
    learner_cores: float = 1.0,
    actor_cores: float = 0.9,
    scribe: float = 0.02,
) -> tuple[RoleStatus, ...]:
    return (
        RoleStatus("inference", "waiting", inference, cores=0.9),
        RoleStatus("learner", "working", learner, cores=learner_cores),
        RoleStatus("scribe", "waiting", scribe, cores=0.1),
        *(RoleStatus(f"actor {i}", "working", busy, cores=actor_cores) for i, busy in enumerate(actors)),
    )


def judged(
    who: tuple[RoleStatus, ...],
    *,
    learning: bool = True,
    usable_cores: int = 64,
    speed: float | None = 450.0,
    evaluation_wait: float = 0.0,
    alternates: bool = False,
    others: float | None = None,
    stolen: float | None = None,
) -> Bottleneck:
    activity = Activity(
        who,
        usable_cores,
        learning=learning,
        steps_per_second=speed,
        evaluation_wait=evaluation_wait,
        alternates=alternates,
        others=others,
        stolen=stolen,
    )
    return find_bottleneck(activity)


@pytest.mark.parametrize(
    ("shares", "limit", "role", "sentence"),
    [
        (
            (0.9, 0.4, 0.5, 0.7),
            "learner",
            "learner",
            "The learner limits the run: it works 90% of the time, and the actors wait 40% of the time; "
            "450 of about 500 steps/s that the learner would allow (90%).",
        ),
        (
            (0.5, 0.4, 0.9, 0.9),
            "emulation",
            "actors",
            "Emulation limits the run: the actors work 90% of the time, and the learner waits 50% of its time; "
            "450 of about 500 steps/s that the actors would allow (90%).",
        ),
        (
            (0.3, 0.9, 0.4, 0.4),
            "inference",
            "inference",
            "Inference limits the run: it works 90% of the time, and the actors wait 60% of the time; "
            "450 of about 500 steps/s that inference would allow (90%).",
        ),
        (
            (0.3, 0.2, 0.6, 0.3),
            "none",
            "actors",
            "No role limits the run by itself (actors busy 45%, inference 20%, learner 30%): they wait for one "
            "another; 450 of about 1,000 steps/s that the actors would allow (45%).",
        ),
    ],
)
def test_the_role_that_limits_and_the_way_to_its_limit(
    shares: tuple[float, ...], limit: str, role: str, sentence: str
) -> None:
    found = judged(roles(*shares))
    assert (found.kind, found.role, found.sentence) == (limit, role, sentence)
    assert found.share == groups_of(roles(*shares))[role].busy
    assert found.steps_per_second == pytest.approx(450.0 / found.share)


def test_playing_and_learning_in_turns_are_judged_together() -> None:
    """The limit is a run in which one of them always works, not one in which the busiest works alone."""
    found = judged(roles(0.5, 0.1, 0.3, 0.4), alternates=True)
    assert (found.kind, found.role) == ("turns", "learner")
    assert found.sentence == (
        "Playing and learning take turns: the learner works 50% of the time, the actors work 35% of the time, and "
        "inference works 10% of the time. 450 steps/s; without waiting about 500 would be possible (90%)."
    )
    assert judged(roles(0.5, 0.45, 0.2), alternates=True).share == 0.95
    assert judged(roles(0.9, 0.1, 0.1), alternates=True).kind == "learner"
    assert judged(roles(0.5, 0.1, 0.3, 0.4), alternates=True, learning=False).kind == "none"
    assert judged([*roles(0.0, 0.1, 0.3)[:1], *roles(0.0, 0.1, 0.3)[2:]], alternates=True).kind == "none"


def test_one_slow_actor_for_which_all_others_wait_is_named() -> None:
    found = judged(roles(0.6, 0.3, 0.5, 1.0))
    assert (found.kind, found.role, found.share) == ("emulation", "actors", 0.75)
    assert "the actors work 75% of the time, actor 1 100%, and the learner waits 40% of its time" in found.sentence


def test_a_scribe_for_which_the_run_waits_is_named() -> None:
    found = judged(roles(0.6, 0.3, 0.5, scribe=0.96))
    assert (found.kind, found.role, found.share) == ("scribe", "scribe", 0.96)
    assert found.sentence.startswith("Recording limits the run: the scribe works 96% of the time")
    assert judged(roles(0.95, 0.3, 0.5, scribe=0.96)).kind == "learner"


def test_evaluations_for_which_the_learner_waits_are_named_unless_these_wait_for_inference() -> None:
    found = judged(roles(0.6, 0.5, 0.4), evaluation_wait=0.3)
    assert (found.kind, found.role, found.share) == ("evaluation", "evaluator", 1.0)
    assert found.sentence == (
        "Evaluation limits the run: the learner waits 30% of the time for a free slot in the queue of evaluations; "
        "450 of about 450 steps/s that the evaluator would allow (100%)."
    )
    assert judged(roles(0.6, 0.93, 0.4), evaluation_wait=0.3).kind == "inference"
    assert judged(roles(0.95, 0.5, 0.4), evaluation_wait=0.3).kind == "learner"
    assert judged(roles(0.6, 0.5, 0.4), evaluation_wait=0.05).role == "learner"


def test_a_busy_role_without_a_core_is_named() -> None:
    assert (
        "works 95% of the time and has a core for 42% of that, and"
        in judged(roles(0.95, 0.3, 0.5, learner_cores=0.4)).sentence
    )
    assert (
        "work 96% of the time and have a core for 52% of that, and"
        in judged(roles(0.5, 0.3, 0.96, 0.96, actor_cores=0.5)).sentence
    )
    assert "has a core" not in judged(roles(0.95, 0.3, 0.5, learner_cores=1.9)).sentence


def test_before_learning_the_learner_cannot_limit() -> None:
    found = judged(roles(0.99, 0.4, 0.95), learning=False)
    assert found.kind == "emulation"
    assert "learner" not in found.sentence


def test_roles_that_have_not_counted_anything_yet_do_not_matter() -> None:
    idle = [RoleStatus(name, "waiting", 0.0, cores=0.0) for name in ("inference", "actor 0")]
    found = judged([*idle, RoleStatus("learner", "waiting")])
    assert (found.kind, found.share, found.steps_per_second) == ("none", 0.0, None)


def test_workers_limit_a_run_that_has_neither_learner_nor_inference() -> None:
    who = (
        RoleStatus("scribe", "waiting", 0.02),
        *(RoleStatus(f"worker {i}", "working", 0.9, cores=0.9) for i in (0, 1)),
    )
    found = judged(who)
    assert (found.kind, found.role, found.share) == ("workers", "workers", pytest.approx(0.9))
    assert found.sentence == (
        "The workers limit the run: their processes work 90% of the time, and wait for each other in the rest; 450 "
        "of about 500 steps/s that the workers would allow (90%)."
    )
    assert [role.is_player for role in who] == [False, True, True]
    evaluated = judged((RoleStatus("inference", "working", 0.95), *who), evaluation_wait=0.3)
    assert (evaluated.kind, evaluated.role) == ("evaluation", "evaluator")
    assert "the first process of the workers waits 30% of the time for a free slot" in evaluated.sentence


def test_cores_that_are_all_in_use_are_the_limit() -> None:
    who = roles(0.97, 0.4, 0.9, learner_cores=0.6, actor_cores=0.3)
    found = judged(who, usable_cores=2)
    assert (found.kind, found.role, found.share) == ("cores", "inference", pytest.approx(0.95))
    assert found.sentence == (
        "All cores are in use (2): inference takes the most, 0.9, then learner 0.6, actors 0.3, scribe 0.1; "
        "450 of about 474 steps/s that they allow (95%)."
    )
    assert judged(who, usable_cores=3).kind == "learner"


def test_cores_that_other_programs_use_are_in_use_too_and_named() -> None:
    cores = {"learner": 0.1, "inference": 0.06, "scribe": 0.0, "actor 0": 0.04}
    who = tuple(replace(role, cores=cores[role.name]) for role in roles(1.0, 0.4, 0.9))
    found = judged(who, usable_cores=2, others=1.8)
    assert (found.kind, found.role, found.share) == ("cores", "learner", pytest.approx(0.1))
    assert judged(who, usable_cores=2).kind == "learner"
    assert found.sentence == (
        "All cores are in use (2, 1.8 by others): of this run learner takes the most, 0.1, then inference 0.1; "
        "450 of about 4,500 steps/s that they allow (10%). "
        "Other programs use 1.8 of 2 cores."
    )


def test_others_are_no_limit_of_a_run_that_has_the_cores_that_it_needs() -> None:
    found = judged(roles(0.98, 0.2, 0.3, learner_cores=0.97, actor_cores=0.3), usable_cores=3, others=0.9)
    assert found.kind == "learner"
    assert found.sentence.endswith("Other programs use 0.9 of 3 cores.")


def test_cores_of_others_are_named_with_every_limit() -> None:
    found = judged(roles(0.9, 0.4, 0.5), usable_cores=8, others=1.0, stolen=0.8)
    assert found.kind == "learner"
    assert found.sentence.endswith(
        "(90%). Other programs use 1.0 of 8 cores. The hypervisor takes 0.8 of 8 cores (steal time)."
    )
    assert judged(roles(0.9, 0.4, 0.5), others=1.0).sentence.endswith("(90%).")


def test_more_than_all_cores_is_a_matter_of_counting() -> None:
    found = judged(roles(1.0, 0.4, 0.9, learner_cores=1.2), usable_cores=2)
    assert (found.share, found.steps_per_second) == (1.0, 450.0)


@pytest.mark.parametrize("speed", [None, 0.0])
def test_without_a_speed_there_is_a_share_all_the_same(speed: float | None) -> None:
    found = judged(roles(0.95, 0.3, 0.5), speed=speed)
    assert (found.share, found.steps_per_second) == (0.95, None)
    assert found.sentence.endswith("the actors wait 50% of the time.")


def test_without_busy_shares_the_processes_are_starting() -> None:
    blank = tuple(replace(role, busy=None) for role in roles(0.5, 0.5, 0.5))
    for found in (judged(blank), judged((), learning=False)):
        assert (found.kind, found.role, found.share) == ("starting", None, None)
        assert found.sentence == "All processes have started; the first steps are being played."


def test_the_start_names_the_roles_that_are_awaited() -> None:
    def told(*names: str) -> str:
        return judged(tuple(RoleStatus(name, "starting" if name in names else "waiting") for name in ALL)).sentence

    ALL = ("inference", "learner", "scribe", *(f"actor {i}" for i in range(6)))
    assert told("learner", "inference", "actor 2") == (
        "Starting: waits for inference and learner (loading PyTorch and the network) and actor 2 (loading emulators "
        "and the game)."
    )
    assert told(*ALL[3:]) == "Starting: waits for actor 0 and 5 more (loading emulators and the game)."
    assert told("scribe") == "Starting: waits for scribe (preparing the memory)."


def on_nodes(*nodes: tuple[str, float, float], learner: float = 0.4) -> tuple[RoleStatus, ...]:
    """Roles of a run with gateways: name, busy share and share of the transfers of each node."""
    gateways = [
        RoleStatus(f"actor {i + 1}", "working", busy, 0.02, node=NodeStatus(name, 4, 0, 0, transfer, 2.5e6, 1e5))
        for i, (name, busy, transfer) in enumerate(nodes)
    ]
    return (*roles(learner, 0.02, 0.0, actor_cores=0.0), *gateways)


@pytest.mark.parametrize(
    ("nodes", "kind", "sentence"),
    [
        (
            (("n1", 0.99, 0.5), ("n2", 0.99, 0.4)),
            "network",
            "The network limits the run: the nodes wait 45% of the time for parameters (5.0 MB/s), and the learner "
            "waits 60% of its time; 450 of about 455 steps/s that the nodes would allow (99%).",
        ),
        (
            (("n1", 0.98, 0.1), ("n2", 0.6, 0.1), ("n3", 0.5, 0.1)),
            "node",
            "Node n1 limits the run: it works 98% of the time, the other nodes 55%, and the learner waits 60% of its "
            "time; 450 of about 649 steps/s that the nodes would allow (69%).",
        ),
        (
            (("n1", 0.96, 0.1), ("n2", 0.94, 0.1)),
            "emulation",
            "Emulation limits the run: the nodes work 95% of the time, and the learner waits 60% of its time; "
            "450 of about 474 steps/s that the nodes would allow (95%).",
        ),
        (
            (("n1", 0.5, 0.1), ("", 1.0, 0.0)),
            "none",
            "No role limits the run by itself (nodes busy 50%, inference 2%, learner 40%): they wait for one another; "
            "450 of about 900 steps/s that the nodes would allow (50%).",
        ),
    ],
)
def test_on_nodes_the_network_or_the_slowest_node_is_named(
    nodes: tuple[tuple[str, float, float], ...], kind: str, sentence: str
) -> None:
    found = judged(on_nodes(*nodes))
    assert (found.kind, found.role, found.sentence) == (kind, "nodes", sentence)


def test_a_gateway_is_not_said_to_lack_a_core() -> None:
    found = judged(on_nodes(("n1", 0.95, 0.1)), others=63.0)
    assert found.kind == "emulation"


def test_actors_of_this_machine_that_play_beside_a_faster_node_are_judged() -> None:
    found = judged((*roles(0.2, 0.3, 0.95), *on_nodes(("n1", 0.6, 0.1))[-1:]))
    assert (found.kind, found.role) == ("emulation", "actors")


def test_without_a_node_the_actors_of_this_machine_are_judged() -> None:
    found = judged((*roles(0.2, 0.3, 0.95), *on_nodes(("", 1.0, 0.0))[-1:]))
    assert (found.kind, found.role) == ("emulation", "actors")
