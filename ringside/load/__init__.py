"""Load of a run: the busy share of each process, and the bottleneck. Read board_samples first, then bottleneck."""
