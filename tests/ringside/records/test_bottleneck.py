"""The bottleneck: which role limits a run, and how far the run is from that limit."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from ringside.records.bottleneck import Bottleneck, Load, NodeStatus, RoleStatus, find_bottleneck

Roles = Sequence[RoleStatus]


def roles(
    learner: float, inference: float, *actors: float, cores: tuple[float, float] = (1.0, 0.9), scribe: float = 0.02
) -> Roles:
    """Busy shares; and the cores of the learner, and of each actor."""
    return (
        RoleStatus("inference", "waiting", inference, cores=0.9),
        RoleStatus("learner", "working", learner, cores=cores[0]),
        RoleStatus("scribe", "waiting", scribe, cores=0.1),
        *(RoleStatus(f"actor {i}", "working", busy, cores=cores[1]) for i, busy in enumerate(actors)),
    )


def on_nodes(*nodes: tuple[str, float, float]) -> Roles:
    """Roles of a run with gateways: name, busy share and share of the transfers of each node."""
    gateways = [
        RoleStatus(f"actor {i + 1}", "working", busy, 0.02, node=NodeStatus(name, 4, 0, transfer, 2.5e6, 1e5))
        for i, (name, busy, transfer) in enumerate(nodes)
    ]
    return (*roles(0.4, 0.02, 0.0, cores=(1.0, 0.0)), *gateways)


WORKERS = (RoleStatus("scribe", "waiting", 0.02),)
WORKERS += tuple(RoleStatus(f"worker {i}", "working", 0.9, cores=0.9) for i in (0, 1))
FEW_CORES = roles(0.97, 0.4, 0.9, cores=(0.6, 0.3))
CORES = {"learner": 0.1, "inference": 0.06, "scribe": 0.0, "actor 0": 0.04}
HARDLY_A_CORE = tuple(replace(role, cores=CORES[role.name]) for role in roles(1.0, 0.4, 0.9))


def judged(
    who: Roles, usable_cores: int = 64, *, learning: bool = True, speed: float | None = 450.0, **more: Any
) -> Bottleneck:
    return find_bottleneck(Load(tuple(who), learning, steps_per_second=speed, **more), usable_cores)


EVALUATION = "Evaluation limits the run: {} waits 30% of the time for a free slot in the queue of evaluations"
CONTENTION = " Other programs use 1.0 of 2 cores. The hypervisor takes 0.8 of 2 cores (steal time)."
BUSY = {
    **{name: f"{name.capitalize()} limits the run" for name in ("emulation", "inference")},
    **{"learner": "The learner limits the run", "scribe": "Recording limits the run"},
    **{"workers": "The workers limit the run", "turns": "Playing and learning take turns"},
    "none": "No role limits the run by itself: they wait for one another",
    "network": "The network limits the run: the nodes wait 45% of the time for parameters, 5.0 MB/s",
}
"""Beginning of the sentence by kind, where busy shares follow."""
SUBJECT = {"turns": "turns without waiting", "cores": "all cores", "inference": "inference"}
AT_WORK = (RoleStatus("inference", "working", 0.95), *WORKERS)
OWN_CORES = "All cores are in use (2): inference takes the most, 0.9, then learner 0.6, actors 0.3, scribe 0.1"
CORES_OF_OTHERS = "All cores are in use (2, 1.8 by others): of this run learner takes the most, 0.1, then inference 0.1"
ALTERNATES, WAITS = {"alternates": True}, {"evaluation_wait": 0.3}
STARVED = "scribe 96% with a core for 10% of that, learner 60%, actors 50%, inference 30%"
UNEVEN_ACTORS = roles(0.6, 0.3, 0.5, 1.0)
UNEVEN = on_nodes(("n1", 0.98, 0.1), ("n2", 0.6, 0.1), ("n3", 0.5, 0.1))


BOTTLENECKS = [
    (roles(0.9, 0.4, 0.5, 0.7), {}, "learner", "learner", 0.9, "learner 90%, actors 60%, inference 40%"),
    (roles(0.5, 0.4, 0.9, 0.9), {}, "emulation", "actors", 0.9, "actors 90%, learner 50%, inference 40%"),
    (UNEVEN_ACTORS, {}, "emulation", "actors", 0.75, "actors 75% (actor 1 100%), learner 60%, inference 30%"),
    (roles(0.3, 0.9, 0.4, 0.4), {}, "inference", "inference", 0.9, "inference 90%, actors 40%, learner 30%"),
    (roles(0.3, 0.2, 0.6, 0.3), {}, "none", "actors", 0.45, "actors 45%, learner 30%, inference 20%"),
    (roles(0.6, 0.3, 0.5, scribe=0.96), {}, "scribe", "scribe", 0.96, STARVED),
    # The limit is a run in which one of them always works, not one in which the busiest works alone.
    (roles(0.5, 0.1, 0.3, 0.4), ALTERNATES, "turns", "learner", 0.9, "learner 50%, actors 35%, inference 10%"),
    (roles(0.6, 0.5, 0.4), WAITS, "evaluation", "evaluator", 1.0, EVALUATION.format("the learner")),
    (WORKERS, {}, "workers", "workers", 0.9, "workers 90%"),
    (AT_WORK, WAITS, "evaluation", "evaluator", 1.0, EVALUATION.format("the first process of the workers")),
    (FEW_CORES, {"usable_cores": 2}, "cores", "inference", 0.95, OWN_CORES),
    (HARDLY_A_CORE, {"usable_cores": 2, "others": 1.0, "stolen": 0.8}, "cores", "learner", 0.1, CORES_OF_OTHERS),
    (on_nodes(("n1", 0.99, 0.5), ("n2", 0.99, 0.4)), {}, "network", "nodes", 0.99, "nodes 99%, learner 40%"),
    (*(UNEVEN, {}, "node", "nodes", 2.08 / 3), "Node n1 limits the run (busy: nodes 69% (actor 1 98%), learner 40%)"),
    (on_nodes(("n1", 0.96, 0.1), ("n2", 0.94, 0.1)), {}, "emulation", "nodes", 0.95, "nodes 95%, learner 40%"),
    (on_nodes(("n1", 0.5, 0.1), ("", 1.0, 0.0)), {}, "none", "nodes", 0.5, "nodes 50%, learner 40%"),
]


@pytest.mark.parametrize(("who", "more", "kind", "role", "share", "said"), BOTTLENECKS)
def test_the_bottleneck_and_the_way_to_its_limit(
    who: Roles, more: dict[str, Any], kind: str, role: str, share: float, said: str
) -> None:
    found = judged(who, **more)
    sentence = f"{BUSY[kind]} (busy: {said})" if kind in BUSY else said
    sentence += f"; 450 of about {450 / share:,.0f} steps/s that {SUBJECT.get(kind, f'the {role}')} would allow "
    expected = f"{sentence}({share:.0%}).{CONTENTION * ('others' in more)}"
    assert (found.kind, found.role, found.sentence) == (kind, role, expected)
    assert (found.share, found.steps_per_second) == pytest.approx((share, 450.0 / share))


TWO_LIMITS = [
    (roles(0.9, 0.1, 0.1), {"alternates": True}, "learner", "learner"),
    (roles(0.99, 0.4, 0.95), {"learning": False}, "emulation", "actors"),
    (roles(0.5, 0.1, 0.3, 0.4), {"alternates": True, "learning": False}, "none", "actors"),
    ([*roles(0.0, 0.1, 0.3)[:1], *roles(0.0, 0.1, 0.3)[2:]], {"alternates": True}, "none", "actors"),
    (roles(0.95, 0.3, 0.5, scribe=0.96), {}, "learner", "learner"),
    (roles(0.6, 0.93, 0.4), {"evaluation_wait": 0.3}, "inference", "inference"),  # which evaluations wait for
    (roles(0.95, 0.5, 0.4), {"evaluation_wait": 0.3}, "learner", "learner"),
    (roles(0.6, 0.5, 0.4, scribe=0.96), {"evaluation_wait": 0.3}, "scribe", "scribe"),
    (roles(0.3, 0.6, 0.2), {"alternates": True}, "turns", "inference"),
    (roles(0.6, 0.5, 0.4), {"evaluation_wait": 0.05}, "none", "learner"),
    (FEW_CORES, {"usable_cores": 3}, "learner", "learner"),
    (HARDLY_A_CORE, {"usable_cores": 2}, "learner", "learner"),
    # Others are no limit of a run that has the cores that it needs. A gateway needs none.
    (roles(0.98, 0.2, 0.3, cores=(1.0, 0.3)), {"usable_cores": 3, "others": 0.9}, "learner", "learner"),
    (on_nodes(("n1", 0.95, 0.1)), {"others": 63.0}, "emulation", "nodes"),
    # Actors of this machine play beside a faster node, or without a node.
    ((*roles(0.2, 0.3, 0.95), *on_nodes(("n1", 0.6, 0.1))[-1:]), {}, "emulation", "actors"),
    ((*roles(0.2, 0.3, 0.95), *on_nodes(("", 1.0, 0.0))[-1:]), {}, "emulation", "actors"),
]


@pytest.mark.parametrize(("who", "more", "kind", "role"), TWO_LIMITS)
def test_the_limit_that_counts_of_two(who: Roles, more: dict[str, Any], kind: str, role: str) -> None:
    found = judged(who, **more)
    assert (found.kind, found.role) == (kind, role)
    assert more != {"learning": False} or "learner" not in found.sentence


WITHOUT_A_CORE = [
    (roles(0.95, 0.3, 0.5, cores=(0.4, 0.9)), "learner 95% with a core for 42% of that, actors"),
    (roles(0.5, 0.3, 0.96, 0.96, cores=(1.0, 0.5)), "actors 96% with a core for 52% of that, learner"),
    (roles(0.95, 0.3, 0.5, cores=(1.9, 0.9)), "learner 95%, actors"),
]


@pytest.mark.parametrize(("who", "part"), WITHOUT_A_CORE)
def test_a_busy_role_without_a_core_is_named(who: Roles, part: str) -> None:
    assert part in judged(who).sentence


def test_roles_that_have_not_counted_anything_yet_do_not_matter() -> None:
    idle = [RoleStatus(name, "waiting", 0.0, cores=0.0) for name in ("inference", "actor 0")]
    for learning, busy in ((True, None), (False, None), (False, 0.5)):  # before it learns, the learner waits by design
        found = judged([*idle, RoleStatus("learner", "waiting", busy)], learning=learning)
        assert (found.kind, found.share, found.steps_per_second) == ("none", 0.0, None)
    assert [role.is_player for role in WORKERS] == [False, True, True]


def test_cores_of_others_are_named_with_every_limit() -> None:
    found = judged(roles(0.9, 0.4, 0.5), usable_cores=8, others=1.0, stolen=0.8)
    assert (found.kind, found.sentence.partition("(90%).")[2]) == ("learner", CONTENTION.replace("of 2", "of 8"))
    assert judged(roles(0.9, 0.4, 0.5), others=1.0).sentence.endswith("(90%).")


SHARES = [
    (roles(0.5, 0.45, 0.2), {"alternates": True}, 0.95, 450 / 0.95),  # the busiest of those that play
    (roles(0.6, 0.3, 0.5), {"alternates": True}, 1.0, 450.0),
    (roles(1.0, 0.4, 0.9, cores=(1.2, 0.9)), {"usable_cores": 2}, 1.0, 450.0),  # as cores are counted
    *((roles(0.95, 0.3, 0.5), {"speed": speed}, 0.95, None) for speed in (None, 0.0)),
]


@pytest.mark.parametrize(("who", "more", "share", "speed"), SHARES)
def test_a_limit_has_a_share_without_a_speed(who: Roles, more: dict[str, Any], share: float, speed: Any) -> None:
    found = judged(who, **more)
    assert (found.share, found.steps_per_second) == (share, speed)
    assert speed or found.sentence.endswith("(busy: learner 95%, actors 50%, inference 30%).")


ALL = ("inference", "learner", "scribe", *(f"actor {i}" for i in range(6)))


STARTS = [
    (["learner", "inference", "actor 2"], "Starting: waits for inference, learner, actor 2."),
    (ALL[3:], "Starting: waits for actor 0 and 5 more processes."),
    ([], "All processes have started; the first steps are being played."),
]


@pytest.mark.parametrize(("starting", "sentence"), STARTS)
def test_without_busy_shares_the_start_names_the_roles_that_are_awaited(starting: Sequence[str], sentence: str) -> None:
    found = judged([RoleStatus(name, "starting" if name in starting else "waiting") for name in ALL])
    assert found == Bottleneck("starting", sentence)
