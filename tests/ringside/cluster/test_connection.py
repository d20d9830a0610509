"""Clusters that are refused before anything is sent to them."""

from __future__ import annotations

import importlib.metadata
import socket

import pytest

from ringside.cluster import connection
from shared.errors import ConfigError


def enter(address: str, *, insecure: bool) -> None:
    """Connect to a cluster, and leave it."""
    with connection.connected(address, insecure=insecure):
        pass


def test_without_the_package_the_sentence_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    with pytest.raises(ConfigError, match=r"run `\.venv/bin/pip install --editable '\.\[ray\]'`"):
        enter("auto", insecure=False)


def test_without_a_cluster_the_sentence_says_how_to_start_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ray raises an error of its own where it finds no cluster."""
    services = pytest.importorskip("ray._private.services")

    def nothing(*arguments: object) -> str:
        raise ConnectionError("Could not find any running Ray instance.")

    monkeypatch.setattr(services, "canonicalize_bootstrap_address", nothing)
    with pytest.raises(ConfigError, match="There is no Ray cluster on this machine: start one with `ray start --head`"):
        enter("auto", insecure=False)


@pytest.mark.parametrize("version", ["2.9.3", "2.51.0", "1.13.0"])
def test_an_old_version_is_refused(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: version)
    with pytest.raises(ConfigError, match=rf"Ray is {version}: versions below 2\.60 are not safe"):
        enter("auto", insecure=False)


@pytest.mark.parametrize("version", ["2.60.0", "2.61.0rc1", "3.0.0"])
def test_a_new_one_is_not(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: version)
    assert connection.cluster_address("10.0.0.1:6379") == "10.0.0.1:6379"


@pytest.mark.parametrize("host", ["8.8.8.8", "193.99.144.80", "100.128.0.1"])
def test_public_addresses_are_refused(host: str) -> None:
    with pytest.raises(ConfigError, match=f"public address {host}"):
        connection.require_private("The cluster", host)


@pytest.mark.parametrize("host", ["127.0.0.2", "10.0.0.7", "192.168.1.9", "172.16.0.1", "100.64.1.2"])
def test_private_ones_are_not(host: str) -> None:
    connection.require_private("The cluster", host)


@pytest.mark.parametrize(
    "address", ["head", "head:port", ":6379", "10.0.0.1:0", "10.0.0.1:70000", "10.0.0.1:" + "9" * 5_000]
)
def test_an_invalid_address_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="is neither auto nor HOST:PORT"):
        connection.cluster_address(address)


@pytest.mark.parametrize("host", ["a" * 64, "a..b", "a\0b"])
def test_a_name_that_no_host_can_have_is_refused(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.setattr(connection, "_require_package", lambda: None)
    with pytest.raises(ConfigError, match="the host is not known"):
        connection.cluster_address(f"{host}:6379")


def test_a_server_that_does_not_answer_is_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    monkeypatch.setattr(connection, "ANSWER_SECONDS", 0.3)
    with socket.create_server(("127.0.0.2", 0)) as silent:  # accepts, and says nothing
        address = f"127.0.0.2:{silent.getsockname()[1]}"
        with pytest.raises(ConfigError, match=f"No Ray cluster answers at {address} within"):
            enter(address, insecure=False)
