"""One process that plays and learns in turns computes what the processes of a run compute."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import torch

from benchmarks.serial import Serial
from learner.learner import prepare
from learner.networks.policy import Policy
from ringside.run import planning
from shared.config.settings import Config
from shared.files.run_file_names import CONFIG_FILE
from tests.support.runs import finish, start, summary


def test_serial_loop_gives_the_weights_of_a_run(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    settings = {"envs": "1", "lane_envs": "1", "actors": "1", "inference_batch": "1", "schedule": "alternate"}
    steps = {"round_steps": "240", "learning_starts": "240", "snapshot_every_steps": "240", "replay_size": "360"}
    finish(start(run_dir, **settings, **steps, total_steps="480"))
    config = Config.from_json(json.loads((run_dir / CONFIG_FILE).read_text()))
    plan, threads = planning.check(config), torch.get_num_threads()
    prepare(plan.config)
    try:
        network = Policy(plan.network, torch.device(config.machine.device), config.machine.precision, 1)
        serial = Serial(plan, network)
        while serial.round < serial.run_schedule.rounds:
            serial.play_round()
    finally:
        torch.set_num_threads(threads)
    assert serial.updates == summary(run_dir)["updates"] == (480 - 240) // 4
    assert hashlib.sha256(serial.parameters().tobytes()).hexdigest() == summary(run_dir)["weights_sha256"]
