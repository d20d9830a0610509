"""`--cgroup`: the run as one systemd scope. Read scope."""
