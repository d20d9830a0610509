"""Episodes that are shown: in the env's own window, or in a video with the agent's values beside the screen.

Episode `i` has the return of episode `i` of `launch.py eval` with the same seed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from actors.env import Env, Shot
from actors.evaluation import Episode, Evaluation
from actors.filming import VideoFile, enlarge
from ringside.agents.evaluating import ROWS, EvaluationPolicy

GROUND, TEXT, DIM, BAR, CHOSEN = (22, 24, 29), (232, 232, 232), (150, 155, 164), (86, 180, 233), (230, 159, 0)
"""Colors, of Okabe & Ito's palette, which color-blind people tell apart; a mark repeats what a color says."""
PANEL = 240
"""Width of the panel beside the screen."""
COMFORTABLE_HEIGHT = 512
"""Default limit of the height of an enlarged screen: Atari's 210 lines become 420."""
_LEAST_HEIGHT, _MOST_LINE = 200, 28
_CATCH_UP = 0.25
"""Delay in seconds beyond which a show continues from now instead of catching up."""


class Moment(NamedTuple):
    """A step of an episode that is shown."""

    episode: Episode
    """The episode after the step."""
    chosen: int
    """The action that the agent chose; with probability epsilon another one was played."""
    values: NDArray[np.float32]
    """Values of all actions before the step: Q-values, or the probabilities of a policy."""
    shots: tuple[Shot, ...]
    """Screens of the step."""


def play(
    evaluation: Evaluation,
    env: Env,
    network: EvaluationPolicy,
    numbers: Iterable[int],
    wait: Callable[[], None] | None = None,
) -> Iterator[Moment]:
    """Play episodes of an evaluation one after another; `wait` is called after each screen."""
    shots: list[Shot] = []

    def show(shot: Shot) -> None:
        shots.append(shot)
        if wait is not None:
            wait()

    env.film(show)
    for number in numbers:
        row = number % ROWS  # as in `evaluate`, so that the numbers are the same
        stacks = np.zeros((ROWS, *evaluation.play.frames.observation), np.uint8)
        state = network.policy.fresh_state()
        episode = Episode(evaluation, env, number, stacks[row])
        while not episode.over:
            values = network.policy.values(stacks, state)[row : row + 1]
            state = network.policy.next_state
            shown = network.shown(values)[0].copy()
            chosen = int(network.choose(values, np.array([episode.draw]), evaluation.rules)[0])
            shots.clear()
            episode.step(chosen)
            yield Moment(episode, chosen, shown, tuple(shots))


class Pace:
    """Clock that waits until the next screen is due."""

    def __init__(self, rate: float) -> None:
        """For `rate` screens a second."""
        self._period, self._due = 1.0 / rate, -np.inf

    def __call__(self) -> None:
        now = time.perf_counter()
        if now - self._due > _CATCH_UP:
            self._due = now
        time.sleep(max(0.0, self._due - now))
        self._due += self._period


class Video:
    """A video file of moments, which `file.finish` completes."""

    def __init__(self, path: Path, game: str, env: Env, rate: float, scale: int | None, *, has_policy: bool) -> None:
        """Begin the file. Raises `ConfigError` if it cannot be written, as `add` does.

        Args:
            rate: screens a second.
            scale: pixels for each pixel of the screen; None: for about 500 lines.
            has_policy: True if the values are the probabilities of a policy.
        """
        self._scale, self._game, self._names, self._has_policy = scale, game, env.action_names, has_policy
        self._episode, self._low, self._high = -1, 0.0, 0.0
        self.file = VideoFile(path, rate)

    def add(self, moment: Moment) -> None:
        """Append the screens of a moment."""
        height, width = moment.shots[0].screen.shape[:2]
        scale = self._scale or max(1, COMFORTABLE_HEIGHT // height)
        even = max(height * scale + height * scale % 2, _LEAST_HEIGHT)  # as the format asks for
        picture = np.full((even, width * scale + width * scale % 2 + PANEL, 3), GROUND, np.uint8)
        picture[:, -PANEL:] = self._panel(moment, even)
        for shot in moment.shots:
            picture[: height * scale, : width * scale] = enlarge(shot.screen, scale)
            self.file.add(picture)

    def _panel(self, moment: Moment, height: int) -> NDArray[np.uint8]:
        """Panel beside the screen: uint8[height, PANEL, 3]."""
        from PIL import Image, ImageDraw, ImageFont  # of the extra `video`

        picture = Image.new("RGB", (PANEL, height), GROUND)
        draw, line = ImageDraw.Draw(picture), min(_MOST_LINE, height / (len(self._names) + 7))
        margin, font = round(line / 2), ImageFont.load_default(max(1, round(0.6 * line)))

        def write(row: float, name: str, value: str, color: tuple[int, int, int]) -> None:
            for text, x, anchor in ((name, margin, "ls"), (value, PANEL - margin, "rs")):
                draw.text((x, round((row + 0.7) * line)), text, color, font, anchor)

        episode, action = moment.episode, moment.episode.action
        chance = "random" if action != moment.chosen else "probability" if self._has_policy else "Q-value"
        write(0, self._game, "", TEXT)
        write(1.2, "return", f"{episode.total:,.10g}", TEXT)
        write(2.2, "step", f"{episode.steps:,}", TEXT)
        write(3.2, "episode", f"{episode.number:,}", TEXT)
        write(4.4, "action", chance, DIM)
        for row, (name, value, share) in enumerate(zip(self._names, moment.values, self._shares(moment), strict=True)):
            color = CHOSEN if row == action else TEXT
            write(row + 5.5, ("> " if row == action else "") + name, f"{value:.3f}", color)
            y, end = round((row + 6.4) * line), margin + round((PANEL - 2 * margin) * share)
            draw.line((margin, y, end, y), CHOSEN if row == action else BAR, max(1, round(line / 9)))
        return np.asarray(picture)

    def _shares(self, moment: Moment) -> NDArray[np.float32]:
        """Lengths of the bars, from 0 to 1: probabilities, or places between the extremes of the episode so far.

        The Q-values of a state are close to each other and far from 0: bars that began at 0 would all look alike.
        """
        values, number = moment.values, moment.episode.number
        if self._has_policy:
            return values
        if number != self._episode:
            self._episode, self._low, self._high = number, np.inf, -np.inf
        self._low, self._high = min(self._low, values.min()), max(self._high, values.max())
        return (values - self._low) / max(self._high - self._low, 1e-9)
