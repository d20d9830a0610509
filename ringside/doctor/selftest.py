"""Self-test of `launch.py doctor`: a small real run from beginning to end."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil

from ringside import planning
from ringside.doctor.checks import Check
from shared.checkpoint.checkpoint_writer import CheckpointWriter
from shared.checkpoint.manifest import BEST_FILE, CHECKPOINTS
from shared.config.sections import Evaluate, Machine, Run
from shared.config.settings import Config, unused_settings
from shared.files.atomic import write_atomic
from shared.files.run_file_names import LOGS, SUMMARY_FILE
from shared.files.strict_json import read_json
from shared.machine import facts
from shared.machine.subprocesses import die_with, kill_and_reap
from shared.memory.plan import Plan
from shared.process.signals import stack_dumps_held_back
from shared.root import LAUNCHER
from shared.text import words_of

ROUNDS = 4
"""Rounds of the run; all but the first learn."""
ROUND_STEPS = 160
"""Steps of a round, or the smallest multiple in which every env makes the n steps of a return."""
ENVS = 8
SECONDS = 300.0
"""Time after which it counts as hung; it takes two seconds and its start, and more if kernels are compiled first."""
LEAVE_SECONDS = 5.0
"""Time limit for its processes to exit after its end."""
_SHARED_MEMORY = Path("/dev/shm")
_BF16_INSTRUCTIONS = re.compile("bf16|amx")
_OURS = ("sem.mp-", "psm_", "ringside")
"""Prefixes of shared memory by Python and Ringside in /dev/shm."""


class Kernel(NamedTuple):
    """A kernel of oneDNN, PyTorch's library for networks on a CPU."""

    instructions: str
    """Such as avx512_core_bf16."""
    bf16: bool
    """True if its input was bfloat16."""


def check(plan: Plan) -> list[Check]:
    """Run it, and verify that it commits every round, changes the weights, and leaves no process or shared memory.

    Game, network, method, device and precision are those of the plan. On a CPU a second check names the instructions
    that the kernels of its networks used.
    """
    kernels: set[Kernel] = set()
    checks = [_run(plan, kernels)]
    if kernels:
        checks.append(arithmetic(plan.config.machine.precision, facts.bf16_flags(), kernels))
    return checks


def arithmetic(precision: str, offered: Sequence[str], kernels: Collection[Kernel]) -> Check:
    """Instructions that the processor offers for bfloat16, and those that kernels used.

    Args:
        precision: of the run.
        offered: flags of the processor (`facts.bf16_flags`).
        kernels: of the run's convolutions and matrix products.
    """
    used = ", ".join(sorted({kernel.instructions for kernel in kernels if kernel.bf16 == (precision == "bf16")}))
    offer = " and ".join(offered) or "no instructions"
    found = f"The processor has {offer} for bfloat16; networks compute in {precision} with {used or 'other kernels'}."
    if precision == "bf16" and not _BF16_INSTRUCTIONS.search(used):
        return Check("arithmetic", "yellow", found, "It emulates bfloat16: --precision fp32 may be faster.")
    if precision == "fp32" and offered:
        return Check("arithmetic", "yellow", found, "--precision bf16 is about twice as fast, and scores hold.")
    return Check("arithmetic", "green", found)


def _run(plan: Plan, kernels: set[Kernel]) -> Check:
    """Result of the run; adds the kernels that its processes used to `kernels`."""
    begun, before = time.monotonic(), _shared_memory()
    with tempfile.TemporaryDirectory(prefix="ringside-doctor-") as scratch:
        run_dir = Path(scratch) / "run"
        small = small_plan(plan)
        first, digest = _first_weights(Path(scratch), small)
        write_atomic(config := Path(scratch) / "config.json", json.dumps(small.config.to_json()).encode())
        named: dict[str, Any] = {"env": plan.config.play.env, "plugin": plan.config.run.plugin}  # which no file decides
        named |= {"config": config, "run_dir": run_dir, "init_from": first}
        with stack_dumps_held_back():
            process = subprocess.Popen(
                [sys.executable, str(LAUNCHER), "train", "--plain", *words_of(**named)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,  # identifies its processes
                env=os.environ | {"ONEDNN_VERBOSE": "1"},
                preexec_fn=partial(die_with, os.getpid(), signal.SIGTERM),
            )
        try:
            _, errors = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return _failed(f"A small run did not end within {SECONDS:.0f} s.")
        finally:
            kill_and_reap(process)  # its children die with it
        if process.returncode:
            return _failed(f"A small run ended with code {process.returncode}: {errors.strip()}")
        summary = read_json(run_dir / SUMMARY_FILE)
        for log in (run_dir / LOGS).glob("*.log"):
            kernels.update(kernels_in(log.read_text(errors="replace")))
    rounds = small.run_schedule.rounds
    if summary["rounds"] != rounds or not summary["updates"]:
        return _failed(f"A small run committed {summary['rounds']} of {rounds} rounds, {summary['updates']} updates.")
    if summary["weights_sha256"] == digest:
        return _failed("A small run did not change the weights.")
    left = [*_processes_of(process.pid), *sorted(_shared_memory() - before)]
    if left:
        return _failed(f"A small run left behind: {', '.join(left)}.")
    return Check(
        "self-test",
        "green",
        f"A small run on {summary['device']} in {summary['precision']}: {rounds} rounds committed, weights moved, "
        f"nothing left behind, {time.monotonic() - begun:.1f} s in all.",
    )


def kernels_in(log: str) -> set[Kernel]:
    """Kernels of convolutions and matrix products in a log that oneDNN wrote with ONEDNN_VERBOSE=1."""
    found = set()
    for line in log.splitlines():
        # onednn_verbose,v1,primitive,exec,cpu,convolution,brg_conv_fwd:avx512_core_bf16,...,src:bf16:...
        words = line.split(",")
        if words[0] == "onednn_verbose" and words[3:5] == ["exec", "cpu"] and words[5] in ("convolution", "matmul"):
            found.add(Kernel(words[6].rpartition(":")[2], "src:bf16" in line))
    return found


def _failed(found: str) -> Check:
    return Check("self-test", "red", found, "If all else is green, this is a bug: please report it with this table.")


def _first_weights(scratch: Path, plan: Plan) -> tuple[Path, str]:
    """A file of random initial weights, and their SHA-256 as in summaries."""
    flat = np.random.default_rng(1).normal(0.0, 0.02, plan.parameters.count).astype(np.float32)
    writer = CheckpointWriter(scratch / "first", plan.config, plan.run_schedule, plan.actions)
    writer.save_best(flat, version=0, mean_return=0.0)
    return scratch / "first" / CHECKPOINTS / BEST_FILE, hashlib.sha256(flat.tobytes()).hexdigest()


def small_plan(plan: Plan) -> Plan:
    """The same run with few steps and processes, on the machine's defaults but for device and precision."""
    config, machine = plan.config, plan.config.machine
    steps = ROUND_STEPS * -(-ENVS * config.algorithm.n_step // ROUND_STEPS)
    sizes: dict[str, Any] = {
        "lane_envs": 2,
        "actors": 2,
        "learning_starts": steps,
        "total_steps": ROUNDS * steps,
        "snapshot_every_steps": steps,
        "device": machine.device,
        "precision": machine.precision,
        "deterministic": machine.deterministic,
        "pin": "off",
        "plugin": config.run.plugin,
    }
    if config.play.workers:
        sizes |= {"workers": ENVS // 2, "t_max": steps // ENVS, "local_replay": steps}
    else:
        sizes |= {"envs": ENVS, "inference_batch": 4, "round_steps": steps, "replay_size": ROUNDS * steps}
        sizes |= {"train_every": 16, "batch_size": steps if config.algorithm.recurrent else 32}
    unused = unused_settings(plan.method)
    open_again = {"evaluate": Evaluate(), "machine": Machine(), "run": Run()}
    small = Config(**config.sections | open_again)
    return planning.check(small.with_settings(**{name: sizes[name] for name in sizes if name not in unused}))


def _shared_memory() -> set[str]:
    """Names in /dev/shm that could belong to Ringside."""
    if not _SHARED_MEMORY.is_dir():
        return set()
    return {f"{_SHARED_MEMORY}/{name}" for name in os.listdir(_SHARED_MEMORY) if name.startswith(_OURS)}


def _processes_of(session: int) -> list[str]:
    """Processes of a session that do not exit."""
    members = []
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == session:
                members.append(process)
        except (ProcessLookupError, PermissionError):
            continue
    _, alive = psutil.wait_procs(members, timeout=LEAVE_SECONDS)
    return [f"process {process.pid}" for process in alive]
