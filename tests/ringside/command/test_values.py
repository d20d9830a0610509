"""Words of a command line as values: what is read, and the sentence for what is not."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import pytest
from msgspec import Meta

from ringside.command.option import Option, Positional, options_of, values_in
from shared.errors import ConfigError


@dataclass(frozen=True)
class Inner:
    """Inner settings."""

    depth: Annotated[int, Meta(ge=1)] = 3
    """Depth of
    something."""
    rate: float | None = None
    """Rate of it."""


@dataclass(frozen=True)
class Task(Inner):
    """A task."""

    files: Positional[tuple[Path, ...]] = ()
    """Files that it takes."""
    shape: Literal["round", "square"] = "round"
    """Shape of it."""
    total_steps: int = 5
    """Steps."""
    color: bool = False
    """In color."""


@dataclass(frozen=True)
class Demanding:
    """A task with an option that has no default."""

    load: Path
    """Run directory, or a file; never both."""


OPTIONS = options_of(Task())


def read(*words: str) -> Task:
    return Task(**values_in(words, OPTIONS, ["eval"]))


def test_values_of_all_kinds_reach_their_fields() -> None:
    words = "--shape=square --total_steps 1e6 a --color --depth 2 --rate=1e-4 b_c -- --d_e"
    assert read(*words.split()) == Task(2, 1e-4, (Path("a"), Path("b_c"), Path("--d_e")), "square", 1_000_000, True)
    assert read("--rate", "unset", "--color", "--no-color") == Task()
    assert read("--rate", "-.5", "--depth", "-5") == Task(-5, -0.5)
    assert read("--rate", "-1e-3").rate == -1e-3
    assert read("--depth", "1", "--depth", "2").depth == 2, "the last one holds"


MISTAKES = [
    (("--shpae", "round"), "There is no option --shpae; did you mean --shape?"),
    (("--no-depth",), "There is no option --no-depth; did you mean --depth?"),
    (("--shape", "rund"), "--shape rund is not one of round, square; did you mean round?"),
    (("--total-steps", "many"), "--total-steps many is not a whole number: write it as 20_000, 20k or 2e4."),
    (("--rate", "fast"), "--rate fast is not a number."),
    (("--depth", "unset"), "--depth unset is not a whole number: write it as 20_000, 20k or 2e4."),
    (("--color=yes",), "--color takes no value: pass --color or --no-color."),
    (("--shape",), "--shape needs a value: one of round, square."),
    (("--gamma", "0.9"), "There is no option --gamma."),  # this task has no discount
]


@pytest.mark.parametrize(("words", "says"), MISTAKES)
def test_mistakes_are_sentences(words: tuple[str, ...], says: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(says)}$"):
        read(*words)


def test_a_missing_option_is_named() -> None:
    with pytest.raises(ConfigError, match=r"^--load is missing: run directory, or a file\.$"):
        values_in([], options_of(Demanding))


def test_options_are_read_from_types_and_docstrings() -> None:
    found: dict[str, Option] = {option.name: option for option in OPTIONS}
    assert [option.name for option in OPTIONS][-2:] == ["depth", "rate"]  # those of bases come last
    depth, rate, shape, files = (found[name] for name in ("depth", "rate", "shape", "files"))
    assert (depth.text, depth.range, shape.choices) == ("Depth of something.", ">= 1", ("round", "square"))
    assert (rate.may_be_unset, rate.kind, files.positional, files.many) == (True, float, True, True)
