"""The checks that can fail: each returns the flags of one result, an empty tuple where all is well."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from profiles.results.attribution import Attribution
from profiles.samples import Sample
from profiles.statistics import LEAST_ROUNDS, median

# Steps and edges against one clock around `fit`. Source: the design of this project; a Keras callback costs less.
UNCLAIMED_RATIO = 0.05
# The first round's `resident` against the last's. Unchanged code varies by some 5 % between runs on a shared machine
# (Quansight's A/A runs: standard deviation of the ratio 0.05), so that twice that is a machine that changed.
DRIFT_RATIO = 0.10
# A canary this much slower than the median of the run: something else had the core.
CANARY_RATIO = 1.5
# A training step may be this much slower than the model alone for a reason that is not the loader's CPU time.
UNEXPLAINED_RATIO = 0.05
# No `train` is faster than its ceilings; below this the two are one.
LAW_RATIO = 0.03

# Steady steps of an epoch, below which its first and last batch still shape the rate.
LEAST_STEADY_STEPS = 5
# A window is at least five times what its buffers hold, unless the model waits for them. Source: the design of this
# project; at 5 % of waiting the buffers are empty most of the time.
STEPS_PER_BUFFERED_BATCH, WAITING_RATIO = 5, 0.05

Samples = Mapping[str, Sequence[Sample]]


def check_claims(samples: Samples) -> tuple[str, ...]:
    """Checks that steps and edges account for the outer clock, in the samples whose pieces were timed by themselves."""
    ratios = [ratio for sample in samples["train"] if (ratio := sample.unclaimed_ratio) is not None]
    if not ratios:
        return ()
    unclaimed = median(ratios)
    if abs(unclaimed) <= UNCLAIMED_RATIO:
        return ()
    return (f"unclaimed: {unclaimed:.0%} of the time of fit is neither step nor edge",)


def check_drift(samples: Samples) -> tuple[str, ...]:
    """Checks that the model was as fast at the end as at the beginning."""
    resident = sorted(samples["resident"], key=lambda sample: sample.round)
    ratio = resident[-1].s_per_image / resident[0].s_per_image
    if 1 - DRIFT_RATIO <= ratio <= 1 + DRIFT_RATIO:
        return ()
    return (f"drift: the model alone took {ratio:.2f} times as long in the last round as in the first",)


def check_law(samples: Samples) -> tuple[str, ...]:
    """Checks that no `train` was faster than the model alone or the loader alone."""
    flags = []
    train = [sample.s_per_image for sample in samples["train"]]
    for window, name in (("resident", "the model"), ("loader", "the loader")):
        ceiling = [sample.s_per_image for sample in samples.get(window, ())]
        if not ceiling:
            continue
        apart = max(train) < min(ceiling)
        if apart and median(train) < (1 - LAW_RATIO) * median(ceiling):
            flags.append(
                f"not trustworthy: training was {median(ceiling) / median(train):.2f} times as fast as {name} alone"
            )
    return tuple(flags)


def check_canary(samples: Samples, typical_ns: float) -> tuple[str, ...]:
    """Names the rounds in which the machine was busy with something else."""
    every = [sample for window in samples.values() for sample in window if sample.window not in ("warmup", "again")]
    rounds = sorted({sample.round for sample in every if sample.canary_ns > CANARY_RATIO * typical_ns})
    if not rounds:
        return ()
    return (f"disturbed: the machine was slow in round {', '.join(str(number + 1) for number in rounds)}",)


def check_parts(attribution: Attribution) -> tuple[str, ...]:
    """Names parts that are negative beyond their spread."""
    flags = []
    for part, interval in attribution.shares_ci95.items():
        share = attribution.shares[part]
        if share is not None and interval is not None and interval[1] < 0 and share < -LAW_RATIO:
            flags.append(f"negative: {part} came to {share:.1%}, beyond the spread")
    return tuple(flags)


def check_own_steps(samples: Samples, attribution: Attribution) -> tuple[str, ...]:
    """Checks whether training steps were slower than the model alone for a reason that is not the loader."""
    alone_s = median([sample.s_per_image for sample in samples.get("bare") or samples["resident"]])
    times = (attribution.seconds_per_image.compute or 0.0) / alone_s
    if times <= 1 + UNEXPLAINED_RATIO:
        return ()
    return (
        f"slower by itself: a training step took {times:.2f} times as long as the model alone, and the loader's CPU "
        "time does not explain it; it is counted as compute",
    )


def check_length(samples: Samples) -> tuple[str, ...]:
    """Checks that epochs were long enough to have a steady state."""
    steps = min(len(sample.step_ns) // sample.epochs for sample in samples["train"])
    if steps >= LEAST_STEADY_STEPS:
        return ()
    return (f"short: {steps} steady steps in an epoch are too few for a rate; use more images or smaller batches",)


def check_buffers(samples: Samples, buffered_batches: int) -> tuple[str, ...]:
    """Checks that an epoch was long against what its buffers hold.

    Whole epochs begin and end with empty buffers. Where the loader is ahead of the model, the last batches come from
    full ones, while nothing is loaded any more; in a longer epoch that is a smaller part. Where the model waits for
    the loader, the buffers are empty throughout.
    """
    steps = min(_epoch_batches(sample) for sample in samples["train"])
    waits = median([sample.wait_ns / sample.wall_ns for sample in samples["train"]])
    if waits > WAITING_RATIO or steps >= STEPS_PER_BUFFERED_BATCH * buffered_batches:
        return ()
    return (f"buffered: up to {buffered_batches} of an epoch's {steps} batches were made ahead of its end",)


def _epoch_batches(sample: Sample) -> int:
    images_per_batch = sample.images / len(sample.step_ns)
    return round(sample.epoch_images / sample.epochs / images_per_batch)


def check_rounds(samples: Samples) -> tuple[str, ...]:
    """Checks that there are enough rounds for an interval to mean something."""
    rounds = min(len(samples[window]) for window in ("train", "resident") if samples.get(window))
    if rounds >= LEAST_ROUNDS:
        return ()
    return (f"few rounds: {rounds}, too few for an interval",)


def check_all(
    samples: Samples, attribution: Attribution, *, typical_canary_ns: float, buffered_batches: int
) -> tuple[str, ...]:
    """Runs every check on one result's samples."""
    return (
        *check_claims(samples),
        *check_length(samples),
        *check_rounds(samples),
        *check_buffers(samples, buffered_batches),
        *check_drift(samples),
        *check_law(samples),
        *check_canary(samples, typical_canary_ns),
        *check_parts(attribution),
        *check_own_steps(samples, attribution),
    )
