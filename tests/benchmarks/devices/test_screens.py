"""The first screens of a comparison of devices: which is the fastest, and how much loading takes of an advantage."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from tests.builders import EMULATED, GPU, a_devices_document, a_measured_case
from unstall.benchmarks.devices.report import KIND, DevicesDocument, Measurements, derive
from unstall.profiles.report import print_document


def printed(document: DevicesDocument, typed: str = "photos/train") -> list[str]:
    console = Console(width=80, file=io.StringIO())
    print_document(console, replace(document, typed={document.plan.data: typed}), KIND, derive(document))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_an_experiment_says_which_device_is_the_fastest_and_what_loading_takes_of_it() -> None:
    cases = (
        a_measured_case(),
        a_measured_case(device=GPU, backend="jax", resident_ms=0.5, train_ms=2, wait_ms=1),
        a_measured_case(device=EMULATED),
    )
    lines = printed(a_devices_document(samples=Measurements(cases=cases)))
    assert lines[1:3] == [
        "unstall: mnist: an extremely simple network on MNIST digits",
        "1 case on cpu, gpu, emulated:5000",
    ]
    text = " ".join(" ".join(lines).split())
    assert "FASTEST The GPU (jax), " in text and "an epoch against" in text
    assert "emulated:5000, " not in text.partition("LOADING")[0]  # a device that sleeps is no choice
    assert text.count("LOADING ") == 2
    assert "LEFT OUT someone: <b>some reason</b>." in text
    assert all(len(line) <= 80 for line in lines)
    (bar,) = (line for line in lines if line.startswith("mnist-digits, arrays, batch 128 on cpu"))
    assert "#" in bar


def test_photos_that_a_device_waits_for_are_to_be_tuned() -> None:
    lines = printed(a_devices_document("--experiment", "deeper"), typed="'my photos'")
    assert "--data 'my photos' --model cats-dogs-" in " ".join(lines)


def test_a_case_that_only_an_emulated_accelerator_ended_has_a_bar_and_no_choice() -> None:
    lines = printed(a_devices_document(samples=Measurements(cases=(a_measured_case(device=EMULATED),))))
    assert not any(line.startswith(("FASTEST", "ONE DEVICE")) for line in lines)
    assert any("on emulated:5000" in line for line in lines)
