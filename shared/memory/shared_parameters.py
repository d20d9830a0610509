"""Shared parameters of workers: two versions of parameters and moments, and a gradient of every worker.

With `ordered`, version `r` lies in buffer `r % 2`. In round `r` every worker computes a gradient at version `r` and
publishes `computed`. When all have, each process makes its part of version `r + 1`, the shard that it owns, from
version `r` and all gradients in the order of workers, and publishes `applied`. No source of a round is written in that
round, so a process that was killed does its part again. The target network changes with a version, when nothing reads
it.

With `async` there is one buffer. Every worker applies its gradients to it without a lock, as Hogwild does (Recht et al.
2011), so these fields have several writers (shared/README.md). `applied` says of each process which rounds it has
played and applied to the end. A worker may be some rounds ahead of the last commit, so as many sums of metrics are
kept.

Vectors are in the packed layout of the model that workers share (`Model.params`).
"""

from __future__ import annotations

from shared.config.run_schedule import RunSchedule
from shared.memory.layout import ONE, SharedFields, float32, float64, int64, sequence_array

_VERSIONS = (2, "packed")
_WORKER = "the worker's process"
_OWNER = "the shard's owner; with async every worker"


class SharedParameters(SharedFields):
    """The fields of a run of workers; a shard is a part of every vector, and process `s` owns shard `s`."""

    params = float32("shared.params", _VERSIONS, _OWNER, "Parameters.")
    moment1 = float32("shared.moment1", _VERSIONS, _OWNER, "Means of gradients.")
    moment2 = float32("shared.moment2", _VERSIONS, _OWNER, "Means of squared gradients.")
    target = float32("shared.target", ("targets",), _OWNER, "Target network; empty without one.")
    gradient = float32("shared.gradient", ("workers", "packed"), _WORKER, "The newest gradient of each worker.")
    sums = float64(
        "shared.sums", ("sums", "workers", "worker_metrics"), _WORKER, "Sums of a record's metrics and updates."
    )
    target_changes = int64("shared.target_changes", ONE, _OWNER, "With async: changes of the target network.")
    computed = sequence_array("shared.computed", ("workers",), _WORKER, "Gradients of each worker.")
    applied = sequence_array("shared.applied", ("shards",), "the process", "Rounds applied; -1: nothing is there.")

    @staticmethod
    def sizes(run_schedule: RunSchedule, processes: int, packed: int) -> dict[str, int]:
        """Sizes of the fields for vectors of `packed` numbers."""
        return {
            "packed": packed,
            "workers": run_schedule.workers,
            "sums": run_schedule.max_rounds_ahead + 1,
            "shards": processes,
            "targets": packed * run_schedule.has_own_target,
            "worker_metrics": len(run_schedule.method.metrics) + 1,
        }

    def clear(self) -> None:
        """Before any process starts: there is no version."""
        self.applied.publish_all(-1)
