"""Processes of a run: how a child begins, signals, what its libraries find in the environment."""
