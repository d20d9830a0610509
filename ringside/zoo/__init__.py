"""Trained agents of the repository, found by name."""
