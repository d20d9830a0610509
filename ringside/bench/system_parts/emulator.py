"""The bare emulator: four `act` calls per step and the emulator's own resets. It is the upper limit of an actor.

It is measured in one process, and in one process per core at once, which shows the cost of hyper-threads and shared
caches.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from ale_py import ALEInterface, LoggerMode, roms
from multiprocess import Pipe
from multiprocess.connection import Connection

from actors.envs.atari import game_name
from ringside.bench.harness.tables import CannotRun, Report, WrongResult
from ringside.bench.limits import Options
from ringside.supervisor.spawning import ChildProcess
from shared.config.protocols import PROTOCOLS
from shared.config.sections import FRAME_SKIP
from shared.machine.facts import usable_cores
from shared.machine.subprocesses import REAP_SECONDS
from shared.prng import Stream, randint
from shared.process.signals import enable_stack_dumps

RULES = PROTOCOLS["nature"]
BLOCK_TICKS = 250
"""Ticks between two reads of the clock."""
START_SECONDS = 60.0
"""Longest time that a process may take to start, or to answer beyond its measuring time."""


class Bare:
    """One emulator with the tick rule of a lane: the tick after an episode end resets, and its action is ignored.

    Attributes:
        ale: the emulator.
        steps: steps played, resets not counted.
        reset_seconds: CPU time of resets.
    """

    def __init__(self, game: str, seed: int, index: int = 0) -> None:
        """Load `game`, a name from `actors.envs.atari.game_name`, and reset as env `index` does at tick 0."""
        ALEInterface.setLoggerMode(LoggerMode.Error)
        self.ale = ALEInterface()
        self.ale.setFloat("repeat_action_probability", 0.0)
        self.ale.setInt("max_num_frames_per_episode", RULES.longest_episode_frames)
        path = roms.get_rom_path(game)
        if path is None:
            raise CannotRun(f"ale-py knows the game {game!r}, but its ROM file is missing; install ale-py again.")
        self.ale.loadROM(path)
        self.steps = 0
        self.reset_seconds = 0.0
        self._numbers = [action.value for action in self.ale.getMinimalActionSet()]
        self._seed, self._index = seed, index
        self._noops = self._episodes = 0
        self._over = False
        self._reset(0)

    def _reset(self, tick: int) -> None:
        """Reset the emulator, and play the no-ops of this tick."""
        began = time.thread_time()
        self.ale.reset_game()
        noops = 1 + randint(RULES.noop_max, self._seed, Stream.NOOPS, self._index, tick)
        for _ in range(noops):
            self.ale.act(0)
        self._noops += noops
        self._episodes += 1
        self._over = False
        self.reset_seconds += time.thread_time() - began

    def play(self, tick: int, actions: Sequence[int]) -> None:
        """Play one tick for each action, starting with `tick`."""
        act, over, numbers = self.ale.act, self.ale.game_over, self._numbers
        resets = 0
        for offset, action in enumerate(actions):
            if self._over:
                self._reset(tick + offset)
                resets += 1
                continue
            number = numbers[action]
            act(number)
            act(number)
            act(number)
            act(number)
            self._over = over()
        self.steps += len(actions) - resets

    def play_for(self, seconds: float) -> float:
        """Play random actions for `seconds` of wall-clock time; return steps/s."""
        random = np.random.default_rng(self._seed)
        before, began, tick = self.steps, time.perf_counter(), self.steps
        while time.perf_counter() - began < seconds:
            self.play(tick, random.integers(len(self._numbers), size=BLOCK_TICKS).tolist())
            tick += BLOCK_TICKS
        speed = (self.steps - before) / (time.perf_counter() - began)
        self.check()
        return speed

    def check(self) -> None:
        """Raise `WrongResult` on a wrong frame count; the last step of an episode may lack up to three frames."""
        wanted, counted = FRAME_SKIP * self.steps + self._noops, self.ale.getFrameNumber()
        if not wanted - (FRAME_SKIP - 1) * self._episodes <= counted <= wanted:
            raise WrongResult(f"The emulator played {counted:,} frames instead of {wanted:,}.")


def bare_speed(game: str, seconds: float, seed: int = 1) -> float:
    """Steps/s of the bare emulator in this process by wall-clock time, resets included.

    Raises:
        EnvError: there is no such game.
        WrongResult: the emulator did not play the expected number of frames.
    """
    bare = Bare(game_name(game), seed)
    bare.play(0, [0] * BLOCK_TICKS)
    return bare.play_for(seconds)


def bare_speeds(game: str, seconds: float, processes: int) -> list[float]:
    """Speeds as from `bare_speed`, of several processes that play at the same time with different seeds.

    Raises:
        CannotRun: a process did not start, or ended early.
        EnvError, WrongResult: as `bare_speed`.
    """
    with emulator_pool(game_name(game), processes) as connections:
        return measure_pool(connections, seconds)


@contextmanager
def emulator_pool(game: str, processes: int) -> Iterator[list[Connection]]:
    """Processes with an emulator each, loaded and waiting for `measure_pool`; they end with the block."""
    connections, children = [], []
    try:
        for index in range(processes):
            ours, theirs = Pipe()
            child = ChildProcess(target=_worker, args=(theirs, game, index + 1), daemon=True)
            child.start()
            theirs.close()
            connections.append(ours)
            children.append(child)
        for connection in connections:
            _receive(connection, START_SECONDS)
        yield connections
    finally:
        for child in children:
            child.kill()  # it holds no resource that would leak
            child.join(REAP_SECONDS)
        for connection in connections:
            connection.close()


def measure_pool(connections: Sequence[Connection], seconds: float) -> list[float]:
    """Make all processes of a pool play at the same time; return the steps/s of each."""
    for connection in connections:
        connection.send(seconds)
    answers = [_receive(connection, seconds + START_SECONDS) for connection in connections]
    for answer in answers:
        if isinstance(answer, str):
            raise WrongResult(answer)
    return answers


def measure(options: Options, report: Report) -> None:
    """The part `emulator` of `launch.py bench limits`."""
    cores = usable_cores()
    threads = report.machine["threads_per_core"]
    for game in options.game_names:
        with report.measuring(f"emulator, {game}"), emulator_pool(game, cores) as connections:
            alone, together = [], []
            for _ in range(options.repeats):
                alone += measure_pool(connections[:1], options.seconds)
                together.append(sum(measure_pool(connections, options.seconds)))
            limit = f"{game}: bare emulator"
            report.add(limit, "steps/s", alone)
            ratios = [all_ / (cores * one) for all_, one in zip(together, alone, strict=True)]
            note = "hyper-threads" if threads and threads > 1 else ""
            name = f"{game}: {cores} at once"
            report.add(name, "steps/s", together, limit=f"{cores} x alone", ratios=ratios, note=note)


def _receive(connection: Connection, seconds: float) -> Any:
    """Receive the next message of a member of the pool."""
    try:
        if connection.poll(seconds):
            return connection.recv()
    except (EOFError, ConnectionResetError):
        raise CannotRun("A process that played the bare emulator ended early.") from None
    raise CannotRun(f"A process that plays the bare emulator did not answer within {seconds:.0f} s.")


def _worker(connection: Connection, game: str, seed: int) -> None:
    """A process of the pool: reports that it is ready, then plays for the requested times until it is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent handles it
    enable_stack_dumps()
    bare = Bare(game, seed)
    bare.play(0, [0] * BLOCK_TICKS)
    connection.send("ready")
    while True:
        seconds = connection.recv()
        try:
            connection.send(bare.play_for(seconds))
        except WrongResult as error:
            connection.send(str(error))
