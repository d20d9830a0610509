"""The proof on a GPU, as far as it needs none: stages fail alone, and late commands end."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from rich.console import Console

import ringside
from benchmarks import __main__ as command
from benchmarks import gpu
from benchmarks.gpu import BENCHES, EXACT, EXACT_FAMILY, FAMILY, FLAGS, MPS, SMALL_RUN, Proof
from benchmarks.harness import Options, Report
from benchmarks.measured_run import plan_of
from ringside.command.train import configuration
from shared.config.presets import PRESETS
from shared.machine.facts import cuda_devices
from shared.root import ROOT
from tests.support.runs import living
from tests.support.waiting import until


def begun(out: Path) -> Proof:
    """A proof in its stage `late`."""
    proof = Proof(out)
    proof.begin("late")
    return proof


def done_in(out: Path) -> list[dict[str, Any]]:
    return json.loads((out / "outcome.json").read_text())["done"]


def prove(monkeypatch: pytest.MonkeyPatch, out: Path, within: float = 1e9, **stages: Callable[[Proof], Any]) -> Report:
    """Run stages in place of the real ones."""
    monkeypatch.setattr(gpu, "STAGES", stages)
    monkeypatch.setattr(gpu.facts, "cuda_devices", lambda: 1)
    report = Report("gpu", "title", console=Console(quiet=True), machine={})
    gpu.run(Options(names=list(stages), out=out, within=within, repeats=1), report)
    return report


def test_a_stage_that_fails_does_not_stop_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(proof: Proof) -> None:
        proof.run("-c \"print('said'); raise SystemExit(3)\"", 20)
        json.loads((proof.out / "missing.json").read_text())

    def good(proof: Proof) -> None:
        assert proof.run("-c pass", 20)

    report = prove(monkeypatch, tmp_path, broken=broken, good=good)
    wrong = {"broken": "2 of 2 were not good; outcome.json has them."}
    assert (report.wrong, list(report.rows)) == (wrong, ["stage good"])
    done = done_in(tmp_path)
    assert [(fact["stage"], fact["good"]) for fact in done] == [("broken", False)] * 2 + [("good", True)]
    assert (done[0]["code"], "FileNotFoundError" in done[1]["error"]) == (3, True)
    assert "said" in (tmp_path / "broken.log").read_text()
    assert (tmp_path / "proof.png").read_bytes().startswith(b"\x89PNG")
    # A later call keeps the results of other stages.
    assert prove(monkeypatch, tmp_path, good=good).code == 0
    assert [fact["stage"] for fact in done_in(tmp_path)] == ["broken", "broken", "good"]


def test_a_stage_without_time_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Left out" in prove(monkeypatch, tmp_path, 100.0, one=lambda proof: proof.run("-c pass", 20)).missing["one"]
    assert prove(monkeypatch, tmp_path, 500.0, one=lambda proof: proof.run("-c pass", 20)).code == 0


@pytest.mark.parametrize(("missing", "wrong"), [({"a": "no GPU"}, {}), ({}, {"a": "1 is not 2"}), ({}, {})])
def test_a_benchmark_without_figures_is_bad(tmp_path: Path, missing: dict[str, str], wrong: dict[str, str]) -> None:
    proof, file = begun(tmp_path), tmp_path / "late-a-name.json"

    def run(words: str, seconds: float, *, mps: bool) -> bool:
        assert words == f"-m benchmarks limits --only update --repeats 1 --json {file} -- --device cuda --envs 8"
        file.write_text(json.dumps({"missing": missing, "wrong": wrong}))
        return True

    proof.run = run  # type: ignore[method-assign]
    proof.bench("a name", "limits --only update -- --envs 8", 20)
    assert [fact["good"] for fact in proof.done] == [False] * bool(missing or wrong)


def test_a_late_launch_says_where_it_is_and_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there, run = tmp_path / "there", gpu.running

    @contextmanager
    def ready(*arguments: Any) -> Iterator[subprocess.Popen[bytes]]:
        with run(*arguments) as process:
            until(there.exists)  # before its time begins
            yield process

    monkeypatch.setattr(gpu, "running", ready)
    monkeypatch.setattr(gpu, "END_SECONDS", 0.2)
    monkeypatch.setattr(gpu, "LAUNCH", "-c")
    program = "import pathlib, signal; from shared.process.signals import enable_stack_dumps; enable_stack_dumps(); "
    program += f"signal.signal(15, signal.SIG_IGN); pathlib.Path('{there}').touch()\nwhile True: signal.pause()"
    assert not begun(tmp_path).run(f'-c "{program}"', 0.0)
    (fact,) = done_in(tmp_path)
    assert (fact["late"], fact["code"]) == (True, -9)
    assert 'File "<string>", line 2 in <module>' in (tmp_path / "late.log").read_text()


def test_a_command_ends_with_the_proof(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    words = f"-c \"import os, pathlib, signal; pathlib.Path('{mark}').write_text(str(os.getpid())); signal.pause()\""
    program = "from pathlib import Path; from benchmarks.gpu import Proof; "
    program += f"proof = Proof(Path({str(tmp_path / 'out')!r})); proof.begin('s'); proof.run({words!r}, 60)"
    with subprocess.Popen([sys.executable, "-c", program], cwd=ROOT) as process:
        until(lambda: mark.exists() and mark.read_text())
        started = psutil.Process(int(mark.read_text()))
        process.kill()
    until(lambda: living([started]) is None, 20)


def test_the_logs_of_a_failed_run_are_kept(tmp_path: Path) -> None:
    proof, run_dir = begun(tmp_path), tmp_path / "run"
    (run_dir / "logs").mkdir(parents=True)
    (run_dir / "logs" / "learner.log").write_text("Traceback: 18 lines\n")
    assert proof.run("-c pass", 20, run_dir)
    assert "Traceback" not in (tmp_path / "late.log").read_text()
    assert not proof.run('-c "raise SystemExit(1)"', 20, run_dir)
    assert "--- learner.log\nTraceback: 18 lines" in (tmp_path / "late.log").read_text()


FAKE_DAEMON = """#!{python}
import os, pathlib, signal, sys
pathlib.Path({asked!r}).write_text(os.environ["CUDA_MPS_PIPE_DIRECTORY"] + str(os.getpid()) + "\\n" + sys.argv[1])
signal.pause()
"""


def test_a_run_under_mps_has_a_daemon_that_ends_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proof = begun(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with monkeypatch.context() as nowhere:
        nowhere.setattr(gpu.shutil, "which", lambda name, path: None)
        assert not proof.run("-c pass", 20, mps=True)
    assert "There is no nvidia-cuda-mps-control" in proof.done.pop()["error"]
    daemon, asked = tmp_path / "nvidia-cuda-mps-control", tmp_path / "asked"
    daemon.write_text(FAKE_DAEMON.format(python=sys.executable, asked=str(asked)))
    daemon.chmod(0o700)
    monkeypatch.setattr(gpu, "STACKS_SECONDS", 3.0)
    assert proof.run("-c \"import os; print(os.environ['CUDA_MPS_PIPE_DIRECTORY'])\"", 20, mps=True)
    pipe = (tmp_path / "late.log").read_text().splitlines()[-1]
    where, option = asked.read_text().splitlines()
    assert (where[: len(pipe)], option, Path(pipe).exists()) == (pipe, "-f", False)
    assert not psutil.pid_exists(int(where.removeprefix(pipe)))


@pytest.mark.parametrize(("weights", "good"), [("11", True), ("12", False), ("1", False)])
def test_runs_agree_in_their_weights(tmp_path: Path, weights: str, *, good: bool) -> None:
    """A run without weights here is one that did not end well; one under MPS need not be there."""
    proof, left = begun(tmp_path), list(weights)

    def launch(words: str, seconds: float, run_dir: Path, *, mps: bool) -> dict[str, str] | None:
        assert words == f"--device cuda {SMALL_RUN} --double {FLAGS[run_dir.name.replace('-', ' ')]}"
        return {"weights_sha256": left.pop()} if left and not mps else None

    proof.launch = launch  # type: ignore[method-assign]
    gpu.agree(proof, "--double", ("1 actor", MPS, "4 actors"))
    assert done_in(tmp_path)[0]["good"] == good


@pytest.mark.parametrize(("returned", "good"), [(18.0, True), (17.9, False)])
def test_a_solved_game_is_noted_and_drawn(tmp_path: Path, returned: float, *, good: bool) -> None:
    def launch(words: str, seconds: float, run_dir: Path) -> None:
        assert words.endswith("--stop-at 18.0 --seed 7")
        run_dir.mkdir()
        record = {"kind": "round", "round": 1, "steps": 9_000, "seconds": 112.5, "episodes": 100}
        records = [record | {"mean_return_100": returned - less} for less in (0.0, 0.1)]
        (run_dir / "metrics.jsonl").write_text("".join(json.dumps(each) + "\n" for each in records))

    proof = begun(tmp_path)
    proof.launch = launch  # type: ignore[method-assign]
    gpu.solve(proof, seed=7)
    (fact,) = done_in(tmp_path)
    assert (fact["seconds"], fact["mean_return_100"], fact["good"]) == (112.5, returned, good)
    (tmp_path / "breakout-96-envs.json").write_text(json.dumps({"rows": [{"name": "end to end", "median": 9.0}]}))
    gpu.draw(tmp_path)
    assert (tmp_path / "proof.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.stress
def test_inference_is_timed_alone_and_beside_a_learner() -> None:
    small = "--envs 4 --actors 1 --inference-batch 4 --learner-members 1 --network small --round-steps 400"
    rest = "--game pong --device cpu --replay-size 800 --learning-starts 400"
    plan = plan_of([*small.split(), *rest.split()])
    alone, beside = gpu.answers(plan, {}, alone=True), gpu.answers(plan, {})
    assert alone["updates_per_second"] == 0 < beside["updates_per_second"]
    assert all(0 < told["median_us"] <= told["late_us"] for told in (alone, beside))


ASKED = [words for benches in BENCHES.values() for words in benches.values()]
RUNS = [
    *(f"{SMALL_RUN} {FLAGS[name]}" for name in EXACT),
    *(f"{SMALL_RUN} {words} {FLAGS[name]}" for words in FAMILY for name in EXACT_FAMILY),
    *{f"--replay-size 20_000 {words.partition(' -- ')[2]}": 0 for words in ASKED if words.startswith("throughput")},
]


@pytest.mark.parametrize("words", RUNS)
def test_the_runs_of_the_stages_are_not_refused(words: str) -> None:
    ringside.plan(configuration(words.split()))


def test_every_benchmark_of_a_stage_has_such_options() -> None:
    for words in ASKED:
        name, *own = words.partition(" -- ")[0].split()
        module = command.importlib.import_module(f"benchmarks.{name}")
        command.make_parser(name, module).parse_args(own)


def test_presets_of_the_stages_are_all_but_the_plain_one() -> None:
    words = (BENCHES[stage]["all"] for stage in ("presets", "large", "on-policy"))
    listed = [name for each in words for name in each.split("--only ")[1].split(",")]
    on_a_gpu = [name for name, preset in PRESETS.items() if preset.learn.schedule not in ("ordered", "async")]
    assert sorted([*listed, "nature"]) == sorted(on_a_gpu)


def test_the_words_of_the_program_name_every_stage_in_order() -> None:
    said = [line.split()[0] for line in (gpu.__doc__ or "").splitlines() if re.match(r"  \S+ {3,}", line)]
    assert said == list(gpu.NAMES)
    assert {name for name, stage in gpu.STAGES.items() if stage is gpu.benches} == BENCHES.keys()


@pytest.mark.skipif(cuda_devices() > 0, reason="there is a GPU here, and everything would be measured")
def test_without_a_gpu_it_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["gpu", "--out", str(tmp_path / "out")]) == 2
    assert "There is no GPU here" in capsys.readouterr().err
    assert command.main(["gpu", "--only", "latent"]) == 2
    assert "did you mean latency?" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
