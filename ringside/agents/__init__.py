"""Trained agents outside of training: loaded, asked, played, shown. Read agent first."""
