"""A storm over runs on several nodes: processes of every kind are killed, and nodes fall silent.

    python -m tests.ringside.cluster.node_storm --tally FILE [--kills 200] [--silences 20] [--seconds 120]

One run after another is played on three raylets of this machine. Each is struck again and again, with a round or two
between, and must end with the weights, steps and episodes of one machine; then its strikes are added to the file. When
a node is lost, inference server and actor of another group are killed at the same time. The same command continues
where the last one ended, until the file has enough. `--seconds` bounds the strikes of one command; the run that is left
then ends in peace. Exit code 1: a run ended otherwise, and nothing of it was counted.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from shared.files.atomic import write_atomic
from tests.ringside.cluster.test_nodes import alone, result
from tests.support.ray_cluster import RayCluster, ray_cluster, silenced
from tests.support.runs import child, finish, gone, memory_of, start, wait_until
from tests.support.waiting import until

NODES = 3
KILLS = {"raylet": 22, "worker": 22, "program": 22, "gateway": 22, "launcher": 12, "inference": 50, "actor": 50}
"""Number of kills of each kind, of 200 in all. A group replaces its own processes in a few seconds."""
SILENCE = "silence"
OF_GROUP = {"inference": "inference", "actor": "actor 0"}
"""Processes that a group itself starts again, by kind; their titles."""
LOSES_NODE = {"raylet", "worker", "program", SILENCE}
"""Strikes after which a gateway has its lanes played by another group."""
OFTEN = ("--checkpoint-every-minutes", "0")
SECONDS = 300.0
"""Longest wait for a commit, and for the end of a run that nothing disturbs any more."""
LEASE_SECONDS = 90.0
"""Longest life of a group whose node was silent, with its lease."""


class Storm:
    """Strikes at one run.

    Attributes:
        strikes: their number by kind.
    """

    def __init__(self, cluster: RayCluster, run_dir: Path, wanted: dict[str, int], steps: str, seed: int) -> None:
        """Start the run. `wanted`: strikes of each kind that are still to be made."""
        self._cluster, self._run_dir, self._wanted = cluster, run_dir, wanted
        self._random = random.Random(seed)
        self._silenced = set[int]()
        self.strikes = Counter[str]()
        self._begin(total_steps=steps, actors="1")

    def rage(self, deadline: float) -> None:
        """Strike until the run ends, enough was struck or the time is over; wait for the end, and clean up."""
        try:
            while self._next_commit() and time.monotonic() < deadline and (kind := self._draw()):
                self._strike(kind)
                self._cluster.fill(NODES)
            finish(self._process, SECONDS)
        finally:
            self._process.kill()
        assert gone(self._process), "processes are left on the head"
        until(lambda: not self._cluster.programs(), LEASE_SECONDS)

    def _strike(self, kind: str) -> None:
        """Strike, wait until it is over, and count what was hit."""
        committed, losses = self._memory.board.committed, self._losses()
        programs = self._living()
        self._random.shuffle(programs)
        struck = list[str]()
        if kind in LOSES_NODE or kind in OF_GROUP:
            struck += self._kill_in_groups(programs[1:] if kind in LOSES_NODE else programs)
        if kind not in OF_GROUP and getattr(self, f"_strike_{kind}")(programs):
            struck.append(kind)
            if kind in LOSES_NODE:
                self._await(lambda: self._losses() > losses)
        self._await(lambda: self._memory.board.committed > committed)
        self.strikes.update(struck)

    # --- the run

    def _begin(self, *words: str, **flags: str) -> None:
        nodes = str(self._random.choice((1, 2, 2, 2)))
        self._process = start(self._run_dir, "--ray", self._cluster.address, "--nodes", nodes, *OFTEN, *words, **flags)
        self._memory = memory_of(self._process, self._run_dir, gateways=int(nodes))
        self._gateways = int(nodes)

    def _await(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition or for the last commit."""
        wait_until(self._process, lambda: condition() or self._memory.board.complete, SECONDS, every=0.02)

    def _next_commit(self) -> bool:
        """Wait until a node plays and another round is committed; False: the last one is."""
        board = self._memory.board
        before = board.committed
        self._await(lambda: board.committed > max(0, before) and bool(self._living()))
        return not board.complete

    def _draw(self) -> str:
        """A kind of strike, the likelier the more of it are left to be made; empty: all were made."""
        left = {kind: self._left(kind) for kind in self._wanted}
        others = {kind: count for kind, count in left.items() if kind not in OF_GROUP}
        left = others if any(others.values()) else left
        return self._random.choices(list(left), list(left.values()))[0] if any(left.values()) else ""

    def _left(self, kind: str) -> int:
        """Strikes of a kind that are still to be made."""
        return max(0, self._wanted[kind] - self.strikes[kind])

    def _losses(self) -> int:
        """Nodes that were lost so far."""
        assert self._memory.gateways is not None, "the run has gateways"
        return int(self._memory.gateways.losses.sum())

    def _living(self) -> list[psutil.Process]:
        """Programs of groups on living nodes that were not silenced; those of a lost node may still be ending."""
        raylets = {node.all_processes["raylet"][0].process.pid for node in self._cluster.nodes}
        found = [each for each in self._cluster.programs() if each.pid not in self._silenced]
        return [each for each in found if raylets & {parent.pid for parent in parents_of(each)}]

    # --- strikes at groups, by their programs; they return False where there is nothing to strike

    def _kill_in_groups(self, programs: list[psutil.Process]) -> list[str]:
        """SIGKILL one process of each kind that groups start again; return the kinds."""
        left = {kind: title for kind, title in OF_GROUP.items() if self._left(kind)}
        return [kind for kind, title in left.items() if self._kill(self._cluster.group_children(title, programs))]

    def _strike_raylet(self, programs: list[psutil.Process]) -> bool:
        return self._lose_node(programs, lambda program: None)

    def _strike_worker(self, programs: list[psutil.Process]) -> bool:
        return self._kill([parent for program in programs[:1] if (parent := program.parent()) is not None])

    def _strike_program(self, programs: list[psutil.Process]) -> bool:
        return self._kill(programs[:1])

    def _strike_gateway(self, programs: list[psutil.Process]) -> bool:
        found = child(self._process, f"actor {self._random.randint(1, self._gateways)}")
        return self._kill([found] if found is not None else [])

    def _strike_launcher(self, programs: list[psutil.Process]) -> bool:
        """SIGKILL the launcher, and resume with another number of nodes."""
        if self._memory.board.saved[0] < 1:
            return False
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.communicate()
        if self._process.returncode != -signal.SIGKILL:
            return False
        assert gone(self._process, seconds=10.0), "processes are left on the head"
        until(lambda: not self._living())
        self._begin("--resume", str(self._run_dir))
        return True

    def _strike_silence(self, programs: list[psutil.Process]) -> bool:
        """Stop a raylet, its worker and the group, until the gateway has given them up."""

        losses = self._losses()

        def silence(program: psutil.Process) -> None:
            worker = program.parent()
            assert worker is not None, "a group lives in a worker"
            with silenced(worker) as stopped:
                self._silenced.update(each.pid for each in stopped)
                self._await(lambda: self._losses() > losses)

        return self._lose_node(programs, silence) and self._losses() > losses

    def _lose_node(self, programs: list[psutil.Process], before: Callable[[psutil.Process], None]) -> bool:
        """Do something to the node of the first group, and kill its raylet."""
        if not programs:
            return False
        program = programs[0]
        node = self._cluster.node_of(program.parents())
        before(program)
        self._cluster.kill_node(node)
        return True

    def _kill(self, found: list[psutil.Process]) -> bool:
        """SIGKILL one of these that lives; False: there is none."""
        with suppress(psutil.NoSuchProcess):
            living = [each for each in found if each.status() != psutil.STATUS_ZOMBIE]
            if living:
                self._random.choice(living).kill()
                return True
        return False


def parents_of(program: psutil.Process) -> list[psutil.Process]:
    """Processes above a process; none if it has ended."""
    with suppress(psutil.NoSuchProcess):
        return program.parents()
    return []


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tally", type=Path, required=True, help="file of the counts, which is continued")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--silences", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=120.0, help="of strikes in this command")
    parser.add_argument("--steps", default="14_400", help="of each run")
    options = parser.parse_args()
    content: dict[str, Any] = {"steps": options.steps, "alone": None, "runs": 0, "strikes": {}}
    if options.tally.exists():
        content = json.loads(options.tally.read_text())
        options.steps = content["steps"]
    goal = {kind: -(-share * options.kills // sum(KILLS.values())) for kind, share in KILLS.items()}
    goal |= {SILENCE: options.silences}
    scratch = Path(tempfile.mkdtemp(prefix="node-storm-"))
    with ray_cluster(nodes=NODES) as cluster:
        content["alone"] = content["alone"] or alone(total_steps=options.steps)
        deadline = time.monotonic() + options.seconds
        while time.monotonic() < deadline:
            strikes = Counter[str](content["strikes"])
            wanted = {kind: most - strikes[kind] for kind, most in goal.items()}
            if max(wanted.values()) <= 0:
                break
            cluster.fill(NODES)
            run_dir = scratch / f"run{content['runs']}"
            storm = Storm(cluster, run_dir, wanted, options.steps, seed=content["runs"])
            storm.rage(deadline)
            if result(run_dir) != content["alone"]:
                print(f"ANOTHER RESULT, in {run_dir}, after: {dict(storm.strikes)}")
                return 1
            content["strikes"] = strikes + storm.strikes
            content["runs"] += 1
            write_atomic(options.tally, json.dumps(content, indent=1).encode())
    shutil.rmtree(scratch)
    print(f"{content['runs']} runs with the weights of one machine, after: {dict(content['strikes'])}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
