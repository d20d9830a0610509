"""Settings that a user leaves open, as `resolve` fills them in."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from shared.config import resolve, validate
from shared.config.presets import PRESETS
from shared.config.sections import PARTS, Play
from shared.config.settings import Config
from shared.errors import ConfigError
from shared.machine import facts
from shared.memory.plan import Plan
from tests.support.configurations import ON_POLICY, assert_refused

See = Callable[..., None]


@pytest.fixture
def see(monkeypatch: pytest.MonkeyPatch) -> See:
    """`see(usable_cores=2)`: let this process see such a machine."""

    def seen(**found: object) -> None:
        for name, value in found.items():
            monkeypatch.setattr(facts, name, lambda value=value: value)

    return seen


def test_resolving_answers_everything_and_again_changes_nothing() -> None:
    config = resolve.resolve(Config().with_settings(device="cpu"))
    assert resolve.resolve(config) == config
    unset = [name for name, value in vars(config.machine).items() if value is None]
    assert unset == ["acting_device", "acting_precision"], "as the learner's"
    assert config.machine.precision in ("fp32", "bf16")
    assert config.evaluate.eval_episodes == 30
    assert re.fullmatch(r"runs/breakout-\d{8}-\d{6}-[0-9a-f]{4}", str(config.run.run_dir))
    validate.resolved(config)


def test_actors_change_no_other_answer() -> None:
    few, many = (resolve.resolve(Config().with_settings(device="cpu", actors=n, run_dir="x")) for n in (1, 24))
    assert few.digest() == many.digest()
    assert few.with_settings(actors=24) == many


def test_given_settings_stay() -> None:
    said = {"precision": "fp32", "learner_parts": 8, "learner_members": 2, "inference_threads": 2}
    said |= {"inference_batch": 48, "eval_episodes": 5}
    assert resolve.resolve(Config().with_settings(device="cpu", **said)).to_flat().items() >= said.items()


ACTING = [
    ({}, ("cuda:0", "tf32", 96)),
    ({"acting_device": "cuda"}, ("cuda:0", "tf32", 96)),
    ({"acting_device": "cpu"}, ("cpu", "bf16", 32)),
    ({"acting_device": "cpu", "acting_precision": "fp32"}, ("cpu", "fp32", 32)),
    ({"acting_precision": "fp32"}, ("cuda:0", "fp32", 96)),
]


@pytest.mark.parametrize(("said", "acts"), ACTING)
def test_inference_may_compute_unlike_the_learner(see: See, said: dict[str, str], acts: tuple[str, str, int]) -> None:
    see(cuda_devices=1, bf16_flags=["amx_bf16"])
    config = resolve.resolve(Config().with_settings(**said))
    machine = config.machine
    assert (machine.device, machine.precision) == ("cuda:0", "tf32")
    assert (machine.acts_on, machine.acts_in, machine.inference_batch) == acts
    assert resolve.resolve(config) == config
    cells = [Plan(each, 4).cell_of(0) for each in (config, resolve.resolve(Config()))]
    assert (cells[0] == cells[1]) == (machine.acts_on == "cuda:0")


def test_devices(see: See) -> None:
    see(cuda_devices=2)
    found = [resolve.device_of(asked) for asked in ("auto", "cpu", "cuda", "cuda:1")]
    assert found == ["cuda:0", "cpu", "cuda:0", "cuda:1"]
    assert_refused(resolve.device_of, "cuda:2", "no device cuda:2: the last of 2 is cuda:1")
    assert (resolve.device_of("cuda", 2), resolve.device_of("cuda:1", 1)) == ("cuda:0", "cuda:1")
    two = Config().with_settings(device="cuda:1", learner_ranks=2)
    assert_refused(resolve.resolve, two, "2 need a GPU each from cuda:1 on, and the last is cuda:1")
    other = Config().with_settings(acting_device="gpu")
    assert_refused(resolve.resolve, other, "--acting-device gpu is not one of auto, cpu, cuda and cuda:N")
    for name in ("gpu", "cuda:" + "9" * 5_000, "cuda:\u0663"):
        with pytest.raises(ConfigError, match=r"--device .* is not one of auto, cpu, cuda and cuda:N"):
            resolve.device_of(name)
    config = resolve.resolve(Config())
    assert (config.machine.precision, config.machine.inference_batch, config.machine.learner_parts) == ("tf32", 96, 1)
    see(cuda_devices=0, has_nvidia_driver=False)
    assert resolve.device_of("auto") == "cpu"
    assert_refused(resolve.device_of, "cuda", "no NVIDIA driver")
    see(has_nvidia_driver=True, torch_cuda_version=None)
    assert_refused(resolve.device_of, "cuda:0", "built without CUDA")


BATCHES = [
    *((96, 2, 32), (32, 2, 16), (192, 4, 32), (8, 2, 4), (4, 2, 2)),
    *((2, 2, 2), (1, 1, 1), (2, 1, 1), (80, 40, 40), (14, 2, 2)),
]


@pytest.mark.parametrize(("envs", "lane_envs", "batch"), BATCHES)
def test_inference_batch_divides_and_leaves_two_groups(envs: int, lane_envs: int, batch: int) -> None:
    play = Play(envs=envs, lane_envs=lane_envs)
    assert resolve.inference_batch_of(play, on_cpu=True) == batch
    assert resolve.inference_batch_of(play, on_cpu=False) == envs


SPARE = [(-3, 1), (0, 1), (1, 1), (10, 10), (12, 12), (14, 12), (22, 16), (60, 24)]


@pytest.mark.parametrize(("spare", "actors"), SPARE)
def test_actors_share_48_lanes_evenly(spare: int, actors: int) -> None:
    assert resolve.actors_of(Play(), spare) == actors
    assert resolve.actors_of(Play(envs=1, lane_envs=1), spare) == 1


ACTORS = [
    ({}, 1),
    ({"schedule": "alternate"}, 4),
    ({"schedule": "alternate", "actors": 3}, 3),
    ({"schedule": "alternate", "envs": 4}, 1),
    (ON_POLICY | {"schedule": "alternate"}, 4),
    (ON_POLICY | {"schedule": "concurrent"}, 1),
]


@pytest.mark.parametrize(("settings", "actors"), ACTORS)
def test_actors_in_turn_with_the_learner_have_all_cores(see: See, settings: dict[str, Any], actors: int) -> None:
    see(usable_cores=4, physical_cores=4)
    config = Config().with_settings(device="cpu", learner_members=1, inference_threads=2, **settings)
    assert resolve.resolve(config).machine.actors == actors


@pytest.mark.parametrize("settings", [{}, {"batch_size": 2}, ON_POLICY])
def test_parts_do_not_follow_from_the_cores(see: See, settings: dict[str, Any]) -> None:
    found = set()
    for cores in (1, 2, 64):
        see(usable_cores=cores, physical_cores=cores)
        config = resolve.resolve(Config().with_settings(device="cpu", **settings))
        found.add((config.machine.learner_parts, config.digest()))
    assert found == {(4, config.digest())}
    see(cuda_devices=1)
    on_gpu = resolve.resolve(Config().with_settings(**settings)).machine
    assert (on_gpu.device, on_gpu.learner_parts, on_gpu.learner_members) == ("cuda:0", 1, 1)


@pytest.mark.parametrize(("ranks", "parts"), [(2, 4), (4, 4), (8, 8), (16, 16)])
def test_ranks_have_parts_that_they_share_evenly(see: See, ranks: int, parts: int) -> None:
    see(cuda_devices=16)
    for settings in ({}, ON_POLICY):
        config = resolve.resolve(Config().with_settings(learner_ranks=ranks, **settings))
        validate.resolved(config)
        assert (config.machine.learner_parts, config.machine.learner_processes) == (parts, ranks)
        assert resolve.resolve(config.with_settings(learner_ranks=1)).digest() == config.digest()


def test_the_members_of_a_learner_leave_cores_to_actors(see: See) -> None:
    see(usable_cores=16, physical_cores=16)
    found = [resolve.resolve(Config().with_settings(device="cpu", learner_members=members)) for members in (1, 4)]
    assert found[0].machine.actors > found[1].machine.actors > 1
    assert found[0].digest() == found[1].digest()


@pytest.mark.parametrize(("flags", "precision"), [([], "fp32"), (["avx512_bf16"], "bf16"), (["amx_bf16"], "bf16")])
def test_auto_takes_bf16_where_it_is_fast_and_a_record_stays(see: See, flags: list[str], precision: str) -> None:
    see(bf16_flags=flags)
    assert resolve.resolve(Config().with_settings(device="cpu")).machine.precision == precision
    for recorded in ("fp32", "bf16"):
        asked = Config().with_settings(device="cpu", precision=recorded)
        assert resolve.resolve(Config.from_json(resolve.resolve(asked).to_json())).machine.precision == recorded


def test_workers_compute_on_the_cpu_and_only_batches_of_a_local_replay_are_worth_bfloat16(see: See) -> None:
    see(bf16_flags=["avx512_bf16"])
    found = [resolve.resolve(PRESETS[preset]).machine for preset in ("a3c-async", "nq-async", "dqn-async")]
    assert [machine.precision for machine in found] == ["fp32", "fp32", "bf16"]
    assert {(machine.device, machine.learner_parts, machine.learner_members) for machine in found} == {("cpu", 1, 1)}


def test_the_fewest_actors_with_the_least_share() -> None:
    for lanes in range(1, 60):
        for most in range(1, lanes + 1):
            least = resolve.greatest_share(lanes, most)
            fewest = next(count for count in range(1, most + 1) if resolve.greatest_share(lanes, count) == least)
            assert resolve.fewest_actors(lanes, most) == fewest


def test_the_largest_batch_makes_equal_groups() -> None:
    for lanes in range(1, 40):
        for most in range(1, 50):
            sizes = [size * 2 for size in range(1, lanes + 1) if lanes % size == 0 and size * 2 <= most]
            assert resolve.largest_batch(lanes, 2, most) == max(sizes, default=2)


MEMBERS = [(1, 1), (2, 2), (3, 2), (4, 2), (5, 2), (6, 2), (7, 4), (8, 4), (11, 8), (18, 8), (19, 16), (64, 16)]


@pytest.mark.parametrize(("cores", "members"), MEMBERS)
def test_every_member_has_a_physical_core(see: See, cores: int, members: int) -> None:
    see(usable_cores=2 * cores, physical_cores=cores)
    for parts in PARTS:
        machine = resolve.resolve(Config().with_settings(device="cpu", learner_parts=parts)).machine
        assert machine.learner_members == min(members, parts)
