"""The shared region of a run. Read shared/README.md first, then layout and board."""
