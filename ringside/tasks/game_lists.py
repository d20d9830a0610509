"""Named lists of games."""

from __future__ import annotations

from ringside.recording.scores import REFERENCE

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
