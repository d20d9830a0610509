"""Actors without inference and learner: one lane in each of several processes, with immediate random answers.

    python -m ringside.bench.system_parts.actors_alone --game breakout --processes 2 --seconds 5

The speed covers all work of a lane: frames and slots written to the ring, snapshots at the end of every round, resets.
The last line of the output is the result, as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from actors.lane import Lane
from actors.make_env import make_env
from shared.config.presets.replay_presets import NATURE
from shared.config.resolve import resolve
from shared.config.settings import Config
from shared.machine.subprocesses import die_with, kill_and_reap
from shared.memory.plan import Plan
from shared.memory.run_memory import Memory
from shared.root import ROOT

BLOCK_TICKS = 32
"""Ticks between two reads of the clock."""
WARM_TICKS = 512
START_SECONDS = 120.0
"""Longest time that a process may take to get ready, and to end after its measurement."""
WINDOW_STEPS = 20_000


def lane_config(game: str, index: int) -> Config:
    """One lane of the default size in rounds of the default length; `index` is the seed."""
    return NATURE.with_settings(
        game=game,
        envs=NATURE.play.lane_envs,
        actors=1,
        round_steps=NATURE.learn.round_steps // (NATURE.play.envs // NATURE.play.lane_envs),
        replay_size=WINDOW_STEPS,
        network="small",  # never queried
        device="cpu",
        inference_batch=NATURE.play.lane_envs,
        seed=index,
        run_dir=Path(),
    )


def play_at_random(lane: Lane, memory: Memory, ticks: int, random: np.random.Generator) -> None:
    """Play `ticks` ticks as an actor does, with random actions in place of inference."""
    mailbox = memory.mailbox
    for actions in random.integers(memory.plan.actions, size=(ticks, memory.run_schedule.lane_envs), dtype=np.uint8):
        mailbox.actions[0] = actions
        mailbox.reply.publish(0, mailbox.request.at(0).read())
        if not lane.ready:
            raise RuntimeError(f"The lane did not take the answer to tick {lane.tick}.")
        lane.step()


def worker(game: str, index: int, seconds: float) -> dict[str, Any]:
    """Work of one process: report that it is ready, wait for a line, play for `seconds`."""
    config = lane_config(game, index)
    envs = [make_env(config.play, index, env, training=True) for env in range(config.play.envs)]
    memory = Memory.create(Plan(resolve(config), envs[0].actions))
    lane = Lane(memory.lane(0), memory.plan, envs, actor=0)
    lane.start()
    random = np.random.default_rng(index)
    play_at_random(lane, memory, WARM_TICKS, random)
    print("ready", flush=True)
    sys.stdin.readline()
    first, begun = lane.tick, time.perf_counter()
    while (took := time.perf_counter() - begun) < seconds:
        play_at_random(lane, memory, BLOCK_TICKS, random)
    steps = (lane.tick - first) * len(envs)
    logged = int(memory.board.lane_done.values[0])
    return {"steps": steps, "seconds": took, "logged": (logged - first) * len(envs)}


def measure_processes(game: str, processes: int, seconds: float) -> list[dict[str, Any]]:
    """Run several processes at the same time; return the results of each."""
    command = [
        sys.executable,
        "-m",
        "ringside.bench.system_parts.actors_alone",
        "--game",
        game,
        "--seconds",
        str(seconds),
        "--index",
    ]
    members = [
        subprocess.Popen(
            [*command, str(i)],
            cwd=ROOT,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            preexec_fn=partial(die_with, os.getpid()),
        )
        for i in range(1, processes + 1)
    ]
    try:
        for each in members:
            assert each.stdout is not None
            there, _, _ = select.select([each.stdout], [], [], START_SECONDS)
            if not there or each.stdout.readline().strip() != "ready":
                raise RuntimeError("A process that plays ended, or was not ready in time.")
        for each in members:
            assert each.stdin is not None
            each.stdin.write("go\n")
            each.stdin.flush()
        return [json.loads(each.communicate(timeout=seconds + START_SECONDS)[0]) for each in members]
    finally:
        for each in members:
            kill_and_reap(each)


def main() -> None:
    """Measure once, and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--game", default="breakout")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--index", type=int, help="be one of the processes, with this seed")
    options = parser.parse_args()
    if options.index is not None:
        print(json.dumps(worker(options.game, options.index, options.seconds)))
        return
    done = measure_processes(options.game, options.processes, options.seconds)
    rates = [each["steps"] / each["seconds"] for each in done]
    counts = {name: sum(each[name] for each in done) for name in ("steps", "logged")}
    print(json.dumps(counts | {"steps_per_second": sum(rates)}))


if __name__ == "__main__":
    main()
