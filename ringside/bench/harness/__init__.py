"""The harness of all benchmarks: interleaved repeats, runs at steady state, tables."""
