"""The results of the advice: the rates of the changes to a user's own pipeline, and which of them is advised."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from benchmarks.tune.own.samples import AdviceSamples, PipelineFacts
from benchmarks.tune.plan import AdviceAsked
from benchmarks.tune.results import EQUAL_RATIO, shared_rounds
from profiles.remedies import AS_WRITTEN, Change
from profiles.report import Document
from profiles.samples import Sample
from profiles.statistics import Interval, geometric_mean, ratio_interval, significantly_above

# A change must make the pipeline this many times as fast to be advised.
_WORTH_IT = 1 + EQUAL_RATIO

AdviceDocument = Document[AdviceAsked, AdviceSamples]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The rates of a change.

    Attributes:
      epoch_images_per_sec: of whole epochs of training, by round.
      against: how many times as fast as the pipeline as written it is, and the 95 % interval.
      again: the same from rounds measured after the choice, which they did not influence; None without such rounds.
    """

    change: Change
    epoch_images_per_sec: tuple[float, ...]
    against: tuple[float, Interval | None]
    again: tuple[float, Interval | None] | None = None

    @property
    def name(self) -> str:
        return self.change.name

    @property
    def rate(self) -> float:
        """Images per second: the mean whose ratios are those of `against`."""
        return geometric_mean(self.epoch_images_per_sec)


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """The rates of the changes, and the choice.

    Attributes:
      results: of all that were measured, the pipeline as written first.
      chosen: the fastest of those that are significantly faster than the pipeline as written, also when both were
        measured again; None where there is none.
    """

    results: tuple[Result, ...]
    chosen: Result | None


def derive(document: AdviceDocument) -> Results:
    """Derives rates from samples, and chooses; a gain that is not significant, or below 3 %, does not count."""
    return results_of(document.samples, ended=document.complete)


def results_of(samples: AdviceSamples, *, ended: bool) -> Results:
    """Returns the rates of the changes, and the choice.

    Args:
      ended: whether the measurement came to its end. Before that, the rounds that measure the choice again are
        incomplete, and the choice of the first rounds is returned.
    """
    results = _results(samples)
    chosen = _chosen(results)
    if chosen is None or not ended or chosen.name != samples.chosen_first:
        return Results(results=results, chosen=chosen)
    again = _again(samples, chosen.name)
    confirmed = replace(chosen, again=again)
    holds = again is not None and again[1] is not None and again[1][0] > 1 and again[0] >= _WORTH_IT
    return Results(
        results=tuple(confirmed if result is chosen else result for result in results),
        chosen=confirmed if holds else None,
    )


def _results(samples: AdviceSamples) -> tuple[Result, ...]:
    facts = samples.facts
    if facts is None:
        return ()
    rates = {measured.name: _rates(measured.samples, facts) for measured in samples.changes}
    as_written = rates.get(AS_WRITTEN, ())
    if not as_written:
        return ()
    return tuple(
        Result(
            change=change,
            epoch_images_per_sec=rates[change.name],
            against=ratio_interval(*shared_rounds(rates[change.name], as_written)),
        )
        for change in facts.changes
        if rates.get(change.name)
    )


def _chosen(results: Sequence[Result]) -> Result | None:
    """Returns the fastest change that is faster than the pipeline as written, significantly and by `_WORTH_IT`."""
    if not results:
        return None
    as_written, *changed = results
    faster = significantly_above(
        [shared_rounds(result.epoch_images_per_sec, as_written.epoch_images_per_sec) for result in changed]
    )
    better = [
        result
        for result, is_faster in zip(changed, faster, strict=True)
        if is_faster and result.against[0] >= _WORTH_IT
    ]
    return max(better, key=lambda result: result.rate) if better else None


def _again(samples: AdviceSamples, name: str) -> tuple[float, Interval | None] | None:
    """Returns the ratio of a change, and its interval, from the rounds that measured it again; None where it failed."""
    assert samples.facts is not None
    rates = {measured.name: _rates(measured.again, samples.facts) for measured in samples.changes}
    return ratio_interval(*shared_rounds(rates[name], rates[AS_WRITTEN])) if rates[name] else None


def _rates(samples: Sequence[Sample], facts: PipelineFacts) -> tuple[float, ...]:
    return tuple(1 / _whole_s_per_image(sample, facts) for sample in samples)


def _whole_s_per_image(sample: Sample, facts: PipelineFacts) -> float:
    """Returns the time per image of a whole epoch of the user's pipeline."""
    if facts.scaled:
        return sample.whole_s_per_image()
    return sample.s_per_image if facts.epoch_images is None else sample.whole_s_per_image(round(facts.epoch_images))
