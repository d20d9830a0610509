"""The display as a person sees it: words and widths, in a real pseudo-terminal and without one."""

import io
import os
import pty
import select
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ringside.records.bottleneck import Load, NodeStatus, RoleStatus, find_bottleneck
from ringside.records.metrics import EvaluationStatus
from ringside.run import training
from ringside.watch import display as displays
from ringside.watch.display import Display, LiveDisplay, Outlet, open_display
from ringside.watch.status import CheckpointStatus, Status, line
from ringside.watch.status import clock as time_words
from shared.root import ROOT
from shared.text import short
from tests.ringside.watch.conftest import Clock, rendered


def roles(actors: int, learner: float = 0.97) -> tuple[RoleStatus, ...]:
    return (
        RoleStatus("inference", "waiting", 0.4, cores=0.3),
        RoleStatus("learner", "working", learner, cores=1.0),
        RoleStatus("scribe", "waiting", 0.02, cores=0.1, restarts=3),
        *(RoleStatus(f"actor {i}", "working", 0.88 + 0.04 * (i % 2), cores=0.5) for i in range(actors)),
    )


def status(actors: int = 12) -> Status:
    who = roles(actors)
    figures: dict[str, Any] = {"total_steps": 50_000_000, "rounds": 5_000, "steps": 6_150_000, "committed": 615}
    figures |= {"elapsed": 5_025.0, "time_left": 34_900.0, "steps_per_second": 1_234.5, "preset": "nature"}
    figures |= {"updates": 1_500_000, "updates_per_second": 308.6, "epsilon": 0.1}
    figures |= {"episodes": 31_234, "mean_return_100": 812.34, "best_return": 2_140.0}
    return Status(
        *("space_invaders", "nature", "concurrent", Path("runs/space_invaders-20260101-120000")),
        metrics={"loss": 0.012345, "mean_q": 3.4567},
        evaluation=EvaluationStatus(6_000_000, 30, 901.2, 940.3),
        checkpoint=CheckpointStatus(6_100_000, 812_345_678, 12.34),
        roles=who,
        bottleneck=find_bottleneck(Load(who, learning=True, steps_per_second=1_234.5), 64),
        warnings=("The scribe cannot write.",),
        **figures,
    )


NEW = Status("pong", "machado", "free", Path("runs/pong"), total_steps=40_000, rounds=4)


@pytest.mark.parametrize("width", [30, 40, 60, 72, 80, 99, 120, 250])
@pytest.mark.parametrize("what", [status(12), status(2), NEW])
def test_no_line_is_wider_than_the_terminal(what: Status, width: int) -> None:
    assert max(map(len, rendered(what, width).splitlines())) <= width


OVER = replace(status(), committed=5_000, steps=50_000_000, time_left=0.0)
EVALUATES = replace(OVER, roles=(*OVER.roles, RoleStatus("evaluator", "working", 1.0)))
EARLY = replace(status(), time_left_at_least=True, updates=0, learning_begins=59_904)
STOPS = replace(status(), stop_at=18.0)
FEW = replace(status(), episodes=32)
TURNS = replace(status(), preset="ppo-quick", schedule="alternate")
STOPPING = replace(status(), stops_at=19_456, stopping_for=12.0)
PLAYERS = (RoleStatus("scribe", "waiting", 0.1), *(RoleStatus(f"worker {i}", "working", 0.8) for i in range(2)))
WORKERS = replace(status(), workers=16, schedule="ordered", roles=PLAYERS, bottleneck=None)
NODES = (NodeStatus("n7", 4, 1, 0.1, 1e6, 1e5), NodeStatus("", 0, 2, 0.0, 0.0, 0.0))
GATEWAYS = tuple(RoleStatus(f"actor {i + 1}", "working", 0.9, node=node) for i, node in enumerate(NODES))
ON_NODES = replace(status(1), roles=(*roles(1), *GATEWAYS))
SHARED = replace(status(), usable_cores=128, others=13.25, stolen=0.04)
POLICY = replace(status(), metrics={"loss": 0.5, "entropy": 1.25, "explained_variance": None})


SHOWN_WORDS = [
    (
        status(),
        [
            "space_invaders nature, protocol nature, concurrent",
            "12.3% 6.15M of 50M steps round 615 of 5,000 1:23:45 gone, 9:41:40 left",
            "playing 1,234 steps/s return 812.3 (mean of 100)",
            "learning 309 updates/s episodes 31,234 (best 2,140.0)",
            "loss 0.0123 mean Q 3.46",
            "epsilon 0.100 evaluated 901.2 at 6M (best 940.3)",
            "saved at 6.1M (812.3 MB in 12.3 s)",
            "The learner limits the run",
            "1,234 of about 1,273 steps/s that the learner would allow (97%).",
            "Warning: The scribe cannot write.",
            "runs/space_invaders-20260101-120000",
            "-…",
        ],
        [],
    ),
    (OVER, ["0:00:00 left"], []),
    (EVALUATES, ["1:23:45 gone, the last evaluation left"], ["left the last evaluation"]),
    (replace(EVALUATES, committed=4_999, time_left=34_900.0), ["9:41:40 left"], []),
    (EARLY, ["1:23:45 gone, at least 9:41:40 left", "learning from step 59,904 on"], ["left at least 9:41:40"]),
    (replace(EARLY, time_left=None), ["-at least", "time left unknown"], ["left –"]),
    (STOPS, ["1:23:45 gone, at the latest 9:41:40 left --stop-at 18"], ["left at the latest 9:41:40 --stop-at 18"]),
    (replace(STOPS, time_left_at_least=True), [], ["left about 9:41:40 --stop-at 18"]),
    (replace(STOPS, time_left=None), [], ["left – --stop-at 18"]),
    (FEW, ["812.3 (mean of the last 32)"], ["return 812.3 (mean of the last 32)"]),
    (replace(FEW, mean_return_100=10_812.3), ["10,812.3 (mean of the last 32)"], []),
    (TURNS, ["ppo-quick, protocol nature, turns", "-Changed"], []),
    (replace(TURNS, changes=("--n-step 3", "--double")), ["Changed: --n-step 3, --double ━"], []),
    (replace(status(), can_be_saved=True), ["Ctrl-C finishes the round, saves and ends"], []),
    (NEW, ["Ctrl-C ends; nothing is saved yet", "time left unknown", "0.0% 0 of 40k steps"], []),
    (NEW, ["others –", "-nan", "-None"], ["-nan", "-None"]),
    (STOPPING, ["stopping at step 19,456, 0:00:12 since"], ["stopping at step 19,456, 0:00:12 since the request"]),
    (WORKERS, ["nature, protocol nature, ordered, 16 workers", "80% 0", "worker 1 working", "-actor"], []),
    (status(12), ["actors 12 working", "90% (88%-92%) 0", "-actor 0"], ["-nodes"]),
    (status(4), ["actor 0", "actor 1", "actor 2", "actor 3", "░ 2% 3"], []),
    (ON_NODES, ["actor 0 working", "actor 1 on n7", "actor 2 without a node"], ["nodes 1 of 2"]),
    (SHARED, ["others 13.2 of 128 cores"], ["others 13.2 of 128 cores"]),
    (replace(SHARED, stolen=10.5), ["others 13.2, 10.5 stolen, of 128"], []),
    (POLICY, ["loss 0.5 entropy 1.25 nats", "explained variance –"], ["entropy 1.25 nats explained variance –"]),
]


@pytest.mark.parametrize(("what", "on_screen", "in_line"), SHOWN_WORDS)
def test_words_on_the_screen_and_in_the_line(what: Status, on_screen: list[str], in_line: list[str]) -> None:
    for text, words in ((rendered(what, 80), on_screen), (line(what), in_line)):
        said = " ".join(text.split())
        for word in words:
            assert (word in said) if word[0] != "-" else (word[1:] not in said), word


def test_the_line_that_offers_the_end_leaves_room_for_what_a_terminal_echoes() -> None:
    """^C behind a full line would begin another one, and the next picture would stand a line too low."""
    assert rendered(status(), 80).splitlines()[-1] == " Ctrl-C ends; nothing is saved yet"


def test_a_low_terminal_has_one_line_for_all_that_play() -> None:
    assert "actors 4" in rendered(status(4), 80, height=24)
    assert "workers 2" in rendered(WORKERS, 80, height=24)


def test_the_plain_line() -> None:
    assert line(status()) == (
        "1:23:45  12.3%  6,150,000 steps  playing 1,234 steps/s  return 812.3 (mean of 100)  "
        "learning 309 updates/s  episodes 31,234 (best 2,140.0)  "
        "loss 0.0123  mean Q 3.46  epsilon 0.100  evaluated 901.2 at 6M (best 940.3)  "
        "saved at 6.1M (812.3 MB in 12.3 s)  others –  limit learner (97%)  restarts 3  left 9:41:40"
    )


def test_other_words_for_numbers() -> None:
    assert [time_words(s) for s in (None, 7.9, 3_661, 360_000)] == ["–", "0:00:07", "1:01:01", "4 d 04:00"]
    numbers = {0: "0", 950: "950", 9_984: "9.98k", 40_000: "40k", 999_999: "1M", 50e6: "50M", 1.5e9: "1.5G"}
    assert [short(value) for value in numbers] == list(numbers.values())


# The plain display


def test_the_plain_display_writes_a_line_every_few_seconds_and_the_last_state(clock: Clock) -> None:
    out = io.StringIO()
    with Display(Outlet(out)) as display:
        for after in (0.0, 1.0, 4.9, 5.0, 9.0):
            clock.now = 1_000 + after
            display.show(replace(NEW, steps=int(after * 1000)))
        display.note("actor 3 was killed.")
    played = [text.split("  ")[2] for text in out.getvalue().splitlines() if "steps/s" in text]
    assert played == ["0 steps", "5,000 steps", "9,000 steps"]
    assert out.getvalue().count("actor 3 was killed.\n") == 1


def test_the_plain_display_says_bottleneck_and_warning_once_and_a_new_warning_at_once(clock: Clock) -> None:
    out = io.StringIO()
    with Display(Outlet(out)) as display:
        for _ in range(3):
            display.show(status())
            clock.now += displays.PLAIN_SECONDS
        for speed in (None, 450.0, 450.0):  # a sentence without its figures is none yet
            found = find_bottleneck(Load(roles(2, learner=0.2), learning=True, steps_per_second=speed), 64)
            display.show(replace(status(), bottleneck=found))
            clock.now += displays.PLAIN_SECONDS
        display.show(status())
        clock.now += 1.0
        display.show(replace(status(), warnings=("The disk is full.",)))
        clock.now += 1.0
        display.show(replace(status(), warnings=()))
        assert out.getvalue().count("Warning: The disk is full.\n") == 1
    assert [out.getvalue().count(words) for words in ("The learner limits", "Warning: The scribe")] == [2, 1]
    assert [said for said in out.getvalue().splitlines() if said.startswith("Emulation limits")] == [found.sentence]


def test_output_without_a_terminal_is_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm-256color")
    assert type(open_display(plain=False, stream=io.StringIO())) is Display
    assert type(open_display(plain=True, stream=Terminal())) is Display
    assert isinstance(open_display(plain=False, stream=Terminal()), LiveDisplay)
    monkeypatch.setenv("TERM", "dumb")
    assert type(open_display(plain=False, stream=Terminal())) is Display


def test_a_notebook_and_a_file_are_written_to_directly(tmp_path: Path) -> None:
    """The descriptor of a notebook's stream is that of its server; a file is continued."""

    class Cell(io.StringIO):
        def fileno(self) -> int:
            return 1

    cell, path = Cell(), tmp_path / "out"
    path.write_text("before\n")
    with path.open("a") as file:
        for stream in (cell, file):
            with Display(Outlet(stream)) as display:
                stream.write("mine\n")
                display.note("here")
                assert "here" in (cell.getvalue() if stream is cell else path.read_text()), "at once"
    assert (cell.getvalue(), path.read_text()) == ("mine\nhere\n", "before\nmine\nhere\n")


def test_a_reader_that_goes_away_does_not_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(displays, "PLAIN_SECONDS", 0.0)
    read, write = os.pipe()
    with open(write, "w") as stream, Display(Outlet(stream)) as display:
        display.show(status())
        os.close(read)
        for _ in range(3):
            display.show(status())
            display.note("still here")


def test_a_full_disk_does_not_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(displays.stat, "S_ISREG", lambda mode: True)
    with open("/dev/full", "w") as full, Display(Outlet(full)) as display:
        display.show(status())
        display.note("lost")
        full.flush()  # as the start of a process does


# A real terminal


def _readable(descriptor: int, seconds: float) -> bool:
    """True if there is output or the end of it; `select` knows no descriptor above 1023."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def test_a_terminal_that_is_not_read_delays_no_process() -> None:
    """As Ctrl-S does, or a pipe that is not read; lines that were held back appear when it is read again."""
    read, write = os.pipe()
    with os.fdopen(read) as reader, os.fdopen(write, "w") as stream, open_display(plain=True, stream=stream) as display:
        for number in range(2_000):
            display.note(f"{number} " + "x" * 100)
            display.show(status())
        text, deadline = "", time.monotonic() + 30
        while "1999 x" not in text:
            assert time.monotonic() < deadline
            if _readable(reader.fileno(), 0.01):
                text += os.read(reader.fileno(), 1 << 16).decode()
            display.show(status())
    numbers = [int(line.split()[0]) for line in text.splitlines() if line.endswith("xxx")]
    assert numbers == sorted(set(numbers))
    assert (numbers[0], len(numbers) >= 1_000) == (0, True)


SCRIPT = """
import sys
sys.path.insert(0, {tests!r})
from test_display import status
from dataclasses import replace
from ringside.watch import display as displays
try:
    with displays.open_display(plain={plain}) as display:
        {body}
except KeyboardInterrupt:
    print("interrupted")
print("after")
"""
STUCK = """displays.END_SECONDS = 0.2
        for _ in range(300):
            display.note("x" * 200)
            display.show(status())
"""
SHOWN = """assert isinstance(display, displays.LiveDisplay)
        for steps in range(0, 50_000_001, 10_000_000):
            display.show(replace(status(), steps=steps))
        display.note("actor 3 was killed by SIGKILL; it starts again.")
        display.show(replace(status(), steps=50_000_000))
"""


def in_terminal(body: str, *, plain: bool = False) -> tuple[subprocess.Popen[bytes], int]:
    """A program with a display in a terminal of its own, and the terminal's other end."""
    main, side = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "40"}
    words = [sys.executable, "-c", SCRIPT.format(tests=str(Path(__file__).parent), plain=plain, body=body)]
    process = subprocess.Popen(words, stdout=side, stderr=side, stdin=side, env=environment, cwd=ROOT)
    os.close(side)
    return process, main


@pytest.mark.parametrize("plain", [True, False])
def test_a_terminal_that_is_never_read_lets_the_program_end(plain: bool) -> None:
    process, main = in_terminal(STUCK, plain=plain)
    assert process.wait(60) == 0
    os.close(main)


@pytest.mark.parametrize("end", ["pass", "raise KeyboardInterrupt"])
def test_the_terminal_is_as_before_afterwards(end: str) -> None:
    process, main = in_terminal(f"{SHOWN}        {end}")
    os.set_blocking(main, False)
    output = b""
    while _readable(main, 30):
        try:
            output += os.read(main, 1 << 16)
        except OSError:  # the other side is closed
            break
    assert process.wait(30) == 0
    os.close(main)
    text = output.decode()
    assert text.rstrip().endswith("after")
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1
    assert text.rindex("\x1b[?25h") < text.rindex("after")
    assert "\x1b[?1049h" not in text  # what was on the screen before stays
    assert "\x1b[2J" not in text  # no clearing of the whole screen, which would flicker
    assert ("actor 3 was killed by SIGKILL" in text, "100.0%" in text) == (True, True)


STATUS = Status("pong", "nature", "concurrent", Path("runs/<pong>"), 400, 10, steps=40)


ENDED = "Stopped after 40 steps and 3 updates in 0:00:02, mean return 1.50 (mean of the last 2)"
SPOKEN = f"Learning begins\n{line(STATUS)}\n{ENDED}. Everything is in runs/é.\n"


@pytest.mark.parametrize("plain", [True, False])
def test_training_in_a_script_prints_the_lines_and_notes_of_the_command(
    plain: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`train` begins no run here: it gets one note and one status."""

    def run(ready: object, on_status: Any, note: Any, *more: object) -> dict[str, Any]:
        note("Learning begins")
        on_status(STATUS)
        figures = {"steps": 40, "updates": 3, "seconds": 2.1, "episodes": 2}
        return figures | {"mean_return_100": 1.5, "finished": False}

    monkeypatch.setattr(training, "run_plan", run)
    monkeypatch.setattr(training, "plan", lambda config: SimpleNamespace(config=config.with_settings(run_dir="runs/é")))
    training.train(game="pong", plain=plain)
    assert capsys.readouterr().out == SPOKEN
    training.train(game="pong", plain=plain, progress=False)
    assert capsys.readouterr().out == ""
    with open(tmp_path / "out", "w", encoding="ascii") as stream:
        for out in (None, stream):
            monkeypatch.setattr(sys, "stdout", out)
            training.train(game="pong", plain=plain)
    assert "Everything is in runs/\\xe9." in (tmp_path / "out").read_text()
