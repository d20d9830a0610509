"""Records of a run, and the scribe that writes them.

Read metrics first, then totals, events and summary; then scribe, preparation and record_values. board_samples measures
the processes, and bottleneck names the role that limits the run. follow reads records as they are written;
own_metrics come from callbacks; wandb_track sends all of them to Weights & Biases.
"""
