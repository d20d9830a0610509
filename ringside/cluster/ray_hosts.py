"""Hosts that are Ray actors."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import ray
from ray._private.state import state  # Ray has no public function that says which nodes are being drained
from ray.exceptions import (
    ActorHandleNotFoundError,
    GetTimeoutError,
    ObjectLostError,
    RayError,
    RayTaskError,
)
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ringside.cluster.exchange import Exchange
from ringside.cluster.hosts import DataLost, Host, NodeLost

_NODE_LABEL = "ray.io/node-id"
_POLL_SECONDS = 0.2
_CLOSE_SECONDS = 6.0
_FETCH_SECONDS = 30.0
"""Longest time to bring an answer that is there to this machine."""
_OFFER_SECONDS = 1.0
"""Longest wait for data that another process has undertaken to put."""
_EXCHANGE_SECONDS = 3.0
"""Longest wait for the exchange, which adds at most `_OFFER_SECONDS`."""


class RayHosts:
    """A cluster that this process is connected to."""

    def __init__(self, cores: float, gpus: float, node: str | None = None, exchange: str = "") -> None:
        """Prepare; nothing is placed yet.

        Args:
            cores, gpus: CPUs and GPUs for each object.
            node: identity of the node for all objects; None: any.
            exchange: name under which processes of this machine share data; empty: this process shares with no other.
        """
        self._options: dict[str, Any] = {"num_cpus": cores, "num_gpus": gpus, "max_restarts": 0, "max_task_retries": 0}
        self._left_out: list[str] = []
        self._exchange = _SharedData(exchange) if exchange else None
        if node is not None:
            self._options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(node, soft=False)

    def place(self, kind: type, *arguments: Any) -> RayHost:
        """Ask for a new actor `kind(*arguments)`; does not wait."""
        return RayHost(ray.remote(kind).options(**self._options).remote(*arguments))

    def leave_out(self, host: Host) -> None:
        """Place nothing more on the node of an actor that is placed. Raises `NodeLost`."""
        assert isinstance(host, RayHost), "it was placed here"
        self._left_out.append(host.node)
        self._options["label_selector"] = {_NODE_LABEL: f"!in({','.join(self._left_out)})"}

    def share(self, name: int, make: Callable[[], Any]) -> Any:
        """A reference to data that other processes of this machine share, or the data."""
        return make() if self._exchange is None else self._exchange.reference(name, make)

    @property
    def exchange_is_there(self) -> bool:
        """True if data are shared with other processes: the exchange has started."""
        return self._exchange is not None and self._exchange.is_there


class _SharedData:
    """Data in Ray's store that several processes of this machine refer to.

    The exchange between them ends with the process that made it, and the next one that misses it makes another. While
    there is none, each process puts its own data.
    """

    def __init__(self, name: str) -> None:
        """Start the exchange, if there is none of that name; does not wait."""
        self._name = name
        self._connect()

    def reference(self, name: int, make: Callable[[], Any]) -> Any:
        """Reference to the data of that name, which `make` returns if no other process has put them."""
        try:
            if self.is_there:
                answer = self._actor.take.remote(name, _OFFER_SECONDS)
                if references := ray.get(answer, timeout=_EXCHANGE_SECONDS):
                    return references[0]
        except GetTimeoutError:
            pass
        except RayError:
            self._connect()
        reference = ray.put(make())
        with suppress(RayError):
            self._actor.offer.remote(name, [reference])  # in a list, since Ray would send the data themselves
        return reference

    @property
    def is_there(self) -> bool:
        """True if the exchange has started, or could not."""
        return bool(ray.wait([self._ready], timeout=0)[0])

    def _connect(self) -> None:
        own_node = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        kind = ray.remote(Exchange).options(
            name=self._name, namespace=self._name, get_if_exists=True, num_cpus=0, scheduling_strategy=own_node
        )
        self._actor = kind.remote()
        self._ready = self._actor.__ray_ready__.remote()


class RayHost:
    """One actor."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor
        self._placed = actor.__ray_call__.remote(_node)

    def ready(self, seconds: float) -> bool:
        """Wait at most `seconds`; True if the actor has been placed on a node. Raises `NodeLost`."""
        ready, _ = ray.wait([self._placed], timeout=seconds)
        if ready:
            self._get(self._placed, _FETCH_SECONDS)
        return bool(ready)

    @property
    def node(self) -> str:
        """Identity of the node of an actor that is placed. Raises `NodeLost`."""
        identity: str = self._get(self._placed, _FETCH_SECONDS)
        return identity

    def is_leaving(self) -> bool:
        """True if the node of an actor that is placed is being drained. Raises `NodeLost`."""
        return self.node in state.get_draining_nodes()

    def call(self, method: str, *arguments: Any, seconds: float, meanwhile: Callable[[], None] = lambda: None) -> Any:
        """Call a method of the actor and return its answer. Raises `NodeLost`, `DataLost`, or the method's error."""
        try:
            reference = getattr(self._actor, method).remote(*arguments)
        except RayError as error:
            raise NodeLost("died") from error
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            ready, _ = ray.wait([reference], timeout=min(_POLL_SECONDS, left))
            if ready:
                break
            meanwhile()
        else:
            raise NodeLost(f"has been silent for {seconds:.0f} s")
        return self._get(reference, _FETCH_SECONDS)

    def release(self, *, gently: bool = False) -> None:
        """End the actor's process, if it lives. It may only be out of reach, and then ends with its lease."""
        with suppress(RayError, ActorHandleNotFoundError):
            if gently:
                ray.wait([self._actor.close.remote()], timeout=_CLOSE_SECONDS)
            ray.kill(self._actor)

    def _get(self, reference: Any, seconds: float) -> Any:
        try:
            return ray.get(reference, timeout=seconds)
        except GetTimeoutError as error:
            raise NodeLost(f"has been silent for {seconds:.0f} s") from error
        except RayTaskError as error:
            if isinstance(error.cause, ObjectLostError):
                raise DataLost from error
            raise error.cause from error
        except RayError as error:  # also a process that Ray's memory monitor has ended, or that could not start
            raise NodeLost("died") from error


def _node(actor: object) -> str:
    """Identity of the node on which this is called."""
    identity: str = ray.get_runtime_context().get_node_id()
    return identity
