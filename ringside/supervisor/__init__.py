"""The supervisor: starts, watches, restarts and ends the processes of a run. Read supervisor first."""
