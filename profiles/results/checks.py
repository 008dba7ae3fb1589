"""Checks of samples. Each returns flags, which say why to doubt the result; an empty tuple if all is well."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from unstall.profiles.results.attribution import Attribution
from unstall.profiles.results.flags import Flag, FlagKind
from unstall.profiles.samples import Sample
from unstall.profiles.statistics import LEAST_ROUNDS, median
from unstall.profiles.unit import IMAGE, Unit

# Steps and edges may differ this much from one clock around `fit`. Source: the design of this project; a Keras callback
# costs less.
UNCLAIMED_RATIO = 0.05
# `resident` of the last round may differ this much from that of the first. Unchanged code varies by some 5 % between
# runs on a shared machine (Quansight's A/A runs: standard deviation of the ratio 0.05); at twice that the machine has
# changed.
DRIFT_RATIO = 0.10
# Where the canary takes this many times its median over the run, another program had the core.
CANARY_RATIO = 1.5
# A training step may be slower than the model alone by this ratio without the loader's CPU time explaining it.
UNEXPLAINED_RATIO = 0.05
# `train` cannot be faster than the model alone or the loader alone; a smaller difference is noise.
LAW_RATIO = 0.03

# In an epoch of fewer steady steps, the first and the last batch distort the rate.
LEAST_STEADY_STEPS = 5
# An epoch needs five times as many steps as its buffers hold batches, unless the model waits for more than this part of
# the time: then the buffers are empty most of the time. Source: the design of this project.
STEPS_PER_BUFFERED_BATCH, WAITING_RATIO = 5, 0.05

Samples = Mapping[str, Sequence[Sample]]


def check_claims(samples: Samples) -> tuple[Flag, ...]:
    """Checks that steps and edges sum to the outer clock, in the samples in which they were timed separately."""
    ratios = [ratio for sample in samples["train"] if (ratio := sample.unclaimed_ratio) is not None]
    if not ratios:
        return ()
    unclaimed = median(ratios)
    if abs(unclaimed) <= UNCLAIMED_RATIO:
        return ()
    return (Flag(kind=FlagKind.UNCLAIMED, text=f"{unclaimed:.0%} of the time of fit is neither step nor edge"),)


def check_drift(samples: Samples) -> tuple[Flag, ...]:
    """Checks that the model alone was as fast in the last round as in the first."""
    resident = sorted(samples["resident"], key=lambda sample: sample.round)
    ratio = resident[-1].s_per_image / resident[0].s_per_image
    if 1 - DRIFT_RATIO <= ratio <= 1 + DRIFT_RATIO:
        return ()
    text = f"the model alone took {ratio:.2f} times as long in the last round as in the first"
    return (Flag(kind=FlagKind.DRIFT, text=text),)


def check_law(samples: Samples) -> tuple[Flag, ...]:
    """Checks that no `train` was faster than the model alone or the loader alone."""
    flags = []
    train = [sample.s_per_image for sample in samples["train"]]
    for window, name in (("resident", "the model"), ("loader", "the loader")):
        ceiling = [sample.s_per_image for sample in samples.get(window, ())]
        if not ceiling:
            continue
        always_faster = max(train) < min(ceiling)
        if always_faster and median(train) < (1 - LAW_RATIO) * median(ceiling):
            text = f"training was {median(ceiling) / median(train):.2f} times as fast as {name} alone"
            flags.append(Flag(kind=FlagKind.NOT_TRUSTWORTHY, text=text))
    return tuple(flags)


def check_canary(samples: Samples, typical_ns: float) -> tuple[Flag, ...]:
    """Checks that the canary took no longer than usual, and flags the rounds in which it did.

    Args:
      typical_ns: the median of the canary over the whole run.
    """
    in_rounds = [sample for window in samples.values() for sample in window if sample.window not in ("warmup", "again")]
    rounds = sorted({sample.round for sample in in_rounds if sample.canary_ns > CANARY_RATIO * typical_ns})
    if not rounds:
        return ()
    text = f"the machine was slow in round {', '.join(str(number + 1) for number in rounds)}"
    return (Flag(kind=FlagKind.DISTURBED, text=text),)


def check_parts(attribution: Attribution) -> tuple[Flag, ...]:
    """Checks that no part is negative beyond its 95 % interval."""
    flags = []
    for part, interval in attribution.shares_ci95.items():
        share = attribution.shares[part]
        if share is not None and interval is not None and interval[1] < 0 and share < -LAW_RATIO:
            flags.append(Flag(kind=FlagKind.NEGATIVE, text=f"{part} came to {share:.1%}, beyond the spread"))
    return tuple(flags)


def check_own_steps(samples: Samples, attribution: Attribution) -> tuple[Flag, ...]:
    """Checks that training steps took no longer than the model alone, beyond what the loader's CPU time explains."""
    alone_s = median([sample.s_per_image for sample in samples.get("bare") or samples["resident"]])
    times = (attribution.seconds_per_image.compute or 0.0) / alone_s
    if times <= 1 + UNEXPLAINED_RATIO:
        return ()
    text = (
        f"a training step took {times:.2f} times as long as the model alone, and the loader's CPU time does not "
        "explain it; it is counted as compute"
    )
    return (Flag(kind=FlagKind.SLOWER_BY_ITSELF, text=text),)


def check_length(samples: Samples, unit: Unit = IMAGE) -> tuple[Flag, ...]:
    """Checks that every epoch had enough steady steps for a rate."""
    steps = min(len(sample.step_ns) // sample.epochs for sample in samples["train"])
    if steps >= LEAST_STEADY_STEPS:
        return ()
    text = f"{steps} steady steps in an epoch are too few for a rate; use more {unit.plural} or smaller batches"
    return (Flag(kind=FlagKind.SHORT, text=text),)


def check_buffers(samples: Samples, buffered_batches: int) -> tuple[Flag, ...]:
    """Checks that an epoch was long in comparison with the loader's buffers.

    An epoch begins and ends with empty buffers. Where the loader is ahead of the model, the model reads the last
    batches from buffers while nothing is loaded; the longer the epoch, the smaller this part. Where the model waits for
    the loader, the buffers are empty all the time.

    Args:
      buffered_batches: batches that the loader's buffers can hold.
    """
    steps = min(_epoch_batches(sample) for sample in samples["train"])
    waits = median([sample.wait_ns / sample.wall_ns for sample in samples["train"]])
    if waits > WAITING_RATIO or steps >= STEPS_PER_BUFFERED_BATCH * buffered_batches:
        return ()
    text = f"up to {buffered_batches} of an epoch's {steps} batches were made ahead of its end"
    return (Flag(kind=FlagKind.BUFFERED, text=text),)


def _epoch_batches(sample: Sample) -> int:
    images_per_batch = sample.images / len(sample.step_ns)
    return round(sample.epoch_images / sample.epochs / images_per_batch)


def check_rounds(samples: Samples) -> tuple[Flag, ...]:
    """Checks that there are enough rounds for an interval."""
    rounds = min(len(samples[window]) for window in ("train", "resident") if samples.get(window))
    if rounds >= LEAST_ROUNDS:
        return ()
    return (Flag(kind=FlagKind.FEW_ROUNDS, text=f"{rounds}, too few for an interval"),)


def check_all(
    samples: Samples,
    attribution: Attribution,
    *,
    typical_canary_ns: float,
    buffered_batches: int,
    unit: Unit = IMAGE,
) -> tuple[Flag, ...]:
    """Runs every check on the samples of one result.

    Args:
      samples: by window. In the place of `train` stand the samples that the result is about.
      attribution: of these samples.
      typical_canary_ns: the median of the canary over the whole run.
      buffered_batches: batches that the loader's buffers can hold.
      unit: what a batch holds.
    """
    return (
        *check_claims(samples),
        *check_length(samples, unit),
        *check_rounds(samples),
        *check_buffers(samples, buffered_batches),
        *check_drift(samples),
        *check_law(samples),
        *check_canary(samples, typical_canary_ns),
        *check_parts(attribution),
        *check_own_steps(samples, attribution),
    )
