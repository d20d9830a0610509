"""The shared parameters as one process sees them, and the two ways in which gradients are applied to them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping

import numpy as np
import torch
from numpy.typing import NDArray

from learner.engine.optimizer import make_compiled_step
from learner.networks.model import Model
from learner.networks.modules import initial_parameters
from shared.errors import FatalError
from shared.memory.run_memory import Memory

LINE = 16
"""Numbers of a cache line, of which a shard has whole ones."""
BLOCK = 1 << 15
"""Numbers of a block: with its moments it stays in a core's cache while all gradients are applied to it."""
_NO_BITS = np.empty(0, np.uint16)
"""Shared vectors have no copy in bfloat16: each process makes its own when it loads a version."""


class Parameters(ABC):
    """The shared parameters as one process sees them: it loads them, and applies gradients.

    Round `r` is computed with version `r`, which lies in `buffer(r)`.
    """

    def __init__(self, memory: Memory, model: Model, target: Model | None, process: int) -> None:
        """Parameters for `model`, and its target network, if it has one; process number `process` owns that shard."""
        assert memory.shared_parameters is not None, "the run has workers"
        self._memory, self._shared, self._model, self._target = memory, memory.shared_parameters, model, target
        self._learn, self._run_schedule = memory.plan.config.learn, memory.run_schedule
        shared, count = self._shared, len(model.params)
        self._vectors = {"online": shared.params, "moment1": shared.moment1, "moment2": shared.moment2}
        self._applied = shared.applied.at(process)
        self._target_loaded = -1
        lines, shards = -(-count // LINE), memory.plan.actors
        first, last = (min(count, number * lines // shards * LINE) for number in (process, process + 1))
        self._shard = slice(first, last)

    @abstractmethod
    def buffer(self, version: int) -> int:
        """The buffer in which a version lies."""

    @abstractmethod
    def target_changes(self, version: int) -> int:
        """Changes of the target network up to a version."""

    @torch.inference_mode()
    def fill(self) -> None:
        """Write the shard of the first version, of the newest snapshot or fresh, unless a former incarnation did."""
        if self._applied.read() >= 0:
            return
        snapshots, config = self._memory.learner_snapshots, self._memory.plan.config
        boundary = max(0, snapshots.newest())
        state = snapshots.read(boundary)
        if state is None:
            state = {"online": initial_parameters(self._model.network, config.run.seed, config.learn.initial)}
        for name, versions in self._vectors.items():
            versions[self.buffer(boundary), self._shard] = self._packed(state, name)[self._shard]
        if self._target is not None:
            name = "target" if "target" in state else "online"
            self._shared.target[self._shard] = self._packed(state, name)[self._shard]
            steps = boundary * self._run_schedule.round_steps
            self._shared.target_changes[0] = steps // self._run_schedule.target_steps
        self._applied.publish(boundary)

    def _packed(self, state: Mapping[str, NDArray[np.float32]], name: str) -> NDArray[np.float32]:
        """A vector of a snapshot in the model's layout; zeros if it is not there."""
        packed = torch.zeros_like(self._model.params)
        if name in state:
            self._model.pack(state[name], packed)
        return packed.numpy()

    @torch.inference_mode()
    def load(self, version: int) -> None:
        """Have the model compute with a version, and with its target network."""
        changes = self.target_changes(version)
        self._model.params.copy_(torch.from_numpy(self._shared.params[self.buffer(version)]))
        self._model.sync_copy()
        if self._target is not None and changes != self._target_loaded:
            self._target.params.copy_(torch.from_numpy(self._shared.target))
            self._target.sync_copy()
            self._target_loaded = changes

    @torch.inference_mode()
    def store(self, version: int, out: Mapping[str, NDArray[np.float32]]) -> None:
        """Write the vectors of a version that `out` names, in canonical layout, while no process changes it.

        Raises:
            FatalError: a parameter is not finite.
        """
        for name, canonical in out.items():
            vector = self._shared.target if name == "target" else self._vectors[name][self.buffer(version)]
            self._model.unpack(torch.from_numpy(vector), canonical)
            if not np.isfinite(canonical).all():
                raise FatalError(
                    f"The shared parameters ({name}) are no longer finite in round {version}; a smaller "
                    "--learning-rate may help."
                )


class Versions(Parameters):
    """Rounds of gradients: this process makes its shard of version `r + 1` from version `r` and all gradients."""

    def buffer(self, version: int) -> int:
        """The buffers take turns."""
        return version % 2

    def target_changes(self, version: int) -> int:
        """Changes at the ends of the rounds before."""
        return self._run_schedule.target_changes_before(version)

    @torch.inference_mode()
    def apply(self, round_: int) -> None:
        """Make the shard of version `round_ + 1` from the gradients of the round, unless a former incarnation did.

        The gradients are applied one after the other in the order of workers, as if each were an update of its own.
        """
        if self._applied.read() > round_:
            return
        rate = self._run_schedule.learning_rate(round_, self._learn)
        before = self._run_schedule.updates_before(round_)
        updates = self._run_schedule.workers if self._run_schedule.updates_in(round_) else 0
        steps = [
            make_compiled_step(self._learn, rate, torch.tensor(float(before + worker + 1)), 1.0)
            for worker in range(updates)
        ]
        old, new = self.buffer(round_), self.buffer(round_ + 1)
        for block in self.blocks():
            moved = [versions[new, block] for versions in self._vectors.values()]
            for vector, versions in zip(moved, self._vectors.values(), strict=True):
                vector[:] = versions[old, block]
            params, mean, square = moved
            for worker, step in enumerate(steps):
                step((params, _NO_BITS, self._shared.gradient[worker, block], _NO_BITS, mean, square))
            if self._run_schedule.target_changes_after(round_):
                self._shared.target[block] = params
        self._applied.publish(round_ + 1)

    def blocks(self) -> Iterator[slice]:
        """The parts of the shard."""
        for first in range(self._shard.start, self._shard.stop, BLOCK):
            yield slice(first, min(first + BLOCK, self._shard.stop))


class Hogwild(Parameters):
    """Gradients that are applied at once, without a lock and in no order (Recht et al. 2011; Mnih et al. 2016).

    Loads of a process may see a part of another's step, and two steps may lose a part of each other.
    """

    def buffer(self, version: int) -> int:
        """There is one."""
        return 0

    def target_changes(self, version: int) -> int:
        """Changes so far, by whichever process."""
        return int(self._shared.target_changes[0])

    @torch.inference_mode()
    def apply(self, worker: int, round_: int) -> None:
        """Apply the gradient of a worker of this round, and change the target network if it is due."""
        shared, run_schedule = self._shared, self._run_schedule
        rate, computed = run_schedule.learning_rate(round_, self._learn), shared.computed.values
        done = int(computed.sum())
        # Gradients before learning begins count as computed, too, and take no step; other workers may still be there.
        steps = int(np.maximum(computed - run_schedule.first_learning_round, 0).sum())
        step = make_compiled_step(self._learn, rate, torch.tensor(float(steps)), 1.0)
        vectors = (shared.params[0], _NO_BITS, shared.gradient[worker], _NO_BITS, shared.moment1[0], shared.moment2[0])
        step(vectors)
        if self._target is not None:
            changes = done * run_schedule.round_ticks * run_schedule.lane_envs // run_schedule.target_steps
            if changes > self.target_changes(round_):  # several processes may see that; each copy is a good one
                shared.target[:] = shared.params[0]
                shared.target_changes[0] = changes

    def finish(self, round_: int) -> None:
        """Say that this process has applied all of its gradients of a round, unless a former incarnation did."""
        if self._applied.read() <= round_:
            self._applied.publish(round_ + 1)
