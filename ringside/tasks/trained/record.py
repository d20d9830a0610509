"""The task `record`: videos of many episodes, and their returns."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ringside.agents.evaluation_policy import ROWS, evaluation_result, load_libraries
from ringside.agents.picture import Montage
from ringside.agents.player import Player, make_player, stop_requests
from ringside.agents.scene import Scene
from ringside.agents.stored_weights import GivenRules, weights_at, with_protocol
from ringside.agents.video import GIF_IS_FULL, GIF_SECONDS, VideoCanvas, open_moving_picture
from ringside.tasks.arguments import PlayingOptions, parse
from ringside.tasks.trained.play import check_picture
from shared.config.checks import validate
from shared.config.protocols import PROTOCOLS
from shared.errors import ConfigError
from shared.files.result_files import make_result_directory, write_result
from shared.process.signals import Requests
from shared.text import PROGRAM, count

RETURNS = "returns.json"
MOST_IN_MONTAGE = 100


@dataclass(frozen=True, kw_only=True)
class Recording(PlayingOptions):
    """The options of `record`."""

    load: Path = field()  # required here
    out: Path
    """Directory for the videos and returns.json; made where there is none."""
    episodes: int | None = None
    """Episodes to play; default: as the protocol says."""
    montage: bool = False
    """One video of all episodes side by side, instead of one for each."""
    format: Literal["mp4", "gif"] = "mp4"
    """Kind of file."""
    speed: float = 1.0
    """Times the speed of the console, which shows 60 screens a second."""
    scale: int | None = None
    """Pixels for each pixel of the game; default: 1 in a montage, else as in `play --video`."""


OPTIONS = Recording


def main(arguments: Sequence[str]) -> int:
    """Play and record the episodes. Return 1 if they were interrupted."""
    options = parse(Recording, arguments, f"{PROGRAM} record", "Write videos of whole episodes, and their returns.")
    check_picture(options.speed, options.scale)
    validate.episodes(options.episodes, options.seed)

    weights = weights_at(options.load, options.trained_env, options.plugin)
    episodes = options.episodes or PROTOCOLS[weights.protocol].eval_episodes
    if options.montage and episodes > MOST_IN_MONTAGE:
        raise ConfigError(f"--montage shows at most {MOST_IN_MONTAGE} episodes; {episodes} are asked for.")
    _require_empty(options.out)
    load_libraries()
    player, network = make_player(
        weights,
        None,
        options.seed,
        options.device,
        given=GivenRules(options.eval_epsilon, options.eval_max_frames, options.eval_actions),
    )
    assert network is not None
    make_result_directory("--out", options.out)
    record = _record_montage if options.montage else _record_each
    with player, stop_requests() as stop:
        videos, cut = record(options, player, episodes, stop)
    if len(player.played) < episodes:
        print(f"Stopped: {len(player.played)} of {episodes} episodes were over.")
        if options.montage or player.played:
            print(f"{'The video up to there is' if options.montage else 'Their videos are'} in {options.out}.")
        return 1
    played = sorted(player.played, key=lambda each: each.episode)
    returns, steps = [each.total for each in played], [each.steps for each in played]
    judged = evaluation_result(weights, network, player.rules, options.seed, returns, sum(steps))
    result = {**judged, "lengths": steps, "videos": videos}
    write_result("--out", options.out / RETURNS, result)
    print(
        f"{with_protocol(weights.game, weights.protocol)}: mean {result['mean']:.2f} of {count(episodes, 'episode')}; "
        f"{count(len(videos), 'video')} and {RETURNS} are in {options.out}"
    )
    if cut:
        print(f"{cut} of the videos show the first {GIF_SECONDS:g} seconds only: {GIF_IS_FULL}.")
    return 0


def _require_empty(out: Path) -> None:
    """Raise `ConfigError` if the directory is there and not empty."""
    try:
        if os.path.isdir(out) and any(out.iterdir()):
            raise ConfigError(f"--out {out} is not empty; choose another directory.")
    except OSError as error:
        raise ConfigError(f"--out {out} cannot be read: {error.strerror}.") from error


def _record_each(options: Recording, player: Player, episodes: int, stop: Requests) -> tuple[list[str], int]:
    """Write a video for each episode; return their names, and the number of truncated ones.

    After a request to stop, videos of episodes that are not over are removed.
    """
    names = [f"episode-{number:03}.{options.format}" for number in range(episodes)]
    rate = player.screens_per_second * options.speed
    cut = 0
    for first in range(0, episodes, ROWS):
        numbers = range(first, min(first + ROWS, episodes))
        with ExitStack() as files:
            canvases = [
                files.enter_context(VideoCanvas(options.out / names[number], rate, options.scale)) for number in numbers
            ]
            for steps_of_slots in player.perform(numbers):
                for number, canvas, step in zip(numbers, canvases, steps_of_slots, strict=True):
                    if step is None:
                        continue
                    for screen, scene in step.moments:
                        canvas.show(screen, scene)
                    if step.over:
                        print(f"{options.out / names[number]}: return {step.moments[-1][1].total:,.10g}", flush=True)
                if stop.count:
                    break
            cut += sum(canvas.file.full for canvas in canvases)
        if stop.count:
            over = {played.episode for played in player.played}
            for number in set(numbers) - over:
                (options.out / names[number]).unlink()
            break
    return names, cut


def _record_montage(options: Recording, player: Player, episodes: int, stop: Requests) -> tuple[list[str], int]:
    """Write one video of all episodes; return its name, and the number of truncated ones."""
    name = f"montage.{options.format}"
    montage: Montage | None = None
    newest: dict[int, tuple[NDArray[np.uint8], Scene]] = {}
    with open_moving_picture(options.out / name, player.screens_per_second * options.speed) as file:
        for steps_of_slots in player.perform(range(episodes)):
            if stop.count:
                break
            for number, step in enumerate(steps_of_slots):
                if step is not None and step.over:
                    print(f"episode {number} returned {step.moments[-1][1].total:,.10g}", flush=True)
            playing = [
                (place, step.moments) for place, step in enumerate(steps_of_slots) if step is not None and step.moments
            ]
            if montage is None:
                height, width = playing[0][1][0][0].shape[:2]
                montage = Montage(height, width, options.scale or 1, episodes)
            for i in range(max(len(moments) for _, moments in playing)):
                newest |= {place: moments[min(i, len(moments) - 1)] for place, moments in playing}
                if file.wanted:
                    for place, moment in newest.items():
                        montage.place(place, *moment)
                    newest.clear()
                file.add(montage.picture)
    return [name], int(file.full)
