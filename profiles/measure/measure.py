"""Measures any batches that feed a Keras model, in this process."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

from unstall.profiles.data import adapter
from unstall.profiles.devices import Device, parse_device
from unstall.profiles.measure.ahead import Ahead
from unstall.profiles.measure.backends import check_device, device_here
from unstall.profiles.measure.batches import batch_images, first_batches, is_fit_data, unit_in, weighed
from unstall.profiles.measure.schedule import LOADER_ROUNDS, TRIAL_STEPS, WARMUP_LIMIT_S, epochs_for, steps_for
from unstall.profiles.measure.steps import steady_part
from unstall.profiles.measure.windows import Windows
from unstall.profiles.results.subject import Subject
from unstall.profiles.samples import Sample


def measure_samples(
    data: Any,
    model: Any,
    *,
    device: str | Device,
    rounds: int,
    name: str,
    ahead: Ahead | None = None,
    class_weight: Mapping[int, float] | None = None,
    begins: Callable[[str], object] = lambda what: None,
) -> tuple[Subject, list[Sample], Windows]:
    """Measures training `model` on `data`, the model alone, and the loader alone.

    Trains the model for some epochs of the data, which changes weights, optimizer and metrics. To keep a model, measure
    a copy (`keras.models.clone_model`).

    Args:
      data: finite batches of what the model's train step takes, such as `(images, labels)`: a tf.data.Dataset, a
        keras.utils.PyDataset, any other iterable that can be read again, or a function that returns an iterable.
      model: compiled, `steps_per_execution` 1.
      device: what the model runs on: "auto", "cpu", "gpu", or "emulated:RATE", which sleeps in place of the model's
        step.
      rounds: of training and of the model alone, at least 1. The loader alone is measured in the first 3 of them.
      name: of the data, in the result.
      ahead: how far the loader works ahead of the model, as its adapter tells unless given.
      class_weight: of `fit`, for a tf.data.Dataset or a PyDataset.
      begins: called before the first epoch and before each round, with what is measured from then on.
    Returns:
      The subject, its raw samples, and the windows that measured them, for further measurements.
    Raises:
      ValueError: if the data or the model cannot be measured.
    """
    if rounds < 1:
        raise ValueError(f"`rounds` must be at least 1. Received: rounds={rounds}.")
    if device == "auto":
        device = device_here()
    device = parse_device(device) if isinstance(device, str) else device
    check_device(device)
    ahead = adapter(data).ahead(data) if ahead is None else ahead
    windows = Windows(model, device, class_weight=class_weight)
    begins("the first epoch")
    batches = [weighed(batch, class_weight) for batch in first_batches(data)]
    windows.prepare(shapes(batches))
    samples = [windows.train(data, epochs=1, ramp_steps=1, round_=0, window="warmup", limit_s=WARMUP_LIMIT_S)]
    steady = steady_part(ahead, windows.steps_of(data))
    epochs = epochs_for(samples[0]) if is_fit_data(data) else 1
    steps = steps_for(windows.resident(batches[0], steps=TRIAL_STEPS, round_=0))
    measures: dict[str, Callable[[int], Sample]] = {
        "resident": lambda number: windows.resident(batches[0], steps=steps, round_=number),
        "replay": lambda number: windows.replay(batches, steps=steps, round_=number),
        "loader": lambda number: windows.loader(data, epochs=epochs, ramp_steps=steady.first, round_=number),
        "train": lambda number: windows.train(data, epochs=epochs, ramp_steps=steady.first, round_=number),
    }
    if device.kind == "emulated":
        del measures["replay"]
    order = random.Random()
    for number in range(rounds):
        if number == LOADER_ROUNDS:
            del measures["loader"]
        begins(f"round {number + 1} of {rounds}")
        # A random order for each round: a fixed order could keep time with another program that wakes periodically.
        names = order.sample(list(measures), len(measures))
        samples += [measures[window](number) for window in names]
    subject = Subject(
        variant=name,
        model=model.name,
        device=device,
        batch_size=batch_images(batches[0]),
        buffered_batches=ahead.buffered_batches,
        doubts=steady.doubts,
        unit=unit_in(batches[0]),
    )
    return subject, samples, windows


def shapes(batches: list[Any]) -> list[Any]:
    """Returns the first batch of each size, in order: the shapes that the model has to be traced for."""
    by_images: dict[int, Any] = {}
    for batch in batches:
        by_images.setdefault(batch_images(batch), batch)
    return list(by_images.values())
