"""The types that an editor completes are those of the settings.

python -m tests.ringside.run.test_train_settings        # write them anew
"""

from types import ModuleType, NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import ringside
from ringside.run.train_settings import TrainSettings
from shared.root import ROOT

STUB = ROOT / "ringside" / "run" / "train_settings.pyi"
HEAD = '''"""Settings of `ringside.train` for editors and type checkers; tests/ringside/run compares them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypedDict

class TrainSettings(TypedDict, total=False):
    """Settings by the flat names of the flags. Each has the default of the preset."""

'''


def spelled(kind: Any) -> str:
    """A type as source."""
    if get_origin(kind) is Literal:
        words = ", ".join(f'"{word}"' for word in get_args(kind))
        return f"Literal[{words}]"
    if members := get_args(kind):
        inner = ", ".join(map(spelled, members))
        return f"Mapping[{inner}]" if get_origin(kind) not in (None, *UNIONS) else " | ".join(map(spelled, members))
    return "None" if kind is NoneType else str(kind.__name__)


UNIONS = {get_origin(int | None), get_origin(Literal["a"] | None)}


def stub() -> str:
    """The file for editors."""
    return HEAD + "".join(f"    {name}: {spelled(kind)}\n" for name, kind in get_type_hints(TrainSettings).items())


def test_every_setting_is_typed() -> None:
    assert STUB.read_text() == stub()


API = {
    *("Agent", "ArenaError", "Callback", "Callbacks", "Config", "ConfigError", "Exported", "MethodDeclaration"),
    *("MethodSettings", "PRESETS", "RunFailed", "StopTraining", "StudyResult", "TrainSettings", "TrialResult"),
    *("add_to_zoo", "env_name", "evaluate", "export_onnx", "load_agent", "plan", "pull_from_hub", "push_to_hub"),
    *("register_method", "register_preset", "run_plan", "starting_point", "train", "tune"),
}
"""Public names of the package."""


def test_the_names_of_the_api_are_those_that_are_listed() -> None:
    assert set(ringside.__all__) == API == set(dir(ringside)) - {"__version__"}
    assert not [name for name in ringside.__all__ if isinstance(getattr(ringside, name), ModuleType)]


def test_every_package_says_that_it_is_typed() -> None:
    assert all((ROOT / room / "py.typed").exists() for room in ("actors", "learner", "ringside", "shared"))


if __name__ == "__main__":
    STUB.write_text(stub())
