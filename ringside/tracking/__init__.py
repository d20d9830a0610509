"""`--track wandb`: a process that sends the records of a run to Weights & Biases.

Read wandb_track first, then follow.
"""
