"""Benchmarks of single parts, each against the limit above it."""
