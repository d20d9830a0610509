"""The supervisor: starts, watches, restarts and ends the processes of a run. It reads and writes the board alone.

It follows PostgreSQL's postmaster: it never touches what its children work on, so nothing that kills a child can hurt
it. Start it from the main thread: children die with the thread that made them (parent-death signal).
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import multiprocess
from multiprocess import reduction
from multiprocess.connection import wait as wait_for

from ringside.supervisor.crash_report import crash_report, unkillable_message
from ringside.supervisor.deaths import Cause, Deaths, signal_name
from ringside.supervisor.hang_detector import HangDetector, process_state
from ringside.supervisor.lane_balance import Balancer
from ringside.supervisor.shutdown_timer import ShutdownTimer
from ringside.supervisor.spawning import ChildProcess
from shared.config.settings import LOGS
from shared.errors import RunFailed
from shared.files import disk_trouble
from shared.machine.contention import Contention, cpu_time_of
from shared.machine.control_groups import OomKills
from shared.machine.cores import Claims, cores_of_actors
from shared.machine.subprocesses import REAP_SECONDS, ended
from shared.memory.board import Phase, Stop
from shared.memory.process_table import Role
from shared.memory.run_memory import Memory, Plan
from shared.memory.wait import Doorbell
from shared.process import mps
from shared.process.child import DEVICE_FAULT, FATAL, ChildSpec, Doorbells, log_path, run_role
from shared.process.cublas import choose_workspace
from shared.process.signals import STOP_SIGNALS, Requests, handle_stop_signals
from shared.process.stack_dumps import TELL_STACKS
from shared.process.thread_env import pinned_thread_env

STACKS_SECONDS = 0.5
"""How long a process that hangs has to say where its threads are, before it is killed."""
LOOK_SECONDS = 0.25
CONTENTION_NS = 1_000_000_000
"""Between two readings of what others take from the run."""
AGAIN_SECONDS = 10.0
"""How long it is tried to start a process again that has died."""

MODULES = {
    Role.INFERENCE: "learner.inference",
    Role.LEARNER: "learner.learner",
    Role.SCRIBE: "ringside.recording.scribe",
    Role.EVALUATOR: "actors.evaluator",
    Role.ACTOR: "actors.actor",
}

GPU_ROLES = (Role.LEARNER, Role.INFERENCE)
"""Clients of MPS, where there is one: they share the faults of the GPU, so they live and die together."""
GIVE_UP_MPS = 2
"""Deaths in a row without progress, through no fault from outside, after which `--mps auto` goes on without."""


class _Inherited(int):
    """A descriptor that a spawned child gets under the same number."""

    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        return int, (reduction.DupFd(int(self)).detach(),)


@dataclass
class _Child:
    """One role's process, and what is known of its former lives."""

    process: multiprocess.Process
    incarnation: int = 0
    deaths: Deaths = field(default_factory=Deaths)
    vigil: HangDetector = field(default_factory=HangDetector)
    killed_at: float | None = None
    """When it was killed because it hung, or did not leave."""


class Supervisor:
    """The processes of one run."""

    def __init__(
        self, plan: Plan, on_look: Callable[[Memory], None], note: Callable[[str], None], gpu: mps.Service
    ) -> None:
        assert plan.config.run.run_dir is not None, "the configuration is not resolved"
        self._plan = plan
        self._run_dir = plan.config.run.run_dir
        self._on_look = on_look
        self._note = note
        self._gpu = gpu
        self._requests = Requests()
        self._looked_at = time.monotonic()
        self._failure: str | None = None
        self._refusal: Exception | None = None
        """What `on_look` raised, which ends the run as a signal does."""
        self._killed_scribe = False
        self._patience = ShutdownTimer()
        self._oom_kills = OomKills()
        self._memory = Memory.create(plan)
        self._board = self._memory.board
        self._balancer = Balancer(self._board, plan.processes) if plan.config.machine.balance == "auto" else None
        self._processes = plan.processes
        self._doorbells = [Doorbell.create() for _ in range(len(self._processes))]
        self._asked = Doorbell.create()
        """Rung by a request: it is answered at once, not when the next look is due."""
        self._children: dict[int, _Child] = {}
        self._contention = Contention()
        self._read_contention()
        self._logged: dict[int, int] = {}
        """Bytes that were in a process's log when this run began."""
        self._claims = Claims()
        self._cores: list[frozenset[int] | None] = [None] * plan.actors
        if plan.config.machine.pin == "auto":
            self._cores = cores_of_actors(plan.actors, self._claims)
        self._roles = [Role.SCRIBE, Role.LEARNER, Role.INFERENCE]
        if plan.evaluation_episodes:
            self._roles.append(Role.EVALUATOR)

    # --- the life of a run

    def run(self) -> bool:
        """Run to the end. Returns whether the last round was committed (False: stopped by a signal).

        Raises:
            RunFailed: a role died again and again, or said that a restart cannot help.
        """
        if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:  # as inherited: nobody would learn how a child ended
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        try:
            with handle_stop_signals(self._reset):
                self._do()
        finally:
            os.close(self._asked.fd)  # when nobody hears any more
        if self._failure:
            raise RunFailed(self._failure) from self._refusal
        if self._refusal is not None:
            raise self._refusal
        if self._killed_scribe:
            raise RunFailed("The run ended without a last checkpoint.")
        return self._board.finished

    def _do(self) -> None:
        """Start everybody, and look after them until the last has gone."""
        try:
            for process in [*self._roles, *self._processes.indexes_of(Role.ACTOR)]:
                if self._board.stopping:  # one could not be started
                    break
                self._start(process, incarnation=0)
            while self._children:
                self._poll()
        finally:
            self._end_all()

    def _reset(self, number: int) -> None:
        """A signal came."""
        self._requests.hear(number)
        self._asked.ring()

    def _poll(self) -> None:
        """Wait a moment for deaths and signals, and answer them."""
        now = time.monotonic()
        since, self._looked_at = now - self._looked_at, now
        dead = wait_for([self._asked.fd, *(child.process.sentinel for child in self._children.values())], LOOK_SECONDS)
        self._asked.wait(0)
        for number, child in list(self._children.items()):
            if self._children.get(number) is not child:
                continue  # it was started again together with another
            # A pipe may tell nothing of an end: what the child has started may hold it, too.
            if child.process.sentinel in dead or child.process.exitcode is not None:
                self._handle_exit(number, child)
            elif not self._board.stopping or number == Role.SCRIBE:  # who may not go on is not waited for
                self._watch(number, child, since)
        if self._requests.count and not self._board.stopping:
            self._note(f"Stopping: {self._to_be_saved} Ctrl-C once more ends at once, without saving.")
            self._stop()
        if self._board.stopping:
            self._patience.look(since, int(self._board.heartbeat[Role.SCRIBE]))
            if self._force_exit or self._patience.over:
                self._kill_late()
        if self._balancer is not None and not self._board.stopping:
            for move in self._balancer.look():
                taker = self._processes.index_of(Role.ACTOR, move.taker)
                self._doorbells[taker].ring()  # it makes emulators while it waits for the others
        if time.monotonic_ns() - self._contention.at >= CONTENTION_NS:
            self._read_contention()
        self._notify()

    def _read_contention(self) -> None:
        """Put on the board what others take from the run."""
        times = os.times()
        own = time.process_time_ns() + round(1e9 * (times.children_user + times.children_system))
        own += cpu_time_of(child.process.pid for child in self._children.values())
        found = self._contention
        found.read(time.monotonic_ns(), own)
        self._board.contention[:] = found.at, found.others, found.stolen

    def _notify(self) -> None:
        """Let whoever looks on look; nobody's mistake there may cost what was not saved yet."""
        if self._refusal is not None:
            return
        try:
            self._on_look(self._memory)
        except Exception as error:  # noqa: BLE001  (somebody else's function; raised again at the end)
            self._refusal = error
            if self._children and not self._board.stopping:
                self._note(f"Stopping: the function that looks on failed; {self._to_be_saved}")
                self._stop()

    def _start(self, number: int, incarnation: int) -> None:
        role, name = self._processes.role_of(number), self._processes.name_of(number)
        child_spec = ChildSpec(
            plan=self._plan,
            memory_fd=_Inherited(self._memory.arena.fd),
            doorbells=Doorbells(tuple(_Inherited(doorbell.fd) for doorbell in self._doorbells), self._processes),
            role=role,
            number=self._processes.number_of(number),
            process=int(number),
            incarnation=incarnation,
            parent=os.getpid(),
            run_dir=self._run_dir,
            cores=self._cores[self._processes.number_of(number)] if role is Role.ACTOR else None,
            environment=self._gpu.environment if number in GPU_ROLES else {},
        )
        if number not in self._logged:
            log = log_path(self._run_dir, name)
            self._logged[number] = log.stat().st_size if os.path.exists(log) else 0
        self._board.phase[number] = Phase.STARTING
        self._board.record_heartbeat(number)
        process = ChildProcess(target=run_role, args=(MODULES[role], child_spec), name=name, daemon=True)
        try:
            self._spawn(process, AGAIN_SECONDS if incarnation else 0.0)
        except OSError as error:
            self._children.pop(number, None)
            self._fail(f"{name} could not be started: {error.strerror}. Fewer --actors need less.")
            return
        former = self._children.get(number)
        self._children[number] = _Child(process, incarnation)
        if former:
            self._children[number].deaths, self._children[number].vigil = former.deaths, former.vigil
            former.vigil.begin()

    def _spawn(self, process: multiprocess.Process, seconds: float) -> None:
        """Start a process; for so many seconds again and again, since what is lacking may soon be there again.

        Raises:
            OSError: there are too many processes or descriptors, or there is too little memory.
        """
        deadline = time.monotonic() + seconds
        while True:
            # Neither Ctrl-C nor `systemctl stop`, which reach every process, may end a child that has not yet said that
            # it ignores them: it starts with these signals blocked.
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
            try:
                with pinned_thread_env():
                    process.start()
                return
            except OSError:
                if self._requests.count > 1 or time.monotonic() >= deadline:
                    raise
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            self._asked.wait(LOOK_SECONDS)

    def _handle_exit(self, number: int, child: _Child) -> None:
        """A process has ended: let it go, start it again, or end the run."""
        if not ended(child.process, REAP_SECONDS):  # its descriptors are closed, but a driver holds it
            child.process.kill()
            self._forget(number)
            return
        code = child.process.exitcode
        if code == 0 and (self._board.stopping or self._board.finished):
            del self._children[number]
            return
        if self._did_all(number):  # and broke in taking leave, as a GPU's libraries may
            self._note(f"{self._processes.name_of(number)} did all of its work, but did not exit cleanly.")
            del self._children[number]
            return
        if self._board.stopping and (number != Role.SCRIBE or self._force_exit):
            del self._children[number]
            return
        how = f"was killed by {signal_name(-code)}" if code < 0 else f"ended with code {code}"
        cause = Cause.OWN
        if child.killed_at is not None:
            how = "hung"
        elif code == DEVICE_FAULT:
            how, cause = "met a fault of the GPU", Cause.DEVICE
        elif code == -signal.SIGKILL:
            starved = self._oom_kills.explain()
            how, cause = (starved, cause) if starved else (how, Cause.OUTSIDE)
        count = child.deaths.add(cause, int(self._board.furthest[number]))
        if code == FATAL or (count >= cause.value and not (cause is Cause.DEVICE and self._may_give_up_mps(number))):
            del self._children[number]
            self._fail(self._crash_report(number, how, count, code))
            return
        self._note(f"{self._processes.name_of(number)} {how}; it starts again from its snapshot.")
        self._restart(number, child)

    def _did_all(self, number: int) -> bool:
        """Whether a role has nothing left to do."""
        return bool(self._board.finished and self._board.phase[number] == Phase.DONE)

    def _restart(self, number: int, child: _Child) -> None:
        """Start a process again; under MPS both of those that use the GPU.

        A fault of one may have hit the other, and the server takes nobody new until both are gone.
        """
        together, given_up, shared = [number], False, number in GPU_ROLES and bool(self._gpu.environment)
        if shared:
            together = [role for role in GPU_ROLES if role in self._children]
            if child.deaths.by_fault >= GIVE_UP_MPS and self._may_give_up_mps(number):
                self._note("From here on the GPU is shared in turns, without MPS.")
                given_up = True
        for each in together:
            if not _end(self._children[each].process):
                self._forget(each)
                return
        if given_up:
            self._gpu.quit()
        elif shared and not self._gpu.renew():
            self._note("MPS did not end the server of the roles that died; they may meet what these left.")
        for each in together:
            self._board.restarts[each] += 1
            self._start(each, self._children[each].incarnation + 1)

    def _may_give_up_mps(self, number: int) -> bool:
        """Whether a role uses the GPU through MPS and may do so without."""
        return number in GPU_ROLES and bool(self._gpu.environment) and self._plan.config.machine.mps == "auto"

    def _crash_report(self, number: int, how: str, count: int, code: int) -> str:
        if code == FATAL and number == Role.SCRIBE and self._board.trouble[0]:
            # Its log lies on the disk that is in trouble.
            return disk_trouble.without_checkpoint(int(self._board.trouble[0]), self._run_dir)
        name = self._processes.name_of(number)
        log = log_path(self._run_dir, name)
        return crash_report(name, how, count, code, log, self._logged[number])

    def _watch(self, number: int, child: _Child, since: float) -> None:
        """Kill a process that hangs; whoever finds it dead starts the next. `since`: seconds since the last look."""
        if child.killed_at is not None:
            self._give_up(number, child)
            return
        phase, beat = Phase(int(self._board.phase[number])), int(self._board.heartbeat[number])
        why = child.vigil.look(beat, phase, since, lambda: process_state(child.process.pid))
        if why:
            name, replaced = self._processes.name_of(number), "" if self._did_all(number) else " and replaced"
            self._note(f"{name} {why}; it is killed{replaced}.")
            child.killed_at = time.monotonic()
            os.kill(child.process.pid, TELL_STACKS)
            ended(child.process, STACKS_SECONDS)
            child.process.kill()

    # --- endings

    @property
    def _to_be_saved(self) -> str:
        """What becomes of the run when it stops now: half a sentence."""
        if self._board.committed >= 0:
            return "the last finished round is saved."
        return f"there is nothing {'to save yet' if self._plan.config.run.resume is None else 'new to save'}."

    @property
    def _force_exit(self) -> bool:
        """Whether nobody, not even the scribe, may go on: the user asked twice, or it does not save any more."""
        return self._requests.count > 1 or self._patience.scribe_timed_out

    def _fail(self, sentence: str) -> None:
        self._failure = self._failure or sentence
        if not self._board.stopping:
            self._stop()

    def _stop(self) -> None:
        """Ask everybody to leave; the scribe leaves last, after the checkpoint."""
        self._board.stop[0] = Stop.ABANDON
        for doorbell in self._doorbells:
            doorbell.ring()

    def _kill_late(self) -> None:
        """Who has not left by now is killed; the scribe has longer, unless the user asked twice."""
        for number, child in list(self._children.items()):
            if number == Role.SCRIBE and not self._force_exit:
                continue
            self._killed_scribe |= number == Role.SCRIBE
            if child.killed_at is None:
                child.killed_at = time.monotonic()
                child.process.kill()
            else:
                self._give_up(number, child)

    def _give_up(self, number: int, child: _Child) -> None:
        """Wait for a killed process no longer than is reasonable."""
        assert child.killed_at is not None, "only who was killed is given up"
        if child.process.exitcode is None and time.monotonic() - child.killed_at > REAP_SECONDS:
            self._forget(number)

    def _forget(self, number: int) -> None:
        """Leave a killed process that does not end to the kernel, and end the run."""
        child = self._children.pop(number)
        # multiprocess would wait for it, without bound, when this program exits.
        multiprocess.process._children.discard(child.process)
        self._fail(unkillable_message(self._processes.name_of(number)))

    def _end_all(self) -> None:
        """Whatever happened: no process is left, the memory is given back."""
        for child in self._children.values():
            child.process.kill()
        for child in self._children.values():
            _end(child.process)
        try:
            self._notify()
        finally:
            for doorbell in self._doorbells:
                os.close(doorbell.fd)
            self._memory.arena.close()
            self._claims.close()


def _end(process: multiprocess.Process) -> bool:
    """Kill a process, if it lives, and reap it; False: it does not end."""
    process.kill()
    return ended(process, REAP_SECONDS)


def train(plan: Plan, on_look: Callable[[Memory], None], note: Callable[[str], None]) -> bool:
    """Train in the run directory of a resolved, validated plan, which must exist.

    Args:
        on_look: called several times a second with the shared memory, to be read only.
        note: called with a sentence whenever something happened that a person should know.

    Returns:
        Whether the last round was committed; False when a signal stopped the run before.

    Raises:
        ArenaError: there is too little memory. RunFailed: the run ended early through a fault, or MPS was asked for
            and cannot be had.
    """
    assert plan.config.run.run_dir is not None, "the configuration is not resolved"
    (plan.config.run.run_dir / LOGS).mkdir(mode=0o700, exist_ok=True)
    choose_workspace()  # before any child could initialize CUDA
    machine = plan.config.machine
    try:
        with mps.service(machine.mps, machine.device, note) as gpu:
            return Supervisor(plan, on_look, note, gpu).run()
    except mps.MpsError as error:
        raise RunFailed(f"{error} Omit --mps on to go on without it.") from error
