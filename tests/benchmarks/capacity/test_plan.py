"""What `capacity` is asked to do: every refusal in one line before anything starts, and what a plan holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders import a_costs, a_measured_pool, a_scaleout_check_document, a_scaleout_document
from unstall.benchmarks.capacity.parser import parser
from unstall.benchmarks.capacity.plan import Plan, read_plan
from unstall.benchmarks.lab.options import UserError
from unstall.benchmarks.scaleout.check.report import KIND as CHECK
from unstall.benchmarks.scaleout.report import KIND as SCALEOUT
from unstall.profiles.report import RESULTS, write_results


def planned(*words: str) -> Plan:
    return read_plan(parser().parse_args(words), Path("out"))


REFUSED = {
    ("--images", "0"): "--images must be a number of at least 1. Received: 0.0.",
    ("--images", "nan"): "--images must be a number of at least 1. Received: nan.",
    ("--images", "inf"): "--images must be a number of at least 1. Received: inf.",
    ("--device", "tpu"): "--device: A device must be",
    ("--device", "gpu"): "--device must be emulated:RATE: the accelerators are not here. Received: gpu.",
    ("--accelerators", "0"): "--accelerators must be at least 1. Received: 0.",
    ("--accelerators", "1025"): "--accelerators must be at most 1,024. Received: 1025.",
    ("--accelerators", "12"): "--accelerators must be a multiple of --per-host. Received: 12 and 8.",
    ("--per-host", "0"): "--per-host must be at least 1. Received: 0.",
    ("--epochs", "0"): "--epochs must be at least 1. Received: 0.",
    ("--image-size", "0"): "--image-size must be at least 1. Received: 0.",
    ("--goal", "0"): "--goal must be above 0 and at most 1. Received: 0.0.",
    ("--goal", "1.01"): "--goal must be above 0 and at most 1. Received: 1.01.",
    ("--storage", "fast"): "--storage must be a rate such as 100mbit or 10gbit. Received: fast.",
    ("--network", "fast"): "--network must be a rate such as 100mbit or 10gbit. Received: fast.",
    ("--memory", "much"): "--memory needs a size, such as 500MB or 2GB. Received: 'much'.",
    ("--worker-cores", "0"): "--worker-cores must be a number above 0. Received: 0.0.",
    ("--worker-price", "1"): "--worker-price and --trainer-price must be given together.",
    ("--config", "nowhere.toml"): "--config nowhere.toml cannot be read: No such file or directory.",
    ("--set", "served=files"): "--set served: this command chooses it.",
    ("--set", "cache=memory"): "`cache` must be 'none' with a service",
    ("--runs", "nowhere.json"): "--runs nowhere.json: No such file or directory.",
}


@pytest.mark.parametrize("words", REFUSED, ids=" ".join)
def test_what_is_wrong_is_refused_in_one_line(words):
    with pytest.raises(UserError) as caught:
        planned(*words)
    assert str(caught.value).startswith(REFUSED[words])
    assert "\n" not in str(caught.value) and caught.value.exit_code == 2


def test_a_plan_holds_what_was_asked():
    plan = planned(
        *("--images", "1.3e6", "--device", "emulated:2500", "--accelerators", "16", "--per-host", "4"),
        *("--epochs", "3", "--storage", "20gbit", "--memory", "64GB", "--network", "100gbit", "--data", "a/photos"),
    )
    asked = plan.asked
    assert (asked.images, asked.epochs, asked.accelerators, asked.per_host) == (1_300_000, 3, 16, 4)
    assert (asked.device.images_per_sec, asked.config.image_size) == (2500.0, (224, 224))
    assert (asked.storage_bytes_per_sec, asked.memory_bytes) == (2.5e9, 64e9)
    assert asked.hosts.link_bytes_per_sec == 12.5e9
    assert (asked.data, plan.data, plan.runs) == ("photos", "a/photos", None)


def test_images_are_as_large_as_asked_or_as_those_that_the_device_is_known_for():
    known = planned()
    assert known.asked.device.image_size is not None
    assert known.asked.config.image_size == known.asked.device.image_size
    assert planned("--image-size", "96").asked.config.image_size == (96, 96)


def test_fewer_accelerators_than_a_host_holds_are_on_one_host():
    assert planned("--accelerators", "3").asked.per_host == 3


def test_small_runs_are_those_of_a_check(tmp_path):
    document = a_scaleout_check_document(a_measured_pool())
    write_results(tmp_path, document, CHECK, CHECK.derive(document))
    assert planned("--runs", str(tmp_path / RESULTS)).runs == document


def test_a_run_of_another_command_is_refused(tmp_path):
    document = a_scaleout_document(a_costs())
    write_results(tmp_path, document, SCALEOUT, SCALEOUT.derive(document))
    with pytest.raises(UserError, match=r"^--runs .* is of the command 'scaleout'. Known here: scaleout check\.$"):
        planned("--runs", str(tmp_path / RESULTS))
