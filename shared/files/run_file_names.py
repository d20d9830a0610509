"""Names of the files of a run directory."""

CONFIG_FILE = "config.json"
METRICS_FILE = "metrics.jsonl"
SUMMARY_FILE = "summary.json"
"""Files of a run directory: its configuration, its records, and its summary at the end."""
EVALUATION_FILES = {"final": "evaluation-final.json", "best": "evaluation-best.json"}
"""Files of the evaluations by `launch.py suite`: of the last weights, and of the best ones of training.
They have the format of `launch.py eval --json`."""
CHECKPOINTS = "checkpoints"
"""Folder of a run directory with its checkpoints."""
BEST_FILE = "best.safetensors"
"""In there, the weights of the best evaluation beside training."""
LOGS = "logs"
"""Folder of a run directory with the output of each process, a file each."""
