"""Facts about the machine: cores, memory, control groups, and other programs.

Read facts first, then control_groups, cores and contention; proc_files and subprocesses are their tools.
"""
