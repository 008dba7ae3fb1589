"""Compares what is measured of a planted load with the same training timed by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.truth.bounds import BOUNDS
from tests.truth.figures import Figure, figure_of
from tests.truth.planted import a_batch
from unstall.profiles.devices import parse_device
from unstall.profiles.measure.measure import measure_samples
from unstall.profiles.measure.windows import Windows
from unstall.profiles.results import Result, summarise
from unstall.profiles.samples import Sample
from unstall.profiles.statistics import median

# Rounds of a measurement, unless a case wants more; and how often it is tried to meet one machine all the time.
_ROUNDS, _TRIES = 2, 2
# Steps of a window of a model without its layers.
_BARE_STEPS = 10

# The figures of a case.
Figures = tuple[Figure, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """An epoch of a planted load, timed by hand.

    Attributes:
      s: seconds of the epoch, edges included.
      images: of the epoch.
      parts_s: seconds of its parts, by the names of `profiles.results.parts.Parts`; `compute` at least.
      loader_cpu_s: what the loader burned in the epoch, as the loader counts it.
    """

    s: float
    images: int
    parts_s: Mapping[str, float]
    loader_cpu_s: float = 0.0

    def percent(self, part: str) -> float:
        return 100 * self.parts_s[part] / self.s


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A planted load: how an epoch of it is timed by hand, and how what is tested measures it."""

    case: str
    time_epoch: Callable[[], Epoch]
    measure: Callable[[], Result]


def _part_figure(part: str) -> tuple[Callable[[Epoch], float], Callable[[Result, Epoch], float]]:
    return lambda epoch: epoch.percent(part), lambda result, _: 100 * (result.attribution.shares[part] or 0.0)


# By the name of a figure: how the figure follows from an epoch by hand, and how from a result that users are shown.
_FIGURES: Mapping[str, tuple[Callable[[Epoch], float], Callable[[Result, Epoch], float]]] = {
    "loading, %": (
        lambda epoch: 100 - epoch.percent("compute"),
        lambda result, _: 100 * result.attribution.loading_ratio,
    ),
    "images/sec": (lambda epoch: epoch.images / epoch.s, lambda result, _: result.epoch_images_per_sec),
    "edges, %": _part_figure("epoch_overhead"),
    "edges, ms": (
        lambda epoch: 1e3 * epoch.parts_s["epoch_overhead"],
        lambda result, epoch: 1e3 * epoch.images * (result.attribution.seconds_per_image.epoch_overhead or 0.0),
    ),
    "augmentation, %": _part_figure("device_augment"),
    "transfer, %": _part_figure("transfer"),
    "interference, %": _part_figure("interference"),
    "loader's CPU, ms/image": (
        lambda epoch: 1e3 * epoch.loader_cpu_s / epoch.images,
        lambda result, _: result.cpu_ms_per_image["loader"] or 0.0,
    ),
}


def compare(group: str, load: Load) -> Iterator[Figures]:
    """Times a load by hand, measures it, and times it by hand again, so that both meet the same machine.

    Where the times by hand differ by more than what is promised, the machine has changed meanwhile, and the load is
    measured again: whatever was measured in between, so that this hides noise and no bias.

    Yields:
      The figures of each repeat, without end. The second time by hand of a repeat is the first one of the next.
    """
    after = load.time_epoch()
    while True:
        for _ in range(_TRIES):
            before, result, after = after, load.measure(), load.time_epoch()
            truths = truths_of(group, before), truths_of(group, after)
            if all(bound.holds(bound.off(*(truth[name] for truth in truths))) for name, bound in BOUNDS[group].items()):
                break
        truth = {name: (truths[0][name] + truths[1][name]) / 2 for name in BOUNDS[group]}
        yield figures_of(load.case, truth, before, result)


def truths_of(group: str, epoch: Epoch) -> dict[str, float]:
    """Returns the figures of a group as they follow from an epoch by hand."""
    return {name: _FIGURES[name][0](epoch) for name in BOUNDS[group]}


def figures_of(case: str, truth: Mapping[str, float], epoch: Epoch, result: Result) -> Figures:
    """Returns figures by hand with those of a result."""
    return tuple(figure_of(case, name, of_epoch, _FIGURES[name][1](result, epoch)) for name, of_epoch in truth.items())


def _bare(model: Any, device: str, rounds: int) -> list[Sample]:
    windows, batch = Windows(model, parse_device(device)), a_batch()
    windows.prepare([batch])
    return [windows.resident(batch, steps=_BARE_STEPS, round_=number, window="bare") for number in range(rounds)]


def measure_load(data: Any, model: Any, device: str, bare: Any = None, *, rounds: int = _ROUNDS) -> Result:
    """Measures a loader and a model.

    Args:
      bare: the same model without the layers that its loader put before it, where there are any.
    """
    alone = [] if bare is None else _bare(bare, device, rounds)
    subject, samples, _ = measure_samples(data, model, device=device, rounds=rounds, name="planted")
    if bare is not None:
        # Before and after the rest, so that a machine that gets slower meanwhile is in the mean of both.
        samples += [*alone, *_bare(bare, device, rounds)]
    return summarise(subject, samples, typical_canary_ns=median([sample.canary_ns for sample in samples]))
