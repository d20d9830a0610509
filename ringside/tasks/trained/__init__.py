"""The tasks about a trained agent: evaluate, play, export and share it."""
