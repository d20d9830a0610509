"""Facts about the machine: cores, memory, limits of control groups."""
