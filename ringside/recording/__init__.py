"""Records of a run: metrics, TensorBoard events, totals and the summary. The process that writes them is
ringside.scribe.

Read metrics first, then metric_names, totals and events; then summary and scores. follow reads the records as they are
written; own_metrics are those of callbacks; wandb_track is a process that sends all of them to Weights & Biases.
"""
