"""What a measurement means, in plain words: pure functions of results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from profiles.results.evidence import Advice, Evidence, Finding
from profiles.results.result import Result
from profiles.results.rules import findings
from profiles.samples import Sample
from profiles.statistics import median, ratio_interval

# Findings in the printed text, the first included; all are in the files.
_SHOWN_FINDINGS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What holds one variant back on one model and device.

    Attributes:
      result: what it is about.
      advice: alternatives that were measured beside it and are significantly faster, best first.
      findings: what the rules found: what sets its pace, then the most costly first.
      rivals: how many others were measured beside it.
    """

    result: Result
    advice: tuple[Advice, ...]
    findings: tuple[Finding, ...]
    rivals: int

    def to_dict(self) -> dict[str, Any]:
        one, attribution = self.result.contender, self.result.attribution
        return {
            "model": one.model,
            "device": {"kind": one.device.kind, "name": one.device.name},
            "variant": one.variant,
            "page_cache": one.page_cache,
            "bound": attribution.bound,
            "loading_ratio": attribution.loading_ratio,
            "culprit": attribution.culprit,
            "advice": [
                {
                    "change": advice.change,
                    "predicted_ratio": advice.predicted_ratio,
                    "measured_ratio": advice.measured_ratio,
                    "ci95": list(advice.ci95),
                    "same_work": advice.same_work,
                }
                for advice in self.advice
            ],
            "findings": [finding.to_dict() for finding in self.findings],
        }

    def text(self) -> str:
        """Says it in a few sentences: what sets the pace, what costs most, what was measured to be faster."""
        one = self.result.contender
        who = f"{one.label}," if one.page_cache == "cold" else one.label
        first, *others = self.findings[:_SHOWN_FINDINGS]
        said = [f"{who} on {one.model}, {one.device.name}, is {first.sentences()}"]
        said += [finding.sentences() for finding in others]
        said += [f"{sentence}." for sentence in self._advice()]
        return " ".join(said)

    def _advice(self) -> list[str]:
        same = next((advice for advice in self.advice if advice.same_work), None)
        any_work = self.advice[0] if self.advice else None
        if not self.rivals:
            return []
        if any_work is None:
            return ["No other variant that was measured is significantly faster"]
        said = []
        if same is not None:
            said.append(f"Fastest at the same work: {_gain(same)}")
        if any_work is not same:
            works = f"{_work(any_work.work)}; here: {_work(self.result.contender.work)}"
            said.append(f"Fastest of all, at other work per image ({works}): {_gain(any_work)}")
        return said


def _work(marks: tuple[str, ...]) -> str:
    return ", ".join(marks) or "full decode, bilinear, augmented"


def _gain(advice: Advice) -> str:
    low, high = advice.ci95
    return f"{advice.change}, {advice.measured_ratio:.2f} times as fast ({low:.2f} to {high:.2f})"


def speed_up(result: Result, over: Result) -> tuple[float, float, float]:
    """Returns images/sec of one over the other's, by rounds measured side by side, and its interval.

    Raises:
      ValueError: if they share no round.
    """
    return _speed_up(result.explained, over.explained)


def _speed_up(ours: Sequence[Sample], theirs: Sequence[Sample]) -> tuple[float, float, float]:
    fast = {sample.round: sample.s_per_image for sample in ours}
    slow = {sample.round: sample.s_per_image for sample in theirs}
    shared = sorted(fast.keys() & slow.keys())
    return ratio_interval([slow[number] for number in shared], [fast[number] for number in shared])


def what_the_cache_hides(result: Result) -> str:
    """Says in a sentence how much slower a cold row is than the warm one beside it, and what its storage can give.

    Args:
      result: a cold row.
    Raises:
      ValueError: if cold and warm share no round.
    """
    warm = result.of("train")
    _, low, _ = _speed_up(warm, result.explained)
    cold_rate, warm_rate = result.images_per_sec, 1 / median([sample.s_per_image for sample in warm])
    hidden = f"{1 - cold_rate / warm_rate:.0%}" if low > 1 else "nothing beyond the spread"
    said = (
        f"{result.contender.variant}: cold {cold_rate:,.0f} img/s, warm {warm_rate:,.0f}: the page cache hides {hidden}"
    )
    storage = result.contender.storage
    if storage is not None:
        asked = _rate(max(cold_rate, warm_rate) * storage.bytes_per_file)
        said += f"; storage gave {_rate(storage.cold_bytes_per_sec)}, the loader asked for {asked} at most"
    return f"{said}."


def _rate(bytes_per_sec: float) -> str:
    return f"{bytes_per_sec / 1e6:,.{0 if bytes_per_sec >= 10e6 else 1}f} MB/s"


def evidence_of(result: Result) -> Evidence:
    """Returns what a result itself says of its loader's stages and workers."""
    training, stages = result.contender.training, result.stages
    asked, seen = training.get("workers_asked"), training.get("workers_effective")
    if seen is None and stages is not None:
        asked, seen = stages.workers, stages.workers_seen
    return Evidence(
        result=result,
        stages=stages,
        cores=None if stages is None else stages.cores,
        workers_asked=asked if isinstance(asked, int) else None,
        workers_seen=seen,
    )


def judge(results: Sequence[Result], evidence: Callable[[Result], Evidence] = evidence_of) -> list[Verdict]:
    """Judges every result against the others of its model, device and page cache.

    Args:
      results: of one run.
      evidence: returns what is known of a result beyond its samples; `advice` is filled in here.
    """
    verdicts = []
    for result in results:
        rivals = [
            other
            for other in results
            if other is not result
            and other.contender.model == result.contender.model
            and other.contender.device == result.contender.device
            and other.contender.page_cache == result.contender.page_cache
            and _rounds(other) & _rounds(result)
        ]
        advice = [_advice(rival, result) for rival in rivals]
        best_first = tuple(sorted((one for one in advice if one.significant), key=lambda one: -one.measured_ratio))
        found = findings(replace(evidence(result), advice=best_first))
        verdicts.append(Verdict(result=result, advice=best_first, findings=found, rivals=len(rivals)))
    return verdicts


def _rounds(result: Result) -> set[int]:
    return {sample.round for sample in result.explained}


def _advice(rival: Result, result: Result) -> Advice:
    ratio, low, high = speed_up(rival, result)
    return Advice(
        change=rival.contender.variant,
        measured_ratio=ratio,
        ci95=(low, high),
        work=rival.contender.work,
        rounds=len(_rounds(rival) & _rounds(result)),
        same_work=rival.contender.work == result.contender.work,
    )
