"""A storm over runs on several nodes: processes of every kind are killed, and nodes fall silent.

    python -m tests.ringside.cluster.node_storm --tally FILE [--kills 200] [--silences 20] [--seconds 120]

One run after another is played on three raylets of this machine. Each must end with the weights, steps and episodes of
one machine; then its strikes are added to the file. The same command goes on where the last one ended, until the file
has enough. `--seconds` bounds the strikes of one command; the run that is left then ends in peace. Exit code 1: a run
ended otherwise, and nothing of it was counted.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from shared.files.atomic import write_atomic
from tests.support.ray_cluster import RayCluster, ray_cluster
from tests.support.runs import child, finish, gone, memory_of, records, start, summary, wait_until
from tests.support.waiting import until

NODES = 3
KILLS = ("raylet", "worker", "program", "inference", "actor", "gateway", "launcher")
SILENCE = "silence"
OFTEN = ("--checkpoint-every-minutes", "0")
SECONDS = 300.0
"""Longest wait for a commit, and for the end of a run that nothing disturbs any more."""
LEASE_SECONDS = 90.0
"""Longest life of a group whose node was silent, with its lease."""


class Storm:
    """Strikes at one run.

    Attributes:
        strikes: by kind, for each strike the seconds until the next commit.
    """

    def __init__(self, cluster: RayCluster, run_dir: Path, wanted: dict[str, int], steps: str, seed: int) -> None:
        """Start the run. `wanted`: strikes of each kind that are still to be made."""
        self._cluster, self._run_dir, self._wanted = cluster, run_dir, wanted
        self._random = random.Random(seed)
        self._silenced = set[int]()
        self.strikes: dict[str, list[float]] = {}
        self._begin(total_steps=steps, actors="1")

    def rage(self, deadline: float) -> None:
        """Strike until the run ends, enough was struck or the time is over; wait for the end, and clean up."""
        while self._next_commit() and time.monotonic() < deadline and (kinds := self._open()):
            kind = self._random.choice(kinds)
            begun = time.monotonic()
            if not getattr(self, f"_strike_{kind}")():
                continue
            committed = self._memory.board.committed
            self._await(lambda before=committed: self._memory.board.committed > before)
            self.strikes.setdefault(kind, []).append(time.monotonic() - begun)
        finish(self._process, SECONDS)
        assert gone(self._process), "processes are left on the head"
        until(lambda: not self._cluster.programs(), LEASE_SECONDS)

    # --- the run

    def _begin(self, *words: str, **flags: str) -> None:
        nodes = str(self._random.choice((1, 2)))
        self._process = start(self._run_dir, "--ray", self._cluster.address, "--nodes", nodes, *OFTEN, *words, **flags)
        self._memory = memory_of(self._process, self._run_dir, gateways=int(nodes))
        self._gateways = int(nodes)

    def _await(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition or for the last commit."""
        wait_until(self._process, lambda: condition() or self._memory.board.finished, SECONDS)

    def _next_commit(self) -> bool:
        """Wait until a node plays and another round is committed; False: the last one is."""
        board = self._memory.board
        before = board.committed
        self._await(lambda: board.committed > max(0, before) and bool(self._living()))
        return not board.finished

    def _open(self) -> list[str]:
        """Kinds of strikes of which most are left to be made."""
        left = {kind: count - len(self.strikes.get(kind, ())) for kind, count in self._wanted.items()}
        most = max(left.values())
        return [kind for kind, count in left.items() if count == most] if most > 0 else []

    def _living(self) -> list[psutil.Process]:
        """Programs of groups on nodes that were not silenced."""
        return [each for each in self._cluster.programs() if each.pid not in self._silenced]

    # --- strikes, which return False where there is nothing to strike

    def _strike_raylet(self) -> bool:
        return self._replace_node(lambda program: None)

    def _strike_worker(self) -> bool:
        return self._kill([parent for program in self._living() if (parent := program.parent()) is not None])

    def _strike_program(self) -> bool:
        return self._kill(self._living())

    def _strike_inference(self) -> bool:
        return self._kill(self._cluster.group_children("inference"))

    def _strike_actor(self) -> bool:
        return self._kill(self._cluster.group_children("actor 0"))

    def _strike_gateway(self) -> bool:
        found = child(self._process, f"actor {self._random.randint(1, self._gateways)}")
        return self._kill([found] if found is not None else [])

    def _strike_launcher(self) -> bool:
        """SIGKILL the launcher, and resume with another number of nodes."""
        if self._memory.board.saved[0] < 1:
            return False
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.communicate()
        assert gone(self._process, seconds=10.0), "processes are left on the head"
        until(lambda: not self._living())
        self._begin("--resume", str(self._run_dir))
        return True

    def _strike_silence(self) -> bool:
        """Stop a raylet, its worker and the group, until the gateway has given them up."""
        gateways = self._memory.gateways
        assert gateways is not None, "the run has gateways"

        def silence(program: psutil.Process) -> None:
            worker = program.parent()
            raylet = worker.parent() if worker is not None else None
            assert worker is not None, "a group lives in a worker"
            assert raylet is not None, "a worker lives under a raylet"
            stopped = [raylet, worker, *worker.children(recursive=True)]
            self._silenced.update(each.pid for each in stopped)
            losses = int(gateways.losses.sum())
            for each in stopped:
                each.suspend()
            try:
                self._await(lambda: int(gateways.losses.sum()) > losses)
            finally:
                for each in stopped:
                    with suppress(psutil.NoSuchProcess):
                        each.resume()

        return self._replace_node(silence)

    def _replace_node(self, before: Callable[[psutil.Process], None]) -> bool:
        """Do something to the node of a group, kill its raylet, and have another node join."""
        living = self._living()
        if not living:
            return False
        program = self._random.choice(living)
        node = self._cluster.node_of(program.parents())
        before(program)
        self._cluster.kill_node(node)
        self._cluster.fill(NODES)
        return True

    def _kill(self, found: list[psutil.Process]) -> bool:
        """SIGKILL one of these; False: there is none."""
        if not found:
            return False
        victim = self._random.choice(found)
        victim.kill()
        return True


def result(run_dir: Path) -> dict[str, Any]:
    """Figures of a run that do not depend on who plays."""
    names = ("weights_sha256", "steps", "updates", "episodes")
    returns = [each["return"] for each in records(run_dir, "episode")]
    return {name: summary(run_dir)[name] for name in names} | {"returns": returns}


def alone(scratch: Path, steps: str) -> dict[str, Any]:
    """Result of the run on one machine."""
    finish(start(scratch / "alone", actors="1", total_steps=steps), SECONDS)
    return result(scratch / "alone")


def told(strikes: dict[str, list[float]]) -> list[str]:
    """A line for each kind: its number, and the seconds to the next commit."""
    return [
        f"{kind}: {len(seconds)}, next commit after {statistics.median(seconds):.1f} s (all within {max(seconds):.1f})"
        for kind, seconds in strikes.items()
        if seconds
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tally", type=Path, required=True, help="file of the counts, which is continued")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--silences", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=120.0, help="of strikes in this command")
    parser.add_argument("--steps", default="24_000", help="of each run")
    options = parser.parse_args()
    content: dict[str, Any] = {"steps": options.steps, "alone": None, "runs": 0, "strikes": {}}
    if options.tally.exists():
        content = json.loads(options.tally.read_text())
        options.steps = content["steps"]
    each = -(-options.kills // len(KILLS))
    goal = dict.fromkeys(KILLS, each) | {SILENCE: options.silences}
    with tempfile.TemporaryDirectory() as made, ray_cluster(nodes=NODES) as cluster:
        scratch = Path(made)
        content["alone"] = content["alone"] or alone(scratch, options.steps)
        deadline = time.monotonic() + options.seconds
        while time.monotonic() < deadline:
            strikes: dict[str, list[float]] = content["strikes"]
            wanted = {kind: most - len(strikes.get(kind, ())) for kind, most in goal.items()}
            if max(wanted.values()) <= 0:
                break
            cluster.fill(NODES)
            run_dir = scratch / f"run{content['runs']}"
            storm = Storm(cluster, run_dir, wanted, options.steps, seed=content["runs"])
            storm.rage(deadline)
            if result(run_dir) != content["alone"]:
                print("ANOTHER RESULT after:", *told(storm.strikes), sep="\n")
                return 1
            content["strikes"] = {kind: strikes.get(kind, []) + storm.strikes.get(kind, []) for kind in goal}
            content["runs"] += 1
            write_atomic(options.tally, json.dumps(content, indent=1).encode())
    print(f"{content['runs']} runs with the weights of one machine", *told(content["strikes"]), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
