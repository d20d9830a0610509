"""The scribe: the process that writes metrics, TensorBoard files, checkpoints and the summary.

Read scribe first, then metrics, metric_names, span_values, totals and events; then summary, scores and run_files.
follow reads the records as they are written; wandb_track is a process that sends them to Weights & Biases.
"""
