"""The shared region of a run. Read shared/README.md first, then region/, board and run_memory."""
