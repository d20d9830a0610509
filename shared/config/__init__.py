"""Settings of a run: what a user may say, what follows from it, what is refused. Read settings first."""
