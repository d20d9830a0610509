"""Agents for other programs and other people: ONNX files, and the Hugging Face Hub.

Read onnx_graph and onnx_export, then model_card, hub and zoo_entries.
"""
