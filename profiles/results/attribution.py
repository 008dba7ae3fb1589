"""Splits measured time into loading and compute: a pure function of samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from profiles.devices import Device
from profiles.results.parts import PARTS, Parts, parts_of
from profiles.samples import Sample
from profiles.statistics import Columns, Interval, delta_interval, median

T = TypeVar("T")

# Bound by `compute` below the first, by `input` from the second, `balanced` between. xprof warns at 10 %, TraceML calls
# 20 % critical.
BALANCED_FROM, INPUT_FROM = 0.10, 0.20
# Where few rounds give no interval, a share may be off by so much. Source: issue 16 of this project asks for verdicts
# that are right where the truth lies further from a bound than this.
_OFF_BY = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """Where the time of an epoch goes.

    Attributes:
      seconds_per_image: of each part; None where the device or the page cache does not define it. Parts can be
        negative, within the spread.
      shares: the same over their sum: they sum to 1.
      shares_ci95: 95 % intervals of the shares; None of few rounds.
      loading_ratio: all but `compute`.
      loading_ratio_ci95: its interval.
      host_wait_ratio: `next(iterator)` over the step, in `train` or `cold`: what the host sees.
      headspace: compute rate over epoch rate: the speed-up that a loader without cost would give.
      loading_range: between what the loading ratio lies if nothing else runs: its interval (without one, what it may be
        off by), widened by what other programs took of the cores meanwhile, within what the waits of the epochs allow.
      others_ratio: that part of the cores.
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
        """ "compute", "balanced" or "input"; "uncertain" where more than one of them may be."""
        low, high = map(bound_of, self.loading_range)
        return low if low == high else "uncertain"

    @property
    def culprit(self) -> str:
        """The largest part of loading."""
        loading = {part: share for part, share in self.shares.items() if share is not None and part != "compute"}
        return max(loading, key=loading.__getitem__)

    @property
    def epoch_s_per_image(self) -> float:
        return sum(seconds or 0.0 for seconds in self.seconds_per_image.values())


def bound_of(loading_ratio: float) -> str:
    """Returns what an epoch with this share of loading is bound by."""
    if loading_ratio < BALANCED_FROM:
        return "compute"
    return "input" if loading_ratio >= INPUT_FROM else "balanced"


def attribute(samples: Mapping[str, Sequence[Sample]], *, device: Device, images: int | None = None) -> Attribution:
    """Splits the time of `train` by what `resident` and `replay` took without a loader.

    Waiting is charged where it is: an emulated accelerator and a CPU wait inside `next(iterator)`, while a GPU's host
    runs ahead, so that only `train` against `replay` tells how long the device starved. Where `cold` was measured, that
    is explained, and what it takes longer than `train` is waiting for storage.

    Args:
      samples: by window, one a round; `train` and `resident` are needed. `replay` where the device is real; `bare`
        where the loader put layers in front of the model; `cold` for a cold row.
      device: what trained.
      images: of an epoch in use, over which an epoch's edges are spread; those of the measured epoch unless given.
        Where no measured epoch was whole, nothing is known of edges.
    Returns:
      Shares that sum to 1.
    Raises:
      ValueError: if a window that is needed is missing.
    Source: MLPerf Storage's accelerator utilisation and DS-Analyzer's differential runs (VLDB 2021), with the cores
      that loader and model share told apart, and the edges of an epoch.
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
        window: {window: [math.log(one.s_per_image) for one in rounds[window]]}
        for window in ("resident", "bare", "replay")
        if window in rounds
    }
    if cold:
        columns["warm"] = {"warm": [math.log(one.s_per_image) for one in rounds["train"]]}
    if "replay" in rounds:
        columns["replay"]["replay wait"] = [_wait_ratio(one) for one in rounds["replay"]]

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
        # The loader cannot slow a step by more than the CPU time it uses: the rest is compute.
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
    groups = _groups({name: ([one.round for one in windows[name]], columns[name]) for name in columns})
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
    """Splits the time of `train` by what its steps waited, on a device that the host waits for.

    Without the model's own rate, steps that the loader slows are compute; `interference` and `transfer` are unknown.

    Args:
      train: one sample an epoch.
      images: of an epoch, over which its edges are spread; those of each epoch unless given.
    """
    train = whole_ones(train)

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

    known = {"compute", "prep_stall", "epoch_overhead"}
    return _attribution(seconds_per_part, [_epochs(train, images)], (train,), set(PARTS) - known)


def whole_ones(samples: Sequence[Sample]) -> list[Sample]:
    """Returns the samples whose epochs came to their end; all of them where none did."""
    return [one for one in samples if one.whole] or list(samples)


def _epochs(explained: Sequence[Sample], images: int | None) -> dict[str, list[float]]:
    return {
        "steady": [math.log(one.s_per_image) for one in explained],
        "wait": [_wait_ratio(one) for one in explained],
        "epoch": [math.log(one.whole_s_per_image(images)) for one in explained],
    }


def _wait_ratio(sample: Sample) -> float:
    return sample.wait_ns / sample.wall_ns


def _attribution(
    seconds_per_part: Callable[[dict[str, float]], Parts[float]],
    groups: Sequence[Columns],
    windows: Sequence[Sequence[Sample]],
    undefined: set[str],
) -> Attribution:
    """Derives shares and intervals from the columns' means.

    Args:
      seconds_per_part: of an image, from the means; they sum to an image of an epoch.
      groups: columns of the same rounds.
      windows: that it is about, and those of the model alone.
      undefined: parts that this device or this measurement does not tell.
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
        host_wait_ratio=float(np.mean([_wait_ratio(one) for one in explained])),
        headspace=float(1 / shares[0]),
        loading_range=loading_range(loading, loading_ci95, others_ratio),
        others_ratio=others_ratio,
    )


def loading_range(loading: float, interval: Interval | None, others_ratio: float) -> Interval:
    """Returns between what the loading ratio lies if nothing else runs.

    Others that take a part of the cores make what runs on them slower, by about 1 / (1 - part): the model alone, so
    that its share came out too large, or the loader and the edges, so that it came out too small.
    """
    low, high = interval or (loading - _OFF_BY, loading + _OFF_BY)
    slower = 1 / (1 - others_ratio)
    return 1 - slower * (1 - low), 1 - (1 - high) / slower


def _range_by_waits(explained: Sequence[Sample], images: int | None, most_more_s: float) -> Interval:
    """Returns between what the loading ratio lies by the epochs alone, on a device that the host waits for.

    What steps wait is loading, and so are edges; what the loader takes from the model besides, and what layers and
    transfer take, comes on top.

    Args:
      most_more_s: that, of an image, at most.
    """

    def waited(means: dict[str, float]) -> np.ndarray:
        epoch_s = math.exp(means["epoch"])
        return np.array([1 - math.exp(means["steady"]) * (1 - means["wait"]) / epoch_s, most_more_s / epoch_s])

    (loading, more), interval = delta_interval(waited, [_epochs(explained, images)])
    between = None if interval is None else (float(interval[0][0]), float(interval[1][0]))
    low, high = loading_range(float(loading), between, _others_ratio(explained))
    return low, high + float(more)


def _others_ratio(samples: Sequence[Sample]) -> float:
    known = [one.others_ratio for one in samples if one.others_ratio is not None]
    return sum(known) / len(known) if known else 0.0


def _side_by_side(samples: Mapping[str, Sequence[Sample]]) -> dict[str, list[Sample]]:
    """Returns the samples of the rounds in which every window was measured, in order, so that they belong together.

    Where there is no such round, all samples: then only their means can be compared.
    """
    windows = [window for window in ("train", "cold", "resident", "bare", "replay") if samples.get(window)]
    whole = {window: whole_ones(samples[window]) for window in windows}
    shared = set.intersection(*({one.round for one in ones} for ones in whole.values()))
    return {
        window: sorted((one for one in ones if one.round in shared or not shared), key=lambda one: one.round)
        for window, ones in whole.items()
    }


def _groups(columns: Mapping[str, tuple[list[int], Columns]]) -> list[Columns]:
    """Puts the columns together that are of the same rounds."""
    groups: dict[tuple[int, ...], dict[str, Sequence[float]]] = {}
    for rounds, some in columns.values():
        groups.setdefault(tuple(rounds), {}).update(some)
    return list(groups.values())


def _loader_cpu_s_per_image(samples: Mapping[str, Sequence[Sample]], explained: Sequence[Sample]) -> float:
    """Returns the CPU time that the loader uses for an image: the larger of two figures.

    One is the CPU time of the loader alone; the other is that of training less that of the model alone. The second is
    larger where the loader's threads go on working while the model computes.
    """
    alone_s = [sample.cpu_s_per_image for sample in samples.get("loader", ())]
    beside_s = median([one.cpu_s_per_image for one in explained])
    beside_s -= median([one.cpu_s_per_image for one in samples["resident"]])
    return max(median(alone_s) if alone_s else 0.0, beside_s, 0.0)
