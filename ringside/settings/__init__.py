"""Settings from files: those that a user writes, and those of another run. Read config_file."""
