"""Devices are read from text."""

from __future__ import annotations

import pytest

from unstall.profiles.devices import NAMED_RATES, Device, parse_device


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_a_real_device_has_no_rate(kind: str) -> None:
    assert parse_device(kind) == Device(kind=kind, name=kind)
    assert parse_device(kind).images_per_sec is None


@pytest.mark.parametrize(("rate", "images_per_sec"), [("400", 400.0), ("0.5", 0.5), ("1e3", 1000.0), ("10000000", 1e7)])
def test_an_emulated_device_has_its_rate(rate: str, images_per_sec: float) -> None:
    device = parse_device(f"emulated:{rate}")
    assert device == Device(kind="emulated", name=f"emulated:{rate}", images_per_sec=images_per_sec)


@pytest.mark.parametrize(("name", "rate"), [("a100-resnet50", 920), ("h100-resnet50", 1786), ("b200-retinanet", 505)])
def test_a_named_rate_belongs_to_its_image_size(name: str, rate: float) -> None:
    device = parse_device(f"emulated:{name}")
    assert device.images_per_sec == pytest.approx(rate, rel=0.001)
    assert device.image_size == (224, 224)
    assert device.name == f"emulated:{name}"


def test_every_named_rate_is_one_of_the_design() -> None:
    assert set(NAMED_RATES) == {"a100-resnet50", "h100-resnet50", "b200-retinanet"}


@pytest.mark.parametrize(
    ("text", "accelerator", "asynchronous"), [("cpu", False, False), ("gpu", True, True), ("emulated:400", True, False)]
)
def test_only_a_gpu_lets_the_host_run_ahead(text: str, accelerator: bool, asynchronous: bool) -> None:
    device = parse_device(text)
    assert (device.accelerator, device.asynchronous) == (accelerator, asynchronous)


@pytest.mark.parametrize("text", ["", "tpu", "CPU", "cpu:0", "emulated", "emulated:", "auto"])
def test_an_unknown_device_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=rf"must be auto, cpu, gpu or emulated:RATE\. Received: '{text}'"):
        parse_device(text)


@pytest.mark.parametrize("rate", ["fast", "4OO", "1,000"])
def test_a_rate_that_is_no_number_is_refused(rate: str) -> None:
    with pytest.raises(ValueError, match=rf"needs images per second, or one of a100.*Received: 'emulated:{rate}'\.$"):
        parse_device(f"emulated:{rate}")


def test_a_misspelt_rate_is_answered_with_the_nearest_name() -> None:
    with pytest.raises(ValueError, match=r"Did you mean 'emulated:h100-resnet50'\?"):
        parse_device("emulated:h100-resnet")


@pytest.mark.parametrize("rate", ["0", "-1", "nan", "inf", "-inf", "10000001"])
def test_a_rate_that_cannot_be_is_refused(rate: str) -> None:
    with pytest.raises(ValueError, match=rf"above 0 and at most 10,000,000 images/sec\. Received: 'emulated:{rate}'"):
        parse_device(f"emulated:{rate}")
