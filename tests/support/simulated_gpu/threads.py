"""Threads of the host that take turns: a seeded choice at every call of the device says which one continues."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any


class Turns:
    """One thread runs at a time. Threads that are unknown here, such as those of autograd, act for the one that runs.

    Attributes:
        running: number of the thread that runs; 0 is the one that made this object.
    """

    def __init__(self, choices: random.Random) -> None:
        self._choices = choices
        self._changed = threading.Condition()
        self._numbers = {threading.get_ident(): 0}
        self._runnable = [0]
        self._waits: dict[int, Job] = {}
        self._threads, self.running = 1, 0

    def switch(self) -> None:
        """Let a thread go on that is chosen among all that can."""
        number = self._numbers.get(threading.get_ident())
        if number is None or len(self._runnable) == 1:
            return
        with self._changed:
            self._pass_on(number)

    def start(self, job: Job, call: Callable[[], None]) -> None:
        """Begin a job in a new thread."""
        number, self._threads = self._threads, self._threads + 1

        def run() -> None:
            with self._changed:
                self._numbers[threading.get_ident()] = number
                self._changed.wait_for(lambda: self.running == number)
            call()
            with self._changed:
                del self._numbers[threading.get_ident()]
                self._runnable.remove(number)
                self._runnable += [waiting for waiting, wanted in self._waits.items() if wanted is job]
                self._waits = {waiting: wanted for waiting, wanted in self._waits.items() if wanted is not job}
                if self._runnable:
                    self.running = self._choices.choice(self._runnable)
                self._changed.notify_all()

        self._runnable.append(number)
        threading.Thread(target=run, name=f"simulated {number}", daemon=True).start()

    def wait_for(self, job: Job) -> None:
        """Let other threads go on until a job is done."""
        number = self._numbers[threading.get_ident()]
        if not job.done():
            with self._changed:
                self._runnable.remove(number)
                self._waits[number] = job
                self._pass_on(number)

    def _pass_on(self, number: int) -> None:
        self.running = self._choices.choice(self._runnable)
        self._changed.notify_all()
        self._changed.wait_for(lambda: self.running == number)


class Job(Future[Any]):
    """A submitted call, whose caller lets other threads go on until it is done."""

    def __init__(self, turns: Turns) -> None:
        super().__init__()
        self._turns = turns

    def result(self, timeout: float | None = None) -> Any:
        """The call's result, when it is done; raises its error."""
        self._turns.wait_for(self)
        return super().result(timeout)


class Executor:
    """Stands for `concurrent.futures.ThreadPoolExecutor` of one thread."""

    def __init__(self, turns: Turns, initializer: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        self._turns, self._initializer, self._arguments = turns, initializer, arguments

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Job:
        """Call `function` in another thread, which takes turns with this one."""
        job = Job(self._turns)

        def call() -> None:
            try:
                self._initializer(*self._arguments)
                job.set_result(function(*arguments))
            except BaseException as error:  # noqa: BLE001  it is raised in the thread that asks
                job.set_exception(error)

        self._turns.start(job, call)
        return job
