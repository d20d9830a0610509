"""Names of the API with their modules, which editors, type checkers and `ringside/__init__.py` read."""

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
from ringside.run.training import run_plan as run_plan
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

__version__: str
