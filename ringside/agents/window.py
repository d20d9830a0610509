"""A window that shows episodes and reads keys. It uses SDL by pygame."""

from __future__ import annotations

import os
from types import ModuleType, TracebackType

import numpy as np
from numpy.typing import NDArray

from ringside.agents.picture import Painter, comfortable_scale
from ringside.agents.scene import Canvas, Pace, Scene
from shared.errors import ConfigError
from shared.root import INSTALL

DRAWN_PER_SECOND = 60.0
_SHARE = 0.8
"""Largest share of the display's height for a window."""
_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")
_KEYS = {
    "up": ("K_UP", "K_w"),
    "down": ("K_DOWN", "K_s"),
    "left": ("K_LEFT", "K_a"),
    "right": ("K_RIGHT", "K_d"),
    "fire": ("K_SPACE", "K_RETURN"),
}
"""Keys of each meaning, by pygame's names."""


def has_display() -> bool:
    """True if the environment names a display."""
    return any(os.environ.get(name) for name in _DISPLAYS)


def action_for(held: frozenset[str], names: tuple[str, ...]) -> int:
    """Index of the game's action for the held directions and `fire`; the closest action, else NOOP.

    A game without up and down, such as Pong, whose paddle turns right and left, takes them as right and left.
    """
    vertical = "UP" * ("up" in held) or "DOWN" * ("down" in held)
    level = "RIGHT" * ("right" in held) or "LEFT" * ("left" in held)
    if vertical and not level and not any("UP" in name for name in names):
        vertical, level = "", {"UP": "RIGHT", "DOWN": "LEFT"}[vertical]
    fire = "FIRE" * ("fire" in held)
    wishes = (vertical + level + fire, vertical + level, level + fire, level, vertical + fire, vertical, fire)
    for wish in wishes:
        if wish and wish in names:
            return names.index(wish)
    return names.index("NOOP") if "NOOP" in names else 0


class Window(Canvas):
    """A window; its button, Escape or Q close it (not Q while a person plays, whose hand is near it)."""

    def __init__(self, title: str, rate: float, *, scale: int | None, people: bool = False) -> None:
        """Prepare a window that opens with the first screen.

        Args:
            rate: screens a second.
            scale: pixels per pixel of the screen; None: as the display allows.
            people: True if a person plays.

        Raises:
            ConfigError: there is no display, or pygame is not installed.
        """
        self._pygame = _pygame()
        self._title, self._scale = title, scale
        self._pace = Pace(rate, DRAWN_PER_SECOND)
        self._ends = {self._pygame.K_ESCAPE} if people else {self._pygame.K_ESCAPE, self._pygame.K_q}
        self._meaning = {getattr(self._pygame, key): word for word, keys in _KEYS.items() for key in keys}
        self._tapped: set[str] = set()
        self._closed = False
        self._painter: Painter | None = None
        try:
            self._pygame.display.init()
        except self._pygame.error as error:
            raise ConfigError(
                f"No window can be opened ({error}); play in the terminal with --screen terminal, or write a video "
                "with --video FILE.mp4."
            ) from error

    @property
    def closed(self) -> bool:
        return self._closed

    def held(self) -> frozenset[str]:
        """Meanings of `_KEYS` whose keys are down, or were pressed since the last call: a tap counts."""
        self._process_events()
        pressed = self._pygame.key.get_pressed()
        now = {word for key, word in self._meaning.items() if pressed[key]}
        held, self._tapped = frozenset(now | self._tapped), set()
        return held

    def show(self, screen: NDArray[np.uint8], scene: Scene) -> None:
        if self._painter is None:
            self._painter = self._open(*screen.shape[:2])
        self._process_events()
        if self._pace.wait():
            picture = self._painter.paint(screen, scene)
            size = (self._painter.width, self._painter.height)
            surface = self._pygame.image.frombuffer(picture.tobytes(), size, "RGB")
            self._pygame.display.get_surface().blit(surface, (0, 0))
            self._pygame.display.flip()

    def _open(self, height: int, width: int) -> Painter:
        lines = round(_SHARE * self._pygame.display.get_desktop_sizes()[0][1])
        painter = Painter(height, width, self._scale or comfortable_scale(height, max(lines, height)))
        self._pygame.display.set_mode((painter.width, painter.height))
        self._pygame.display.set_caption(self._title)
        return painter

    def _process_events(self) -> None:
        """Process events: pressed keys and the window's button."""
        for event in self._pygame.event.get():
            if event.type == self._pygame.QUIT:
                self._closed = True
            elif event.type == self._pygame.KEYDOWN:
                self._closed |= event.key in self._ends
                if event.key in self._meaning:
                    self._tapped.add(self._meaning[event.key])

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pygame.display.quit()


def _pygame() -> ModuleType:
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    try:
        import pygame
    except ImportError as error:
        raise ConfigError(
            f"A window needs the package pygame-ce: run {INSTALL}, or play in the terminal with --screen terminal."
        ) from error
    return pygame
