"""The rules of a whole `fit`: what validation and tracing cost, and whether epochs get slower."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from unstall.profiles.results.account import STEPS_TOGETHER, Account
from unstall.profiles.results.evidence import Finding, PossibleGain
from unstall.profiles.results.result import Result
from unstall.profiles.results.rules import COSTLY_RATIO, gain_without
from unstall.profiles.samples import Sample
from unstall.profiles.statistics import falls, median

# With validation in every second epoch only, half of its time is gone.
_VALIDATION_FREQ = 2
# Epochs get slower if the order of their rates is as unlikely as this by accident, and the fall is this large.
_SLOWER_P, _SLOWER_RATIO, _LEAST_EPOCHS = 0.01, 0.1, 6
# Fewer bytes than this are read from storage in any epoch, by Python itself. Memory that grows by less is a warm-up.
_LEAST_READ_BYTES, _GROWN_MEMORY = 10_000_000, 1.5


def fit_findings(account: Account, result: Result | None) -> tuple[Finding, ...]:
    """Returns the findings about a whole `fit`, the most costly first.

    Args:
      account: of the `fit`.
      result: of its epochs; None where loading and compute could not be separated.
    """
    found = [
        _validation_edges(account),
        _validation_waits(account),
        _validation_freq(account),
        _retracing(account),
        _steps_per_execution(account),
        _hidden_by_steps_per_execution(account),
        None if result is None else _slower_epochs(result),
    ]
    return tuple(sorted((finding for finding in found if finding is not None), key=lambda finding: -finding.cost_ratio))


def _validation_edges(account: Account) -> Finding | None:
    share = account.ratio("validation_edges_ns")
    if share < COSTLY_RATIO or not account.validations:
        return None
    each_s = account.validation_edges_ns / account.validations / 1e9
    return Finding(
        rule="validation edges",
        text=f"Each of {account.validations} validations takes {each_s:.2f} s before its first and behind its last "
        f"step, {share:.0%} of the fit: Keras makes the iterator of the validation data anew",
        cost_ratio=share,
        advice="validate less often (`validation_freq`), or on data whose iterator is quickly made (no shuffle buffer, "
        "a cache, few parallel calls)",
        gain=gain_without(share, "over the whole fit, if the edges were gone"),
    )


def _validation_waits(account: Account) -> Finding | None:
    share = account.ratio("validation_waiting_ns")
    if share < COSTLY_RATIO:
        return None
    return Finding(
        rule="validation waits",
        text=f"Validation waits for its batches in {share:.0%} of the fit",
        cost_ratio=share,
        advice="give the validation data what the training data have: parallel calls, `cache()`, `prefetch()`",
        gain=gain_without(share, "over the whole fit, if validation did not wait"),
    )


def _validation_freq(account: Account) -> Finding | None:
    share = account.validation_ratio
    if share < 2 * COSTLY_RATIO or account.validations < account.epochs:
        return None
    return Finding(
        rule="validation in every epoch",
        text=f"Validation takes {share:.0%} of the fit, once in every epoch",
        cost_ratio=share,
        advice=f"validate in every second epoch (`validation_freq={_VALIDATION_FREQ}`)",
        gain=gain_without(share * (1 - 1 / _VALIDATION_FREQ), "over the whole fit, with half of the validations"),
    )


def _retracing(account: Account) -> Finding | None:
    share = account.ratio("retracing_ns")
    if share < COSTLY_RATIO:
        return None
    causes = ", ".join(f"{cause}: {count}" for cause, count in account.traces.items())
    return Finding(
        rule="retracing",
        text=f"Steps behind the first epoch trace or compile the model in {share:.0%} of the fit ({causes})",
        cost_ratio=share,
        advice="compile the model once, outside of loops, and give batches of one shape (`drop_remainder=True`)",
        gain=gain_without(share, "over the whole fit, if nothing were traced twice"),
    )


def _steps_per_execution(account: Account) -> Finding | None:
    if account.step_ns is None or not account.wall_ns:
        return None
    alone_ns, together_ns = account.step_ns
    share = min(account.steps * (alone_ns - together_ns), account.compute_ns) / account.wall_ns
    if share < COSTLY_RATIO:
        return None
    return Finding(
        rule="steps per execution",
        text=f"A step of the model alone takes {alone_ns / 1e6:.2f} ms in `fit`, and {together_ns / 1e6:.2f} ms where "
        f"Keras makes {STEPS_TOGETHER} steps in a call: {share:.0%} of the fit is spent on calls",
        cost_ratio=share,
        advice=f"make several steps in a call (`compile(..., steps_per_execution={STEPS_TOGETHER})`); callbacks then "
        "run, and losses are shown, once for each call",
        gain=gain_without(
            share, "over the whole fit, by what steps of the model alone gain; drawing batches gains too"
        ),
    )


def _hidden_by_steps_per_execution(account: Account) -> Finding | None:
    if account.steps_per_execution == 1 or account.waiting_ns is not None:
        return None
    return Finding(
        rule="hidden by steps per execution",
        text=f"With steps_per_execution={account.steps_per_execution} TensorFlow draws the batches while it computes, "
        "so that waiting cannot be told from compute: profile the script with steps_per_execution=1 to see the waiting",
    )


def _slower_epochs(result: Result) -> Finding | None:
    train = sorted((sample for sample in result.of("train") if sample.whole), key=lambda sample: sample.round)
    if len(train) < _LEAST_EPOCHS:
        return None
    rates = [1 / sample.epoch_s_per_image for sample in train]
    third = len(train) // 3
    first, last = train[:third], train[-third:]
    before_s, after_s = (median([sample.epoch_s_per_image for sample in part]) for part in (first, last))
    if falls(rates) >= _SLOWER_P or after_s < (1 + _SLOWER_RATIO) * before_s:
        return None
    slower_s = after_s - before_s
    return Finding(
        rule="slower epochs",
        text=f"Epochs get slower: {1 / before_s:,.0f} {result.subject.unit.plural}/sec in the first third, "
        f"{1 / after_s:,.0f} in the last; {_cause(first, last, slower_s)}",
        cost_ratio=1 - before_s / after_s,
        gain=PossibleGain(
            ratio=after_s / before_s, kind="predicted", assumption="if the last epochs were as the first"
        ),
    )


def _cause(first: Sequence[Sample], last: Sequence[Sample], slower_s: float) -> str:
    """Returns a clause: which part of an image's time grew most, and what else changed."""

    def grew(value_of: Callable[[Sample], float]) -> float:
        return median([value_of(sample) for sample in last]) - median([value_of(sample) for sample in first])

    waits_s = grew(lambda sample: sample.wait_s_per_image)
    steps_s = grew(lambda sample: sample.s_per_image - sample.wait_s_per_image)
    edges_s = slower_s - waits_s - steps_s
    parts = {"waiting for batches": waits_s, "the steps themselves": steps_s, "the edges of epochs": edges_s}
    name, most_s = max(parts.items(), key=lambda part: part[1])
    return "; ".join([f"{min(most_s / slower_s, 1):.0%} of it is {name}", *_seen(list(zip(first, last, strict=True)))])


def _seen(pairs: Sequence[tuple[Sample, Sample]]) -> list[str]:
    """Returns what was seen to change between the first and the last epochs, and may be why the last are slower."""

    def medians(value_of: Callable[[Sample], float | None]) -> tuple[float, float] | None:
        values = [(value_of(before), value_of(after)) for before, after in pairs]
        known = [(before, after) for before, after in values if before is not None and after is not None]
        return (median([before for before, _ in known]), median([after for _, after in known])) if known else None

    seen = []
    others = medians(lambda sample: sample.others_ratio)
    if others and others[1] - others[0] >= COSTLY_RATIO:
        seen.append(f"other programs took {others[1] - others[0]:.0%} more of the cores by then")
    reads = medians(lambda sample: None if sample.strain is None else sample.strain.read_bytes)
    if reads and reads[1] >= 2 * reads[0] + _LEAST_READ_BYTES:
        seen.append(
            f"an epoch read {reads[1] / 1e6:,.0f} MB from storage by then, {reads[0] / 1e6:,.0f} MB at first: the page "
            "cache has lost the files"
        )
    memory = medians(lambda sample: None if sample.strain is None else sample.strain.memory_bytes)
    if memory and memory[1] >= _GROWN_MEMORY * memory[0]:
        seen.append(f"the process grew from {memory[0] / 1e9:.1f} to {memory[1] / 1e9:.1f} GB of memory")
    throttled = medians(lambda sample: None if sample.strain is None else sample.strain.throttled_ratio)
    if throttled and throttled[1] - throttled[0] >= COSTLY_RATIO:
        seen.append(f"the CPU quota stopped the process in {throttled[1] - throttled[0]:.0%} more of the time")
    return seen
