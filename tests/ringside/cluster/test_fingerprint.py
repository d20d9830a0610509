"""Fingerprints of software: a node with other sources is noticed."""

from __future__ import annotations

from pathlib import Path

import pytest

from ringside.cluster.node_object import Node, fingerprint

PACKAGES = ("actors", "learner", "shared", "ringside", "workers")


@pytest.mark.parametrize("package", PACKAGES)
def test_a_changed_file_of_any_package_is_noticed(package: str, tmp_path: Path) -> None:
    (tmp_path / "launch.py").touch()
    for each in PACKAGES:
        (tmp_path / each).mkdir()
        (tmp_path / each / "module.py").touch()
    before = fingerprint(tmp_path)
    assert Node("n7", fingerprint(tmp_path), "").difference(before) is None
    (tmp_path / package / "module.py").write_text("changed = True\n")
    assert "sources of Ringside" in (Node("n7", fingerprint(tmp_path), "").difference(before) or "")
