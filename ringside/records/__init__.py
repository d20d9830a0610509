"""Records of a run, and the scribe that writes them.

Read metrics first, then events, optional_events and summary; then scribe and preparation. bottleneck measures the
processes, and names the role that limits the run. own_metrics come from callbacks; wandb_track sends all of them to
Weights & Biases.
"""
