"""A soak: a long real run, one of whose processes is killed every minute; it must end as if nothing had been.

    python -m tests.crash.soak --json FILE [--undisturbed RUN] -- --game pong --preset quick --total-steps 1_200_000

Samples memory, descriptors and speed before every kill, and compares the first quarter of the samples with the last.
Without `--undisturbed`, the same run without kills comes first. Exit code 1: the results differ.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from tests.crash.storm import Storm, result_of
from tests.support.runs import finish, start_words

LONGEST_SECONDS = 12 * 3600.0
QUARTER = 4
UNDISTURBED = "a finished, undisturbed run of the same words, or an agent of the zoo, which has no evaluations"


@dataclass(frozen=True)
class Sample:
    """The run at one moment; by role, `actor` being all actors together."""

    seconds: float
    """Since the command."""
    steps: int
    kills: int
    private_mb: dict[str, float]
    descriptors: dict[str, int]


def look(storm: Storm, seconds: float) -> Sample | None:
    """A sample, or None while a process is away or the run ends: it would count too few."""
    private, descriptors = {"supervisor": 0.0}, {"supervisor": 0}
    members: dict[int, int | None] = {storm.process.pid: None}
    try:
        members |= storm.living()
        if list(members.values()).count(None) > 1 or storm.board.complete:
            return None
        for pid, number in members.items():
            role = "supervisor" if number is None else storm.memory.plan.processes.role_of(number).name.lower()
            process = psutil.Process(pid)
            private[role] = private.get(role, 0.0) + process.memory_full_info().uss / 1e6
            descriptors[role] = descriptors.get(role, 0) + process.num_fds()
    except psutil.NoSuchProcess:
        return None
    steps = int(storm.board.committed) * storm.memory.run_schedule.round_steps
    return Sample(round(seconds, 1), steps, storm.tally.kills, private, descriptors)


def rage(storm: Storm, every: float) -> list[Sample]:
    """Kill a random process every so many seconds until the last commit; returns a sample before each kill."""
    began, samples = time.monotonic(), []
    while storm.rages():
        storm.pause(every)
        storm.until(storm.all_at_work)
        if sample := look(storm, time.monotonic() - began):
            samples.append(sample)
            print(f"{sample.seconds:7.0f} s  {sample.steps:>10,} steps  {sample.kills:>4} kills", flush=True)
        if storm.rages():
            storm.kill()
    return samples


def flatness(samples: Sequence[Sample]) -> dict[str, object]:
    """Medians of the first and of the last quarter of the samples: private MB, descriptors, steps/s; {}: too few."""
    part = len(samples) // QUARTER
    if part < 2:
        return {}
    first, last = samples[:part], samples[-part:]

    def middle(name: str, some: Sequence[Sample]) -> dict[str, float]:
        roles = {role for sample in some for role in getattr(sample, name)}
        return {role: statistics.median(getattr(s, name).get(role, 0) for s in some) for role in sorted(roles)}

    def speed(some: Sequence[Sample]) -> float:
        return (some[-1].steps - some[0].steps) / (some[-1].seconds - some[0].seconds)

    return {
        "private_mb": [middle("private_mb", some) for some in (first, last)],
        "descriptors": [middle("descriptors", some) for some in (first, last)],
        "steps_per_second": [speed(some) for some in (first, last)],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--every", type=float, default=60.0, help="seconds between kills")
    parser.add_argument("--seed", type=int, default=1, help="of who is killed")
    parser.add_argument("--undisturbed", type=Path, help=UNDISTURBED)
    parser.add_argument("--run-dir", type=Path, help="where the soaked run goes; a temporary place otherwise")
    parser.add_argument("--actions", type=int, default=6, help="of the game")
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("words", nargs="+", help="of launch.py, behind --")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        undisturbed, soaked = options.undisturbed, options.run_dir or Path(temporary) / "soaked"
        if undisturbed is None:
            undisturbed = Path(temporary) / "undisturbed"
            finish(start_words("--plain", *options.words, "--run-dir", str(undisturbed)), LONGEST_SECONDS)
        process = start_words("--plain", *options.words, "--run-dir", str(soaked))
        try:
            storm = Storm(process, soaked, "soak", options.seed, options.actions)
            samples = rage(storm, options.every)
            finish(process, LONGEST_SECONDS)
        finally:
            process.terminate()
        found, expected = result_of(soaked), result_of(undisturbed)
        same = (found.weights_sha256, found.episodes) == (expected.weights_sha256, expected.episodes)
        if expected.evaluations:
            same &= found.evaluations == expected.evaluations
        content = {
            "command": ["python", "-m", "tests.crash.soak", *sys.argv[1:]],
            "kills": storm.tally.kills,
            "same": ["weights", "episodes", *(["evaluations"] if expected.evaluations else [])] if same else [],
            "seconds_to_work_again": storm.tally.back,
            **flatness(samples),
            "samples": [asdict(sample) for sample in samples],
        }
    options.json.write_text(json.dumps(content, indent=1) + "\n")
    print(str(storm.tally) if same else f"{storm.tally.kills} kills, and ANOTHER RESULT", flush=True)
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
