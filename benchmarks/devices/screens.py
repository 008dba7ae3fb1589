"""The first screens of a comparison of devices: one for each experiment."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from unstall.benchmarks.devices.experiments import Case
from unstall.benchmarks.devices.findings import Findings, costs, fastest_text, recommend, seconds_text
from unstall.benchmarks.devices.results import CaseResult
from unstall.profiles.report import SIGNS, Document, Picture, Screen, ScreenBar, ScreenLine, by_sign
from unstall.profiles.results import INPUT_FROM


def experiment_screen(findings: Findings, notes: Sequence[str], document: Document[Any, Any]) -> Screen:
    """Returns the screen of an experiment: its cases on each device.

    Args:
      notes: what a reader must know about the backends.
      document: of the run, which says what the user typed.
    """
    devices = dict.fromkeys(result.device.name for result in findings.results)
    cases = findings.cases
    return Screen(
        heading=(
            f"unstall: {findings.name}: {findings.experiment.title}",
            f"{len(cases)} case{'s' if len(cases) > 1 else ''} on {', '.join(devices)}",
        ),
        verdict=tuple(line for case in cases for line in _verdict(findings, case)),
        picture=_picture((f"{result.case.name} on {result.device.name}", result) for result in findings.results),
        why=tuple(ScreenLine(label="", text=note) for note in notes),
        next=(_next(findings.results, document),),
    )


def _verdict(findings: Findings, case: Case) -> Iterable[ScreenLine]:
    """Yields which device is the fastest for a case, what loading takes of an advantage, costs and accuracies."""
    results = findings.of(case)
    name = case.name if len(findings.cases) > 1 else ""
    fastest = fastest_text(results)
    if fastest is not None:
        yield ScreenLine(label="FASTEST", text=_sentence(fastest, name))
    for sentence in () if fastest else recommend(results):
        shares = "".join(
            f" {result.loading_ratio:.0%} of an epoch on {result.device.name} is loading."
            for result in results
            if result.loading_ratio is not None
        )
        yield ScreenLine(label="ONE DEVICE", text=_sentence(f"{sentence}{shares}", name))
    for advantage in findings.advantages:
        if advantage.case == case:
            yield ScreenLine(label="LOADING", text=_sentence(advantage.text, name))
    for sentence in (*(costs(results) if fastest else ()), *findings.accuracies(case)):
        yield ScreenLine(label="", text=_sentence(sentence, name))


def _sentence(text: str, case: str) -> str:
    return f"{case}: {text}" if case else f"{text[:1].upper()}{text[1:]}"


def _picture(named: Iterable[tuple[str, CaseResult]]) -> Picture:
    return Picture(
        columns=("img/s", "epoch"),
        signs=SIGNS,
        bars=tuple(
            ScreenBar(
                name=name,
                cells=(f"{result.images_per_sec:,.0f}", seconds_text(result.epoch.seconds)),
                parts={"#": 1 / result.images_per_sec}
                if result.timing is None
                else by_sign(result.timing.attribution.seconds_per_image, result.timing),
            )
            for name, result in named
        ),
    )


def _next(results: Sequence[CaseResult], document: Document[Any, Any]) -> ScreenLine:
    """Returns a faster pipeline where loading costs most; another device where only one was measured."""
    costly = [
        result for result in results if (result.loading_ratio or 0.0) >= INPUT_FROM and result.case.config is not None
    ]
    if costly:
        worst = max(costly, key=lambda result: result.loading_ratio or 0.0)
        data, model = document.as_typed(document.plan.data), document.as_typed(worst.case.model)
        code = f"unstall tune --data {data} --model {model}"
        return ScreenLine(label="NEXT", text=f"a faster pipeline for {worst.case.name}, as tf.data code:", code=(code,))
    if len({result.device for result in results}) == 1:
        return ScreenLine(
            label="NEXT", text="the same on a machine with a GPU, or with --emulate RATE beside this device."
        )
    return ScreenLine(label="NEXT", text="the published figures beside these: --details.")
