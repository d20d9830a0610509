"""The task `doctor`: can this machine do a run? examination and checks answer it.

It shows the fast checks of every start (ringside/run/checks.py), slower ones, and a small real run from beginning to
end.
"""

from __future__ import annotations

import configparser
import importlib.metadata
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ringside.command.arguments import Choices, config_of, parse_choices
from ringside.run import checks, planning
from ringside.run.checks import GB, Check, Color
from shared.config.sections import Evaluate, Machine, Run
from shared.config.settings import Config, unused_settings
from shared.errors import ConfigError, RunFailed
from shared.files.result_files import require_writable, write_result
from shared.machine import facts
from shared.machine.subprocesses import read_output
from shared.memory.plan import Plan
from shared.root import INSTALL, LAUNCHER, ROOT

SUMMARIES = {
    "green": "All checks passed.",
    "yellow": "Runs work; see the yellow checks for improvements.",
    "red": "A run would fail: fix the red checks.",
}
"""By color, the worst one last."""
ROUNDS = 4
"""Rounds of the small run; all but the first learn."""
ROUND_STEPS = 160
"""Steps of a round, or the smallest multiple in which every env makes the n steps of a return."""
ENVS = 8
SECONDS = 300.0
"""Time after which the small run counts as hung; it takes seconds, and more if kernels are compiled first."""


def examine(config: Config) -> tuple[Plan, list[Check]]:
    """Plan of the configuration, and all checks of this machine for it.

    Raises:
        ConfigError: the options contradict each other.
    """
    devices, build = facts.cuda_devices(), facts.torch_cuda_version()
    gpu = device(config.machine.device, facts.gpus(), devices, build, driver=facts.has_nvidia_driver())
    if gpu.color == "red":  # the other checks do not need it
        config = config.with_settings(
            device="cpu", precision="auto", replay_on="auto", learner_ranks=1, acting_device=None, acting_precision=None
        )
    plan = planning.check(config)
    answers = [packages(requirements()), gpu]
    if devices:
        answers.append(mps(active=facts.mps_serves()))
    answers += checks.before_start(plan, continues=planning.continues(plan, planning.resumed_checkpoint(plan)))
    with Console(stderr=True).status("self-test: a small run ..."):
        answers.append(self_test(plan))
    return plan, answers


def worst(answers: Iterable[Check]) -> str:
    """The worst color."""
    return max((answer.color for answer in answers), key=[*SUMMARIES].index)


def show(answers: Sequence[Check]) -> None:
    """Print the table and the summary."""
    console = Console()
    table = Table.grid(padding=(0, 2, 0, 0))
    for answer in answers:
        finding = Text(answer.found)
        if answer.advice:
            finding.append(f"\n{answer.advice}", style=answer.color)
        table.add_row(Text(answer.color, answer.color), Text(answer.name, "bold"), finding)
    console.print(table, "", sep="\n")
    console.print(SUMMARIES[worst(answers)], style=f"bold {worst(answers)}")


def requirements(project: Path = ROOT) -> list[str]:
    """Required packages, from setup.cfg; in an installed wheel from its metadata."""
    parser = configparser.ConfigParser()
    if parser.read(project / "setup.cfg"):
        return parser["options"]["install_requires"].split()
    return [name for name in importlib.metadata.requires("ringside-rl") or [] if "extra ==" not in name]


def packages(required: Sequence[str]) -> Check:
    """Installed packages against requirements, such as "torch>=2.11"."""
    wrong = []
    for requirement in map(Requirement, required):
        try:
            version = importlib.metadata.version(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            wrong.append(f"{requirement} is not installed")
        else:
            if not requirement.specifier.contains(version, prereleases=True):
                wrong.append(f"{requirement} is required, not {version}")
    if wrong:
        return Check("packages", "red", f"{'; '.join(wrong)}.", f"Run {INSTALL}.")
    return Check("packages", "green", f"All {len(required)} that are required, in versions that suit.")


def device(asked: str, gpus: Sequence[facts.Gpu], cuda_devices: int, build: str | None, *, driver: bool) -> Check:
    """GPUs and driver, and their use by the installed torch.

    Args:
        asked: --device.
        gpus: as the driver lists them.
        cuda_devices: number of them that this process can use.
        build: CUDA version of the installed torch; None: built without CUDA.
        driver: True if an NVIDIA driver is loaded.
    """
    if cuda_devices:
        names = [f"{gpu.name} with {gpu.free / GB:.1f} of {gpu.memory / GB:.1f} GB free" for gpu in gpus]
        shown = [*names, f"driver {gpus[0].driver}"] if gpus else [f"{cuda_devices} CUDA devices"]
        found = f"{', '.join(shown)}; torch is built for CUDA {build}."
        full = any(gpu.memory and gpu.free < 2 * GB for gpu in gpus)
        if full and len(gpus) == cuda_devices and asked != "cpu":  # the driver also lists hidden ones
            return Check("GPU", "yellow", found, "Less than 2 GB are free: stop other programs on the GPU.")
        return Check("GPU", "green", found)
    found, advice = "No NVIDIA driver is loaded.", f"Pass --device cpu rather than --device {asked}."
    if driver and build is None:
        found, advice = "There is a GPU, but the installed torch was built without CUDA.", "Install a torch with CUDA."
    elif driver:
        found = f"The driver shows no device to this process, or is too old for CUDA {build}."
        advice = "Look at CUDA_VISIBLE_DEVICES, at the container's GPU option and at nvidia-smi."
    if asked.startswith("cuda"):
        return Check("GPU", "red", found, advice)
    return Check("GPU", "yellow", found, advice) if driver and asked == "auto" else Check("GPU", "green", found)


def mps(*, active: bool) -> Check:
    """Multi-Process Service: with it inference does not wait for the learner's time slice on the GPU."""
    found = "Its daemon does not run: learner and inference take turns on the GPU."
    absent = Check("MPS", "yellow", found, "To use it, run first: nvidia-cuda-mps-control -d")
    return Check("MPS", "green", "Its daemon runs: learner and inference use the GPU at once.") if active else absent


def self_test(plan: Plan) -> Check:
    """A small run of the plan's game, network, method, device and precision, which must commit every round."""
    small = small_plan(plan)
    with tempfile.TemporaryDirectory(prefix="ringside-doctor-") as scratch:
        words = [*planning.training_words(small.config), "--plain", "--run-dir", f"{scratch}/run"]
        try:
            read_output([sys.executable, str(LAUNCHER), *words], SECONDS)
        except subprocess.TimeoutExpired:  # its processes die with it
            fault = f"did not end within {SECONDS:.0f} s."
        except subprocess.CalledProcessError as error:
            fault = f"ended with code {error.returncode}: {error.stderr.strip()}"
        else:
            machine, rounds = small.config.machine, small.run_schedule.rounds
            found = f"A small run on {machine.device} in {machine.precision}: {rounds} rounds committed."
            return Check("self-test", "green", found)
    advice = "If all else is green, this is a bug: please report it with this table."
    return Check("self-test", "red", f"A small run {fault}", advice)


def small_plan(plan: Plan) -> Plan:
    """The same run with few steps and processes, on the machine's defaults but for device and precision."""
    config, machine = plan.config, plan.config.machine
    steps = ROUND_STEPS * -(-ENVS * config.algorithm.n_step // ROUND_STEPS)
    sizes: dict[str, Any] = {
        "lane_envs": 2,
        "learning_starts": steps,
        "total_steps": ROUNDS * steps,
        "device": machine.device,
        "precision": machine.precision,
        "deterministic": machine.deterministic,
        "plugin": config.run.plugin,
    }
    if config.play.workers:
        sizes |= {"workers": ENVS // 2, "t_max": steps // ENVS, "local_replay": steps}
    else:
        sizes |= {"envs": ENVS, "round_steps": steps, "replay_size": ROUNDS * steps}
        sizes |= {"train_every": 16, "batch_size": steps if config.algorithm.recurrent else 32}
    unused = unused_settings(plan.method)
    small = Config(**config.sections | {"evaluate": Evaluate(), "machine": Machine(), "run": Run()})
    return planning.check(small.with_settings(**{name: sizes[name] for name in sizes if name not in unused}))


@dataclass(frozen=True)
class Options(Choices):
    """Examine whether this machine can do a run: the one that these options of training describe."""

    json: Path | None = None
    """Write the findings to this file, too."""
    ray: str | None = None
    """auto or HOST:PORT: examine the nodes of this Ray cluster, too (docs/clusters.md)."""
    ray_insecure: bool = False
    """With --ray: accept a cluster without a token, on which any program that reaches it can run code."""


def main(arguments: Sequence[str]) -> int:
    """Examine the machine. Return 1 if a run cannot work on it."""
    options = parse_choices(Options, arguments, "doctor")
    if options.ray is not None:
        from ringside.cluster.connection import cluster_address

        cluster_address(options.ray)  # which is refused before minutes of work
    elif options.ray_insecure:
        raise ConfigError("--ray-insecure is for a cluster: pass --ray, too.")
    if options.json is not None:
        require_writable("--json", options.json)
    plan, answers = examine(config_of(options))
    if options.ray is not None:
        answers += _nodes(plan, options.ray, insecure=options.ray_insecure)
    show(answers)
    if options.json is not None:
        found = {"color": worst(answers), "checks": [answer._asdict() for answer in answers]}
        write_result("--json", options.json, found | {"machine": facts.describe()})
    return 1 if worst(answers) == "red" else 0


def _nodes(plan: Plan, address: str, *, insecure: bool) -> list[Check]:
    """Checks of the nodes of a cluster."""
    from ringside.cluster.gateway import survey

    try:
        findings = survey(plan, address, insecure=insecure)
    except (ConfigError, RunFailed) as error:
        return [Check("nodes", "red", str(error))]
    if not findings:
        return [Check("nodes", "red", "No node of the cluster has CPUs.", "Join one with `ray start --address`.")]
    bad: Color = "yellow" if any(each.suits for each in findings) else "red"  # a run leaves such nodes out
    return [Check(f"node {each.node}", "green" if each.suits else bad, each.found) for each in findings]
