"""A run that this process only pretends to play: its memory, its files, ticks written by hand."""

import json
import os
import weakref
from pathlib import Path

import numpy as np

from shared.config.resolve import resolve
from shared.config.settings import Config
from shared.memory.mailbox import request_number
from shared.memory.plan import Plan
from shared.memory.run_memory import Memory
from shared.network_spec import OwnTorso
from shared.process.live import Live

NAMES = ("NOOP", "FIRE", "LEFT")


class Pretended:
    """The launcher's side."""

    def __init__(
        self, run_dir: Path, envs: int = 6, workers: int = 0, own_torso: OwnTorso | None = None, **settings: object
    ) -> None:
        """Two envs a lane, rounds of 10 ticks, as a launcher resolves it; or workers with two envs each."""
        sizes: dict[str, object] = {"total_steps": 100 * envs, "round_steps": 10 * envs, "inference_batch": envs}
        sizes |= {"envs": envs, "device": "cpu", "precision": "fp32"}
        replay = {"replay_size": 30 * envs, "learning_starts": 64}
        sizes |= replay if settings.get("method", "dqn") == "dqn" else {"batch_size": 10 * envs}
        if workers:
            sizes = {"workers": workers, "t_max": 10, "total_steps": 1_200, "snapshot_every_steps": 60}
            sizes |= {"schedule": "ordered", "optimizer": "rms"}
        usual = {"game": "pong", "lane_envs": 2, "network": "small", "actors": 2, "run_dir": run_dir}
        self.run_dir = run_dir
        self.config = resolve(Config().with_settings(**usual | sizes | settings))
        self.memory = Memory.create(Plan(self.config, len(NAMES), own_torso=own_torso))
        self._close = weakref.finalize(self, self.memory.arena.close)
        self._inode = os.fstat(self.memory.arena.fd).st_ino
        run_dir.mkdir(parents=True, exist_ok=True)
        (run_dir / "config.json").write_text(json.dumps(self.config.to_json()))
        self.live = Live.for_this_process(self.memory.arena.fd, NAMES, own_torso=own_torso)
        self.live.write(run_dir)
        self.random = np.random.default_rng(1)
        self.memory.board.begun_ns[0] = 1
        self.memory.board.prepared[0] = 1

    def play(self, ticks: int) -> None:
        """Ticks of random frames; each earns 1, and each seventh ends an episode."""
        memory, run_schedule = self.memory, self.memory.run_schedule
        for lane in range(run_schedule.lanes):
            field = {name: view[lane] for name, view in memory.ring.field.items()}
            done = int(memory.board.lane_done.values[lane])
            for tick in range(done, done + ticks):
                slot, following = tick % run_schedule.capacity, (tick + 1) % run_schedule.capacity
                if tick == 0:
                    field["frame"][0] = self.random.integers(0, 256, field["frame"][0].shape)
                    field["start"][0] = field["valid"][0] = 1
                values = self.random.normal(size=(2, len(NAMES))).astype(np.float32)
                if run_schedule.method.samples_actions:
                    values[:] = 0.2, 0.3, 0.5
                memory.mailbox.values[lane] = values
                memory.mailbox.reply.publish(lane, request_number(0, tick))
                field["action"][slot] = values.argmax(axis=1)
                memory.board.lane_logged.publish(lane, tick + 1)
                field["raw_reward"][slot] = 1.0
                field["episode_return"][slot] = field["episode_steps"][slot] = tick % 7 + 1
                field["frame"][following] = self.random.integers(0, 256, field["frame"][0].shape)
                field["terminated"][slot] = field["start"][following] = tick % 7 == 6
                field["valid"][following] = 1
                memory.board.lane_done.publish(lane, tick + 1)

    def end(self) -> None:
        """The run is over: its memory goes, its files stay."""
        (self.run_dir / "live.json").unlink(missing_ok=True)
        self._close()

    def mappings(self) -> int:
        """Number of mappings of the run's memory in this process; that of another run may go at any time."""
        lines = Path("/proc/self/maps").read_text().splitlines()
        return sum(line.split()[4] == str(self._inode) for line in lines if "memfd:ringside" in line)
