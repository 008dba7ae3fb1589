"""The first screens of the main job: the variants of each model and device beside each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from unstall.profiles.report.document import LeftOut
from unstall.profiles.report.screen import Picture, Screen, ScreenBar, ScreenLine
from unstall.profiles.report.screen_lines import (
    SIGNS,
    by_sign,
    classes_text,
    is_fault,
    is_short,
    left_out_lines,
    stages_line,
    verdict_line,
    warning_of,
)
from unstall.profiles.report.terminal import cold_sentences, described_results
from unstall.profiles.results.evidence import Advice
from unstall.profiles.results.result import Result
from unstall.profiles.results.verdict import Verdict
from unstall.profiles.statistics import range_text

_LOADERS = {
    "image_data_generator": "Keras' ImageDataGenerator",
    "py_dataset": "a PyDataset",
    "image_dataset_from_directory": "image_dataset_from_directory",
    "tf_data": "tf.data",
}


def compared_screens(
    groups: Sequence[Sequence[Verdict]],
    *,
    baseline: str,
    dataset: Mapping[str, Any],
    data: str,
    as_typed: Callable[[str], str],
    left_out: Sequence[LeftOut] = (),
) -> tuple[Screen, ...]:
    """Returns a screen for each model and device: its variants beside each other.

    Args:
      groups: the verdicts on all variants of each model and device.
      baseline: the variant that the others are compared with.
      dataset: the data, as the document holds them.
      data: their name.
      as_typed: returns what the user typed for the name of the data or of a model, as a shell reads it.
      left_out: variants without a result.
    """
    if not groups:
        return (Screen(heading=(f"unstall: {data}",), verdict=left_out_lines(left_out)),)
    first, *others = (_compared_screen(group, baseline, dataset, data, as_typed) for group in groups)
    return (replace(first, why=(*first.why, *left_out_lines(left_out))), *others)


def _compared_screen(
    group: Sequence[Verdict], baseline: str, dataset: Mapping[str, Any], data: str, as_typed: Callable[[str], str]
) -> Screen:
    warm = [verdict for verdict in group if verdict.result.subject.page_cache == "warm"] or group
    described = described_results([verdict.result for verdict in group], baseline)
    result = described[0]
    judged = next(verdict for verdict in group if verdict.result is result)
    subject = result.subject
    size = subject.config.get("image_size") or ()
    facts = [
        "x".join(map(str, size)) if isinstance(size, Sequence) else "",
        "" if subject.facts.parameters is None else f"{subject.facts.parameters:,} parameters",
    ]
    cores = "" if subject.cores is None else f", {subject.cores:g} cores"
    images, classes = dataset.get("images"), list(dataset.get("classes") or ())
    heading = (
        f"unstall: {images:,} images, {classes_text(classes)}, from {dataset.get('name')}"
        if isinstance(images, int) and classes
        else f"unstall: {data}",
        f"{subject.model} ({', '.join(fact for fact in facts if fact)}) on {subject.device.name}{cores}; "
        f"{len(warm)} pipeline{'s' if len(warm) > 1 else ''}",
    )
    with_loader = f" with {_loader(result)}"
    lines = [verdict_line(judged, with_loader)]
    if judged.rivals:
        lines.append(_fastest_line(judged, group))
    if result.model_images_per_sec is not None and not is_short(result):
        lines.append(_limit_line(judged, group, result.model_images_per_sec))
    why = stages_line(result) or _first_fault(judged)
    cold = cold_sentences([verdict.result for verdict in group], described)
    return Screen(
        heading=heading,
        warning=warning_of([verdict.result for verdict in group]),
        verdict=tuple(lines),
        picture=_compared_picture(group, judged, baseline),
        why=(*(() if why is None else (why,)), *(ScreenLine(label="COLD", text=sentence) for sentence in cold)),
        next=(_next_of_compared(judged, as_typed(data), as_typed(subject.model)),),
    )


def _loader(result: Result) -> str:
    kind = _LOADERS.get(str(result.subject.config.get("loader")))
    return f"{result.subject.variant}{f' ({kind})' if kind else ''}"


def _fastest_line(verdict: Verdict, group: Sequence[Verdict]) -> ScreenLine:
    """Returns the variant that is surely the fastest, how much faster than the judged one, and how it differs.

    What was chosen is measured again, and the others are not. So one of them can stand above it in the picture.
    """
    subject = verdict.result.subject
    ratio, first = _first_of(group, verdict)
    name = first.subject.variant
    if not verdict.advice:
        if round(ratio, 2) > 1 and first.spread_ratio is None and first.subject.page_cache == subject.page_cache:
            text = f"{name} may be {ratio:.2f} times as fast as {subject.variant}: too few rounds to be sure."
            return ScreenLine(label="FASTEST", text=text)
        return ScreenLine(label="FASTEST", text=f"no other pipeline is surely faster than {subject.variant}.")
    *same, fastest = verdict.printed_advice
    rate = fastest.measured_ratio * verdict.result.epoch_images_per_sec
    text = f"{_times(fastest)}, {rate:,.0f} {subject.unit.rate}."
    if not fastest.same_work:
        text += (
            f" Its images differ: {', '.join(fastest.work) or 'full decode, bilinear, augmented'}; those of "
            f"{subject.variant}: {', '.join(subject.work) or 'full decode, bilinear, augmented'}."
        )
    if same:
        text += f" With the same images: {_times(same[0])}."
    again = {advice.change for advice in verdict.advice if advice.again}
    if fastest.again and ratio > fastest.measured_ratio and name not in again:
        text += f" {name} may be as fast: {ratio:.2f}x in the rounds before."
    return ScreenLine(label="FASTEST", text=text)


def _limit_line(judged: Verdict, group: Sequence[Verdict], model_rate: float) -> ScreenLine:
    """Returns the rate of the model alone, and in which rounds that was where a rate of the picture lies above it.

    The fastest is measured again, after the model alone: by a machine that became faster meanwhile, its ratio to the
    judged one makes more of the judged one's rate than the model had.
    """
    unit = judged.result.subject.unit.rate
    ratio, fastest = _first_of(group, judged)
    rate, text = fastest.epoch_images_per_sec, f"the model alone does {model_rate:,.0f} {unit}"
    if rate <= model_rate < ratio * judged.result.epoch_images_per_sec:
        rounds = f"the rounds in which {fastest.subject.label} had {rate:,.0f}"
        text = f"the model alone did {model_rate:,.0f} {unit} in {rounds}"
    return ScreenLine(label="LIMIT", text=f"{text}: no loader can give more.")


def _first_of(group: Sequence[Verdict], judged: Verdict) -> tuple[float, Result]:
    """Returns the result that stands first in the picture, and how many times as fast as the judged one it is."""
    return max(((_ratio(other.result, judged), other.result) for other in group), key=lambda pair: pair[0])


def _ratio(result: Result, judged: Verdict) -> float:
    """Returns how many times as fast a result is as the judged one: as its verdict says, where that speaks of it."""
    subject, own = result.subject, judged.result.subject
    for advice in judged.advice:
        if (advice.change, own.page_cache) == (subject.variant, subject.page_cache):
            return advice.measured_ratio
    return result.epoch_images_per_sec / judged.result.epoch_images_per_sec


def _times(advice: Advice) -> str:
    again = "; measured again after it was chosen" if advice.again else ""
    return f"{advice.change}, {advice.measured_ratio:.2f}x ({range_text(advice.ci95)}{again})"


def _compared_picture(group: Sequence[Verdict], judged: Verdict, baseline: str) -> Picture:
    """Returns a bar for each result. Rates are the judged one's times the ratios, so that no two figures disagree."""
    rate = judged.result.epoch_images_per_sec
    ratios = [(_ratio(verdict.result, judged), verdict.result) for verdict in group]
    return Picture(
        columns=(judged.result.subject.unit.rate, "times"),
        signs=SIGNS,
        bars=tuple(
            ScreenBar(
                name=f"{result.subject.label}{' (baseline)' if result.subject.label == baseline else ''}",
                cells=(
                    f"{ratio * rate:,.0f}",
                    f"{ratio:.2f}x",
                ),
                parts=by_sign(result.attribution.seconds_per_image, result),
            )
            for ratio, result in sorted(ratios, key=lambda ratio_and_result: -ratio_and_result[0])
        ),
    )


def _first_fault(verdict: Verdict) -> ScreenLine | None:
    fault = next((finding for finding in verdict.findings[1:] if is_fault(finding)), None)
    return None if fault is None else ScreenLine(label="WHY", text=fault.sentences())


def _next_of_compared(verdict: Verdict, data: str, model: str) -> ScreenLine:
    bound = verdict.result.attribution.bound
    if bound == "compute":
        return ScreenLine(label="NEXT", text="nothing here: look for time in the model (docs/models.md).")
    if bound == "uncertain" or is_short(verdict.result):
        return ScreenLine(
            label="NEXT", text="the same again when the machine is quiet, with more photos, or with --thorough."
        )
    code = f"unstall tune --data {data} --model {model}"
    return ScreenLine(label="NEXT", text="the fastest pipeline for these photos, as tf.data code:", code=(code,))
