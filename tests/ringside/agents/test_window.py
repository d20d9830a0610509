"""The window, on SDL's dummy display: what is drawn, which keys are held, how it closes."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np
import pytest

from ringside.agents.scene import Pace, Scene
from ringside.agents.window import Window, action_for, has_display
from shared.errors import ConfigError

BREAKOUT = ("NOOP", "FIRE", "RIGHT", "LEFT")
PONG = ("NOOP", "FIRE", "RIGHT", "LEFT", "RIGHTFIRE", "LEFTFIRE")
FREEWAY = ("NOOP", "UP", "DOWN")
ASTEROIDS = ("NOOP", "FIRE", "UP", "RIGHT", "LEFT", "DOWN", "UPRIGHT", "UPLEFT", "UPFIRE", "RIGHTFIRE", "LEFTFIRE")
SCENE = Scene("pong", 0, 1, 0.0, 0.0, PONG, 2, False, None)
SCREEN = np.full((210, 160, 3), (144, 72, 17), np.uint8)


@pytest.fixture
def window(monkeypatch: pytest.MonkeyPatch) -> Iterator[Window]:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    with Window("pong", 1_000.0, scale=2) as opened:
        opened.show(SCREEN, SCENE)
        yield opened


@pytest.mark.parametrize(
    ("held", "names", "action"),
    [
        ("", PONG, "NOOP"),
        ("fire", PONG, "FIRE"),
        ("right fire", PONG, "RIGHTFIRE"),
        ("up", PONG, "RIGHT"),
        ("down", PONG, "LEFT"),
        ("left up", BREAKOUT, "LEFT"),
        ("right fire", BREAKOUT, "RIGHT"),
        ("fire up", FREEWAY, "UP"),
        ("left fire", FREEWAY, "NOOP"),
        ("up left fire", ASTEROIDS, "UPLEFT"),
        ("down right", ASTEROIDS, "RIGHT"),
        ("up down left right", ASTEROIDS, "UPRIGHT"),
        ("left fire", ("0", "1", "2"), "0"),
    ],
)
def test_keys_mean_the_nearest_action_that_there_is(held: str, names: tuple[str, ...], action: str) -> None:
    assert names[action_for(frozenset(held.split()), names)] == action


def test_the_window_shows_the_picture(window: Window) -> None:
    import pygame

    surface = pygame.display.get_surface()
    assert surface.get_height() == 420
    assert surface.get_at((319, 419))[:3] == (144, 72, 17)
    assert surface.get_at((321, 1))[:3] != (144, 72, 17)


def test_keys_are_held_and_a_tap_counts_once(window: Window) -> None:
    import pygame

    assert window.held() == frozenset()
    for key in (pygame.K_SPACE, pygame.K_d):
        pygame.event.post(pygame.event.Event(pygame.KEYDOWN, key=key))
    assert window.held() == {"fire", "right"}
    assert window.held() == frozenset()
    assert not window.closed


@pytest.mark.parametrize(
    ("key", "people", "closes"), [("K_ESCAPE", False, True), ("K_q", False, True), ("K_q", True, False)]
)
def test_events_that_close_the_window(monkeypatch: pytest.MonkeyPatch, key: str, people: bool, closes: bool) -> None:
    import pygame

    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    with Window("pong", 1_000.0, scale=1, people=people) as window:
        pygame.event.post(pygame.event.Event(pygame.KEYDOWN, key=getattr(pygame, key)))
        window.show(SCREEN, SCENE)
        assert window.closed == closes
        pygame.event.post(pygame.event.Event(pygame.QUIT))
        window.held()
        assert window.closed


def test_a_display_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    assert not has_display()
    monkeypatch.setenv("DISPLAY", ":987")
    assert has_display()
    monkeypatch.setenv("SDL_VIDEODRIVER", "x11")
    with pytest.raises(ConfigError, match=r"No window can be opened .*--screen terminal, or write a video"):
        Window("pong", 60.0, scale=1)


def test_without_pygame_a_window_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pygame", None)
    with pytest.raises(ConfigError, match=r"pygame-ce: run make install, which fills \.venv, or play in the terminal"):
        Window("pong", 60.0, scale=1)


def test_pace_waits_for_each_screen_and_draws_no_more_than_can_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr("ringside.agents.scene.time.perf_counter", lambda: now)
    monkeypatch.setattr("ringside.agents.scene.time.sleep", sleep)
    pace = Pace(60, most=30)
    drawn = [pace.wait() for _ in range(61)]
    assert now == pytest.approx(101.0)
    assert sum(drawn) == 31
    now += 0.1  # held up: what is late is not drawn, until the show is in time again
    assert not any(pace.wait() for _ in range(4))
    assert any([pace.wait() for _ in range(4)])
    assert now == pytest.approx(101.0 + 8 / 60)
    now += 60.0  # held up for long: nothing is made up for
    pace.wait()
    pace.wait()
    assert now == pytest.approx(161.0 + 9 / 60)
