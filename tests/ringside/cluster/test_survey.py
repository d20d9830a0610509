"""The survey of a cluster: one sentence a node."""

from __future__ import annotations

import pytest

from ringside.cluster.connection import ClusterNode
from ringside.cluster.node_object import Node, fingerprint
from ringside.cluster.survey import Finding, examine_node
from tests.support.cluster_of_objects import Fault, ObjectHost, no_fault
from tests.support.remote_world import PlayedGroup, make_plan

BITS = "bits"


def examined(node: Node, bits: str, monkeypatch: pytest.MonkeyPatch, fault: Fault = no_fault) -> Finding:
    """Finding about a node that describes itself so, and computes these bits."""
    monkeypatch.setattr(PlayedGroup, "describe", lambda self: node)
    monkeypatch.setattr(PlayedGroup, "probe", lambda self: bits)
    plan = make_plan(1)
    host = ObjectHost(lambda: PlayedGroup(plan, 2), fault)
    finding = examine_node(ClusterNode("10.0.0.7", "", 2), host, plan, BITS)
    assert host.released
    return finding


def test_a_node_that_suits(monkeypatch: pytest.MonkeyPatch) -> None:
    finding = examined(Node("n7", fingerprint(), "CPU 7"), BITS, monkeypatch)
    assert finding.suits
    assert finding.found.startswith("n7: 2 CPUs, the same software and arithmetic. The parameters (")
    assert "MB, once a round)" in finding.found
    assert "So rounds of 136 steps allow at most" in finding.found


def test_nodes_that_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    software = fingerprint()
    for node, bits, said in (
        (Node("n7", software | {"torch": "2.12.0"}, "CPU 7"), BITS, "Node n7 has torch 2.12.0"),
        (Node("n7", software, "CPU 7"), "other", "Node n7 (CPU 7) computes other last bits"),
    ):
        finding = examined(node, bits, monkeypatch)
        assert not finding.suits
        assert finding.found.startswith(said)
    node = Node("n7", software, "CPU 7")
    lost = examined(node, BITS, monkeypatch, lambda method, call: "died" if method == "receive" else None)
    assert lost == Finding("10.0.0.7", False, "Node 10.0.0.7 died.")
