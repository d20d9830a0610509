"""Programs that measure other packages, run in an environment of their own."""
