"""The directory that holds the packages: a clone, or the environment in which a wheel is installed."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
IN_A_CLONE = (ROOT / "Makefile").is_file()
INSTALL = "make install, which fills .venv" if IN_A_CLONE else "pip check, and install what it names"
"""Command that installs a missing package."""
LAUNCHER = ROOT / "launch.py"
"""The program that trains."""
