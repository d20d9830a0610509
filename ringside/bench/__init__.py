"""`launch.py bench NAME`: a file for each benchmark. Each verifies its result and states its machine."""
