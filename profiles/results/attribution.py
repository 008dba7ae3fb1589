"""Splits the measured time of an epoch into the parts of loading and compute. All functions here are pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from unstall.profiles.devices import Device
from unstall.profiles.results.parts import PARTS, Parts, parts_of
from unstall.profiles.samples import Sample
from unstall.profiles.statistics import Columns, Interval, delta_interval, median

T = TypeVar("T")

# An epoch is bound by compute if its share of loading is below the first ratio, by input from the second on, and
# balanced between. Source: xprof warns at 10 %, TraceML calls 20 % critical.
BALANCED_FROM, INPUT_FROM = 0.10, 0.20
# Error that is assumed of the share of loading where there are too few rounds for an interval. Source: issue 16 of this
# project asks for correct verdicts wherever the truth is further from a bound than this.
_ASSUMED_ERROR = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """The parts that the time of an epoch divides into.

    Attributes:
      seconds_per_image: of each part; None where the device or the page cache does not define the part. Parts can be
        negative, by noise.
      shares: `seconds_per_image` over their sum, so that the shares sum to 1.
      shares_ci95: 95 % intervals of the shares; None for few rounds.
      loading_ratio: share of all parts but `compute`.
      loading_ratio_ci95: 95 % interval of `loading_ratio`; None for few rounds.
      host_wait_ratio: part of the steady steps that the host spends inside `next(iterator)`, in `train` or `cold`.
      headspace: rate of compute over rate of the epoch: the speed-up if loading cost nothing.
      loading_range: (low, high) of the loading ratio as it would be if no other program ran: its interval (or an
        assumed error), widened by `others_ratio`, and limited by what the waits in the epochs allow.
      others_ratio: part of the cores' time that other programs took.
    """

    seconds_per_image: Parts[float | None]
    shares: Parts[float | None]
    shares_ci95: Parts[Interval | None]
    loading_ratio: float
    loading_ratio_ci95: Interval | None
    host_wait_ratio: float
    headspace: float
    loading_range: Interval
    others_ratio: float

    @property
    def bound(self) -> str:
        """ "compute", "balanced" or "input"; "uncertain" where `loading_range` includes more than one of them."""
        low, high = map(bound_of, self.loading_range)
        return low if low == high else "uncertain"

    @property
    def epoch_s_per_image(self) -> float:
        return sum(seconds or 0.0 for seconds in self.seconds_per_image.values())


def bound_of(loading_ratio: float) -> str:
    """Returns what bounds an epoch with this share of loading: "compute", "balanced" or "input"."""
    if loading_ratio < BALANCED_FROM:
        return "compute"
    return "input" if loading_ratio >= INPUT_FROM else "balanced"


def attribute(samples: Mapping[str, Sequence[Sample]], *, device: Device, images: int | None = None) -> Attribution:
    """Splits the time of `train` by comparing it with windows of the model alone.

    On a CPU and an emulated accelerator, waiting is the time inside `next(iterator)`. The host of a GPU runs ahead of
    the device, so that there only the difference between `train` and `replay` says how long the device waited. Where
    `cold` was measured, its time is split instead, and its difference to `train` is waiting for storage.

    Args:
      samples: by window, one for each round. `train` and `resident` are required; `replay` belongs to a real device,
        `bare` to a loader that put layers in front of the model, `cold` to a cold row.
      device: the device that trained.
      images: images of an epoch in real use, over which the edges of an epoch are spread; those of the measured epoch
        unless given. Where no measured epoch ran to its end, the edges are unknown.
    Returns:
      The attribution; its shares sum to 1.
    Raises:
      ValueError: if `train` or `resident` is missing.
    Source: MLPerf Storage's accelerator utilisation and DS-Analyzer's differential runs (VLDB 2021). New here are two
      parts: cores that the loader takes from the model, and the edges of an epoch.
    """
    for window in ("train", "resident"):
        if not samples.get(window):
            raise ValueError(f"`samples` must hold the window {window!r}. Received: {', '.join(samples) or 'nothing'}.")
    rounds = _side_by_side(samples)
    cold = "cold" in rounds
    explained = rounds["cold" if cold else "train"]
    most_interference_s = _loader_cpu_s_per_image(samples, explained)
    columns = {"explained": _epochs(explained, images)}
    columns |= {
        window: {window: [math.log(sample.s_per_image) for sample in rounds[window]]}
        for window in ("resident", "bare", "replay")
        if window in rounds
    }
    if cold:
        columns["warm"] = {"warm": [math.log(sample.s_per_image) for sample in rounds["train"]]}
    if "replay" in rounds:
        columns["replay"]["replay wait"] = [_wait_ratio(sample) for sample in rounds["replay"]]

    def seconds_per_part(means: dict[str, float]) -> Parts[float]:
        resident_s = math.exp(means["resident"])
        bare_s = math.exp(means["bare"]) if "bare" in means else resident_s
        replay_s = math.exp(means["replay"]) if "replay" in means else resident_s
        replay_wait_s = replay_s * means.get("replay wait", 0.0)
        steady_s = math.exp(means["steady"])
        wait_s = steady_s * means["wait"]
        stall_s = wait_s - replay_wait_s
        interference_s = steady_s - wait_s - (replay_s - replay_wait_s)
        if device.asynchronous:
            stall_s, interference_s = stall_s + interference_s, 0.0
        # The loader can slow a step by the CPU time that it uses, at most; the rest counts as compute.
        slower_by_itself_s = max(interference_s - most_interference_s, 0.0)
        fetch_s = steady_s - math.exp(means["warm"]) if cold else 0.0
        return Parts(
            compute=bare_s + slower_by_itself_s,
            device_augment=resident_s - bare_s,
            transfer=replay_s - resident_s,
            fetch_stall=fetch_s,
            prep_stall=stall_s - fetch_s,
            interference=interference_s - slower_by_itself_s,
            epoch_overhead=math.exp(means["epoch"]) - steady_s,
        )

    undefined = set() if cold else {"fetch_stall"}
    if device.asynchronous:
        undefined.add("interference")
    windows = {"explained": explained, "warm": rounds["train"], **rounds}
    groups = _groups({name: ([sample.round for sample in windows[name]], columns[name]) for name in columns})
    attribution = _attribution(seconds_per_part, groups, (explained, rounds["resident"]), undefined)
    if device.asynchronous:
        return attribution
    seconds = attribution.seconds_per_image
    layers_s = max((seconds.device_augment or 0.0) + (seconds.transfer or 0.0), 0.0)
    by_waits = _range_by_waits(explained, images, most_interference_s + layers_s)
    low, high = (
        max(attribution.loading_range[0], by_waits[0]),
        min(attribution.loading_range[1], by_waits[1]),
    )
    return replace(attribution, loading_range=(low, high)) if low <= high else attribution


def attribute_one_pass(train: Sequence[Sample], *, images: int | None = None) -> Attribution:
    """Splits the time of `train` into waiting, edges and compute, where the model alone was not measured.

    The device must be one that the host waits for. What the loader takes from the model's cores counts as compute;
    `interference` and `transfer` are unknown.

    Args:
      train: one sample for each epoch.
      images: as for `attribute`.
    """
    train = whole_samples(train)

    def seconds_per_part(means: dict[str, float]) -> Parts[float]:
        steady_s = math.exp(means["steady"])
        wait_s = steady_s * means["wait"]
        return Parts(
            compute=steady_s - wait_s,
            device_augment=0.0,
            transfer=0.0,
            fetch_stall=0.0,
            prep_stall=wait_s,
            interference=0.0,
            epoch_overhead=math.exp(means["epoch"]) - steady_s,
        )

    measured = {"compute", "prep_stall", "epoch_overhead"}
    return _attribution(seconds_per_part, [_epochs(train, images)], (train,), set(PARTS) - measured)


def whole_samples(samples: Sequence[Sample]) -> list[Sample]:
    """Returns the samples whose epochs ran to their end; all samples if no epoch did."""
    return [sample for sample in samples if sample.whole] or list(samples)


def _epochs(explained: Sequence[Sample], images: int | None) -> dict[str, list[float]]:
    """Returns the columns of the window that is split: logarithms of seconds per image, and ratios of waiting."""
    return {
        "steady": [math.log(sample.s_per_image) for sample in explained],
        "wait": [_wait_ratio(sample) for sample in explained],
        "epoch": [math.log(sample.whole_s_per_image(images)) for sample in explained],
    }


def _wait_ratio(sample: Sample) -> float:
    return sample.wait_ns / sample.wall_ns


def _attribution(
    seconds_per_part: Callable[[dict[str, float]], Parts[float]],
    groups: Sequence[Columns],
    windows: Sequence[Sequence[Sample]],
    undefined: set[str],
) -> Attribution:
    """Derives shares and their intervals from the means of columns.

    Args:
      seconds_per_part: computes the seconds per image of each part from the means of all columns. The parts sum to the
        seconds per image of an epoch.
      groups: columns, grouped by the rounds that they were measured in.
      windows: samples of the window that is split, then samples of the model alone where there are any.
      undefined: parts that this device or this measurement does not define.
    """
    explained = windows[0]
    if not explained[0].whole:
        undefined = undefined | {"epoch_overhead"}

    def defined(part: str, value: T) -> T | None:
        return None if part in undefined else value

    def shares_of(means: dict[str, float]) -> np.ndarray:
        seconds = np.array(seconds_per_part(means).values())
        return seconds / seconds.sum()

    means = {name: float(np.mean(values)) for group in groups for name, values in group.items()}
    shares, interval = delta_interval(shares_of, groups)
    intervals: Parts[Interval | None] = Parts(**dict.fromkeys(PARTS))
    if interval is not None:
        intervals = parts_of([(float(low), float(high)) for low, high in zip(*interval, strict=True)])
    loading = float(1 - shares[0])
    loading_ci95 = None if interval is None else (float(1 - interval[1][0]), float(1 - interval[0][0]))
    others_ratio = max(map(_others_ratio, windows))
    return Attribution(
        seconds_per_image=seconds_per_part(means).map(defined),
        shares=parts_of(shares.tolist()).map(defined),
        shares_ci95=intervals.map(defined),
        loading_ratio=loading,
        loading_ratio_ci95=loading_ci95,
        host_wait_ratio=float(np.mean([_wait_ratio(sample) for sample in explained])),
        headspace=float(1 / shares[0]),
        loading_range=loading_range(loading, loading_ci95, others_ratio),
        others_ratio=others_ratio,
    )


def loading_range(loading: float, interval: Interval | None, others_ratio: float) -> Interval:
    """Returns (low, high) of the loading ratio as it would be if no other program ran.

    Other programs that take a part of the cores slow what runs on these cores by about 1 / (1 - part). If they slowed
    the model alone, the share of compute was measured too large; if they slowed the loader and the edges, too small.

    Args:
      loading: the loading ratio that was measured.
      interval: its 95 % interval, or None.
      others_ratio: part of the cores' time that other programs took.
    """
    low, high = interval or (loading - _ASSUMED_ERROR, loading + _ASSUMED_ERROR)
    slower = 1 / (1 - others_ratio)
    return 1 - slower * (1 - low), 1 - (1 - high) / slower


def _range_by_waits(explained: Sequence[Sample], images: int | None, most_more_s: float) -> Interval:
    """Returns (low, high) of the loading ratio by the epochs alone, on a device that the host waits for.

    The waiting of steps and the edges are loading for certain. Up to `most_more_s` is loading on top of that: cores
    that the loader takes from the model, layers in front of the model, and transfer.

    Args:
      most_more_s: upper limit of these, in seconds per image.
    """

    def ratios(means: dict[str, float]) -> np.ndarray:
        epoch_s = math.exp(means["epoch"])
        return np.array([1 - math.exp(means["steady"]) * (1 - means["wait"]) / epoch_s, most_more_s / epoch_s])

    (loading, more), bounds = delta_interval(ratios, [_epochs(explained, images)])
    interval = None if bounds is None else (float(bounds[0][0]), float(bounds[1][0]))
    low, high = loading_range(float(loading), interval, _others_ratio(explained))
    return low, high + float(more)


def _others_ratio(samples: Sequence[Sample]) -> float:
    """Returns the mean of what other programs took during these samples; 0 if it is unknown for all of them."""
    ratios = [sample.others_ratio for sample in samples if sample.others_ratio is not None]
    return sum(ratios) / len(ratios) if ratios else 0.0


def _side_by_side(samples: Mapping[str, Sequence[Sample]]) -> dict[str, list[Sample]]:
    """Returns, by window, the samples of the rounds in which every window was measured, ordered by round.

    Where there is no such round, returns all samples: then only their means can be compared.
    """
    windows = [window for window in ("train", "cold", "resident", "bare", "replay") if samples.get(window)]
    whole = {window: whole_samples(samples[window]) for window in windows}
    shared = set.intersection(*({sample.round for sample in of_window} for of_window in whole.values()))
    return {
        window: sorted(
            (sample for sample in of_window if sample.round in shared or not shared), key=lambda sample: sample.round
        )
        for window, of_window in whole.items()
    }


def _groups(columns: Mapping[str, tuple[list[int], Columns]]) -> list[Columns]:
    """Groups (rounds, columns) by the rounds that the columns were measured in."""
    groups: dict[tuple[int, ...], dict[str, Sequence[float]]] = {}
    for rounds, of_rounds in columns.values():
        groups.setdefault(tuple(rounds), {}).update(of_rounds)
    return list(groups.values())


def _loader_cpu_s_per_image(samples: Mapping[str, Sequence[Sample]], explained: Sequence[Sample]) -> float:
    """Returns the CPU seconds that the loader uses for an image.

    That is the larger of two figures: the CPU time of the loader alone, and the CPU time of training less that of the
    model alone. The second is larger where the loader's threads keep working while the model computes.
    """
    alone_s = [sample.cpu_s_per_image for sample in samples.get("loader", ())]
    beside_s = median([sample.cpu_s_per_image for sample in explained])
    beside_s -= median([sample.cpu_s_per_image for sample in samples["resident"]])
    return max(median(alone_s) if alone_s else 0.0, beside_s, 0.0)
