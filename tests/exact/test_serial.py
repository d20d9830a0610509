"""One process that plays and learns in turns computes what the processes of a run compute."""

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
from tests.support.runs import finish, flags_in, start, summary


def test_serial_loop_gives_the_weights_of_a_run(run_dir: Path) -> None:
    settings = flags_in("envs=1 lane_envs=1 actors=1 inference_batch=1 schedule=alternate total_steps=480")
    steps = flags_in("round_steps=240 learning_starts=240 snapshot_every_steps=240 replay_size=360")
    finish(start(run_dir, **settings, **steps))
    config = Config.from_json(json.loads((run_dir / CONFIG_FILE).read_text()))
    plan = planning.check(config)
    prepare(plan.config)
    serial = Serial(plan, Policy(plan.network, torch.device(config.machine.device), config.machine.precision, 1))
    while serial.round < serial.run_schedule.rounds:
        serial.play_round()
    assert serial.updates == summary(run_dir)["updates"] == (480 - 240) // 4
    assert hashlib.sha256(serial.parameters().tobytes()).hexdigest() == summary(run_dir)["weights_sha256"]
