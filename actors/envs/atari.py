"""One Atari game under one protocol, played on the emulator directly.

Where they overlap, the semantics equal those of Gymnasium's `AtariPreprocessing` over `AtariEnv`. The parity tests
compare the two bit for bit. Two rules are easily overlooked. The frame skip stops at the frame in which the game ends.
The observation after an end is pooled from the buffers as they are then: they hold the observation before, and the
step's third screen if the fourth ended the game.

Unlike in Gymnasium, the start of an episode does not depend on earlier episodes. `reset_game` leaves traces of them in
the console's RAM in a quarter of the games. So an episode here begins from the state after the first reset of a freshly
loaded game, as Gymnasium's after `reset(seed=...)`. That state is kept for every number of no-ops.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias

import numpy as np
from ale_py import Action, ALEInterface, ALEState, LoggerMode, roms
from numpy.typing import NDArray

from actors.env import Env, EnvError, Frame, Outcome, Shot
from actors.envs.action_log import ActionLog, replay
from actors.pixels.bilinear import luma_of_pairs, shrink_bilinear
from actors.pixels.frames import make_shrinker, pair_table, shrink_area
from actors.pixels.palette import color_table, gray_table
from shared.config.protocols import Protocol
from shared.config.sections import FRAME_SKIP
from shared.frame_shape import FRAME_SIDE, SCREEN_WIDTH
from shared.prng import Stream, bits, randint
from shared.text import nearest

NOOP, FIRE = 0, 1

TWO_PLAYER_GAMES = frozenset({"combat", "joust", "maze_craze", "warlords"})
"""ROMs of ale-py without a mode for one player; Gymnasium registers none of them either."""

RESET_ANEW = frozenset({"qbert", "tetris", "tic_tac_toe_3d"})
"""Games whose starts do not restore exactly; their real reset is always the same."""

REPLAYED = RESET_ANEW | {"yars_revenge"}
"""Games whose states do not restore exactly in another process (ale-py 0.12.1): an episode is played again instead."""

_STATE = struct.Struct("<4sBB")
_STATE_MAGIC = b"RSA1"


@cache
def games() -> tuple[str, ...]:
    """Every game for one player that ale-py ships, by its snake_case name."""
    return tuple(sorted(set(roms.get_all_rom_ids()) - TWO_PLAYER_GAMES))


def game_name(name: str) -> str:
    """The snake_case name of a game written `space_invaders`, `SpaceInvaders`, `ALE/SpaceInvaders-v5` or the like.

    Raises `EnvError` with a sentence that names the nearest game when there is none.
    """
    known = {game.replace("_", ""): game for game in games()}
    bare = re.sub(r"^ALE/|(NoFrameskip|Deterministic)?-v\d+$", "", name)  # as Gymnasium calls it
    key = bare.replace("_", "").replace("-", "").lower()
    if key in known:
        return known[key]
    if key in {game.replace("_", "") for game in TWO_PLAYER_GAMES}:
        raise EnvError(f"The game {name!r} has no mode for one player; choose another.")
    raise EnvError(f"There is no game {name!r}{nearest(key, known.values())}")


def load_emulator(game: str, protocol: Protocol, *, window: bool) -> ALEInterface:
    """An emulator with the game loaded, before its first reset (90 ms, mostly for a table that is not used here)."""
    ALEInterface.setLoggerMode(LoggerMode.Error)
    ale = ALEInterface()
    ale.setBool("display_screen", window)
    ale.setFloat("repeat_action_probability", 0.0)  # sticky actions are drawn by `AtariEnv`
    ale.setInt("random_seed", 0)  # no game shows it: states after a reset are equal under every seed
    ale.setInt("max_num_frames_per_episode", protocol.longest_episode_frames)
    path = roms.get_rom_path(game)
    if path is None:
        raise EnvError(f"ale-py knows the game {game!r}, but its ROM file is missing; install ale-py again.")
    if window:
        os.environ.setdefault("SDL_VIDEODRIVER", "wayland,x11")  # else SDL may show it nowhere, without a word
    try:
        ale.loadROM(path)
    except RuntimeError as error:  # an exception of C++
        raise EnvError(f"The emulator of {game} cannot be started: {error}.") from error
    return ale


@cache
def _tables(height: int, frames: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.uint16]]:
    """Tables for screens of `height` lines, one for all envs of a process.

    The grays of the colors, the gray uint8[256, 256] of a pixel of a frame by its colors on the two screens, and the
    `pair_table`.
    """
    grays = gray_table(height)
    pooled = np.maximum.outer(grays, grays) if frames == "area" else luma_of_pairs(color_table(height))
    return grays, pooled, pair_table(grays)


_Start: TypeAlias = tuple[ALEState, NDArray[np.uint8], int]
"""Opening of an episode, a reset and some no-ops: state, screen, and lives.

Lives are kept in addition to the state: some games, such as atlantis2, restore them only with the next frame.
"""

_starts: dict[tuple[str, Protocol], list[_Start]] = {}
"""The starts of a game after 0, 1, ... no-ops, shared by the envs of a process (1.5 MB)."""


class AtariEnv(Env):
    """One emulator with its preprocessing."""

    screens_per_second = 60.0

    def __init__(
        self,
        game: str,
        protocol: Protocol,
        seed: int,
        index: int,
        *,
        training: bool,
        size: int = FRAME_SIDE,
        window: bool = False,
    ) -> None:
        """Load `game`; raises `EnvError` when ale-py does not ship it.

        Args:
            game: as `game_name` takes it.
            protocol: the rules.
            seed: of the run.
            index: global index of the env; with the seed and the tick it decides everything random.
            training: True if lost lives are reported, where the protocol ends the return there.
            size: pixels along a side of its frames.
            window: True if the emulator shows its screens in a window.
        """
        self.game = game_name(game)
        self._protocol, self._seed, self._index = protocol, seed, index
        self._reports_lives = training and protocol.life_ends_return
        self._ale: Any = load_emulator(self.game, protocol, window=window)
        self._act: Callable[[int], int] = self._ale.act
        full = protocol.action_set == "full"
        actions: list[Action] = self._ale.getLegalActionSet() if full else self._ale.getMinimalActionSet()
        self.actions = len(actions)
        self.numbers = tuple(action.value for action in actions)
        self.action_names = tuple(action.name for action in actions)
        self._fires = protocol.fire_on_reset and FIRE in self.numbers
        self._sticky = round(protocol.sticky * 65_536)

        height, _ = self._ale.getScreenDims()
        self._frame_shape = (size, size)
        self._grays, self._gray_of_two, pairs = _tables(height, protocol.frames)
        # A step's last two screens, of which its frame is made, and the two that the kernel has shrunk last.
        screens = np.zeros((4, height, SCREEN_WIDTH), np.uint8)
        self._third, self._fourth, *self._shown = screens
        is_area = protocol.frames == "area"
        self._shrink_gray = shrink_area if is_area else shrink_bilinear
        self._shrink_screens = make_shrinker(screens, pairs) if is_area and size == FRAME_SIDE else None
        # The newest observation's pooled gray; None: it is that of the screens that the kernel has shrunk.
        self._pooled: NDArray[np.uint8] | None = None
        self._repeated = NOOP  # the action that a sticky step repeats
        self.lives = 0
        """Lives left, as the emulator counts them; 0 in games without lives."""
        self._log = ActionLog() if self.game in REPLAYED else None
        self._starts = [] if self.game in RESET_ANEW else self._recorded_starts()

    def film(self, show: Callable[[Shot], None]) -> None:
        """Show every emulator frame from now on: screens uint8[height, 160, 3]."""
        ale, act = self._ale, self._ale.act

        def act_and_show(action: int) -> int:
            over = ale.game_over()  # beyond the end of a game the emulator plays nothing
            reward: int = act(action)
            if not over:
                show(Shot(ale.getScreenRGB(), reward))
            return reward

        self._act = act_and_show

    def reset(self, tick: int, frame: Frame) -> None:
        """Begin an episode: the protocol's no-ops, as many as (seed, index, tick) say, and FIRE if it asks for it."""
        least, most = self._protocol.noop_min, self._protocol.noop_max
        noops = least + randint(most + 1 - least, self._seed, Stream.NOOPS, self._index, tick) if most else 0
        if self.game in RESET_ANEW:
            self._reset_emulator(noops)
            self._ale.getScreen(self._third)
            self.lives = self._ale.lives()
        else:
            state, self._third[:], self.lives = self._starts[noops]
            self._ale.restoreState(state)
        self._fourth[:] = self._third
        self._repeated = FIRE if self._fires else NOOP
        if self._log is not None:
            self._log.begin(tick)
        self._show(frame)

    def _reset_emulator(self, noops: int) -> None:
        """Reset the emulator. A game that ends within its no-ops is reset again, and the no-ops continue."""
        ale = self._ale
        ale.reset_game()
        for action in [NOOP] * noops + [FIRE] * self._fires:
            self._act(action)
            if ale.game_over():
                ale.reset_game()

    def _recorded_starts(self) -> list[_Start]:
        """The starts of this game and protocol, recorded by the first env of the process from its fresh emulator."""
        key = (self.game, self._protocol)
        if key not in _starts:
            ale = self._ale
            recorded: list[_Start] = []
            ale.reset_game()
            for _ in range(self._protocol.noop_max + 1):
                before = ale.cloneState(include_rng=True)
                if self._fires:
                    ale.act(FIRE)
                recorded.append((ale.cloneState(include_rng=True), ale.getScreen(), ale.lives()))
                if self._fires:
                    ale.restoreState(before)
                ale.act(NOOP)
                if ale.game_over():
                    ale.reset_game()
            _starts[key] = recorded
        return _starts[key]

    def step(self, tick: int, action: int, frame: Frame) -> Outcome:
        """Play `action` for four emulator frames, fewer if the game ends; raises `EnvError` on an unknown color."""
        ale = self._ale
        number = self.numbers[action]
        if self._log is not None:
            self._log.append(tick, action)
        first, second, third, fourth = self._stick(tick, number) if self._sticky else (number,) * FRAME_SKIP
        act = self._act
        # The emulator plays nothing beyond an end, so one look tells of three frames.
        reward = act(first) + act(second) + act(third)
        if ale.game_over():
            return self._end(reward, self._pooled_gray(), frame)
        ale.getScreen(self._third)
        reward += act(fourth)
        if ale.game_over():
            third = self._gray_of_two[self._third, self._third]
            return self._end(reward, np.maximum(self._pooled_gray(), third), frame)
        ale.getScreen(self._fourth)
        self._show(frame)
        return Outcome(reward, False, False, self._loses_life())

    def _stick(self, tick: int, number: int) -> list[int]:
        """The actions of a step's emulator frames where `number` is asked for, and actions are sticky."""
        draws = bits(self._seed, Stream.STICKY, self._index, tick)  # 16 bits for each emulator frame
        played = []
        for frame in range(FRAME_SKIP):
            if draws >> (16 * frame) & 0xFFFF >= self._sticky:
                self._repeated = number
            played.append(self._repeated)
        return played

    def _loses_life(self) -> bool:
        """Count the lives. Return True if one was lost and ends the return."""
        before, self.lives = self.lives, self._ale.lives()
        return self._reports_lives and self.lives < before

    def _end(self, reward: int, pooled: NDArray[np.uint8], frame: Frame) -> Outcome:
        """The outcome of a step that ended the episode; `pooled` is the last observation in gray."""
        self._check_colors()
        self._pooled = pooled
        self._shrink_gray(pooled, frame)
        terminated = self._ale.game_over(with_truncation=False)
        return Outcome(reward, terminated, self._ale.game_truncated(), self._loses_life())

    def _show(self, frame: Frame) -> None:
        """Write the frame of the third and fourth screen."""
        if self._shrink_screens is not None:
            self._shrink_screens(frame)
            self._pooled = None
        else:
            self._pooled = self._gray_of_two[self._third, self._fourth]
            self._shrink_gray(self._pooled, frame)

    def _pooled_gray(self) -> NDArray[np.uint8]:
        """The newest observation before it is shrunk: uint8[height, 160]."""
        return self._gray_of_two[*self._shown] if self._pooled is None else self._pooled

    def _check_colors(self) -> None:
        """Raise `EnvError` unless the emulator's own gray screen agrees with the table of grays."""
        screen = self._ale.getScreen()
        wrong = self._grays[screen] != self._ale.getScreenGrayscale()
        if wrong.any():
            raise EnvError(
                f"{self.game} shows color {screen[wrong][0]} in a gray that actors/pixels/palette.py does not list; "
                "the installed ale-py has other palettes than 0.12.1."
            )

    def snapshot(self) -> bytes:
        """The emulator's state and the pooled screen, or for a replay the tick of the reset and the actions."""
        if self._log is not None:
            return self._log.snapshot()
        head = _STATE.pack(_STATE_MAGIC, self._repeated, self.lives)
        return head + self._pooled_gray().tobytes() + self._ale.cloneState(include_rng=True).serialize()

    def restore(self, data: bytes, heartbeat: Callable[[], None] = lambda: None) -> None:
        """Go on from a snapshot. A replayed game takes as long as the episode took, 0.5 ms a step."""
        if self._log is not None:
            replay(self, self.game, self._frame_shape, data, heartbeat)
            return
        state = _STATE.size + self._third.size
        if len(data) <= state or data[:4] != _STATE_MAGIC:
            raise EnvError(f"The {len(data)} bytes to restore are not a snapshot of {self.game}.")
        _, self._repeated, self.lives = _STATE.unpack_from(data)
        # Copied: a read-only array is another type, for which numba would compile a kernel once more.
        self._pooled = np.frombuffer(data[_STATE.size : state], np.uint8).reshape(self._third.shape).copy()
        try:
            self._ale.restoreState(ALEState(data[state:]))
        except (SystemError, RuntimeError, ValueError) as error:  # an exception of C++ comes as any of these
            raise EnvError(f"The bytes to restore hold no state of the emulator of {self.game}.") from error
