"""Ringside from Python: the same as the command line.

    import ringside

    if __name__ == "__main__":  # processes are spawned, and each imports the main module again
        summary = ringside.train(game="pong", preset="quick", actors=4)

Settings have the flat names of the flags (`--total-steps` is `total_steps`). A wrong setting raises `ConfigError`
before anything starts. Names are resolved when they are used: the import itself loads no library.

Read run/, records/ and watch/ in this order, then agents/, report/, command/ and cluster/; zoo/ holds trained agents.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringside.agents.agent import Agent as Agent
    from ringside.agents.agent import load_agent as load_agent
    from ringside.agents.evaluating import evaluate as evaluate
    from ringside.agents.onnx_export import Exported as Exported
    from ringside.agents.onnx_export import export_onnx as export_onnx
    from ringside.agents.zoo_entries import add_to_zoo as add_to_zoo
    from ringside.agents.zoo_entries import pull_from_hub as pull_from_hub
    from ringside.agents.zoo_entries import push_to_hub as push_to_hub
    from ringside.command.study import StudyResult as StudyResult
    from ringside.command.study import TrialResult as TrialResult
    from ringside.command.study import tune as tune
    from ringside.run.config_file import starting_point as starting_point
    from ringside.run.planning import plan as plan
    from ringside.run.train_settings import TrainSettings as TrainSettings
    from ringside.run.training import Callback as Callback
    from ringside.run.training import Callbacks as Callbacks
    from ringside.run.training import run as run
    from ringside.run.training import train as train
    from shared.config.method_declaration import MethodDeclaration as MethodDeclaration
    from shared.config.method_declaration import MethodSettings as MethodSettings
    from shared.config.presets import PRESETS as PRESETS
    from shared.config.presets import register_preset as register_preset
    from shared.config.settings import Config as Config
    from shared.config.settings import register_method as register_method
    from shared.env_name import env_name as env_name
    from shared.errors import ConfigError as ConfigError
    from shared.errors import RunFailed as RunFailed
    from shared.errors import StopTraining as StopTraining
    from shared.memory.arena import ArenaError as ArenaError

__version__ = "0.2.0"

_ROOT = Path(__file__).resolve().parents[1]
_PACKAGES = ("actors", "learner", "shared", "workers")
"""Other packages of this project."""


def _require_own_packages() -> None:
    """Exit with an error if a module of the user shadows one of these packages."""
    for name in _PACKAGES:
        spec = find_spec(name)
        own = _ROOT / name / "__init__.py"
        if spec is not None and spec.origin is not None and Path(spec.origin).resolve() != own and own.exists():
            raise SystemExit(f"{spec.origin} hides the package {name} of Ringside: rename it, or move it away.")


_require_own_packages()

_HOMES = {
    "ringside.agents.agent": ("Agent", "load_agent"),
    "ringside.agents.evaluating": ("evaluate",),
    "ringside.run.planning": ("plan",),
    "ringside.run.config_file": ("starting_point",),
    "ringside.agents.onnx_export": ("Exported", "export_onnx"),
    "ringside.agents.zoo_entries": ("add_to_zoo", "pull_from_hub", "push_to_hub"),
    "ringside.run.train_settings": ("TrainSettings",),
    "ringside.run.training": ("Callback", "Callbacks", "run", "train"),
    "ringside.command.study": ("StudyResult", "TrialResult", "tune"),
    "shared.config.method_declaration": ("MethodDeclaration", "MethodSettings"),
    "shared.config.presets": ("PRESETS", "register_preset"),
    "shared.config.settings": ("Config", "register_method"),
    "shared.env_name": ("env_name",),
    "shared.errors": ("ConfigError", "RunFailed", "StopTraining"),
    "shared.memory.arena": ("ArenaError",),
}
"""Names of the API by module. Each is imported at its first use, so a plug-in loads only what it names."""
_HOME = {name: module for module, names in _HOMES.items() for name in names}
__all__ = [*_HOME]


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'ringside' has no attribute {name!r}")
