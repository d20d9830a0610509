"""`launch.py watch` in a real browser, on a real run: at two widths, from its first step to its end.

Chromium and its driver come from the system's packages (Debian: chromium, chromium-driver); without them these tests
are skipped. Nothing is asked of any network.
"""

import re
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from selenium.common.exceptions import TimeoutException
from selenium.webdriver import ActionChains, Chrome, ChromeOptions, ChromeService
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.wait import WebDriverWait

from ringside.command.report import write_report
from ringside.records.metrics import Episode, MetricsLog
from shared.config.method_declaration import method_declaration
from tests.support.runs import Process, finish, records, start, start_words, wait_until
from tests.support.watched import Pretended
from tests.support.written_runs import write_run

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
MISSING = "there is no Chromium here: as root, apt-get install chromium chromium-driver"
pytestmark = [pytest.mark.skipif(None in (CHROMIUM, DRIVER), reason=MISSING), pytest.mark.timeout(300)]

FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync")
FLAGS += ("--disable-background-networking", "--disable-component-update")
"""Without a sandbox, for tests that root runs: nothing but our own page is opened."""
CODE = "import sys, launch; from ringside.command import watch; watch.LEAST_URGENT = 0; "
PROGRAM = ("-c", f"{CODE}sys.exit(launch.main(sys.argv[1:]))")
"""The command with a page of ordinary priority: of a busy machine the usual one gets next to nothing for minutes."""
PATIENCE = 90.0
WIDE, NARROW = (1280, 900), (390, 844)
ENVS, ACTIONS = 8, 4

FRAME = "return document.querySelectorAll('#mosaic canvas')[arguments[0]].toDataURL()"
PIXEL = "return [...document.getElementById('large').getContext('2d').getImageData(...arguments, 1, 1).data]"
LARGE = "return document.getElementById('large').toDataURL()"
POINTS = """
const chart = [...document.querySelectorAll('.chart')].find(c => c.querySelector('h3').textContent === arguments[0]);
return (chart?.querySelector('.main path')?.getAttribute('d').match(/[ML]/g) ?? []).length
"""


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Chrome]:
    options = ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for flag in (*FLAGS, f"--user-data-dir={tmp_path / 'profile'}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = Chrome(options=options, service=ChromeService(str(DRIVER)))
    yield driver
    driver.quit()


class PageView:
    """A page in a browser, asked as a person would look."""

    server: Process

    def __init__(self, browser: Chrome, address: str) -> None:
        self.browser = browser
        self.browser.get(address)
        self.resize(WIDE)

    def resize(self, size: tuple[int, int]) -> None:
        shape = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size == NARROW}
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", shape)

    def script(self, words: str, *arguments: object) -> object:
        return self.browser.execute_script(words, *arguments)

    def text(self, selector: str) -> str:
        return str(self.script("return document.querySelector(arguments[0])?.textContent ?? ''", selector))

    def texts(self, selector: str) -> list[str]:
        words = "return [...document.querySelectorAll(arguments[0])].map(each => each.textContent)"
        return cast(list[str], self.script(words, selector))

    def count(self, selector: str) -> int:
        return len(self.texts(selector))

    def until(self, condition: Callable[[], object], what: str) -> None:
        try:
            WebDriverWait(self.browser, PATIENCE, 0.1).until(lambda _: condition())
        except TimeoutException:
            raise AssertionError(f"{what}; the page says {self.text('#mode')!r} {self.text('#alerts')!r}") from None

    def changes(self, look: Callable[[], object], what: str) -> None:
        before = look()
        self.until(lambda: look() != before, f"{what} stays as it is")

    def press(self, key: str) -> None:
        ActionChains(self.browser).send_keys(key).perform()

    def click(self, selector: str) -> None:
        self.script("document.querySelector(arguments[0]).click()", selector)

    def maps_memory(self) -> bool:
        return "memfd:ringside" in Path(f"/proc/{self.server.pid}/maps").read_text()

    def fits(self) -> bool:
        return bool(self.script("return document.documentElement.scrollWidth <= innerWidth"))

    def complaints(self) -> list[str]:
        """Messages of the console. On a busy machine the server closes a late request of pictures, and the page asks
        again."""
        found = [str(entry["message"]) for entry in self.browser.get_log("browser")]  # type: ignore[no-untyped-call]
        return [each for each in found if not ("/pictures?" in each and each.endswith("net::ERR_CONNECTION_RESET"))]


def begin(*words: str, **options: Any) -> tuple[Process, str]:
    """`launch.py watch` in a process of its own, and the address that it prints."""
    process = start_words("watch", *words, program=PROGRAM, **options)
    for line in process.stdout:
        if found := re.search(r"http://127\.0\.0\.1:\d+/\S+/", line):
            return process, found[0]
    raise AssertionError("No address was printed.")


@contextmanager
def watched(browser: Chrome, *words: str, **options: Any) -> Iterator[PageView]:
    """The page, wide, which complains of nothing to its end."""
    process, address = begin(*words, **options)
    view = PageView(browser, address)
    view.server = process
    yield view
    assert view.complaints() == []
    process.send_signal(signal.SIGINT)
    finish(process)


@contextmanager
def pretended(
    browser: Chrome, tmp_path: Path, *records: dict[str, Any], **options: Any
) -> Iterator[tuple[Pretended, PageView]]:
    """A run of three records, one of them with an episode, and its page."""
    run = Pretended(tmp_path / "run", **options)
    run.play(30)
    envs = run.memory.run_schedule.envs
    with closing(MetricsLog(run.run_dir / "metrics.jsonl")) as log:
        for i, values in enumerate(records if len(records) == 3 else 3 * records):
            played = [Episode(0, 9, 3.0, 10)] if i == 0 else []
            usual = {"steps_per_second": 100.0, "epsilon": None}
            log.log_round(i, 10 * envs * (i + 1), usual | values, played, envs=envs)
    with watched(browser, str(run.run_dir)) as view:
        yield run, view


def test_a_run_from_its_first_step_to_its_end(browser: Chrome, run_dir: Path) -> None:
    evaluates = {"eval_every_steps": "960", "eval_episodes": "1", "eval_envs": "1", "eval_max_frames": "400"}
    run = start(run_dir, total_steps="4_800_000", **evaluates)
    wait_until(run, (run_dir / "config.json").exists)
    with watched(browser, str(run_dir)) as view:
        # Learning begins with round 2; on a busy machine most of this is the start of the processes.
        wait_until(run, lambda: len(records(run_dir, "round")) > 3, seconds=150, every=0.1)
        for size in (WIDE, NARROW):
            view.resize(size)
            view.until(lambda: view.count("#mosaic canvas") == ENVS, "there is no mosaic")
            view.changes(lambda: view.script(FRAME, ENVS - 1), "the last env")
            view.changes(lambda: view.script(LARGE), "the large picture")
            for chart in ("Return", "Steps a second", "Epsilon", "Loss", "Mean Q"):
                view.until(lambda chart=chart: view.script(POINTS, chart), f"there is no curve {chart}")  # type: ignore[misc]
            view.changes(lambda: view.script(POINTS, "Steps a second"), "the curve")
            view.until(lambda: view.count("#values tr") == ACTIONS, "there are no values")
            assert view.count("#values tr.best") == 1
            view.until(lambda: view.count("#actions .chip"), "there are no actions")
            assert view.fits()
        assert view.maps_memory()
        _controls(view)
        assert view.complaints() == []

        run.send_signal(signal.SIGINT)
        finish(run)
        view.until(lambda: view.text("#mode") == "stopped", "the page does not see the end")
        assert "The run has ended" in view.text("#gone")
        assert (view.count("#mosaic canvas"), view.maps_memory(), view.complaints()) == (ENVS, False, [])
        view.browser.refresh()
        view.complaints()  # the reload may have cut off a response
        view.until(lambda: view.script(POINTS, "Return"), "the files are not shown")
        assert "No process plays this run now" in view.text("#gone")
        assert (view.count(".role"), view.fits()) == (6, True)


def test_more_envs_than_fit_and_a_server_that_goes_away(browser: Chrome, tmp_path: Path) -> None:
    run = Pretended(tmp_path / "run", envs=200)
    run.play(30)
    page, address = begin(str(run.run_dir))
    view = PageView(browser, address)
    label = "return document.querySelector('#mosaic [aria-pressed=true]')?.getAttribute('aria-label') ?? ''"

    def seen() -> tuple[int, str, str]:
        return view.count("#mosaic canvas"), str(view.script(label)).partition(",")[0], view.text("#span")

    steps = ((Keys.HOME, 0, 0, 96), ("]", 96, 96, 96), (Keys.ARROW_LEFT, 0, 95, 96), (Keys.END, 192, 199, 8))
    for key, first, chosen, count in (*steps, ("[", 96, 96, 96)):
        view.until(lambda: view.count("#mosaic canvas"), "there is no mosaic")
        view.press(key)
        expected = count, f"env {chosen}", f"{first} to {first + count - 1} of 200"
        view.until(lambda wanted=expected: seen() == wanted, f"{key!r} does not lead to {expected}")  # type: ignore[misc]
    assert view.complaints() == []
    page.send_signal(signal.SIGINT)
    finish(page)
    view.until(lambda: "does not answer" in view.text("#alerts"), "the page does not notice that the server is gone")
    assert view.text("#mode") == "no answer"


def test_a_policy_has_probabilities_and_charts_of_its_metrics_and_no_epsilon(browser: Chrome, tmp_path: Path) -> None:
    frames = {"env": "m:f", "frame_size": 48, "frame_color": "rgb", "frame_stack": 2}
    values = dict.fromkeys(method_declaration("ppo").metrics, 0.5)
    with pretended(browser, tmp_path, values, method="ppo", **frames) as (run, view):
        for chart in ("Entropy (nats)", "KL (nats)", "Clip fraction", "Explained variance", "Mean value"):
            view.until(lambda chart=chart: view.script(POINTS, chart), f"there is no curve {chart}")  # type: ignore[misc]
        assert "Epsilon" not in view.texts(".chart h3")
        assert "Randomness of the policy" in view.text(".chart:nth-child(6) .legend")
        view.until(lambda: view.text("#values-name") == "Probabilities", "the bars are of something else")
        widths = "return [...document.querySelectorAll('#values .bar div')].map(each => parseFloat(each.style.width))"
        view.until(lambda: view.script(widths) == [20.0, 30.0, 50.0], "a bar is not as long as its probability")
        assert (view.text("#values tr.best .mark"), view.count("#stack canvas")) == ("likeliest, taken", 2)
        assert view.text("#shape") == ", 48 by 48, in color"
        ticks = int(run.memory.board.lane_done.values[0])
        color = run.memory.ring.field["frame"][0, ticks % run.memory.run_schedule.capacity, 0, :, 7, 5]
        assert view.script(PIXEL, 5, 7) == [*color.tolist(), 255]


def test_on_a_phone_curves_follow_one_row_of_pictures_and_axes_have_both_ends(browser: Chrome, tmp_path: Path) -> None:
    speeds = enumerate((120.0, 150.0, 180.0))
    usual = {"learner_busy": 0.5, "epsilon": 0.5}
    values = [usual | {"steps_per_second": speed, "loss": 20_000.0 + 2 * i} for i, speed in speeds]
    with pretended(browser, tmp_path, *values, envs=12, stop_at=18.0) as (_, view):
        view.resize(NARROW)
        view.until(lambda: view.count("#mosaic canvas") == 12, "there is no mosaic")
        view.until(lambda: view.script(POINTS, "Loss"), "there is no curve")
        tops = "return [...document.querySelectorAll(arguments[0])].map(each => each.getBoundingClientRect().top)"
        (row,) = set(view.script(tops, "#mosaic canvas"))  # type: ignore[call-overload]
        (curve, *_), (env,) = view.script(tops, ".chart"), view.script(tops, "#one")  # type: ignore[misc]
        assert row < curve < env
        assert view.fits()
        steps = ["0", "100", "200", "300", "360"]
        for place, title, levels in (
            (3, "Steps a second", ["100", "200", "500"]),
            (4, "Loss", ["20k", "20.001k", "20.002k", "20.003k", "20.004k"]),
            (5, "Epsilon", ["0", "0.5", "1"]),
        ):
            assert view.text(f".chart:nth-child({place}) h3") == title
            assert view.texts(f".chart:nth-child({place}) text") == [*levels, *steps]
        assert "logarithmic axis" in view.text(".chart:nth-child(3) .legend")
        assert " · --stop-at 18 · " in view.text("#progress")
        assert view.text("#run") == "run, nature, protocol nature, concurrent, 12 envs"
        assert view.text("#changes").startswith("Changed: --round-steps 120, --replay-size 360")


@pytest.mark.stress
def test_workers_have_their_names_and_one_curve_of_their_speed(browser: Chrome, tmp_path: Path) -> None:
    values = {"workers_busy": 0.8, "entropy": 1.0}
    with pretended(browser, tmp_path, values, method="a2c", workers=3) as (_, view):
        view.until(lambda: view.script(POINTS, "Steps a second"), "there is no curve of the speed")
        assert "protocol nature, ordered, 3 workers, 6 envs" in view.text("#run")
        assert view.texts(".chart:nth-child(3) .legend span") == ["workers alone", "the run"]
        view.until(lambda: view.count(".chart:nth-child(3) .series path") == 4, "a curve or its key is missing")
        view.until(lambda: view.count("#mosaic canvas") == 6, "there is no mosaic")
        view.press(Keys.END)
        view.until(lambda: view.text("#one-facts").startswith("worker 2, process 1 ·"), "the env has another player")
        assert (view.count(".role.worker"), "actor" in view.text("body")) == (2, False)


def test_the_list_of_runs_shows_a_curve_of_each_and_follows_them(browser: Chrome, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    write_run(runs / "pong-one", "pong", returns=[-21.0, -10.0, 3.0], evaluations=[4.5], learning_starts=1_000)
    shape: dict[str, Any] = {"returns": [1.0, 3.0], "evaluations": [], "ended": False, "learning_starts": 1_000}
    write_run(runs / "atari" / "breakout-1", "breakout", **shape)
    (runs / "old").mkdir()
    (runs / "old" / "config.json").write_text("{}")
    live = Pretended(runs / "pong-live")
    with closing(MetricsLog(live.run_dir / "metrics.jsonl")) as log:
        log.log_round(0, 60, {"steps_per_second": 100.0}, [Episode(0, 9, -3.0, 10)], envs=6)
    with watched(browser, cwd=tmp_path) as view:
        names = ["Pong, pong-live", "old", "Breakout, atari/breakout-1", "Pong, pong-one"]

        for size in (WIDE, NARROW):
            view.resize(size)
            view.until(lambda: view.texts("#runs article h3") == names, "a run is missing")
            assert view.fits()
        assert (view.text("#mode"), view.text("#count")) == ("1 live", "4 under runs")
        states = ["live", "not readable", "stopped", "finished"]
        view.until(lambda: view.texts("#runs article .pill") == states, "a state is wrong")
        live_facts, refused, few, done = view.texts("#runs article .facts")
        assert live_facts == "mean of the last 1: −3 · dqn, seed 1 · 60 of 600 steps · 100 steps/s"
        assert "old cannot be watched" in refused
        assert few.startswith("mean of the last 2: 2 · dqn, seed 1 · 2,000 of ")
        assert done.startswith("evaluation: 4.5 · mean of the last 3: −9.33 · dqn, seed 1 · 3,000 of ")
        assert view.count("#runs .main path") == 2
        with closing(MetricsLog(live.run_dir / "metrics.jsonl")) as log:
            log.log_round(1, 120, {"steps_per_second": 100.0}, [], envs=6)
        view.until(lambda: view.count("#runs .main path") == 3, "the curve of the live run does not grow")
        assert view.complaints() == []
        live.end()
        view.until(lambda: view.text("#mode") == "none live", "the end of the run is not seen")
        view.click("#runs a[href]")
        view.until(lambda: view.text("#game") == "Pong", "the name does not lead to the page of the run")


def _controls(view: PageView) -> None:
    """Keys and buttons."""
    view.until(lambda: view.text("#one-title") == "Env 0", "the first env is not chosen")
    for key, env in ((Keys.ARROW_RIGHT, 1), (Keys.END, ENVS - 1), (Keys.ARROW_LEFT, ENVS - 2), (Keys.HOME, 0)):
        view.press(key)
        view.until(lambda env=env: view.text("#one-title") == f"Env {env}", f"{key!r} does not lead to {env}")  # type: ignore[misc]
    view.click("#mosaic button:nth-child(4)")
    view.until(lambda: view.text("#one-title") == "Env 3", "a click does not choose")
    view.press(" ")
    view.until(lambda: view.text("#mode") == "held", "the page is not paused")
    view.changes(lambda: view.text("#progress"), "the progress")  # what was under way has come
    held = view.script(FRAME, 0)
    view.changes(lambda: view.text("#progress"), "the progress")
    assert view.script(FRAME, 0) == held
    view.press(" ")
    view.changes(lambda: view.script(FRAME, 0), "the held picture")


def test_no_column_of_a_report_is_cut_off(browser: Chrome, tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    runs = [
        write_run(folder / f"breakout-20260101-12000{seed}", "breakout", seed, final=20.0 + seed, best=398.25)
        for seed in (1, 2, 3)
    ]
    runs.append(write_run(folder / "other", "breakout", 1, final=2.0, batch_size=64, learning_rate=0.001))
    report, _ = write_report(runs, tmp_path / "out")
    page = PageView(browser, report.as_uri())
    cut = "return [...document.querySelectorAll('.wide')].filter(box => box.scrollWidth > box.clientWidth).length"
    for size in ((1200, 900), NARROW):
        page.resize(size)
        assert (page.fits(), page.count(".wide table") >= 3, page.script(cut)) == (True, True, 0)
    dark = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", dark)
    assert "invert" in str(page.script("return getComputedStyle(document.querySelector('figure img')).filter"))
