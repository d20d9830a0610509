"""The directory that holds the packages: a clone, or the environment in which a wheel is installed."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LAUNCHER = ROOT / "launch.py"
"""The program that trains."""
