"""Emulated hosts: the commands and files that make them; and, for root, real ones."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from tests.benchmarks.service.pools import hosts
from tests.benchmarks.service.pools.hosts import Cores, EmulatedHosts, HostsError, why_not

PREFIX = f"unstall{os.getpid()}"


@pytest.fixture
def ran(monkeypatch, tmp_path):
    """The commands that would have been run, and a folder in place of the system's control groups."""
    commands: list[str] = []
    monkeypatch.setattr(hosts, "_run", lambda *words: commands.append(" ".join(words)))
    monkeypatch.setattr(hosts, "_GROUPS", tmp_path)
    return commands


def test_a_group_of_version_1_lies_among_those_of_the_cpu(tmp_path, ran):
    (tmp_path / "cpu").mkdir()
    group = hosts._group("one")
    assert group == tmp_path / "cpu" / "one" and group.is_dir()
    assert not (tmp_path / "cgroup.subtree_control").exists()


def test_a_group_of_version_2_needs_the_cpu_to_be_given_to_groups(tmp_path, ran):
    group = hosts._group("one")
    assert group == tmp_path / "one" and group.is_dir()
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+cpu"


def test_a_group_that_cannot_be_made_is_one_line(tmp_path, ran):
    (tmp_path / "one").mkdir()
    with pytest.raises(HostsError, match=r"^no control group can be made in") as error:
        hosts._group("one")
    assert str(error.value) == f"no control group can be made in {tmp_path}: File exists."


def test_a_quota_of_version_1_is_of_each_tenth_of_a_second(tmp_path, ran):
    (tmp_path / "cpu").mkdir()
    emulated = EmulatedHosts(2, None)
    folders = [tmp_path / "cpu" / f"{PREFIX}-{number}" for number in range(2)]
    for folder in folders:
        (folder / "cpu.cfs_quota_us").touch()
    emulated.give((0.6, 0.25))
    assert [(folder / "cpu.cfs_quota_us").read_text() for folder in folders] == ["60000", "25000"]
    assert [(folder / "cpu.cfs_period_us").read_text() for folder in folders] == ["100000"] * 2


def test_a_quota_of_version_2_is_too(tmp_path, ran):
    EmulatedHosts(2, None).give((0.6, 1.5))
    assert [(tmp_path / f"{PREFIX}-{number}" / "cpu.max").read_text() for number in range(2)] == [
        "60000 100000",
        "150000 100000",
    ]


def test_what_comes_to_the_trainer_and_what_a_worker_sends_has_the_rate_of_a_link(ran):
    emulated = EmulatedHosts(3, 12.5e6)
    shape = "root tbf rate 100000000bit burst 131072 latency 50ms"
    assert [command for command in ran if command.startswith("tc")] == [
        f"tc -n {PREFIX}-s qdisc add dev port0 {shape}",
        f"tc -n {PREFIX}-1 qdisc add dev eth {shape}",
        f"tc -n {PREFIX}-2 qdisc add dev eth {shape}",
    ]
    addresses = [command.split()[5] for command in ran if " addr add " in command]
    assert addresses == [f"{emulated.address(number)}/24" for number in range(3)]
    assert len(set(addresses)) == 3


def test_without_a_rate_no_link_is_shaped(ran):
    EmulatedHosts(2, None)
    assert ran and not [command for command in ran if command.startswith("tc")]


def test_a_command_is_run_in_its_hosts_group_and_namespace(tmp_path, ran):
    *shell, group, enter, namespace = EmulatedHosts(2, None).prefix(1)
    assert shell == ["sh", "-c", 'echo $$ > "$0" && exec "$@"']
    assert group == str(tmp_path / f"{PREFIX}-1" / "cgroup.procs")
    assert (enter, namespace) == ("nsenter", f"--net=/run/netns/{PREFIX}-1")
    # The shell joins the group before it becomes the command.
    (tmp_path / "procs").touch()
    words = [*shell, str(tmp_path / "procs"), sys.executable, "-c", "import os; print(os.getpid())"]
    printed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert printed == (tmp_path / "procs").read_text()


def test_all_that_was_made_is_removed(tmp_path, ran):
    emulated = EmulatedHosts(2, None)
    made = {command.split()[3] for command in ran if command.startswith("ip netns add")}
    ran.clear()
    emulated.close()
    assert {command.split()[3] for command in ran if command.startswith("ip netns del")} == made
    assert made == {f"{PREFIX}-s", f"{PREFIX}-0", f"{PREFIX}-1"}
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == []


@pytest.mark.parametrize("missing", ["tc", "ip netns add"])
def test_so_it_is_where_a_command_fails(missing, tmp_path, ran, monkeypatch):
    def run(*words):
        ran.append(" ".join(words))
        if ran[-1].startswith(missing):
            raise HostsError("planted")

    monkeypatch.setattr(hosts, "_run", run)
    with pytest.raises(HostsError, match="planted"):
        EmulatedHosts(2, 1e6)
    assert ran[-1] == f"ip netns del {PREFIX}-1"
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == []


def test_so_it_is_where_a_second_group_cannot_be_made(tmp_path, ran):
    (tmp_path / f"{PREFIX}-1").mkdir()
    with pytest.raises(HostsError, match="no control group can be made"):
        EmulatedHosts(2, None)
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == [f"{PREFIX}-1"]  # not its own


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("false",), "`false` failed: no reason given."),
        (("sh", "-c", "echo first >&2; echo why >&2; exit 2"), "failed: why."),
        (("sleep", "60"), "`sleep 60` does not end."),
    ],
)
def test_a_command_that_fails_is_one_line(words, line, monkeypatch):
    monkeypatch.setattr(hosts, "_TIMEOUT_S", 1.0)
    with pytest.raises(HostsError) as error:
        hosts._run(*words)
    assert str(error.value).endswith(line)


def test_cores_are_those_of_this_process_one_each(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {7, 3, 5})
    cores = Cores(2, None)
    assert (cores.prefix(0), cores.prefix(1)) == (("taskset", "-c", "3"), ("taskset", "-c", "5"))
    assert cores.relay is None and cores.address(1) == "127.0.0.1"
    cores.close()
    too_few = Cores(4, None)
    assert too_few.prefix(3) == too_few.prefix(2) == ("taskset", "-c", "7")


def test_a_link_between_cores_is_a_relay_of_its_rate():
    cores = Cores(2, 5e6)
    assert cores.relay is not None and cores.relay.port > 0
    cores.close()


def test_a_check_on_cores_needs_two(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0})
    assert why_not(loopback=True) == "needs two cores: one for a worker, one for the trainer"
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1})
    assert why_not(loopback=True) == ""


def test_emulated_hosts_need_the_rights_of_root_and_three_commands(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert why_not(loopback=False).startswith("needs the rights of root: ")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda command: None if command in ("ip", "tc") else f"/sbin/{command}")
    assert why_not(loopback=False) == "needs the commands ip, tc and nsenter; missing: ip, tc"
    monkeypatch.setattr(shutil, "which", lambda command: f"/sbin/{command}")
    assert why_not(loopback=False) == ""


@pytest.mark.slow  # changes the system's namespaces and control groups, and removes what it made
@pytest.mark.skipif(bool(why_not(loopback=False)), reason=why_not(loopback=False) or "can")
def test_hosts_are_apart_and_reach_each_other_and_have_their_quota():
    try:
        emulated = EmulatedHosts(2, 12.5e6)
    except HostsError as error:
        pytest.skip(str(error))
    busy = "import os, time; t = time.time() + 2\nwhile time.time() < t: pass\nprint(sum(os.times()[:2]))"
    try:
        listing = [*emulated.prefix(1), "ip", "-brief", "addr", "show", "dev", "eth"]
        assert emulated.address(1) in subprocess.run(listing, capture_output=True, text=True, check=True).stdout
        there = "import socket; s = socket.create_server(('', 9000)); s.settimeout(20); print(s.accept()[1][0])"
        here = (
            "import socket, time\nfor _ in range(100):\n try: socket.create_connection(('{}', 9000)); break\n"
            " except OSError: time.sleep(0.1)"
        )
        server = subprocess.Popen([*emulated.prefix(0), sys.executable, "-c", there], stdout=subprocess.PIPE, text=True)
        client = [*emulated.prefix(1), sys.executable, "-c", here.format(emulated.address(0))]
        subprocess.run(client, check=True, timeout=30)
        assert server.communicate(timeout=30)[0].strip() == emulated.address(1)
        emulated.give((0.5, 0.25))
        used = subprocess.run(
            [*emulated.prefix(1), sys.executable, "-c", busy], capture_output=True, text=True, check=True
        )
        assert float(used.stdout) < 0.25 * 2 + 0.4
    finally:
        emulated.close()
    listed = subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout
    assert PREFIX not in listed
