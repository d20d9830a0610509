"""Named starting points for the configuration. `--preset NAME` chooses one; single flags override it.

Every number comes from the paper or its authors' code, as the text below it says. Omissions and differences are named,
too. Periods are in steps; a period published in frames is four times as long.

A preset evaluates with its paper's epsilon and longest episode, or else with those of its protocol. The papers
after Mnih et al. 2015 cut episodes at 108,000 frames, 30 minutes. A single flag overrides either.

`replay_presets` holds the DQN family, `on_policy_presets` the methods without a replay buffer.
"""

from __future__ import annotations

from typing import Any

from shared.config.presets import on_policy_presets as on_policy
from shared.config.presets import replay_presets as replay
from shared.config.settings import Config, flat_of
from shared.errors import ConfigError
from shared.text import flags_of

PRESETS: dict[str, Config] = {
    "nature": replay.NATURE,
    "quick": replay.QUICK,
    "double": replay.DOUBLE,
    "dueling": replay.DUELING,
    "c51": replay.C51,
    "rainbow": replay.RAINBOW,
    "der": replay.DER,
    "der-dopamine": replay.DER_DOPAMINE,
    "drq": replay.DRQ,
    "qr-dqn": replay.QR_DQN,
    "iqn": replay.IQN,
    "btr": replay.BTR,
    "ppo": on_policy.PPO,
    "ppo-quick": on_policy.PPO_QUICK,
    "a2c": on_policy.A2C,
    "a3c": on_policy.A3C,
    "a3c-async": on_policy.A3C_ASYNC,
    "q-async": on_policy.Q_ASYNC,
    "nq-async": on_policy.NQ_ASYNC,
    "dqn-async": replay.DQN_ASYNC,
    "impala": on_policy.IMPALA,
    "pqn": on_policy.PQN,
    "pqn-quick": on_policy.PQN_QUICK,
}
"""Configuration by preset name."""


def register_preset(name: str, config: Config) -> None:
    """Add a preset to those that --preset may name. A second registration of an equal one has no effect.

    Raises:
        ConfigError: another preset has the name.
    """
    if not name or name.startswith("-") or not name.isprintable():
        raise ConfigError(f"A preset cannot be called {name!r:.60}: use letters, digits and hyphens.")
    if PRESETS.setdefault(name, config) != config:
        raise ConfigError(f"There is a preset {name} already: register yours by another name.")


_OF_LEARNING = ("learn", "algorithm", "explore")
"""Sections in which presets differ."""


def nearest_preset(config: Config) -> tuple[str, list[str]]:
    """Nearest preset of a configuration, by the settings of learning, and the options that differ from it.

    As in ("quick", ["--n-step 3", "--double"]).
    """
    wanted = _settings_of_learning(config)
    found = {}
    for name, preset in PRESETS.items():
        known = _settings_of_learning(preset)
        changed = {setting: value for setting, value in wanted.items() if value != known.get(setting)}
        found[name] = [" ".join(flags_of({setting: value})) for setting, value in changed.items()]
    return min(found.items(), key=lambda each: len(each[1]))


def _settings_of_learning(config: Config) -> dict[str, Any]:
    """Settings by flat name, without the length of the run."""
    sections = config.to_json()
    flat = flat_of({name: sections[name] for name in _OF_LEARNING})
    return {name: value for name, value in flat.items() if name != "total_steps"}
