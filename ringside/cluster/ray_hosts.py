"""Hosts that are Ray actors."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import ray
from ray.exceptions import ActorHandleNotFoundError, GetTimeoutError, RayError, RayTaskError

from ringside.cluster.node_object import Host, NodeLost

_NODE_LABEL = "ray.io/node-id"
_POLL_SECONDS = 0.2
_CLOSE_SECONDS = 6.0
_FETCH_SECONDS = 30.0
"""Longest time to bring an answer that is there to this machine."""


class RayHosts:
    """A cluster that this process is connected to."""

    def __init__(self, cores: float, gpus: float, node: str | None = None) -> None:
        """Prepare; nothing is placed yet.

        Args:
            cores, gpus: CPUs and GPUs for each object.
            node: identity of the node for all objects; None: any.
        """
        self._options: dict[str, Any] = {"num_cpus": cores, "num_gpus": gpus, "max_restarts": 0, "max_task_retries": 0}
        self._options["label_selector"] = {} if node is None else {_NODE_LABEL: node}
        self._left_out: list[str] = []

    def place(self, kind: type, *arguments: Any) -> RayHost:
        """Ask for a new actor `kind(*arguments)`; does not wait."""
        return RayHost(ray.remote(kind).options(**self._options).remote(*arguments))

    def leave_out(self, host: Host) -> None:
        """Place nothing more on the node of an actor that is placed. Raises `NodeLost`."""
        assert isinstance(host, RayHost), "it was placed here"
        self._left_out.append(host.node)
        self._options["label_selector"] = {_NODE_LABEL: f"!in({','.join(self._left_out)})"}


class RayHost:
    """One actor."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor
        self._placed = actor.__ray_call__.remote(_node)

    def ready(self, seconds: float) -> bool:
        """Wait at most `seconds`; True if the actor has been placed on a node. Raises `NodeLost`."""
        return bool(ray.wait([self._placed], timeout=seconds)[0] and self.node)

    @property
    def node(self) -> str:
        """Identity of the node of an actor that is placed. Raises `NodeLost`."""
        return str(_get(self._placed))

    def call(self, method: str, *arguments: Any, seconds: float, meanwhile: Callable[[], None] = lambda: None) -> Any:
        """Call a method of the actor and return its answer. Raises `NodeLost`, or the method's error."""
        deadline = time.monotonic() + seconds
        try:
            reference = self._actor.answer.remote(method, *arguments)
        except RayError as error:
            raise NodeLost("died") from error
        while not ray.wait([reference], timeout=max(0.0, min(_POLL_SECONDS, deadline - time.monotonic())))[0]:
            if time.monotonic() >= deadline:
                raise NodeLost(f"has been silent for {seconds:.0f} s")
            meanwhile()
        return _get(reference)

    def release(self, *, gently: bool = False) -> None:
        """End the actor's process, if it lives. It may only be out of reach, and then ends with its lease."""
        with suppress(RayError, ActorHandleNotFoundError):
            if gently:
                ray.wait([self._actor.close.remote()], timeout=_CLOSE_SECONDS)
            ray.kill(self._actor)


def _get(reference: Any) -> Any:
    """Answer that is there. Raises `NodeLost`, or the error that the method raised."""
    try:
        return ray.get(reference, timeout=_FETCH_SECONDS)
    except GetTimeoutError as error:
        raise NodeLost(f"has been silent for {_FETCH_SECONDS:.0f} s") from error
    except RayTaskError as error:
        raise error.cause from error
    except RayError as error:  # also a process that Ray's memory monitor has ended, or that could not start
        raise NodeLost("died") from error


def _node(actor: object) -> str:
    """Identity of the node on which this is called."""
    return str(ray.get_runtime_context().get_node_id())
