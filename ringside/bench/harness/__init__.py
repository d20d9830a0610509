"""What benchmarks share: interleaved repeats, runs at steady state, tables."""
