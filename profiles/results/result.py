"""The result of one subject: its rates and its attribution, derived from its samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from unstall.profiles.results.attribution import Attribution, attribute, attribute_one_pass, whole_samples
from unstall.profiles.results.checks import check_all, check_claims, check_length, check_rounds
from unstall.profiles.results.flags import Flag
from unstall.profiles.results.subject import WINDOWS_OF, Subject
from unstall.profiles.samples import Sample
from unstall.profiles.stage_table import AnnotatedFunction, StageTable
from unstall.profiles.statistics import geometric_mean, median, spread_ratio
from unstall.profiles.unit import Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of one subject.

    Attributes:
      epoch_images_per_sec: over whole epochs, their edges included. Results are compared by this rate.
      spread_ratio: relative standard deviation of this rate between rounds; None for few rounds.
      images_per_sec: over steady steps, without the edges of epochs.
      first_epoch_images_per_sec: over the warm-up epoch; None without one.
      first_batch_s: from the beginning of an epoch to its first batch.
      loader_images_per_sec: of the loader alone, over whole epochs; None where it was not measured.
      compute_images_per_sec: of the `compute` part of the attribution.
      cpu_ms_per_image: CPU time of the loader and of the model alone; None where they were not measured.
      flags: reasons to doubt the result.
      stages: the costs of the loader's stages; None where they were not measured.
      lines: the loader's slowest Python functions with the times of their lines.
    """

    subject: Subject
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
    flags: tuple[Flag, ...]
    stages: StageTable | None = None
    lines: tuple[AnnotatedFunction, ...] = ()

    @property
    def culprit(self) -> str:
        """The name of the largest part of loading; never the way to a CPU, which is noise."""
        noise = ("transfer",) if self.subject.device.kind == "cpu" else ()
        shares = self.attribution.shares.items()
        loading = {part: share for part, share in shares if share is not None and part not in ("compute", *noise)}
        return max(loading, key=loading.__getitem__)

    def of(self, window: str) -> list[Sample]:
        """Returns the samples of a window."""
        return [sample for sample in self.samples if sample.window == window]

    @property
    def model_images_per_sec(self) -> float | None:
        """Images per second of the model alone; None where the model alone was not measured."""
        alone = self.of("bare") or self.of("resident")
        return 1 / geometric_mean([sample.s_per_image for sample in alone]) if alone else None

    @property
    def is_least(self) -> bool:
        """Whether loading may be more than its parts sum to: what a loader takes from a CPU's steps is unknown."""
        return self.model_images_per_sec is None and self.subject.device.kind == "cpu"

    @property
    def most_taken_ratio(self) -> float | None:
        """The most of an epoch that a loader can take from the steps beside what is waited; None where that is unknown.

        Steps that share the cores with a loader are never behind by more than what the loader computes. Where a device
        computes behind the host, on the same cores, the loader may also hold the host up, which starts the next step
        that much later: that device is not seen to wait while it ends the step before.
        """
        cpu_us = None if self.stages is None else self.stages.loader_cpu_us_per_image
        shares = self.attribution.shares
        if cpu_us is None or shares.compute is None:
            return None
        held_up = (self.subject.facts.fetching_ratio or 0.0) - (shares.prep_stall or 0.0)
        return min(max(cpu_us / 1e6 * self.epoch_images_per_sec, held_up), max(shares.compute, 0.0))

    @property
    def pixels(self) -> tuple[float | None, float | None]:
        """Pixels of a mean image as it is decoded in every epoch, and as the model takes it; None where not known."""
        if self.stages is not None and self.stages.decoded_pixels is not None:
            return self.stages.decoded_pixels, self.stages.wanted_pixels
        return self.subject.decoded_pixels, self.subject.wanted_pixels

    @property
    def first_batch_ratio(self) -> float:
        """The part of the epochs before their first batch, which is known however few steps they have."""
        explained = self.explained
        return sum(sum(sample.first_batch_ns) for sample in explained) / sum(sample.epoch_ns for sample in explained)

    @property
    def remarks(self) -> tuple[str, ...]:
        """What a reader must know, as it is printed: the notes on the subject, and the flags."""
        return (*self.subject.notes, *map(str, self.flags))

    @property
    def explained(self) -> list[Sample]:
        """The samples that the result is about, `train` or `cold`; without unfinished epochs if others are whole."""
        return whole_samples(self.of(self.subject.explained))

    def by_round(self, window: str | None = None) -> dict[int, float]:
        """Returns the images/sec over whole epochs, by round, of a window; of `explained` unless given."""
        samples = self.explained if window is None else self.of(window)
        return {sample.round: 1 / sample.whole_s_per_image(self.subject.images) for sample in samples}

    def to_dict(self) -> dict[str, Any]:
        """Returns the figures that other tools read from a results file: derived figures, without the samples."""
        subject = self.subject
        utilization = "accelerator_utilization" if subject.device.accelerator else "compute_ratio"
        return {
            "variant": subject.variant,
            "model": subject.model,
            "device": {"kind": subject.device.kind, "name": subject.device.name},
            "page_cache": subject.page_cache,
            "batch_size": subject.batch_size,
            "unit": asdict(subject.unit),
            "config": dict(subject.config),
            "training": asdict(subject.facts),
            "work": list(subject.work),
            "epoch_images_per_sec": self.epoch_images_per_sec,
            "spread_ratio": self.spread_ratio,
            "images_per_sec": self.images_per_sec,
            "first_epoch_images_per_sec": self.first_epoch_images_per_sec,
            "first_batch_s": self.first_batch_s,
            # Set-up of `fit` before its first epoch. It is neither loading nor compute and counts in no share.
            "other_s": median([(sample.outer_ns - sample.epoch_ns) / 1e9 for sample in self.explained]),
            "loader_images_per_sec": self.loader_images_per_sec,
            "compute_images_per_sec": self.model_images_per_sec,
            "attribution": dict(self.attribution.shares.items()),
            "attribution_ci95": {
                part: None if interval is None else list(interval)
                for part, interval in self.attribution.shares_ci95.items()
            },
            "seconds_per_image": dict(self.attribution.seconds_per_image.items()),
            "loading_ratio": self.attribution.loading_ratio,
            "loading_ratio_ci95": self.attribution.loading_ratio_ci95 and list(self.attribution.loading_ratio_ci95),
            "loading_range": list(self.attribution.loading_range),
            "others_ratio": self.attribution.others_ratio,
            utilization: 1 - self.attribution.loading_ratio,
            "headspace": self.attribution.headspace,
            "host_wait_ratio": self.attribution.host_wait_ratio,
            **_stages_to_dict(self.stages, subject.unit),
            "lines": [asdict(function) for function in self.lines],
            "cpu_ms_per_image": dict(self.cpu_ms_per_image),
            "read_bytes_per_sec": subject.storage
            and {"cold": subject.storage.cold_bytes_per_sec, "warm": subject.storage.warm_bytes_per_sec},
            "bytes_per_image": subject.storage and subject.storage.bytes_per_file,
            "notes": list(subject.notes),
            "flags": [*map(str, self.flags), *(self.stages.remarks(subject.unit) if self.stages else ())],
        }


def _stages_to_dict(table: StageTable | None, unit: Unit) -> dict[str, Any]:
    if table is None:
        return {"stages": [], "stage_table": None}
    values = table.to_dict(unit)
    return {"stages": values.pop("stages"), "stage_table": values}


def summarise(
    subject: Subject,
    samples: Sequence[Sample],
    *,
    typical_canary_ns: float,
    stages: StageTable | None = None,
    lines: tuple[AnnotatedFunction, ...] = (),
) -> Result:
    """Derives a result from raw samples.

    Where the model alone was not measured, the attribution rests on the waiting of the training steps alone.

    Args:
      subject: what was measured.
      samples: of the subject; `train` at least, and `cold` for a cold row. Samples of windows that do not belong to a
        row of this page cache are ignored.
      typical_canary_ns: the median of the canary over the whole run.
      stages, lines: of the loader, where they were measured.
    Raises:
      ValueError: if a window that is required is missing.
    """
    samples = [sample for sample in samples if sample.window in WINDOWS_OF[subject.page_cache]]
    by_window: dict[str, list[Sample]] = {}
    for sample in samples:
        by_window.setdefault(sample.window, []).append(sample)
    for window in dict.fromkeys(("train", subject.explained)):
        if window not in by_window:
            raise ValueError(
                f"A {subject.page_cache} row needs the window {window!r}. "
                f"Received: {', '.join(by_window) or 'nothing'}."
            )
    if "resident" in by_window:
        attribution = attribute(by_window, device=subject.device, images=subject.images)
        explained = by_window.pop("cold", by_window["train"])
        flags = check_all(
            by_window | {"train": explained},
            attribution,
            typical_canary_ns=typical_canary_ns,
            buffered_batches=subject.buffered_batches,
            unit=subject.unit,
        )
    else:
        attribution = attribute_one_pass(by_window["train"], images=subject.images)
        flags = (*check_claims(by_window), *check_length(by_window, subject.unit), *check_rounds(by_window))
    return _result(subject, samples, attribution, (*flags, *subject.doubts), stages, lines)


def _result(
    subject: Subject,
    samples: Sequence[Sample],
    attribution: Attribution,
    flags: tuple[Flag, ...],
    stages: StageTable | None,
    lines: tuple[AnnotatedFunction, ...],
) -> Result:
    """Derives the rates, and puts the result together."""

    def of(window: str) -> list[Sample]:
        return [sample for sample in samples if sample.window == window]

    def cpu_ms(window: str) -> float | None:
        return 1e3 * median([sample.cpu_s_per_image for sample in of(window)]) if of(window) else None

    explained, loader, warmup = whole_samples(of(subject.explained)), of("loader"), of("warmup")
    compute_s = attribution.seconds_per_image.compute
    assert compute_s is not None
    return Result(
        subject=subject,
        samples=tuple(samples),
        attribution=attribution,
        epoch_images_per_sec=1 / attribution.epoch_s_per_image,
        spread_ratio=spread_ratio([sample.whole_s_per_image(subject.images) for sample in explained]),
        images_per_sec=1 / geometric_mean([sample.s_per_image for sample in explained]),
        first_epoch_images_per_sec=1 / warmup[0].epoch_s_per_image if warmup else None,
        first_batch_s=median([ns for sample in explained for ns in sample.first_batch_ns]) / 1e9,
        loader_images_per_sec=1 / geometric_mean([sample.whole_s_per_image(subject.images) for sample in loader])
        if loader
        else None,
        compute_images_per_sec=1 / compute_s,
        # Without windows of the model alone its CPU time was not measured.
        cpu_ms_per_image={"loader": cpu_ms("loader"), "model": cpu_ms("resident")},
        flags=flags,
        stages=stages,
        lines=lines,
    )
