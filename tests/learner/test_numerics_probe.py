"""The hash of what a machine computes: the same in every process, another with other kernels."""

import pytest

from learner.numerics_probe import probe
from ringside.cluster import node_object
from ringside.cluster.node_object import numerics
from shared.errors import RunFailed
from shared.memory.plan import Plan
from tests.support.configurations import settled


def small(**changes: object) -> Plan:
    """A plan with a small network."""
    return Plan(settled(**{"network": "small", **changes}), 4)


def test_it_depends_on_the_network_and_the_arithmetic_alone() -> None:
    first = probe(small())
    assert probe(small(seed=7, actors=3)) == first
    assert probe(small(precision="bf16")) != first
    assert probe(small(acting_precision="bf16")) == probe(small(precision="bf16"))
    assert probe(small(inference_batch=8)) != first
    assert probe(small(method="c51")) != first


@pytest.mark.stress
def test_another_process_answers_alike() -> None:
    assert numerics(small()) == probe(small())


def test_a_machine_that_cannot_answer_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_object, "PROBE", "learner.no_such_probe")
    with pytest.raises(RunFailed, match=r"cannot compute the network: .*no_such_probe"):
        numerics(small())


def test_a_slow_machine_is_given_up_at_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_object, "PROBE_SECONDS", 0.5)
    monkeypatch.setattr(node_object, "PROBE", "tests.support.waiting_probe")
    with pytest.raises(RunFailed, match=r"did not answer tests\.support\.waiting_probe in 0 s\."):
        numerics(small())


OLDER = [("fp32", "MKL_CBWR", "COMPATIBLE"), ("bf16", "ONEDNN_MAX_CPU_ISA", "AVX2")]


@pytest.mark.stress
@pytest.mark.parametrize(("precision", "variable", "value"), OLDER)
def test_an_older_processor_differs(precision: str, variable: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Libraries compute as on an older processor."""
    plan = small(network="nature", inference_batch=8, precision=precision)
    first = numerics(plan)
    monkeypatch.setenv(variable, value)
    assert numerics(plan) != first
