"""The scribe: the process that writes everything down. Read scribe first."""
