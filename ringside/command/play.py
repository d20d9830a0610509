"""The task `play`: an agent plays in a window, or into a video."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from actors.env import Env, EnvError
from actors.envs.atari import game_name
from actors.evaluation import Evaluation
from actors.filming import require_format
from ringside.agents.evaluating import EvaluationPolicy, load_libraries
from ringside.agents.player import Pace, Video, play
from ringside.agents.stored_weights import play_named, play_of, require_actions, rules_of, weights_at
from ringside.command.arguments import PlayingOptions, parse
from shared.config import validate
from shared.errors import ConfigError, require
from shared.files.result_files import require_writable
from shared.process.signals import Requests, handle_stop_signals
from shared.text import headline

DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")


@dataclass(frozen=True, kw_only=True)
class Options(PlayingOptions):
    """Watch an agent play by the rules of its protocol, in a window or in a video. Ctrl-C ends it."""

    game: str | None = None
    """Another game than the agent was trained on, with the same actions."""
    video: Path | None = None
    """Write FILE.mp4 or FILE.gif, with the agent's values beside the screen, instead of opening a window."""
    episodes: int | None = None
    """Episodes to play; default: one into a video, else until the window is closed."""
    seconds: float | None = None
    """End after so many seconds of play."""
    speed: float = 1.0
    """With --video: times the speed of the console, which shows 60 screens a second."""
    scale: int | None = None
    """With --video: pixels for each pixel of the game; 1: its native size; default: what suits 512 lines."""


def main(arguments: Sequence[str]) -> int:
    """Show episodes, and print their returns."""
    options = parse(Options, arguments, "play")
    _check(options)
    weights = weights_at(options.load, **options.named)
    load_libraries()
    settings = play_of(weights)
    if options.game is not None and (game := game_name(options.game)) != weights.game:
        settings = play_named(weights, game=game)
    require_actions(weights, settings)
    evaluation = Evaluation(settings, rules_of(weights, settings, **options.given_rules), options.seed, 0)
    network = EvaluationPolicy(weights, options.device)
    requests = Requests()

    def on_signal(number: int) -> None:
        """The first signal is a request; the second one ends the program at once."""
        requests.count_signal(number)
        if requests.count > 1:
            raise KeyboardInterrupt

    with handle_stop_signals(on_signal), closing(_env(evaluation, window=options.video is None)) as env:
        _show(options, evaluation, env, network, requests)
    return 0


def _check(options: Options) -> None:
    """Raise `ConfigError` for impossible options, before torch and the network are loaded."""
    validate.episodes(options.episodes, options.seed)
    if not 0.05 <= options.speed <= 100:
        raise ConfigError(f"--speed {options.speed:g} is not between 0.05 and 100.")
    if options.scale is not None and not 1 <= options.scale <= 16:
        raise ConfigError(f"--scale {options.scale} is not between 1 and 16.")
    if options.seconds is not None and not 0 < options.seconds < float("inf"):
        raise ConfigError(f"--seconds {options.seconds:g} must be more than 0 and finite.")
    if options.video is None:
        for flag, value, usual in (("--scale", options.scale, None), ("--speed", options.speed, 1.0)):
            if value != usual:
                raise ConfigError(f"{flag} {value:g} is for a video: pass --video, too.")
        if not any(os.environ.get(name) for name in DISPLAYS):
            raise ConfigError("There is no display for a window: write a video with --video FILE.mp4 or FILE.gif.")
        return
    require_format(options.video)
    require("--video", "video", "av", "PIL")
    require_writable("--video", options.video, replaces=True, beside=options.load)


def _env(evaluation: Evaluation, *, window: bool) -> Env:
    """Env that is shown. Raises `EnvError`."""
    try:
        return evaluation.env(window=window)
    except EnvError as error:
        if not window:
            raise
        raise EnvError(f"{error} Write a video instead: --video FILE.mp4.") from error


def _show(options: Options, evaluation: Evaluation, env: Env, network: EvaluationPolicy, requests: Requests) -> None:
    """Play, until the episodes or the seconds are over or a stop is requested."""
    rate, game = env.screens_per_second * options.speed, evaluation.play.played
    episodes = options.episodes or (None if options.video is None else 1)
    numbers = count() if episodes is None else range(episodes)
    limit = float("inf") if options.seconds is None else options.seconds * env.screens_per_second
    shown = 0
    with ExitStack() as held:
        video = None
        if options.video is not None:
            title = headline(game).replace("_", " ")
            video = Video(options.video, title, env, rate, options.scale, has_policy=network.has_policy)
            held.callback(video.file.finish)
        for moment in play(evaluation, env, network, numbers, Pace(rate) if video is None else None):
            if video is not None:
                video.add(moment)
            if (episode := moment.episode).over:
                total = f"{episode.total:,.10g} after {episode.steps:,} steps"
                print(f"{game}: episode {episode.number} returned {total}", flush=True)
            shown += len(moment.shots)
            if requests.count or shown >= limit:
                break
    if video is not None:
        print(f"{options.video}: {video.file.pictures:,} pictures, {video.file.seconds:.1f} s")
