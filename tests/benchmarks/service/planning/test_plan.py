"""What `service plan` is asked to do: every refusal in one line before anything starts, and what a plan holds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from unstall.benchmarks.lab.options import UserError
from unstall.benchmarks.service import __main__ as service
from unstall.benchmarks.service.parser import CUT_VARIANT, parser
from unstall.benchmarks.service.planning.plan import Plan, read_plan
from unstall.pipeline import VARIANTS
from unstall.pipeline.config import config_to_toml
from unstall.profiles.provenance import usable_cores


def planned(*words: str) -> Plan:
    return read_plan(parser().parse_args(["plan", *words]), Path("out"))


REFUSED = {
    ("--goal", "0"): "--goal must be above 0 and at most 1. Received: 0.0.",
    ("--goal", "1.1"): "--goal must be above 0 and at most 1. Received: 1.1.",
    ("--goal", "1.01"): "--goal must be above 0 and at most 1. Received: 1.01.",
    ("--goal", "nan"): "--goal must be above 0 and at most 1. Received: nan.",
    ("--delay", "-1"): "--delay must be a number of at least 0. Received: -1.0.",
    ("--delay", "inf"): "--delay must be a number of at least 0. Received: inf.",
    ("--model", "cats-dog-64"): "--model ",
    ("--device", "tpu"): "--device: A device must be",
    ("--device", "emulated:0"): "--device: emulated:RATE must be above 0",
    (
        "--device",
        "gpu",
        "--accelerators",
        "8",
    ): "--device must be emulated:RATE with --accelerators: they are not here. Received: gpu.",
    ("--config", "nowhere.toml"): "--config nowhere.toml cannot be read: No such file or directory.",
    ("--set", "workers"): "--set needs FIELD=VALUE, such as workers=4. Received: 'workers'.",
    ("--set", "batch_size=0"): "`batch_size` must be",
    ("--set", "location=ram"): "`location` must be 'disk' with a service",
    ("--set", "cache=memory"): "`cache` must be 'none' with a service",
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
    ("--storage", "fast"): "--storage must be a rate such as 100mbit or 10gbit. Received: fast.",
    ("--memory", "much"): "--memory needs a size, such as 500MB or 2GB. Received: 'much'.",
    ("--memory", "64GB"): "--memory needs --images N, those of an epoch: whether it holds all files depends on them.",
    ("--epochs", "3"): "--epochs needs --images N, those of an epoch: how long they take depends on them.",
    ("--epochs", "0"): "--epochs must be at least 1. Received: 0.",
    ("--images", "0"): "--images must be a number of at least 1. Received: 0.0.",
    ("--images", "nan"): "--images must be a number of at least 1. Received: nan.",
    ("--images", "inf"): "--images must be a number of at least 1. Received: inf.",
    ("--accelerators", "0"): "--accelerators must be at least 1. Received: 0.",
    ("--accelerators", "1025"): "--accelerators must be at most 1,024. Received: 1025.",
    ("--accelerators", "12"): "--accelerators must be a multiple of --per-host. Received: 12 and 8.",
    ("--per-host", "0"): "--per-host must be at least 1. Received: 0.",
    ("--image-size", "0"): "--image-size must be at least 1. Received: 0.",
    (
        "--image-size",
        "96",
        "--device",
        "cpu",
    ): "--image-size goes with --device emulated:RATE: on cpu the size is the model's.",
}


@pytest.mark.parametrize("words", REFUSED, ids=" ".join)
def test_what_is_wrong_is_refused_in_one_line(words):
    with pytest.raises(UserError) as caught:
        planned(*words)
    assert str(caught.value).startswith(REFUSED[words])
    assert "\n" not in str(caught.value) and caught.value.exit_code == 2


def test_a_refusal_is_exit_code_2_and_leaves_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert service.main(["plan", "--goal", "0"]) == 2
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "--goal must be above 0 and at most 1. Received: 0.0.\n")
    assert list(tmp_path.iterdir()) == []


def test_a_plan_keeps_the_file_of_a_model_without_its_folder(tmp_path):
    net = tmp_path / "net.keras"
    net.touch()
    plan = planned("--model", str(net))
    assert (plan.model, plan.asked.model) == (str(net), "net.keras")


def test_a_plan_holds_what_was_asked():
    plan = planned(
        *("--data", "folder/photos", "--device", "emulated:5000", "--goal", "0.8", "--network", "10gbit"),
        *("--worker-cores", "4", "--worker-price", "0.2", "--trainer-price", "3", "--set", "batch_size=16"),
    )
    asked = plan.asked
    assert (asked.model, asked.device.images_per_sec, asked.goal_ratio) == ("cats-dogs-64", 5000.0, 0.8)
    assert (asked.data, plan.data, plan.out) == ("photos", "folder/photos", Path("out"))
    assert (asked.hosts.worker_cores, asked.hosts.trainer_cores) == (4.0, usable_cores())
    assert (asked.hosts.worker_price, asked.hosts.trainer_price) == (0.2, 3.0)
    assert asked.hosts.link_bytes_per_sec == 10e9 / 8
    assert asked.config.batch_size == 16 and asked.config.loader == VARIANTS[CUT_VARIANT].loader


def test_a_training_of_one_device_is_planned_unless_several_are_asked_for():
    asked = planned().asked
    assert (asked.hosts.accelerators, asked.hosts.per_host, asked.hosts.trainers) == (1, 1, 1)
    assert (asked.images, asked.image_size) == (None, None)
    assert (asked.hosts.storage_bytes_per_sec, asked.hosts.memory_bytes) == (None, 0.0)


def test_a_plan_of_a_fleet_holds_what_was_asked():
    plan = planned(
        *("--images", "1.3e6", "--device", "emulated:2500", "--accelerators", "16", "--per-host", "4"),
        *("--epochs", "3", "--storage", "20gbit", "--memory", "64GB", "--network", "100gbit", "--data", "a/photos"),
        *("--image-size", "224"),
    )
    asked, hosts = plan.asked, plan.asked.hosts
    assert (asked.images, asked.epochs, hosts.accelerators, hosts.per_host, hosts.trainers) == (1_300_000, 3, 16, 4, 4)
    assert (asked.device.images_per_sec, asked.image_size) == (2500.0, (224, 224))
    assert (hosts.storage_bytes_per_sec, hosts.memory_bytes) == (2.5e9, 64e9)
    assert hosts.link_bytes_per_sec == 12.5e9
    assert (asked.data, plan.data) == ("photos", "a/photos")


def test_images_are_as_large_as_asked_or_as_those_that_the_device_is_known_for():
    known = planned("--device", "emulated:h100-resnet50").asked
    assert known.device.image_size is not None and known.image_size == known.device.image_size
    assert planned("--device", "emulated:h100-resnet50", "--image-size", "96").asked.image_size == (96, 96)


def test_fewer_accelerators_than_a_host_holds_are_on_one_host():
    assert planned("--accelerators", "3").asked.hosts.per_host == 3


def test_a_file_that_names_a_service_is_read_without_it(tmp_path):
    """The command decides whether a service pays: what it measures has none."""
    file = tmp_path / "served.toml"
    file.write_text(config_to_toml(replace(VARIANTS[CUT_VARIANT], service="local:2")))
    assert planned("--config", str(file)).asked.config.service == "none"
