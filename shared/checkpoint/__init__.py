"""Checkpoints: manifests over immutable pieces, and files of weights.

Read checkpoint_writer first, then manifest, segments, weights_file and finding.
"""
