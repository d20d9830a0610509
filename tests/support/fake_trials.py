"""Runs of a study that train nothing, in this process or, as a program, in that of a worker on a cluster."""

import json
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ringside.command import study
from ringside.run import planning
from shared.config.resolve import resolve
from shared.config.settings import Config
from shared.errors import ConfigError, RunFailed
from tests.support.written_runs import write_run

CALLS: list[Config] = []
"""Configurations of the runs, in their order."""
FAULTS: dict[int, str] = {}
"""Faults of trials by their numbers: "is refused", "fails", "is bad", "is stopped" or "never began"."""


def plan(config: Config) -> Any:
    """The plan of a run, unchecked."""
    if FAULTS.get(int(config.run.run_dir.name[-4:])) == "is refused":
        raise ConfigError("There is no room.")
    return SimpleNamespace(config=config)


def run(ready: Any, on_status: Any, note: Any, callbacks: Any) -> dict[str, Any]:
    """Write the records of a run whose last mean return is 10,000 times its learning rate."""
    CALLS.append(ready.config)
    path: Path = ready.config.run.run_dir
    fault, rate = FAULTS.get(int(path.name[-4:])), ready.config.learn.learning_rate
    if fault == "fails":
        raise RunFailed("It failed.")
    shutil.rmtree(path, ignore_errors=True)
    returns, means = [1.0, 2.0], [-100.0] * 3 if fault == "is bad" else [1.0, 5.0, 1e4 * rate]
    if fault == "never began":
        returns, means = [], []
    write_run(path, returns=returns, evaluations=means, ended=fault in (None, "is bad"))
    (path / "config.json").write_text(json.dumps(resolve(ready.config).to_json()))
    for number, mean in enumerate(means):
        callbacks.on_evaluation({"kind": "evaluation", "evaluation": number, "mean_return": mean})
    return json.loads((path / "summary.json").read_text())


if __name__ == "__main__":
    import launch

    planning.plan, study.run_plan = plan, run
    sys.exit(launch.main(sys.argv[1:]))
