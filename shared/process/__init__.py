"""Processes of a run: the start of a child, signals, ownership of the run directory.

Read child first, then signals, library_env and ownership; then live.
"""
