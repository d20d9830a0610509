"""One Atari env: names, starts, ends, lives, randomness, snapshots. What it shows is compared in tests/parity."""

import struct
import subprocess
import sys
from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from ale_py import ALEInterface, LoggerMode, roms

from actors.env import EnvError, Outcome
from actors.envs.atari import REPLAYED, AtariEnv, game_name, games
from actors.make_env import action_names, make_env
from actors.pixels.frames import _shrink_area
from actors.pixels.palette import gray_table
from shared.config.protocols import PROTOCOLS
from shared.config.sections import Play
from shared.memory.snapshot import SNAPSHOT_BYTES
from shared.root import ROOT

NATURE = PROTOCOLS["nature"]


def play(env: AtariEnv, ticks: range, seed: int = 0) -> tuple[list[Outcome], np.ndarray]:
    """Random actions, a reset on the tick after each end, as a lane does it: outcomes and frames."""
    frame, resets = np.zeros((84, 84), np.uint8), False
    outcomes, frames = [], []
    for tick in ticks:
        if resets:
            env.reset(tick, frame)
            resets = False
        else:
            action = int(np.random.default_rng((seed, tick)).integers(env.actions))
            outcomes.append(env.step(tick, action, frame))
            resets = outcomes[-1].terminated or outcomes[-1].truncated
        frames.append(frame.copy())
    return outcomes, np.stack(frames)


def fresh(game: str, protocol: str = "nature", *, training: bool = True, longest: int | None = None) -> AtariEnv:
    """An env after its reset at tick 0; `longest`: frames of an episode, if not those of the protocol."""
    rules = PROTOCOLS[protocol]
    rules = replace(rules, longest_episode_frames=longest or rules.longest_episode_frames)
    env = AtariEnv(game, rules, 5, 0, training=training)
    env.reset(0, np.zeros((84, 84), np.uint8))
    return env


def test_there_are_104_games_for_one_player() -> None:
    assert len(games()) == 104
    assert {"breakout", "qbert"} <= set(games())
    assert not {"combat", "joust", "maze_craze", "warlords"} & set(games())


SPELLINGS = ["space_invaders", "SpaceInvaders", "spaceinvaders", "Space-Invaders", "ALE/SpaceInvaders-v5"]


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_game_may_be_written_in_several_ways(name: str) -> None:
    assert game_name(name) == "space_invaders"


UNKNOWN = [
    ("brakeout", "There is no game 'brakeout'; did you mean breakout?"),
    ("joust", "The game 'joust' has no mode for one player; choose another."),
    ("zzzz", "There is no game 'zzzz'."),
]


@pytest.mark.parametrize(("name", "sentence"), UNKNOWN)
def test_an_unknown_game_is_refused_with_a_sentence(name: str, sentence: str) -> None:
    with pytest.raises(EnvError) as raised:
        make_env(Play(game=name), 1, 0, training=True)
    assert str(raised.value) == sentence


def test_the_action_set_follows_the_protocol() -> None:
    assert fresh("breakout").numbers == (0, 1, 3, 4)
    assert fresh("breakout", "machado").numbers == tuple(range(18))
    assert action_names(Play(game="Breakout")) == ("NOOP", "FIRE", "RIGHT", "LEFT")
    assert action_names(Play(game="Breakout", protocol="machado"))[-1] == "DOWNLEFTFIRE"


@pytest.mark.parametrize("game", ["breakout", "qbert"])
def test_a_reset_after_an_end_leaves_nothing_of_the_episode(game: str) -> None:
    """Neither screens, of which the next frame and a snapshot are made, nor lives, nor a sticky action."""
    used = fresh(game, "machado", longest=400)
    new = AtariEnv(game, PROTOCOLS["machado"], 5, 0, training=True)
    outcomes, _ = play(used, range(1, 101))
    assert any(outcome.terminated or outcome.truncated for outcome in outcomes[-9:])
    frames = np.zeros((2, 84, 84), np.uint8)
    for env, frame in zip((used, new), frames, strict=True):
        env.reset(1_000, frame)
    assert np.array_equal(*frames)
    assert used.lives == new.lives > 0
    assert used.snapshot() == new.snapshot() or game in REPLAYED, "of an episode played again it has the actions"


def test_lost_lives_are_reported_in_training_only_and_do_not_reset() -> None:
    training, scoring = fresh("breakout"), fresh("breakout", training=False)
    assert training.lives == 5
    seen, unseen = play(training, range(1, 150))[0], play(scoring, range(1, 150))[0]
    lost = [outcome.life_lost for outcome in seen]
    assert sum(lost) == 5 - training.lives > 0
    assert not any(outcome.life_lost for outcome in unseen)
    assert [outcome[:3] for outcome in seen] == [outcome[:3] for outcome in unseen]
    assert not any(outcome.life_lost for outcome in play(fresh("breakout", "machado"), range(1, 150))[0])


def test_a_life_that_was_won_may_be_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    env, lives = fresh("breakout"), iter([6, 5, 5])
    calls = {name: getattr(env._ale, name) for name in ("act", "game_over", "getScreen")}
    monkeypatch.setattr(env, "_ale", SimpleNamespace(**calls, lives=lambda: next(lives)))
    frame = np.zeros((84, 84), np.uint8)
    assert [env.step(tick, 0, frame).life_lost for tick in (1, 2, 3)] == [False, True, False]


HEAD = 6
"""Bytes before the screen in the snapshot of a game that is not played again."""
SNAPSHOT_GAMES = ["breakout", "air_raid", "qbert", "yars_revenge", "tetris", "tic_tac_toe_3d", "montezuma_revenge"]
SNAPSHOTS = [*product(SNAPSHOT_GAMES, ("nature", "machado")), ("breakout", "dqn_zoo")]


@pytest.mark.parametrize(("game", "protocol"), SNAPSHOTS)
def test_a_snapshot_goes_on_bit_for_bit_in_another_env(game: str, protocol: str) -> None:
    env, other = fresh(game, protocol), fresh(game, protocol)
    play(other, range(1, 60), seed=9)
    play(env, range(1, 170))
    data = env.snapshot()
    assert len(data) <= SNAPSHOT_BYTES
    other.restore(data)
    assert other.snapshot()[:HEAD] == data[:HEAD], "of lives, and the action that a sticky frame repeats"
    assert other.snapshot() == data or game not in REPLAYED
    np.testing.assert_equal(play(other, range(170, 400)), play(env, range(170, 400)))


@pytest.mark.parametrize("longest", [200, 201, 202, 203])
def test_a_snapshot_before_an_end_keeps_what_the_last_frame_is_made_of(longest: int) -> None:
    env = fresh("breakout", longest=longest)
    other = AtariEnv("breakout", replace(NATURE, longest_episode_frames=longest), 5, 0, training=True)
    frames = np.zeros((2, 84, 84), np.uint8)
    for tick in range(1, 100):
        data = env.snapshot()
        outcome = env.step(tick, 1, frames[0])
        if outcome.truncated:
            break
    other.restore(data)
    compiled = len(_shrink_area.signatures)
    assert other.step(tick, 1, frames[1]) == outcome
    assert len(_shrink_area.signatures) == compiled, "no kernel is compiled within a step"
    assert outcome.truncated
    assert np.array_equal(*frames)


CONTINUE = """
import sys, numpy as np
from tests.actors.envs.test_atari import fresh, play
env = fresh(sys.argv[1])
env.restore(sys.stdin.buffer.read())
outcomes, frames = play(env, range(170, 570))
sys.stdout.buffer.write(frames.tobytes() + repr(outcomes).encode())
"""

QUICK = ["breakout", "qbert", "yars_revenge"]
ALL = [*QUICK, *(pytest.param(game, marks=pytest.mark.stress) for game in games() if game not in QUICK)]


@pytest.mark.parametrize("game", ALL)
def test_a_snapshot_goes_on_bit_for_bit_in_another_process(game: str) -> None:
    env = fresh(game)
    play(env, range(1, 170))
    words, pipes = [sys.executable, "-c", CONTINUE, game], {"input": env.snapshot(), "capture_output": True}
    done = subprocess.run(words, **pipes, cwd=ROOT, timeout=100, check=True)
    outcomes, frames = play(env, range(170, 570))
    assert done.stdout == frames.tobytes() + repr(outcomes).encode()


FOREIGN = [
    ("breakout", b"something else", "not a snapshot of breakout"),
    ("qbert", b"something else", "not a snapshot of qbert"),
    ("qbert", struct.pack("<4sqqI", b"RSA3", 0, 1, 0) + bytes([5, 250]), "has the action 250; there are 6"),
]


@pytest.mark.parametrize(("game", "data", "says"), FOREIGN)
def test_foreign_bytes_are_refused(game: str, data: bytes, says: str) -> None:
    with pytest.raises(EnvError, match=says):
        fresh(game).restore(data)


@pytest.mark.parametrize("end", [HEAD + 210 * 160 + 50, -100])
def test_a_damaged_state_is_refused(end: int) -> None:
    with pytest.raises(EnvError, match="hold no state of the emulator of pong"):
        fresh("pong").restore(fresh("pong").snapshot()[:end])


def test_an_unknown_color_ends_the_run_with_a_sentence() -> None:
    env = fresh("breakout", longest=60)
    env._grays = (env._grays + 1).astype(np.uint8)
    says = r"breakout shows color \d+ in a gray that actors/pixels/palette.py does not list"
    with pytest.raises(EnvError, match=says):
        play(env, range(1, 16))


@pytest.mark.parametrize("game", ["seaquest", "air_raid"])
def test_the_palette_is_the_emulators(game: str) -> None:
    """Random bytes in the console's RAM bring out every color of the palette."""
    ALEInterface.setLoggerMode(LoggerMode.Error)
    ale = ALEInterface()
    ale.setInt("random_seed", 0)
    ale.loadROM(roms.get_rom_path(game))
    rng = np.random.default_rng(0)
    grays = gray_table(ale.getScreenDims()[0])
    seen = np.zeros(256, bool)
    for frame in range(1_500):
        if ale.game_over() or frame % 150 == 0:
            ale.reset_game()
        if frame % 150 > 30:
            for _ in range(4):
                ale.setRAM(int(rng.integers(128)), int(rng.integers(256)))
        ale.act(int(rng.integers(18)))
        screen = ale.getScreen()
        assert np.array_equal(grays[screen], ale.getScreenGrayscale())
        seen[screen] = True
    assert seen[::2].sum() > 100
