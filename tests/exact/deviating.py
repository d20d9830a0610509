"""A launcher whose second rank has a wrong number in each gradient: `python -m tests.exact.deviating OPTIONS`."""

from __future__ import annotations

import sys
from typing import Any

import launch
from ringside.run import children
from shared.memory.process_table import Role
from shared.process.child import ChildSpec


def main(child_spec: ChildSpec) -> None:
    """The rank; its parameters differ from those of the learner after its first update."""
    from learner.networks.sharded import ShardedModel
    from learner.ranks import rank

    backward = ShardedModel.backward

    def deviate(model: ShardedModel, *arguments: Any) -> None:
        backward(model, *arguments)
        model._gradient[0] += 1.0

    ShardedModel.backward = deviate  # type: ignore[method-assign]
    rank.main(child_spec)


if __name__ == "__main__":
    children.MODULES[Role.MEMBER] = "tests.exact.deviating"
    sys.exit(launch.main(sys.argv[1:]))
