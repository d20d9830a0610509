"""The supervisor: starts, watches, restarts and ends the processes of a run. It writes only the board.

It follows PostgreSQL's postmaster: it never touches the data of its children, so nothing that kills a child can hurt
it. Start it from the main thread: children die with the thread that made them (parent-death signal).
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib import import_module

import multiprocess
from multiprocess.connection import wait as wait_for

from ringside.run.children import GPU_ROLES, Child, ChildMaker, diagnose
from ringside.run.hang_detector import LATE_SECONDS, process_state
from ringside.run.lane_balance import Balancer
from shared.checkpoint.manifest import Manifest
from shared.errors import RunFailed, StopTraining
from shared.files.run_file_names import LOGS
from shared.machine.contention import Contention, sum_cpu_time
from shared.machine.control_groups import OomKills
from shared.machine.facts import mps_serves
from shared.machine.subprocesses import REAP_SECONDS, wait_for_end
from shared.memory.board import Phase, Stop
from shared.memory.boundary import newest_boundary
from shared.memory.plan import Plan
from shared.memory.process_table import Role
from shared.memory.run_memory import Memory
from shared.memory.wait import Doorbell
from shared.process.child import FATAL
from shared.process.library_env import choose_workspace
from shared.process.signals import TELL_STACKS, Requests, handle_stop_signals

STACKS_SECONDS = 0.5
"""Time for a process that hangs to write its stacks, before it is killed."""
POLL_SECONDS = 0.25
"""Interval between two polls."""
CONTENTION_NS = 1_000_000_000
"""Interval between two readings of the CPU time that other programs take from the run."""
RETRY_SECONDS = 10.0
"""Time limit for attempts to restart a process that has died."""

GRACE_SECONDS = 8.0
"""Longest time that a process may take to leave when asked."""
SAVE_SECONDS = 120.0
"""Longest silence of the scribe while it writes the last checkpoint."""
FINISH_SECONDS = 20.0
"""Time to finish a round after SIGTERM or SIGHUP, whose sender may kill soon after."""


class Supervisor:
    """The processes of one run."""

    def __init__(
        self,
        plan: Plan,
        on_poll: Callable[[Memory], None],
        note: Callable[[str], None],
        *,
        checkpoint: Manifest | None = None,
        region: tuple[Memory, list[Doorbell]] | None = None,
        roles: Sequence[Role] | None = None,
    ) -> None:
        """Make the shared memory, unless it is given; no process is started yet.

        Args:
            plan: resolved and validated; its run directory exists.
            on_poll: called several times a second with the shared memory, which it may only read.
            note: called with a sentence at every event that a user should know.
            checkpoint: the verified one that is resumed.
            region: memory of the run and doorbells of its processes, by position, where another program made them.
            roles: the processes to start, besides those that play; default: those of the plan.

        Raises:
            ArenaError: there is too little memory.
        """
        (plan.config.run.run_dir / LOGS).mkdir(mode=0o700, exist_ok=True)
        self._plan, self._on_poll, self._note = plan, on_poll, note
        self._uses_mps = plan.config.machine.device != "cpu" and mps_serves()
        self._requests = Requests()
        self._polled_at = time.monotonic()
        self._failure: str | None = None
        self._callback_error: BaseException | None = None
        """Exception of `on_poll`, which ends the run as a signal does."""
        self._leaving_seconds = self._saving_seconds = 0.0
        """Time since all processes were asked to leave, and since the scribe's last heartbeat then, poll by poll."""
        self._scribe_heartbeat = -1
        self._answered = 0
        """Requests to stop that were answered; one more has the run end sooner."""
        self._finish_until = math.inf
        """Moment at which a round that is being finished takes too long."""
        self._oom_kills = OomKills()
        self._memory = Memory.create(plan) if region is None else region[0]
        self._board = self._memory.board
        self._balance_lanes = _balance(plan, self._memory, note)
        self._processes, self._name = plan.processes, plan.processes.name_of
        self._doorbells = [Doorbell.create() for _ in range(len(self._processes))] if region is None else region[1]
        self._wakeup = Doorbell.create()
        """Rung by a stop signal, so that it is answered at once, not at the next poll."""
        self._children: dict[int, Child] = {}
        self._contention = Contention()
        self._maker = ChildMaker(self._memory, self._doorbells, plan.config.run.run_dir, checkpoint)
        self._read_contention()
        self._roles = plan.roles if roles is None else (*roles, plan.player)

    # --- running

    def run(self) -> None:
        """Run to the end, or until a stop.

        Raises:
            RunFailed: a role died too often, or a restart cannot help.
        """
        choose_workspace()  # before a child could initialize CUDA
        try:
            with handle_stop_signals(self._on_signal):
                self._supervise()
        finally:
            os.close(self._wakeup.fd)
        if self._failure:
            raise RunFailed(self._failure) from self._callback_error
        if self._callback_error is not None:
            raise self._callback_error

    def _supervise(self) -> None:
        """Start all processes, and poll until the last has ended."""
        try:
            for index in (index for role in self._roles for index in self._processes.indexes_of(role)):
                if self._board.stopping:  # one could not be started
                    break
                self._start(index, incarnation=0)
            while self._children:
                self._poll()
        finally:
            self._end_all()

    def _on_signal(self, number: int) -> None:
        """Count a signal, and wake the supervisor."""
        self._requests.count_signal(number)
        self._wakeup.ring()

    def _poll(self) -> None:
        """Wait a moment for deaths and signals, and handle them."""
        now = time.monotonic()
        since, self._polled_at = now - self._polled_at, now
        dead = wait_for([self._wakeup.fd, *(child.process.sentinel for child in self._children.values())], POLL_SECONDS)
        self._wakeup.wait(0)
        for index, child in list(self._children.items()):
            if self._children.get(index) is not child:
                continue  # it was restarted together with another
            # Its pipe may stay open after its end: a program that the child started may hold it, too.
            if child.process.sentinel in dead or child.process.exitcode is not None:
                self._handle_exit(index, child)
            elif not self._board.stopping or index == Role.SCRIBE:  # after a stop the shutdown timer covers the others
                self._watch(index, child, since)
        if self._requests.count and self._board.stop[0] == Stop.RUN:
            self._finish("Stopping")
        if self._board.stop[0] == Stop.FINISH:
            self._watch_finish()
        if self._board.stopping:
            self._count_shutdown(since)
            if self._force_exit or self._leaving_seconds > GRACE_SECONDS:
                self._kill_late()
        if not self._board.stopping:
            for actor in self._balance_lanes():  # which makes emulators while it waits for the others
                self._doorbells[self._processes.index_of(Role.ACTOR, actor)].ring()
        if time.monotonic_ns() - self._contention.at >= CONTENTION_NS:
            self._read_contention()
        self._notify()

    def _read_contention(self) -> None:
        """Write the CPU time that other programs take from the run to the board; later, if no file can be opened."""
        times = os.times()
        own = time.process_time_ns() + round(1e9 * (times.children_user + times.children_system))
        found = self._contention
        with suppress(OSError):
            own += sum_cpu_time({*self._maker.server.pids, *(child.process.pid for child in self._children.values())})
            found.read(time.monotonic_ns(), own)
        self._board.contention[:] = found.at, found.others, found.stolen

    def _notify(self) -> None:
        """Call `on_poll`. An exception from it stops the run as a signal does; it is raised again at the end unless it
        is `StopTraining`."""
        if self._callback_error is not None:
            return
        try:
            self._on_poll(self._memory)
        except StopTraining as why:
            self._finish(f"{why or 'A callback stops the run.'} Stopping")
        except BaseException as error:  # noqa: BLE001  (a caller's function raises anything, as does sys.exit())
            self._callback_error = error
            self._finish("A callback failed. Stopping")

    def _start(self, index: int, incarnation: int) -> None:
        """Start the process at a position, or end the run if that is impossible."""
        self._board.phase[index] = Phase.STARTING
        self._board.record_heartbeat(index)
        heartbeat = int(self._board.heartbeat[index])
        try:
            process = self._spawn(index, incarnation)
        except OSError as error:
            self._children.pop(index, None)
            self._fail(f"{self._name(index)} could not be started: {error.strerror}. Fewer --actors need less.")
            return
        child = self._children.setdefault(index, Child(process))
        child.hang_detector.restart()
        self._children[index] = replace(
            child, process=process, incarnation=incarnation, killed_at=None, first_heartbeat=heartbeat
        )

    def _spawn(self, index: int, incarnation: int) -> multiprocess.Process:
        """Make and start a process; retry a restart for some time, since a resource that is missing may soon be free.

        Raises:
            OSError: there are too many processes or descriptors, or there is too little memory.
        """
        deadline = time.monotonic() + (RETRY_SECONDS if incarnation else 0.0)
        while True:
            try:
                process = self._maker.make(index, incarnation)
                process.start()
                return process
            except OSError:
                if self._requests.count > 1 or time.monotonic() >= deadline:
                    raise
            self._wakeup.wait(POLL_SECONDS)

    def _handle_exit(self, index: int, child: Child) -> None:
        """Handle the end of a process: drop it, restart it, or end the run."""
        if not wait_for_end(child.process, REAP_SECONDS):  # its descriptors are closed, but a driver holds it
            child.process.kill()
            self._forget(index)
            return
        code = child.process.exitcode
        if code == 0 and (self._board.stopping or self._board.finished):
            del self._children[index]
            return
        if self._did_all(index):  # and crashed at its exit, as a GPU's libraries may
            self._note(f"{self._name(index)} did all of its work, but did not exit cleanly.")
            del self._children[index]
            return
        role = self._processes.role_of(index)
        learns = role in (Role.LEARNER, Role.MEMBER, Role.WORKER)  # the next resume would find its fault again
        if self._board.stopping and (index != Role.SCRIBE or self._force_exit) and not (learns and code == FATAL):
            del self._children[index]
            return
        how, cause = diagnose(code, hung=child.killed_at is not None, oom_kills=self._oom_kills)
        count = child.count_death(cause, int(self._board.furthest[index]))
        if code == FATAL or self._maker.repeats_env_fault(index, code) or count >= cause.value:
            del self._children[index]
            self._fail(self._maker.crash_report(index, how, count, code))
            return
        self._note(f"{self._name(index)} {how}; it starts again.")
        self._restart(index)

    def _did_all(self, index: int) -> bool:
        """True if a role has nothing left to do.

        After the last commit a member of the learner has nothing: a new one would wait for others that have left.
        """
        connected = len(self._processes.learners) > 1 and index in self._processes.learners
        return bool(self._board.finished and (connected or self._board.phase[index] == Phase.DONE))

    def _restart(self, index: int) -> None:
        """Restart a process; a member of the learner with all others; under MPS both of those that use the GPU.

        Members are connected: without one the others cannot go on.
        """
        learners = self._processes.learners
        shared = GPU_ROLES if self._uses_mps and index in (*GPU_ROLES, *learners) else ()
        team = learners if {index, *shared} & {*learners} else ()
        together = sorted({index, *(each for each in (*team, *shared) if each in self._children)})
        for each in together:
            if not _end(self._children[each].process):
                self._forget(each)
                return
        for each in together:
            self._board.restarts[each] += 1
            self._start(each, self._children[each].incarnation + 1)

    def _watch(self, index: int, child: Child, since: float) -> None:
        """Kill a process that hangs; the poll that finds it dead restarts it. `since`: seconds since the last poll."""
        if child.killed_at is not None:
            self._give_up(index, child)
            return
        phase, heartbeat = Phase(int(self._board.phase[index])), int(self._board.heartbeat[index])
        why = child.hang_detector.check(heartbeat, phase, since, lambda: process_state(child.process.pid))
        if why:
            name, replaced = self._name(index), "" if self._did_all(index) else " and replaced"
            self._note(f"{name} {why}; it is killed{replaced}.")
            child.killed_at = time.monotonic()
            with suppress(ProcessLookupError):
                os.kill(child.process.pid, TELL_STACKS)
            wait_for_end(child.process, STACKS_SECONDS)
            child.process.kill()

    # --- shutdown

    def _finish(self, why: str) -> None:
        """Have the run end at its next boundary; at once where no step would be lost."""
        if not self._children or self._board.stop[0] != Stop.RUN:
            return
        dropped, step = self._unsaved
        if not dropped or self._plan.keeps_every_boundary:  # the head keeps what a group played
            nothing = f"there is nothing {'to save yet' if self._plan.config.run.resume is None else 'new to save'}"
            self._note(f"{why}: {nothing if self._board.committed < 0 else f'the run is saved at step {step:,}'}.")
            self._stop()
            return
        self._board.stop_asked_ns[0] = time.monotonic_ns()
        self._board.stop[0] = Stop.FINISH
        self._answered = self._requests.count
        stops_at = self._board.stops_at
        assert stops_at is not None, "a stop is requested"
        near, limit = stops_at * self._board.run_schedule.round_steps, ""
        if self._requests.hurries:
            limit, self._finish_until = f"It has {FINISH_SECONDS:.0f} s for that. ", time.monotonic() + FINISH_SECONDS
        self._note(
            f"{why}: the run is saved when its round ends, near step {near:,}. "
            f"{limit}Ctrl-C once more stops at step {step:,}, and drops the {dropped:,} steps after it."
        )
        self._ring_all()

    def _watch_finish(self) -> None:
        """End the run once its last boundary is committed, or where it may not take longer."""
        late = time.monotonic() > self._finish_until
        if self._board.finished and not self._board.complete:  # else evaluations that wait are played
            self._answered += 1  # one more request comes too late to drop the round
            self._stop()
        elif late or self._requests.count > self._answered:
            dropped, step = self._unsaved
            what = "Evaluations were" if self._board.finished else "The round was"
            why = f"{what} not over within {FINISH_SECONDS:.0f} s" if late else "Stopping at once"
            lost = f"{dropped:,} steps after it are dropped" if dropped else "evaluations that wait are not played"
            self._note(f"{why}: the run is saved at step {step:,}, and {lost}. Ctrl-C once more ends without saving.")
            self._stop()

    @property
    def _unsaved(self) -> tuple[int, int]:
        """Steps played after the newest snapshot, and the step of that snapshot."""
        run_schedule = self._board.run_schedule
        played = int(self._board.lane_done.values.sum()) * run_schedule.lane_envs
        step = max(0, newest_boundary(self._memory)) * run_schedule.round_steps
        return max(0, played - step), step

    @property
    def _force_exit(self) -> bool:
        """True if even the scribe may not continue: the user asked again while it saves, or it no longer saves."""
        return self._requests.count > self._answered or self._saving_seconds > SAVE_SECONDS

    def _count_shutdown(self, seconds: float) -> None:
        """Count the seconds since the last poll as time of the shutdown."""
        seconds = min(seconds, LATE_SECONDS)  # the supervisor was stopped then, or the machine slept
        former, self._scribe_heartbeat = self._scribe_heartbeat, int(self._board.heartbeat[Role.SCRIBE])
        self._leaving_seconds += seconds
        self._saving_seconds = self._saving_seconds + seconds if self._scribe_heartbeat == former else 0.0

    def _fail(self, sentence: str) -> None:
        self._failure = self._failure or sentence
        if not self._board.stopping:
            self._stop()

    def _stop(self) -> None:
        """Ask all processes to leave; the scribe leaves last, after the checkpoint.

        A process without a heartbeat still loads its libraries: it would read the stop word seconds later, and has
        begun nothing. So it is killed.
        """
        self._board.stop[0] = Stop.ABANDON
        self._answered = max(self._answered, self._requests.count, 1)
        self._ring_all()
        for index, child in self._children.items():
            if index != Role.SCRIBE and self._board.heartbeat[index] == child.first_heartbeat:
                child.process.kill()

    def _ring_all(self) -> None:
        for doorbell in self._doorbells:
            doorbell.ring()

    def _kill_late(self) -> None:
        """Kill the processes that have not left; the scribe has longer, unless the user asked again."""
        for index, child in list(self._children.items()):
            if index == Role.SCRIBE and not self._force_exit:
                continue
            if index == Role.SCRIBE:
                self._fail("The run ended without a last checkpoint.")
            if child.killed_at is None:
                child.killed_at = time.monotonic()
                child.process.kill()
            else:
                self._give_up(index, child)

    def _give_up(self, index: int, child: Child) -> None:
        """Stop waiting for a killed process after `REAP_SECONDS`."""
        assert child.killed_at is not None, "only a killed process is given up"
        if child.process.exitcode is None and time.monotonic() - child.killed_at > REAP_SECONDS:
            self._forget(index)

    def _forget(self, index: int) -> None:
        """Drop a killed process that does not end, and end the run."""
        child = self._children.pop(index)
        # multiprocess would wait for it, without bound, when this program exits.
        multiprocess.process._children.discard(child.process)
        self._fail(
            f"{self._name(index)} was killed and does not end: it waits in the kernel for a disk or a driver that does "
            "not answer. The kernel log may say which."
        )

    def _end_all(self) -> None:
        """Leave no process behind, and give the memory back."""
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
            self._maker.close()


def _balance(plan: Plan, memory: Memory, note: Callable[[str], None]) -> Callable[[], Sequence[int]]:
    """The function that writes the wanted owners of lanes and returns the actors to wake."""
    if plan.elsewhere.actors:
        return import_module(plan.elsewhere.module).GatewayBalancer(memory, note).measure
    balances = plan.config.machine.balance == "auto" and plan.player is Role.ACTOR and plan.env_repeats
    return Balancer(memory.board, plan.processes, plan.cell_lanes).measure if balances else lambda: ()


def _end(process: multiprocess.Process) -> bool:
    """Kill a process, if it lives, and reap it. Return False if it does not end."""
    process.kill()
    return wait_for_end(process, REAP_SECONDS)
