"""The tasks about a trained agent: evaluate, play, record, export and share it."""
