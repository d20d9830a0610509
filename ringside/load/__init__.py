"""Load of a run: the share of time in which each process works, and the bottleneck. Read board_samples first."""
