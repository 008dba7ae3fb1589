"""What `scaleout` is asked to do: every refusal in one line before anything starts, and what a plan holds."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from unstall.benchmarks.lab.options import UserError
from unstall.benchmarks.scaleout.check.plan import LOOPBACK_POOLS, POOLS, CheckPlan
from unstall.benchmarks.scaleout.parser import VARIANT, parser
from unstall.benchmarks.scaleout.plan import Plan, read_plan
from unstall.pipeline import VARIANTS
from unstall.pipeline.config import config_to_toml
from unstall.profiles.provenance import usable_cores


def planned(*words: str) -> Plan | CheckPlan:
    return read_plan(parser().parse_args(words), Path("out"))


REFUSED = {
    ("--goal", "0"): "--goal must be above 0 and at most 1. Received: 0.0.",
    ("--goal", "1.1"): "--goal must be above 0 and at most 1. Received: 1.1.",
    ("--delay", "-1"): "--delay must be a number of at least 0. Received: -1.0.",
    ("--delay", "inf"): "--delay must be a number of at least 0. Received: inf.",
    ("--goal", "nan"): "--goal must be above 0 and at most 1. Received: nan.",
    ("--model", "cats-dog-64"): "--model ",
    ("--device", "tpu"): "--device: A device must be",
    ("--device", "emulated:0"): "--device: emulated:RATE must be above 0",
    ("--config", "nowhere.toml"): "--config nowhere.toml cannot be read: No such file or directory.",
    ("--set", "workers"): "--set needs FIELD=VALUE, such as workers=4. Received: 'workers'.",
    ("--set", "batch_size=0"): "`batch_size` must be",
    ("--set", "location=ram"): "`location` must be 'disk' with a service",
    ("--set", "service=local:2"): "--set service: this command chooses it.",
    ("--set", "served=files"): "--set served: this command chooses it.",
    ("--worker-cores", "0"): "--worker-cores must be a number above 0. Received: 0.0.",
    ("--trainer-cores", "inf"): "--trainer-cores must be a number above 0. Received: inf.",
    ("--worker-price", "1"): "--worker-price and --trainer-price must be given together.",
    ("--trainer-price", "1"): "--worker-price and --trainer-price must be given together.",
    ("--worker-price", "-1", "--trainer-price", "1"): "--worker-price must be a number of at least 0. Received: -1.0.",
    ("--worker-price", "1", "--trainer-price", "inf"): "--trainer-price must be a number of at least 0. Received: inf.",
    ("--network", "fast"): "--network must be a rate such as 100mbit or 10gbit. Received: fast.",
    ("--network", "0gbit"): "--network must be a rate such as 100mbit or 10gbit. Received: 0gbit.",
    ("--only", "1 worker"): "--only needs --check.",
    ("--loopback",): "--loopback needs --check.",
    ("--rounds", "0"): "--rounds needs --check.",
    ("--check", "--device", "cpu"): "--device is of a decision: a check has pools of its own. Leave it out.",
    ("--check", "--worker-cores", "4"): "--worker-cores is of a decision: a check has pools of its own. Leave it out.",
    ("--check", "--loopback", "--rounds", "0"): "--rounds must be at least 1. Received: 0.",
    ("--check", "--loopback", "--only", ","): "--only needs at least one name. Received: ','.",
    (
        "--check",
        "--loopback",
        "--only",
        "goal",
    ): "--only: no pool's name holds one of these texts. Received: goal.",
}


@pytest.mark.parametrize("words", REFUSED, ids=" ".join)
def test_what_is_wrong_is_refused_in_one_line(words):
    with pytest.raises(UserError) as caught:
        planned(*words)
    assert str(caught.value).startswith(REFUSED[words])
    assert "\n" not in str(caught.value) and caught.value.exit_code == 2


def test_a_plan_keeps_the_file_of_a_model_without_its_folder(tmp_path):
    net = tmp_path / "net.keras"
    net.touch()
    plan = planned("--model", str(net))
    assert isinstance(plan, Plan) and (plan.model, plan.asked.model) == (str(net), "net.keras")


def test_a_plan_holds_what_was_asked():
    plan = planned(
        *("--data", "folder/photos", "--device", "emulated:5000", "--goal", "0.8", "--network", "10gbit"),
        *("--worker-cores", "4", "--worker-price", "0.2", "--trainer-price", "3", "--set", "batch_size=16"),
    )
    assert isinstance(plan, Plan)
    asked = plan.asked
    assert (asked.model, asked.device.images_per_sec, asked.goal_ratio) == ("cats-dogs-64", 5000.0, 0.8)
    assert (asked.data, plan.data, plan.out) == ("photos", "folder/photos", Path("out"))
    assert (asked.hosts.worker_cores, asked.hosts.trainer_cores) == (4.0, usable_cores())
    assert (asked.hosts.worker_price, asked.hosts.trainer_price) == (0.2, 3.0)
    assert asked.hosts.link_bytes_per_sec == 10e9 / 8
    assert asked.config.batch_size == 16 and asked.config.loader == VARIANTS[VARIANT].loader


def check_plan(*words: str) -> CheckPlan:
    plan = planned("--check", *words)
    assert isinstance(plan, CheckPlan)
    return plan


def test_a_check_holds_its_pools_and_five_rounds_of_each(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1})
    plan = check_plan("--loopback", "--data", "folder/photos")
    assert (plan.asked.pools, plan.asked.loopback, plan.asked.rounds) == (LOOPBACK_POOLS, True, 5)
    assert (plan.asked.data, plan.data) == ("photos", "folder/photos")


def test_only_some_pools_are_checked(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1})
    plan = check_plan("--loopback", "--only", "mbit,img/s", "--rounds", "1")
    assert [pool.name for pool in plan.asked.pools] == ["1 worker, 40 mbit", "1 worker, 600 img/s"]
    assert plan.asked.rounds == 1


def test_a_check_on_the_loopback_needs_two_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0})
    with pytest.raises(UserError, match=r"^--loopback needs two cores: one for a worker, one for the tr") as caught:
        check_plan("--loopback")
    assert caught.value.exit_code == 3


def test_emulated_hosts_need_the_rights_of_root(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(UserError, match=r"^--check needs the rights of root: .* --loopback needs none\.$") as caught:
        check_plan()
    assert caught.value.exit_code == 3


def test_emulated_hosts_need_three_commands(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda command: None if command in ("ip", "tc") else f"/sbin/{command}")
    with pytest.raises(UserError, match=r"^--check needs the commands .* Missing: ip, tc\.$") as caught:
        check_plan()
    assert caught.value.exit_code == 3
    monkeypatch.setattr(shutil, "which", lambda command: f"/sbin/{command}")
    assert check_plan().asked.pools == POOLS


def test_pools_have_names_of_their_own_and_leave_room_on_two_cores():
    for pools in (POOLS, LOOPBACK_POOLS):
        assert len({pool.name for pool in pools}) == len(pools)
    for pool in POOLS:
        assert sum(pool.worker_cores) + pool.trainer_cores <= 1.6 + 1e-9, pool.name


def test_a_file_that_names_a_service_is_read_without_it(tmp_path):
    """The command decides whether a service pays: what it measures has none."""
    file = tmp_path / "served.toml"
    file.write_text(config_to_toml(replace(VARIANTS[VARIANT], service="local:2")))
    plan = planned("--config", str(file))
    assert isinstance(plan, Plan) and plan.asked.config.service == "none"
