"""Runs that cannot be played on other nodes are refused before a cluster is sought."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ringside.cluster.placement import _require_cells, with_gateways
from shared.errors import ConfigError
from shared.memory.plan import Plan
from tests.support.remote_world import make_plan


def changed(**settings: object) -> Plan:
    """The plan with other settings."""
    plan = make_plan(0)
    return replace(plan, config=plan.config.with_settings(**settings))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"schedule": "alternate"}, "--schedule alternate cannot be played on other nodes"),
        ({"schedule": "free"}, "--schedule free cannot be played on other nodes"),
        ({"device": "cuda:0"}, "play on their CPUs, and the inference server is on cuda:0: pass --acting-device cpu"),
    ],
)
def test_runs_that_nodes_cannot_play(settings: dict[str, object], says: str) -> None:
    placed = with_gateways(changed(**settings), "10.0.0.1:6379", None, head_plays=False, insecure=False, mixed=False)
    with pytest.raises(ConfigError, match=says), placed:
        pass


def test_more_nodes_than_cells() -> None:
    _require_cells(make_plan(2))
    with pytest.raises(ConfigError, match="2 cells of 4 envs cannot occupy 3 nodes: pass --nodes 2"):
        _require_cells(make_plan(3))


def test_the_head_that_plays_needs_a_cell() -> None:
    _require_cells(replace(make_plan(1), head_share=0.1))
    with pytest.raises(ConfigError, match="cannot occupy 2 nodes and this machine: pass --nodes 1, or an"):
        _require_cells(replace(make_plan(2), head_share=0.1))
    one = replace(make_plan(1, inference_batch=8), head_share=1.0)
    with pytest.raises(ConfigError, match="1 cell of 8 envs cannot occupy 1 node and this machine: pass an --inf"):
        _require_cells(one)
