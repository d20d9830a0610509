"""Everything that is to be shown on a machine with a GPU, by one command."""
