"""Methods, a file each: docs/extending.md says how to add one."""
