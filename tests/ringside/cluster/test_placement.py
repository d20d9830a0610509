"""Clusters, and runs that nodes cannot play, are refused before a cluster is asked; and the survey of nodes."""

import importlib.metadata
import socket
import sys
from contextlib import nullcontext
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest

from ringside.cluster import connection
from ringside.cluster.gateway import Finding, cells_of_head, examine_node, lane_owners, require_cells, with_gateways
from ringside.cluster.node_object import Node, fingerprint
from shared.errors import ConfigError
from tests.support.cluster_of_objects import Fault, ObjectHost, no_fault
from tests.support.remote_world import PlayedGroup, make_plan

UNPLAYABLE = [
    ({"schedule": "alternate"}, True, "--schedule alternate cannot be played on other nodes"),
    ({"schedule": "free"}, True, "--schedule free cannot be played on other nodes"),
    ({"device": "cuda:0"}, True, "on their CPUs, and the inference server is on cuda:0: pass --acting-device cpu"),
    ({}, False, "--ray cannot play .*, which does not repeat itself: omit --ray"),
]


@pytest.mark.parametrize(("settings", "repeats", "says"), UNPLAYABLE)
def test_runs_that_nodes_cannot_play(settings: dict[str, object], repeats: bool, says: str) -> None:
    plan = make_plan(0)
    plan = replace(plan, config=plan.config.with_settings(**settings), env_repeats=repeats)
    with pytest.raises(ConfigError, match=says):
        with_gateways(plan, "10.0.0.1:6379", None, head_plays=False, insecure=False, mixed=False)


PLACES = [
    (4, 2, False, None),
    (4, 3, False, "2 cells of 4 envs cannot occupy 3 nodes: pass --nodes 2"),
    (4, 1, True, None),
    (4, 2, True, "cannot occupy 2 nodes and this machine: pass --nodes 1, or an"),
    (8, 1, True, "1 cell of 8 envs cannot occupy 1 node and this machine: pass an --inf"),
]


@pytest.mark.parametrize(("batch", "nodes", "head_plays", "says"), PLACES)
def test_every_place_needs_a_cell(batch: int, nodes: int, head_plays: bool, says: str | None) -> None:
    with nullcontext() if says is None else pytest.raises(ConfigError, match=says):
        require_cells(make_plan(0, inference_batch=batch), nodes, head_plays=head_plays)


DIVISIONS = [
    ({"inference_batch": 2}, [1, 2], [1, 1, 2, 2]),
    ({"inference_batch": 2, "head_share": 2.0}, [1, 2], [0, 0, 1, 2]),  # the head is as fast as two groups
    ({"inference_batch": 2, "head_share": 2.0}, [2], [0, 0, 0, 2]),
    ({"inference_batch": 2, "head_share": 2.0}, [], [0, 0, 0, 0]),
    ({"actors": 4}, [], [0, 1, 2, 3]),  # fewer cells than actors
    ({"actors": 2, "head_share": 1.0}, [2], [0, 1, 2, 2]),
]


@pytest.mark.parametrize(("settings", "nodes", "owners"), DIVISIONS)
def test_cells_are_divided_among_head_and_nodes(settings: dict[str, Any], nodes: list[int], owners: list[int]) -> None:
    assert lane_owners(make_plan(2, **settings), nodes) == owners


def test_the_head_plays_its_share_of_the_cells() -> None:
    assert [cells_of_head(12, 1, share) for share in (0.01, 0.5, 1, 2, 100)] == [1, 4, 6, 8, 11]
    assert [cells_of_head(12, groups, 2) for groups in (1, 2, 4, 11)] == [8, 6, 4, 1]
    for cells in range(2, 30):
        for groups in range(1, cells):
            assert 1 <= cells_of_head(cells, groups, 1.5) <= cells - groups


def enter(address: str) -> None:
    """Connect to a cluster, and leave it."""
    with connection.connected(address, insecure=False):
        pass


def test_without_the_package_the_sentence_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"run `\.venv/bin/pip install --editable '\.\[ray\]'`"):
        enter("auto")


def test_without_a_cluster_the_sentence_says_how_to_start_one(monkeypatch: pytest.MonkeyPatch) -> None:
    services = pytest.importorskip("ray._private.services")
    nothing = Mock(side_effect=ConnectionError("Could not find any running Ray instance."))
    monkeypatch.setattr(services, "canonicalize_bootstrap_address", nothing)
    with pytest.raises(ConfigError, match="There is no Ray cluster on this machine: start one with `ray start --head`"):
        enter("auto")


@pytest.mark.parametrize("version", ["2.9.3", "2.51.0", "1.13.0", "2.60.0", "2.61.0rc1", "3.0.0"])
def test_an_old_version_is_refused(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: version)
    refused = pytest.raises(ConfigError, match=rf"Ray is {version}: versions below 2\.60 are not safe")
    with nullcontext() if version in ("2.60.0", "2.61.0rc1", "3.0.0") else refused:
        assert connection.cluster_address("10.0.0.1:6379") == "10.0.0.1:6379"


PUBLIC = ("8.8.8.8", "193.99.144.80", "100.128.0.1")


@pytest.mark.parametrize("host", [*PUBLIC, "127.0.0.2", "10.0.0.7", "192.168.1.9", "172.16.0.1", "100.64.1.2"])
def test_public_addresses_are_refused(host: str) -> None:
    with pytest.raises(ConfigError, match=f"public address {host}") if host in PUBLIC else nullcontext():
        connection.require_private("The cluster", host)


UNREADABLE = ("head", "head:port", ":6379", "10.0.0.1:0", "10.0.0.1:70000", "10.0.0.1:" + "9" * 5_000)


@pytest.mark.parametrize("address", [*UNREADABLE, "a" * 64 + ":6379", "a..b:6379", "a\0b:6379"])
def test_an_invalid_address_is_refused(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setattr(connection, "_require_package", lambda: None)
    says = "is neither auto nor HOST:PORT" if address in UNREADABLE else "the host is not known"
    with pytest.raises(ConfigError, match=says):
        connection.cluster_address(address)


def test_a_server_that_does_not_answer_is_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    monkeypatch.setattr(connection, "ANSWER_SECONDS", 0.3)
    with socket.create_server(("127.0.0.2", 0)) as silent:  # accepts, and says nothing
        address = f"127.0.0.2:{silent.getsockname()[1]}"
        with pytest.raises(ConfigError, match=f"No Ray cluster answers at {address} within"):
            enter(address)


BITS = "bits"


def examined(node: Node, bits: str, monkeypatch: pytest.MonkeyPatch, fault: Fault = no_fault) -> Finding:
    """Finding about a node that describes itself so, and computes these bits."""
    monkeypatch.setattr(PlayedGroup, "describe", lambda self: node)
    monkeypatch.setattr(PlayedGroup, "probe", lambda self: bits)
    plan = make_plan(1)
    host = ObjectHost(lambda: PlayedGroup(plan, 2), fault)
    finding = examine_node(connection.ClusterNode("10.0.0.7", "", 2), host, plan, BITS)
    assert host.released
    return finding


def test_a_node_that_suits(monkeypatch: pytest.MonkeyPatch) -> None:
    finding = examined(Node("n7", fingerprint(), "CPU 7"), BITS, monkeypatch)
    assert finding == Finding("10.0.0.7", True, "n7: 2 CPUs, the same software and arithmetic.")


def test_nodes_that_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    software = fingerprint()
    for node, bits, said in (
        (Node("n7", software | {"torch": "2.12.0"}, "CPU 7"), BITS, "Node n7 has torch 2.12.0"),
        (Node("n7", software, "CPU 7"), "other", "Node n7 (CPU 7) computes other last bits"),
    ):
        finding = examined(node, bits, monkeypatch)
        assert (finding.suits, finding.found[: len(said)]) == (False, said)
    node = Node("n7", software, "CPU 7")
    lost = examined(node, BITS, monkeypatch, lambda method, call: "died" if method == "probe" else None)
    assert lost == Finding("10.0.0.7", False, "Node 10.0.0.7 died.")
