"""The processes of a run: their roles, their positions among the fields of processes, and their names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum


class Role(IntEnum):
    """The task of a process.

    A role without a number has one process, whose position is the value of the role. Positions of the others follow
    from the counts, so only `ProcessTable` knows them.
    """

    INFERENCE = 0
    LEARNER = 1
    SCRIBE = 2
    EVALUATOR = 3
    ACTOR = 4
    WORKER = 5
    MEMBER = 6
    """Members 1 and up of the learner's team; on GPUs, its ranks. Member 0 is the learner."""

    @property
    def is_numbered(self) -> bool:
        """True if a run may have several processes of this role."""
        return self >= Role.ACTOR


@dataclass(frozen=True)
class ProcessTable:
    """The processes of a run by position, in the order of their roles."""

    processes: tuple[tuple[Role, int], ...]
    """Role of each, and its number among those of the role. Every run has optional roles, such as the evaluator."""

    @classmethod
    def make(cls, numbered: Mapping[Role, int]) -> ProcessTable:
        """Return the table of a run with so many processes of the numbered roles; of the others it has one each."""
        counts = {role: numbered.get(role, 0) if role.is_numbered else 1 for role in Role}
        return cls(tuple((role, number) for role, count in counts.items() for number in range(count)))

    def __len__(self) -> int:
        """Number of positions."""
        return len(self.processes)

    def indexes_of(self, role: Role) -> range:
        """Positions of the processes of a role."""
        first = sum(each < role for each, _ in self.processes)
        return range(first, first + sum(each == role for each, _ in self.processes))

    def slice_of(self, role: Role) -> slice:
        """The same positions as a slice of a field of processes."""
        indexes = self.indexes_of(role)
        return slice(indexes.start, indexes.stop)

    def index_of(self, role: Role, number: int = 0) -> int:
        """Position of the process of that number. Raises `IndexError` when there is none."""
        return self.indexes_of(role)[number]

    @property
    def learners(self) -> tuple[int, ...]:
        """Positions of all members of the learner, itself first."""
        return (Role.LEARNER, *self.indexes_of(Role.MEMBER))

    def role_of(self, index: int) -> Role:
        """Role of the process at a position. Raises `IndexError` when there is none."""
        return self.processes[index][0]

    def number_of(self, index: int) -> int:
        """Number of the process at a position among those of its role."""
        return self.processes[index][1]

    def name_of(self, index: int) -> str:
        """Name of the process at a position, as in `ps`, logs and displays: `learner`, `actor 3`."""
        return process_name(*self.processes[index])


def process_name(role: Role, number: int) -> str:
    """Name of a process of a role: `learner`, `actor 3`; the first beside the learner is `member 1`."""
    shown = number + 1 if role is Role.MEMBER else number
    return f"{role.name.lower()} {shown}" if role.is_numbered else role.name.lower()
