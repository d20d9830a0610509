"""Checkpoints: manifests over immutable pieces, and files of weights.

Read checkpoint_writer first, then manifest, pieces, segments, weights_file and best_weights; then finding and
loading.
"""
