"""The scribe: the process that writes metrics, TensorBoard files, checkpoints and the summary of a run.

Read scribe first, then preparation and record_values; the records themselves are ringside.recording.
"""
