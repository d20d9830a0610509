"""Checkpoints: manifests over immutable pieces, and files of weights.

Read checkpoint_writer first, then manifest, pieces, segments, finding and loading.
"""
