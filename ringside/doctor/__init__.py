"""`launch.py doctor`: the machine examined before a run."""
