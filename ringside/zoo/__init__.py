"""Trained agents that come along, and how they are found by name."""
