"""Control groups, read from folders that look like the kernel's."""

from __future__ import annotations

from pathlib import Path

import pytest

from unstall.profiles.provenance import Throttling, control_groups, free_memory_bytes, quota_cores, throttled_ratio
from unstall.profiles.remedies import room

V1_STAT = "nr_periods {}\nnr_throttled {}\nthrottled_time 42\n"
V2_STAT = "usage_usec 5\nuser_usec 3\nsystem_usec 2\nnr_periods {}\nnr_throttled {}\nthrottled_usec 42\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cgroup"


def own(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "own"
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def write(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return folder


def test_version_2_counts_periods_of_the_group_and_of_those_around_it(tmp_path: Path, root: Path) -> None:
    write(root, cpu__stat="usage_usec 5\n")  # the root of all counts no periods
    pod = write(root / "pod", cpu__stat=V2_STAT.format(100, 7))
    container = write(root / "pod" / "container", cpu__stat=V2_STAT.format(50, 5))
    assert Throttling.now(root, own(tmp_path, "0::/pod/container")) == (
        Throttling(group=container, periods=50, throttled_periods=5),
        Throttling(group=pod, periods=100, throttled_periods=7),
    )


@pytest.mark.parametrize("controllers", ["cpu", "cpu,cpuacct"])
def test_version_1_counts_periods_of_the_cpu_controller(tmp_path: Path, root: Path, controllers: str) -> None:
    group = write(root / controllers / "job", cpu__stat=V1_STAT.format(10, 3))
    write(root / "memory" / "job", cpu__stat=V1_STAT.format(99, 99))
    path = own(tmp_path, "5:memory:/job", f"2:{controllers}:/job", "3:cpuset:/job", "1:name=systemd:/job")
    assert Throttling.now(root, path) == (Throttling(group=group, periods=10, throttled_periods=3),)


def test_a_path_of_the_host_is_not_there_in_a_container_but_the_root_is(tmp_path: Path, root: Path) -> None:
    write(root, cpu__stat=V2_STAT.format(10, 1), cpu__max="150000 100000\n")
    path = own(tmp_path, "0::/docker/0123456789ab")
    assert control_groups(root, path) == [root]
    assert Throttling.now(root, path) == (Throttling(group=root, periods=10, throttled_periods=1),)


@pytest.mark.parametrize("stat", ["", "nr_periods 5\n", "nr_periods x\nnr_throttled 1\n", "a b c\n"])
def test_a_file_that_counts_nothing_is_no_reading(tmp_path: Path, root: Path, stat: str) -> None:
    write(root, cpu__stat=stat)
    assert Throttling.now(root, own(tmp_path, "0::/")) == ()


def test_without_a_control_group_there_is_no_reading(tmp_path: Path, root: Path) -> None:
    assert Throttling.now(root, tmp_path / "nothing") == ()
    assert Throttling.now(root, own(tmp_path, "0::/")) == ()


def at(periods: int, throttled_periods: int, group: str = "a") -> Throttling:
    return Throttling(group=Path(group), periods=periods, throttled_periods=throttled_periods)


@pytest.mark.parametrize(
    ("before", "after", "ratio"),
    [
        ([at(100, 10)], [at(300, 60)], 0.25),
        ([at(100, 10)], [at(300, 10)], 0.0),
        ([at(0, 0)], [at(0, 0)], 0.0),  # a group without a quota has no periods
        ([at(0, 0, "a"), at(0, 0, "b")], [at(100, 10, "a"), at(100, 30, "b")], 0.3),
        ([at(0, 0, "a")], [at(100, 10, "a"), at(100, 30, "b")], 0.1),
        ([], [at(100, 50)], None),
        ([at(100, 50)], [], None),
    ],
    ids=["some", "none", "no quota", "the worst", "a new group", "no first", "no last"],
)
def test_the_ratio_is_of_the_periods_between_two_readings(
    before: list[Throttling], after: list[Throttling], ratio: float | None
) -> None:
    assert throttled_ratio(before, after) == ratio


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"cpu__max": "150000 100000\n"}, 1.5),
        ({"cpu__max": "max 100000\n"}, None),
        ({"cpu__max": ""}, None),
        ({"cpu__max": "x y"}, None),
        ({"cpu__cfs_quota_us": "200000\n", "cpu__cfs_period_us": "100000\n"}, 2.0),
        ({"cpu__cfs_quota_us": "-1\n", "cpu__cfs_period_us": "100000\n"}, None),
        ({"cpu__cfs_quota_us": "100000\n", "cpu__cfs_period_us": "0\n"}, None),
        ({}, None),
    ],
)
def test_a_quota_is_read_in_cores(root: Path, files: dict[str, str], cores: float | None) -> None:
    assert quota_cores(write(root, **files)) == cores


def test_this_process_can_be_read_whatever_it_runs_in() -> None:
    before = Throttling.now()
    ratio = throttled_ratio(before, Throttling.now())
    assert (ratio is None) == (before == ())
    assert ratio is None or 0 <= ratio <= 1


def test_a_groups_limit_leaves_what_it_has_not_used_and_what_its_page_cache_holds_idle(root: Path) -> None:
    stat = "anon 100\ninactive_file 300\nactive_file 50\n"
    limited = write(root / "pod", memory__max="1000\n", memory__current="600\n", memory__stat=stat)
    unlimited = write(root, memory__max="max\n", memory__current="5\n", memory__stat=stat)
    assert free_memory_bytes([limited, unlimited]) == 700
    over = write(root / "over", memory__max="10\n", memory__current="600\n", memory__stat=stat)
    assert free_memory_bytes([over]) == 0
    assert free_memory_bytes([unlimited]) > 10**6  # of the machine


@pytest.mark.parametrize(("ranks", "part"), [("4", 4), ("", 1), ("0", 1), ("x", 1)])
def test_each_of_several_ranks_has_its_part_of_the_memory(
    ranks: str, part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "free_memory_bytes", lambda: 8000.0)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", ranks)
    assert room.room_here().memory_bytes == 4000 / part
