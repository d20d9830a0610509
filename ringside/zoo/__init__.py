"""Trained agents that come with the repository, found by name. Read catalogue."""
