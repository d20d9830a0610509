"""`launch.py doctor`: checks of the machine before a run. Read checks first, then examination."""
