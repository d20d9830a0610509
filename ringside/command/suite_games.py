"""Lists of games that have a name."""

from __future__ import annotations

from actors.env import EnvError
from actors.envs.atari import game_name
from ringside.records.scores import REFERENCE
from shared.errors import ConfigError
from shared.text import nearest

SUITES: dict[str, tuple[str, ...]] = {
    "atari5": ("battle_zone", "double_dunk", "name_this_game", "phoenix", "qbert"),
    "atari26": (
        *("alien", "amidar", "assault", "asterix", "bank_heist", "battle_zone", "boxing", "breakout"),
        *("chopper_command", "crazy_climber", "demon_attack", "freeway", "frostbite", "gopher", "hero", "jamesbond"),
        *("kangaroo", "krull", "kung_fu_master", "ms_pacman", "pong", "private_eye", "qbert", "road_runner"),
        *("seaquest", "up_n_down"),
    ),
    "atari57": tuple(REFERENCE),
}
"""atari5: Aitchison et al. 2023 (arXiv:2210.02019); atari26: Kaiser et al. 2020 (arXiv:1903.00374), the games of Atari
100k; atari57: the games of Wang et al. 2016 (arXiv:1511.06581), which have human reference scores."""


def games_of(words: str) -> list[str]:
    """Games of a named list, or of names separated by commas. Raises `ConfigError`."""
    names = SUITES.get(words) or [name.strip() for name in words.split(",") if name.strip()]
    if not names:
        raise ConfigError(f"--games {words!r} names no game; pass {', '.join(SUITES)}, or games separated by commas.")
    try:
        return list(dict.fromkeys(game_name(name) for name in names))
    except EnvError as error:
        if len(names) == 1:
            raise ConfigError(
                f"--games {words} is neither a list of games ({', '.join(SUITES)}) nor a game{nearest(words, SUITES)}"
            ) from error
        raise ConfigError(f"--games {words}: {error}") from error
