"""Declaration of an on-policy method whose actions are sampled, for tests of memory, clock and lanes."""

from typing import Any

import pytest

from shared.config import method_declaration
from shared.config.method_declaration import MethodDeclaration, OnPolicySettings, add_method

_DECLARED: dict[str, Any] = {"head": "policy_value", "action_rule": "categorical", "settings": OnPolicySettings}
_DECLARED |= {"metrics": ("loss", "entropy"), "has_target_network": False, "on_policy": True}
SAMPLED = MethodDeclaration("sampled", "tests.support.sampled_method:NoClass", **_DECLARED)


def register(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register it for the time of a test."""
    monkeypatch.setattr(method_declaration, "_REGISTRY", dict(method_declaration._REGISTRY))
    add_method(SAMPLED)
