"""What a contender came to, and the results file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from profiles.devices import Device
from profiles.machine.page_cache import StorageRates
from profiles.results.attribution import Attribution, attribute, whole_ones
from profiles.results.checks import check_all
from profiles.samples import Sample
from profiles.stage_table import AnnotatedFunction, StageTable
from profiles.statistics import geometric_mean, median, spread_ratio

# What a row is made of, by its page cache. Nothing but training is measured with a cold one: beside it stand the model
# alone, and the warm `train` that it is compared with.
_WINDOWS_OF = {
    "warm": ("bare", "resident", "replay", "train", "loader", "warmup", "again"),
    "cold": ("bare", "resident", "replay", "train", "cold"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """Who was measured: all that is known before the first sample.

    Attributes:
      variant, model: names.
      device: what trained.
      batch_size: images a batch.
      config: the variant's description, as JSON holds it.
      training: loss, optimizer, `jit_compile`, workers asked for and seen.
      work: in what way its images differ from full decode, bilinear, augmented.
      images: images of an epoch in use.
      buffered_batches: batches that the loader's queues and buffers hold.
      notes: what a reader must know, that is no failure.
      page_cache: "warm", or "cold" for a row of its own, in which each epoch finds no file in the page cache.
      storage: how fast the files of a cold row are read.
    """

    variant: str
    model: str
    device: Device
    batch_size: int
    config: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    work: tuple[str, ...] = ()
    images: int | None = None
    buffered_batches: int = 0
    notes: tuple[str, ...] = ()
    page_cache: str = "warm"
    storage: StorageRates | None = None

    def __post_init__(self) -> None:
        if self.page_cache not in _WINDOWS_OF:
            raise ValueError(
                f"`page_cache` must be one of {', '.join(_WINDOWS_OF)}. Received: page_cache={self.page_cache!r}."
            )

    @property
    def label(self) -> str:
        """The variant's name, as rows are told apart."""
        return f"{self.variant}, cold" if self.page_cache == "cold" else self.variant


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What one contender came to.

    Attributes:
      epoch_images_per_sec: of whole epochs, their edges included: what decides.
      spread_ratio: the standard deviation of a round's, as a part of it; None of few rounds.
      images_per_sec: between the edges.
      first_epoch_images_per_sec: of the warm-up.
      first_batch_s: from the beginning of an epoch.
      loader_images_per_sec: of whole epochs of the loader alone.
      compute_images_per_sec: of the model alone, as the attribution has it.
    """

    contender: Contender
    samples: tuple[Sample, ...]
    attribution: Attribution
    epoch_images_per_sec: float
    spread_ratio: float | None
    images_per_sec: float
    first_epoch_images_per_sec: float | None
    first_batch_s: float
    loader_images_per_sec: float | None
    compute_images_per_sec: float
    cpu_ms_per_image: dict[str, float | None]
    flags: tuple[str, ...]
    stages: StageTable | None = None
    lines: tuple[AnnotatedFunction, ...] = ()

    def of(self, window: str) -> list[Sample]:
        return [sample for sample in self.samples if sample.window == window]

    @property
    def model_images_per_sec(self) -> float | None:
        """The rate of the model without a loader; None where that was not measured."""
        return self.compute_images_per_sec if self.of("resident") else None

    @property
    def explained(self) -> list[Sample]:
        """The windows that the row is about, each of whole epochs if any is."""
        return whole_ones(self.of(_explained(self.contender)))

    def by_round(self, window: str | None = None) -> dict[int, float]:
        """Returns the images/sec of whole epochs, by round, of what the row is about or of another window."""
        samples = self.explained if window is None else self.of(window)
        return {one.round: 1 / one.whole_s_per_image(self.contender.images) for one in samples}

    def to_dict(self) -> dict[str, Any]:
        one = self.contender
        utilization = "accelerator_utilization" if one.device.accelerator else "compute_ratio"
        return {
            "variant": one.variant,
            "model": one.model,
            "device": {"kind": one.device.kind, "name": one.device.name},
            "page_cache": one.page_cache,
            "batch_size": one.batch_size,
            "config": dict(one.config),
            "training": dict(one.training),
            "work": list(one.work),
            "epoch_images_per_sec": self.epoch_images_per_sec,
            "spread_ratio": self.spread_ratio,
            "images_per_sec": self.images_per_sec,
            "first_epoch_images_per_sec": self.first_epoch_images_per_sec,
            "first_batch_s": self.first_batch_s,
            # Set-up of `fit`, before its first epoch: neither loading nor compute, in no share.
            "other_s": median([(sample.outer_ns - sample.epoch_ns) / 1e9 for sample in self.explained]),
            "loader_images_per_sec": self.loader_images_per_sec,
            "compute_images_per_sec": self.model_images_per_sec,
            "attribution": dict(self.attribution.shares),
            "attribution_ci95": {
                part: None if interval is None else list(interval)
                for part, interval in self.attribution.shares_ci95.items()
            },
            "seconds_per_image": dict(self.attribution.seconds_per_image),
            "loading_ratio": self.attribution.loading_ratio,
            "loading_ratio_ci95": self.attribution.loading_ratio_ci95 and list(self.attribution.loading_ratio_ci95),
            "loading_range": list(self.attribution.loading_range),
            "others_ratio": self.attribution.others_ratio,
            utilization: 1 - self.attribution.loading_ratio,
            "headspace": self.attribution.headspace,
            "host_wait_ratio": self.attribution.host_wait_ratio,
            **_stages_to_dict(self.stages),
            "lines": [one.to_dict() for one in self.lines],
            "cpu_ms_per_image": dict(self.cpu_ms_per_image),
            "read_bytes_per_sec": one.storage
            and {"cold": one.storage.cold_bytes_per_sec, "warm": one.storage.warm_bytes_per_sec},
            "bytes_per_image": one.storage and one.storage.bytes_per_file,
            "samples": [sample.to_dict() for sample in self.samples],
            "notes": list(one.notes),
            "flags": [*self.flags, *((*self.stages.flags, *self.stages.unavailable) if self.stages else ())],
        }


def _stages_to_dict(table: StageTable | None) -> dict[str, Any]:
    if table is None:
        return {"stages": [], "stage_table": None}
    values = table.to_dict()
    return {"stages": values.pop("stages"), "stage_table": values}


def summarise(contender: Contender, samples: Sequence[Sample], *, typical_canary_ns: float) -> Result:
    """Derives a result from raw samples.

    Args:
      contender: who was measured.
      samples: of its windows; `train` and `resident` at least, `cold` for a cold row. Those of windows that belong to
        another row are left out.
      typical_canary_ns: the median of the canary over the whole run.
    Raises:
      ValueError: if a window that is needed is missing.
    """
    samples = [sample for sample in samples if sample.window in _WINDOWS_OF[contender.page_cache]]
    by_window: dict[str, list[Sample]] = {}
    for sample in samples:
        by_window.setdefault(sample.window, []).append(sample)
    if contender.page_cache == "cold" and "cold" not in by_window:
        raise ValueError(f"A cold row needs the window 'cold'. Received: {', '.join(by_window) or 'nothing'}.")
    attribution = attribute(by_window, device=contender.device, images=contender.images)
    explained = by_window.pop("cold", by_window["train"])
    flags = check_all(
        by_window | {"train": explained},
        attribution,
        typical_canary_ns=typical_canary_ns,
        buffered_batches=contender.buffered_batches,
    )
    return derive(contender, samples, attribution, flags=flags)


def derive(
    contender: Contender, samples: Sequence[Sample], attribution: Attribution, *, flags: tuple[str, ...]
) -> Result:
    """Derives the rates of a row whose attribution is known.

    Args:
      samples: of the row's own windows.
      flags: what a reader must doubt.
    """

    def of(window: str) -> list[Sample]:
        return [sample for sample in samples if sample.window == window]

    def cpu_ms(window: str) -> float | None:
        return 1e3 * median([sample.cpu_s_per_image for sample in of(window)]) if of(window) else None

    explained, loader, warmup = whole_ones(of(_explained(contender))), of("loader"), of("warmup")
    compute_s = attribution.seconds_per_image["compute"]
    assert compute_s is not None
    return Result(
        contender=contender,
        samples=tuple(samples),
        attribution=attribution,
        epoch_images_per_sec=1 / attribution.epoch_s_per_image,
        spread_ratio=spread_ratio([sample.whole_s_per_image(contender.images) for sample in explained]),
        images_per_sec=1 / geometric_mean([sample.s_per_image for sample in explained]),
        first_epoch_images_per_sec=1 / warmup[0].epoch_s_per_image if warmup else None,
        first_batch_s=median([ns for sample in explained for ns in sample.first_batch_ns]) / 1e9,
        loader_images_per_sec=1 / geometric_mean([one.whole_s_per_image(contender.images) for one in loader])
        if loader
        else None,
        compute_images_per_sec=1 / compute_s,
        # Without windows of the model alone its CPU time was not measured.
        cpu_ms_per_image={"loader": cpu_ms("loader"), "model": cpu_ms("resident")},
        flags=flags,
    )


def _explained(contender: Contender) -> str:
    """The window that a row is about."""
    return "cold" if contender.page_cache == "cold" else "train"
