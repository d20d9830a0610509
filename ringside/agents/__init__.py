"""Trained agents outside of training: load, query, play, show, evaluate and share.

Read stored_weights first, then agent, evaluating and player; then zoo_entries and onnx_export.
"""
