"""Positions and names of a run's processes."""

import pytest

from shared.memory.process_table import ProcessTable, Role, process_name

RUN = ProcessTable.make({Role.ACTOR: 3})


def test_a_process_is_found_by_its_role_and_its_role_by_its_position() -> None:
    names = ["inference", "learner", "scribe", "evaluator", "actor 0", "actor 1", "actor 2"]
    assert [RUN.name_of(index) for index in range(len(RUN))] == names
    for index in range(len(RUN)):
        role, number = RUN.role_of(index), RUN.number_of(index)
        assert (RUN.index_of(role, number), process_name(role, number)) == (index, names[index])
        assert index in RUN.indexes_of(role)
    assert list(range(len(RUN)))[RUN.slice_of(Role.ACTOR)] == [4, 5, 6]


def test_members_beside_the_learner_come_last_and_begin_at_one() -> None:
    run = ProcessTable.make({Role.ACTOR: 2, Role.MEMBER: 2})
    assert [run.name_of(index) for index in run.learners] == ["learner", "member 1", "member 2"]
    assert (list(run.learners), RUN.learners) == ([Role.LEARNER, 6, 7], (Role.LEARNER,))


def test_roles_without_a_number_stand_at_their_value() -> None:
    """Fields of processes may therefore be indexed by these roles."""
    for role in Role:
        if not role.is_numbered:
            assert RUN.indexes_of(role) == range(role, role + 1)


def test_a_process_that_is_not_there_has_no_position() -> None:
    with pytest.raises(IndexError):
        RUN.index_of(Role.ACTOR, 3)
    with pytest.raises(IndexError):
        RUN.role_of(7)
