"""Trained agents outside of training: load, query, play, show. Read agent first."""
