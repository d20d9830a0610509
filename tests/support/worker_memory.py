"""The shared memory of a run of three workers, for tests in one process."""

from pathlib import Path

import numpy as np

from shared.config.resolve import resolve
from shared.config.run_schedule import RECURRENT_STATE
from shared.config.settings import Config, ResolvedConfig
from shared.memory.plan import Plan
from shared.memory.run_memory import Memory
from tests.support.played_ring import ACTIONS, PlayedRing

T_MAX, LANE_ENVS, WORKERS = 6, 2, 3


def worker_config(**settings: object) -> ResolvedConfig:
    """Three workers with two emulators each, on as many processes as `actors` says; spans of two rounds."""
    sizes = {"workers": WORKERS, "lane_envs": LANE_ENVS, "t_max": T_MAX, "total_steps": 720, "network": "small"}
    fixed = {"schedule": "ordered", "method": "a2c", "optimizer": "rms", "snapshot_every_steps": 72, "actors": 1}
    return resolve(Config().with_settings(**(sizes | fixed | {"run_dir": Path()} | settings)))


def worker_memory(config: ResolvedConfig) -> tuple[Memory, PlayedRing]:
    """A region whose rings hold four rounds of random episodes, and what was played."""
    memory = Memory.create(Plan(config, ACTIONS))
    played = PlayedRing(config, both=True, ticks=4 * T_MAX)
    random, fields = np.random.default_rng(5), played.ring.field
    if "log_prob" in fields:
        fields["log_prob"][:] = -random.random(fields["log_prob"].shape)
    if RECURRENT_STATE in fields:
        fields[RECURRENT_STATE][:] = random.normal(size=fields[RECURRENT_STATE].shape)
    memory.ring = played.ring
    return memory, played
