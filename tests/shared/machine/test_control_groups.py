"""Control groups, read from trees of files that imitate other machines."""

from pathlib import Path

from shared.machine import control_groups
from tests.support.machines import GB, V1_UNLIMITED, tree, v1, v2

GROUP = "/user.slice/run.scope"


def test_limits_in_force_of_version_2(tmp_path: Path) -> None:
    files = {"cpu.max": "150000 100000", "memory.max": str(16 * GB), "pids.max": "max"}
    root = v2(tmp_path, GROUP, {f"{GROUP[1:]}/{name}": text for name, text in files.items()})
    tree(root, {"sys/fs/cgroup/user.slice/pids.max": "33000", "sys/fs/cgroup/user.slice/cpu.max": "400000 100000"})
    found = control_groups.in_force(root)
    assert found == control_groups.InForce(GROUP, 1.5, 16 * GB, 33_000)
    assert str(found) == f"processor time of 1.5 cores, memory of 16.0 GB, 33,000 tasks ({GROUP})"


def test_limits_in_force_of_version_1(tmp_path: Path) -> None:
    files = {"cpu,cpuacct/a/cpu.cfs_quota_us": "800000", "cpu,cpuacct/a/cpu.cfs_period_us": "100000"}
    files |= {"memory/a/memory.limit_in_bytes": V1_UNLIMITED, "pids/a/pids.max": "512"}
    found = control_groups.in_force(v1(tmp_path, "/a", files))
    assert found == control_groups.InForce("/a", 8.0, None, 512)
    assert str(found) == "processor time of 8 cores, no limit of memory, 512 tasks (/a)"


def test_a_machine_without_control_groups(tmp_path: Path) -> None:
    assert control_groups.in_force(tmp_path) == control_groups.InForce("/", None, None, None)
    assert (control_groups.free_memory(tmp_path), control_groups.free_tasks(tmp_path)) == (None, None)
    assert control_groups.oom_kills(tmp_path) == 0


def test_memory_of_version_2_counts_cache_as_free(tmp_path: Path) -> None:
    above = {"a/memory.high": str(8 * GB), "a/memory.current": str(5 * GB)}
    above |= {"a/memory.stat": f"anon 1\ninactive_file {2 * GB}\n"}
    root = v2(tmp_path, "/a/b", {**above, "a/b/memory.max": "max", "a/b/memory.current": "1"})
    assert control_groups.free_memory(root) == 5 * GB
    tree(root, {"sys/fs/cgroup/a/memory.current": str(11 * GB)})
    assert control_groups.free_memory(root) == 0, "it is over its limit"


def test_memory_of_version_1(tmp_path: Path) -> None:
    files = {"memory/memory.limit_in_bytes": V1_UNLIMITED, "memory/memory.usage_in_bytes": str(30 * GB)}
    files |= {"memory/a/memory.limit_in_bytes": str(4 * GB), "memory/a/memory.usage_in_bytes": str(3 * GB)}
    files |= {"memory/a/memory.stat": f"inactive_file 7\ntotal_inactive_file {GB}\n"}
    assert control_groups.free_memory(v1(tmp_path, "/a", files)) == 2 * GB


def test_tasks_left_by_the_tightest_group(tmp_path: Path) -> None:
    files = {"a/pids.max": "100", "a/pids.current": "95", "a/b/pids.max": "20", "a/b/pids.current": "4"}
    assert control_groups.free_tasks(v2(tmp_path, "/a/b", files)) == 5


def test_kills_of_the_own_group_are_counted(tmp_path: Path) -> None:
    root = v2(tmp_path, "/a/b", {"a/memory.events": "oom 9\noom_kill 9\n", "a/b/memory.events": "oom 3\noom_kill 2\n"})
    tree(root, {"proc/vmstat": "oom_kill 40\n"})
    assert control_groups.oom_kills(root) == 2


def test_kills_of_version_1(tmp_path: Path) -> None:
    root = v1(tmp_path, "/a", {"memory/a/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 7\n"})
    assert control_groups.oom_kills(root) == 7


def test_kills_of_the_machine_where_no_group_counts(tmp_path: Path) -> None:
    root = v2(tmp_path, "/", {"cgroup.procs": "1\n"})
    tree(root, {"proc/vmstat": "pgfault 1\noom_kill 40\n"})
    assert control_groups.oom_kills(root) == 40


def test_every_kill_explains_one_death(tmp_path: Path) -> None:
    root = v2(tmp_path, "/a", {"a/memory.events": "oom_kill 1\n", "a/memory.max": str(4 * GB)})
    kills = control_groups.OomKills(root)
    assert kills.explain() is None  # what was killed before the run began
    tree(root, {"sys/fs/cgroup/a/memory.events": "oom_kill 3\n"})
    said = kills.explain()
    assert said.startswith("was killed for lack of memory: /a, limited to 4.0 GB, has none left")
    assert "a smaller replay buffer, shorter rounds or fewer --actors" in said
    assert (kills.explain(), kills.explain()) == (said, None)


def test_a_machine_without_memory_is_named_as_such(tmp_path: Path) -> None:
    kills = control_groups.OomKills(tree(tmp_path, {"proc/vmstat": "oom_kill 0\n"}))
    tree(tmp_path, {"proc/vmstat": "oom_kill 1\n"})
    assert "the machine has none left" in (kills.explain() or "")
