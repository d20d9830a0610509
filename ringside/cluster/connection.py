"""Connection to a Ray cluster, refused where the cluster is not safe or not ours to use.

Ray executes what it is sent. So a cluster must demand a token, and its addresses must be private. Ray's own client
tries for minutes to reach an address where nothing listens, so requests with a deadline come first.
"""

from __future__ import annotations

import importlib.metadata
import ipaddress
import os
import re
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from shared.errors import ConfigError, require

LEAST_VERSION = (2, 60)
"""Since 2.60 clusters of `ray.init` have a token by default; before 2.52 there was none. Ray itself refuses a cluster
of another version than the one that is installed."""
ANSWER_SECONDS = 20.0
"""Longest wait for a cluster's first answer."""
_SHARED_SPACE = ipaddress.ip_network("100.64.0.0/10")
"""Addresses of overlay networks such as Tailscale (RFC 6598): not public."""
_CHECK_ALIVE = "/ray.rpc.NodeInfoGcsService/CheckAlive"


class ClusterNode(NamedTuple):
    """A node of the cluster."""

    address: str
    identity: str
    cpus: int


@contextmanager
def connected(address: str, *, insecure: bool) -> Iterator[str]:
    """Connect this process to a cluster during the block, at the end of which all that was placed ends.

    Args:
        address: "auto" for the cluster that runs on this machine, or HOST:PORT.
        insecure: accept a cluster without a token.

    Yields:
        Its address.

    Raises:
        ConfigError: there is no package or no cluster, or it is refused.
    """
    found = cluster_address(address)
    require_private("The cluster", found.rpartition(":")[0])
    _require_token(found, insecure=insecure)
    join(found)
    import ray

    try:
        for node in ray.nodes():
            if node["Alive"]:
                require_private("Its node", node["NodeManagerAddress"])
        yield found
    finally:
        ray.shutdown()


def join(address: str) -> None:
    """Connect this process to a cluster that `connected` has checked. Raises `ConfigError` if that fails."""
    import ray

    host = address.rpartition(":")[0]
    former = signal.getsignal(signal.SIGTERM)
    try:
        # Ray looks for this machine's part of the cluster under its main address, unless it is told another.
        own = {"_node_ip_address": host} if ipaddress.ip_address(host).is_loopback else {}
        ray.init(address, log_to_driver=False, logging_level="critical", **own)
    except (ConnectionError, RuntimeError, ray.exceptions.RayError) as error:
        (why, *_) = [*str(error).strip().splitlines(), type(error).__name__]
        raise ConfigError(
            f"The Ray cluster at {address} does not accept this machine ({why.rstrip('.')}). Join it here with "
            f"`ray start --address {address}`."
        ) from error
    finally:
        signal.signal(signal.SIGTERM, former)  # Ray puts its own in its place


def nodes_with_cpus() -> list[ClusterNode]:
    """The living nodes that have CPUs, by address."""
    import ray

    living = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
    return sorted(
        ClusterNode(node["NodeManagerAddress"], node["NodeID"], int(node["Resources"]["CPU"])) for node in living
    )


def cluster_address(address: str) -> str:
    """IP and port of a cluster. Raises `ConfigError` when Ray is not installed, or no cluster is named or found."""
    _require_package()
    if address == "auto":
        from ray._private import services  # Ray has no public function that only looks

        address = ""
        with suppress(ConnectionError):
            address = services.canonicalize_bootstrap_address("auto") or ""
        if not address:
            raise ConfigError(
                "There is no Ray cluster on this machine: start one with `ray start --head`, or join one with "
                "`ray start --address HOST:PORT`, or pass --ray HOST:PORT."
            )
    host, _, port = address.rpartition(":")
    if not host or not re.fullmatch(r"[0-9]{1,5}", port) or not 0 < int(port) < 1 << 16:
        raise ConfigError(f"--ray {address:.80} is neither auto nor HOST:PORT.")
    try:
        return f"{socket.getaddrinfo(host, None, socket.AF_INET)[0][4][0]}:{port}"
    except (OSError, ValueError) as error:  # ValueError: no host can have such a name
        reason = error.strerror if isinstance(error, OSError) else "it is no name of a host"
        raise ConfigError(f"--ray {address:.80}: the host is not known ({reason}).") from error


def _require_package() -> None:
    """Raise `ConfigError` unless Ray is installed, in a version that is safe."""
    require("--ray", "ray", "ray")
    version = importlib.metadata.version("ray")
    if tuple(map(int, re.findall(r"\d+", version)[:2])) < LEAST_VERSION:
        least = ".".join(map(str, LEAST_VERSION))
        raise ConfigError(
            f"The installed Ray is {version}: versions below {least} are not safe. Install ray>={least} everywhere."
        )


def require_private(what: str, host: str) -> None:
    """Raise `ConfigError` for an address that the internet may reach."""
    ip = ipaddress.ip_address(host)
    if not (ip.is_private or ip.is_loopback or ip in _SHARED_SPACE):
        raise ConfigError(
            f"{what} has the public address {host}, and Ray executes what it is sent: use a private network, or an "
            "overlay such as WireGuard."
        )


def _require_token(address: str, *, insecure: bool) -> None:
    """Raise `ConfigError` unless the cluster answers, refuses strangers, and accepts this machine."""
    from ray._raylet import AuthenticationTokenLoader

    if _accepts(address, "disabled"):
        if not insecure:
            raise ConfigError(
                "The cluster has no token: any program that reaches it can run code on it. Make one with `ray "
                "get-auth-token --generate` and start the cluster with RAY_AUTH_MODE=token, or pass --ray-insecure."
            )
    elif not AuthenticationTokenLoader.instance().has_token(ignore_auth_mode=True):
        raise ConfigError(
            "The cluster demands a token, and this machine has none: copy ~/.ray/auth_token from its head."
        )
    elif not _accepts(address, "token"):
        raise ConfigError(
            f"The cluster at {address} refuses the token of this machine: copy ~/.ray/auth_token of its head."
        )


def _accepts(address: str, mode: str) -> bool:
    """True if a cluster answers this process, which authenticates itself in a mode from here on.

    Raises `ConfigError` if nothing answers.
    """
    import grpc
    from ray._private.grpc_utils import init_grpc_channel
    from ray._raylet import Config

    os.environ["RAY_AUTH_MODE"] = mode  # Ray reads it when it connects, and hands it on
    Config.initialize("")  # reads it again
    channel = init_grpc_channel(address)
    try:
        # An empty message is a request without fields.
        channel.unary_unary(_CHECK_ALIVE)(b"", timeout=ANSWER_SECONDS, wait_for_ready=True)
    except grpc.RpcError as error:
        if error.code() == grpc.StatusCode.UNAUTHENTICATED:
            return False
        raise ConfigError(
            f"No Ray cluster answers at {address} within {ANSWER_SECONDS:.0f} s. Is `ray start --head` running there, "
            "and does this machine reach that address?"
        ) from error
    finally:
        channel.close()
    return True
