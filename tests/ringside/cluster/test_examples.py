"""The examples for Slurm and Kubernetes: their syntax, and the commands in them."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from ringside.command import train
from ringside.command.arguments import parse_choices
from shared.files.lock import locked
from shared.root import ROOT
from tests.support.waiting import until

FOLDER = ROOT / "examples" / "clusters"


def require_known(command: str) -> None:
    """Fail unless the options of a training command exist and have values of their types."""
    words = shlex.split(re.sub(r"--resume \S+", "", command))  # it names a run that is not here
    parse_choices(train.Options, words[words.index("launch.py") + 1 :], "train")


def test_the_slurm_script_is_whole() -> None:
    path = FOLDER / "slurm.sh"
    subprocess.run(["bash", "-n", path], check=True)
    text = path.read_text()
    for array in re.findall(r"WORDS=\(([^)]*)\)", text):
        require_known(f"launch.py --plain --ray 10.0.0.1:6379 {array.replace('$RUN', 'run')}")
    assert text.count("WORDS=(") == 2


def test_the_slurm_script_waits_until_the_run_has_saved(tmp_path: Path) -> None:
    (script,) = re.findall(r'python( -c ".*?") "\$run/lock"', (FOLDER / "slurm.sh").read_text(), re.DOTALL)
    slept = tmp_path / "slept"
    (tmp_path / "sitecustomize.py").write_text(f"import time\ntime.sleep = lambda seconds: open({str(slept)!r}, 'w')\n")
    command = ["env", f"PYTHONPATH={tmp_path}", "bash", "-c", f"{sys.executable}{script} {tmp_path}/lock"]
    with locked(tmp_path / "lock", "--run-dir", "a run"):
        waiting = subprocess.Popen(command, cwd=ROOT)
        until(lambda: slept.exists() or waiting.poll() is not None)
        assert waiting.poll() is None, "it has looked, and waits"
    assert waiting.wait(60) == 0


def test_the_job_of_kubernetes_is_whole() -> None:
    yaml = pytest.importorskip("yaml")
    job = yaml.safe_load((FOLDER / "kuberay.yaml").read_text())
    commands = re.findall(r"launch\.py [^;]*", shlex.split(job["spec"]["entrypoint"])[-1])
    assert len(commands) == 2
    for command in commands:
        require_known(command)
    cluster = job["spec"]["rayClusterSpec"]
    assert cluster["authOptions"] == {"mode": "token"}
    (group,) = cluster["workerGroupSpecs"]
    for command in commands:
        assert re.split(r"[ ;]", command.split("--nodes ")[1])[0] == str(group["maxReplicas"])
    containers = [spec["template"]["spec"]["containers"][0] for spec in (cluster["headGroupSpec"], group)]
    assert len({container["image"] for container in containers}) == 1
