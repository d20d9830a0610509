"""Benchmarks of updates and inference, each against its limit. Read update first."""
