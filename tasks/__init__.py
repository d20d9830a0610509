"""The tasks of the command, a file each: options and what is done with them. `launch.py` chooses one."""
