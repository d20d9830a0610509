"""The scribe: the process that writes metrics, TensorBoard files, checkpoints and the summary of a run.

Read scribe first, then preparation, retry, record_values and run_files; the records themselves are ringside.recording.
"""
