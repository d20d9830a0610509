"""Processes of a run: the start of a child, signals, environment variables of its libraries. Read child first."""
