"""Checkpoints: manifests over immutable pieces, and files of weights. Read manifest first."""
