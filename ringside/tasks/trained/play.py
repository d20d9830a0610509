"""The task `play`: an agent, or a person, plays in a window, in the terminal or into a video."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Literal

from ringside.agents.evaluation_policy import load_libraries
from ringside.agents.player import Player, make_player, show, stop_requests
from ringside.agents.scene import Canvas
from ringside.agents.stored_weights import GivenRules, weights_at
from ringside.agents.terminal import Terminal
from ringside.agents.video import GIF_IS_FULL, SUFFIXES, VideoCanvas
from ringside.agents.window import Window, action_for, has_display
from ringside.tasks.arguments import PlayingOptions, parse
from shared.config.checks import validate
from shared.errors import ConfigError
from shared.files.result_files import require_writable
from shared.text import PROGRAM, headline


@dataclass(frozen=True, kw_only=True)
class Playing(PlayingOptions):
    """The options of `play`."""

    game: str | None = None
    """Another game than the agent was trained on, with the same actions; with --human, the game to play."""
    human: bool = False
    """Play yourself, in the window: arrows or WASD, space for fire. With --load, the agent's values stand beside."""
    video: Path | None = None
    """Write FILE.mp4 or FILE.gif instead of showing anything."""
    screen: Literal["auto", "window", "terminal"] = "auto"
    """Place to show it; auto: a window if there is a display, else the terminal."""
    episodes: int | None = None
    """Episodes to play; default: one into a video, else until the window is closed."""
    seconds: float | None = None
    """End after so many seconds of play."""
    speed: float = 1.0
    """Times the speed of the console, which shows 60 screens a second."""
    scale: int | None = None
    """Pixels for each pixel of the game; 1: its native size; default: what suits the display, or 512 lines of video."""


OPTIONS = Playing


def main(arguments: Sequence[str]) -> int:
    """Show episodes, then print their returns."""
    options = parse(
        Playing,
        arguments,
        f"{PROGRAM} play",
        "Watch an agent play by the rules of its protocol, or play yourself. Ctrl-C ends it; in a window Escape does, "
        "too, and Q while an agent plays.",
    )
    _check(options)

    weights = None if options.load is None else weights_at(options.load, options.trained_env, options.plugin)
    window: list[Window] = []
    actions: list[tuple[str, ...]] = []

    def person() -> int:
        return action_for(window[0].held(), actions[0])

    if options.video is None:
        _check_screen(options)
    if weights is not None:
        load_libraries()
    player, _ = make_player(
        weights,
        options.game,
        options.seed,
        options.device,
        person if options.human else None,
        given=GivenRules(options.eval_epsilon, options.eval_max_frames, options.eval_actions),
    )
    actions.append(player.actions)
    number = options.episodes or (1 if options.video is not None else None)
    with player, stop_requests() as stop, _canvas(options, player, window) as canvas:
        show(player, count() if number is None else range(number), canvas, options.seconds, stop)
    _print_results(options, player, canvas)
    return 0


def _check(options: Playing) -> None:
    """Raise `ConfigError` for impossible options, before torch and the network are loaded."""
    if options.load is None and not options.human:
        raise ConfigError(
            "--load says which agent plays: a run, a checkpoint or a name in the zoo (--human: you play)."
        )
    for flag, text in (("--env", options.trained_env), ("--plugin", options.plugin)):
        if options.load is None and text is not None:
            raise ConfigError(f"{flag} {text} is about a trained agent: name the agent with --load.")
    if options.load is None and options.game is None:
        raise ConfigError("--human needs --game, which says what you play: --game breakout.")
    validate.episodes(options.episodes, options.seed)
    check_picture(options.speed, options.scale)
    if options.seconds is not None and not 0 < options.seconds < float("inf"):
        raise ConfigError(f"--seconds {options.seconds:g} must be more than 0 and finite.")
    for flag, value in (
        ("--eval-epsilon", options.eval_epsilon),
        ("--eval-max-frames", options.eval_max_frames),
        ("--eval-actions", None if options.eval_actions == "auto" else options.eval_actions),
    ):
        if options.human and value is not None:
            raise ConfigError(f"{flag} is about an agent that plays; omit it with --human.")
    if options.video is not None:
        if options.human:
            raise ConfigError("--human plays in a window; omit --video.")
        if options.screen != "auto":
            raise ConfigError(f"--video shows nothing on a screen; omit --screen {options.screen}.")
        check_suffix("--video", options.video)
        require_writable("--video", options.video, beside=options.load)


def _plays_in_window(options: Playing) -> bool:
    """True if the game is shown in a window, not in the terminal."""
    return options.screen == "window" or (options.screen == "auto" and has_display())


def _check_screen(options: Playing) -> None:
    """Raise `ConfigError` unless there is a display or a terminal that can show the game."""
    if _plays_in_window(options):
        if not has_display():
            raise ConfigError("There is no display for a window; try --screen terminal, or --video FILE.mp4.")
    elif options.human:
        why = "omit --screen terminal" if has_display() else "there is no display here"
        raise ConfigError(f"--human needs a window, for a terminal does not tell which keys are held: {why}.")
    elif not sys.stdout.isatty() or os.environ.get("TERM") == "dumb":
        raise ConfigError(
            "There is neither a display nor a terminal to play in; write a video with --video FILE.mp4 or FILE.gif."
        )


def check_suffix(flag: str, path: Path) -> None:
    """Raise `ConfigError` unless the suffix of the file is a supported format."""
    if path.suffix.lower() not in SUFFIXES:
        raise ConfigError(f"{flag} {path}: the suffix says the format; choose one of {' and '.join(SUFFIXES)}.")


def check_picture(speed: float, scale: int | None) -> None:
    """Raise `ConfigError` unless speed and scale are possible."""
    if not 0.05 <= speed <= 100:
        raise ConfigError(f"--speed {speed:g} is not between 0.05 and 100.")
    if scale is not None and not 1 <= scale <= 16:
        raise ConfigError(f"--scale {scale} is not between 1 and 16.")


def _canvas(options: Playing, player: Player, window: list[Window]) -> Canvas:
    """Canvas for the episodes; a window is also appended to `window`."""
    rate = player.screens_per_second * options.speed
    if options.video is not None:
        return VideoCanvas(options.video, rate, options.scale)
    if _plays_in_window(options):
        title = f"{headline(player.game).replace('_', ' ')} - Ringside"
        window.append(Window(title, rate, scale=options.scale, people=options.human))
        return window[0]
    return Terminal(sys.stdout, rate)


def _print_results(options: Playing, player: Player, canvas: Canvas) -> None:
    """Print the results and the written files."""
    for played in player.played:
        print(f"{player.game}: episode {played.episode} returned {played.total:,.10g} after {played.steps:,} steps")
    if options.video is not None:
        assert isinstance(canvas, VideoCanvas)
        file = canvas.file
        more = f"; {GIF_IS_FULL}" if file.full else ""
        print(f"{file.path}: {file.frames:,} pictures, {file.seconds:.1f} s{more}")
