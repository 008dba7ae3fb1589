"""Splits measured time into loading and compute: a pure function of samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from profiles.devices import Device
from profiles.samples import Sample
from profiles.statistics import bootstrap, median

PARTS = (
    "compute",
    "device_augment",
    "transfer",
    "fetch_stall",
    "prep_stall",
    "interference",
    "epoch_overhead",
)
# Bound by `compute` below the first, by `input` from the second, `balanced` between. xprof warns at 10 %, TraceML calls
# 20 % critical.
BALANCED_FROM, INPUT_FROM = 0.10, 0.20


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """Where the time of an epoch goes.

    Attributes:
      seconds_per_image: of each of `PARTS`; None where the device or the page cache does not define it. Parts can be
        negative, within the spread.
      shares: the same over their sum: they sum to 1.
      shares_ci95: bootstrap intervals of the shares.
      loading_ratio: all but `compute`.
      loading_ratio_ci95: its interval.
      host_wait_ratio: `next(iterator)` over the step, in `train` or `cold`: what the host sees.
      headspace: compute rate over epoch rate: the speed-up that a loader without cost would give.
    """

    seconds_per_image: dict[str, float | None]
    shares: dict[str, float | None]
    shares_ci95: dict[str, tuple[float, float] | None]
    loading_ratio: float
    loading_ratio_ci95: tuple[float, float]
    host_wait_ratio: float
    headspace: float

    @property
    def bound(self) -> str:
        """ "compute", "balanced" or "input"."""
        if self.loading_ratio < BALANCED_FROM:
            return "compute"
        return "input" if self.loading_ratio >= INPUT_FROM else "balanced"

    @property
    def culprit(self) -> str:
        """The largest part of loading."""
        loading = {part: share for part, share in self.shares.items() if share is not None and part != "compute"}
        return max(loading, key=lambda part: loading[part])

    @property
    def epoch_s_per_image(self) -> float:
        return sum(seconds for seconds in self.seconds_per_image.values() if seconds is not None)


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
    rounds = _whole_rounds(samples)
    cold = "cold" in rounds
    explained = rounds["cold" if cold else "train"]
    columns = {
        "resident": [one.s_per_image for one in rounds["resident"]],
        "wait": [one.wait_s_per_image for one in explained],
        "step": [one.s_per_image - one.wait_s_per_image for one in explained],
    }
    edges = edges_s_per_image(explained, images)
    if edges:
        columns["edges"] = edges
    if cold:
        columns["warm"] = [one.s_per_image for one in rounds["train"]]
    if "bare" in rounds:
        columns["bare"] = [one.s_per_image for one in rounds["bare"]]
    if "replay" in rounds:
        columns["replay_wait"] = [one.wait_s_per_image for one in rounds["replay"]]
        columns["replay_step"] = [one.s_per_image - one.wait_s_per_image for one in rounds["replay"]]

    most_interference_s = _loader_cpu_s_per_image(samples, explained)

    def seconds_per_part(*arrays: np.ndarray, axis: int = -1) -> np.ndarray:
        middle = {name: np.median(array, axis=axis) for name, array in zip(columns, arrays, strict=True)}
        resident, none = middle["resident"], np.zeros_like(middle["resident"])
        bare = middle.get("bare", resident)
        replay_wait = middle.get("replay_wait", none)
        replay_step = middle.get("replay_step", resident)
        stall = middle["wait"] - replay_wait
        interference = middle["step"] - replay_step
        if device.asynchronous:
            stall, interference = stall + interference, none
        # The loader cannot slow a step by more than the CPU time it uses: the rest is compute.
        slower_by_itself = np.maximum(interference - most_interference_s, 0.0)
        transfer = replay_wait + replay_step - resident
        fetch = middle["wait"] + middle["step"] - middle["warm"] if cold else none
        return np.stack(
            [
                bare + slower_by_itself,
                resident - bare,
                transfer,
                fetch,
                stall - fetch,
                interference - slower_by_itself,
                middle.get("edges", none),
            ]
        )

    def share_of_part(*arrays: np.ndarray, axis: int = -1) -> np.ndarray:
        seconds = seconds_per_part(*arrays, axis=axis)
        return seconds / seconds.sum(axis=0)

    seconds = seconds_per_part(*(np.asarray(column) for column in columns.values()))
    shares = seconds / seconds.sum()
    low, high = bootstrap(list(columns.values()), share_of_part, paired=len(set(map(len, columns.values()))) == 1)
    undefined = set() if cold else {"fetch_stall"}
    if device.asynchronous:
        undefined.add("interference")
    if not edges:
        undefined.add("epoch_overhead")
    defined = set(PARTS) - undefined
    return Attribution(
        seconds_per_image={part: float(seconds[i]) if part in defined else None for i, part in enumerate(PARTS)},
        shares={part: float(shares[i]) if part in defined else None for i, part in enumerate(PARTS)},
        shares_ci95={
            part: (float(low[i]), float(high[i])) if part in defined else None for i, part in enumerate(PARTS)
        },
        loading_ratio=float(1 - shares[0]),
        loading_ratio_ci95=(float(1 - high[0]), float(1 - low[0])),
        host_wait_ratio=median([one.wait_ns / one.wall_ns for one in explained]),
        headspace=float(1 / shares[0]),
    )


def _whole_rounds(samples: Mapping[str, Sequence[Sample]]) -> dict[str, list[Sample]]:
    """Returns the samples of the rounds in which every window was measured, in order, so that they belong together.

    Where there is no such round, all samples: then only their medians can be compared.
    """
    windows = [window for window in ("train", "cold", "resident", "bare", "replay") if samples.get(window)]
    shared = set.intersection(*({one.round for one in samples[window]} for window in windows))
    return {
        window: sorted((one for one in samples[window] if one.round in shared or not shared), key=lambda one: one.round)
        for window in windows
    }


def _loader_cpu_s_per_image(samples: Mapping[str, Sequence[Sample]], explained: Sequence[Sample]) -> float:
    """Returns the CPU time that the loader uses for an image: the larger of two figures.

    One is the CPU time of the loader alone; the other is that of training less that of the model alone. The second is
    larger where the loader's threads go on working while the model computes.
    """
    alone_s = [sample.cpu_s_per_image for sample in samples.get("loader", ())]
    beside_s = median([one.cpu_s_per_image for one in explained])
    beside_s -= median([one.cpu_s_per_image for one in samples["resident"]])
    return max(median(alone_s) if alone_s else 0.0, beside_s, 0.0)


def edges_s_per_image(samples: Sequence[Sample], images: int | None) -> list[float]:
    """Returns each whole epoch's time beyond its images times the steady rate, spread over `images`."""
    edges = []
    for sample in samples:
        if sample.whole:
            measured_images = sample.epoch_images / sample.epochs
            edges_s = (sample.epoch_s_per_image - sample.s_per_image) * measured_images
            edges.append(edges_s / (images or measured_images))
    return edges
