"""The report of the advice on a user's own pipeline: what is printed, and its page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from unstall.benchmarks.lab.tables import Table, page, print_table
from unstall.benchmarks.tune.plan import DIFF, AdviceAsked
from unstall.profiles.remedies import AS_WRITTEN, Gains, Trial, gains_of
from unstall.profiles.report import (
    Document,
    Kind,
    Picture,
    Screen,
    ScreenBar,
    ScreenLine,
    faster_line,
    trial_copies,
    trial_sentences,
)
from unstall.profiles.statistics import range_cell

AdviceDocument = Document[AdviceAsked, Trial]


def derive(document: AdviceDocument) -> Gains:
    """Derives the gains of remedies, and chooses."""
    return gains_of(document.samples)


def _table(document: AdviceDocument, gains: Gains) -> Table:
    rows = sorted(gains.all, key=lambda gain: gain.rate)
    return Table(
        title=f"{document.plan.model} on {document.plan.device.name}",
        columns=("pipeline", "img/s", "of as written", "95 %", "batches"),
        rows=tuple(
            (
                gain.name + (" *" if gain is gains.chosen else ""),
                f"{gain.rate:,.0f}",
                f"{gain.against[0]:.2f}x",
                range_cell(gain.against[1]),
                gain.effect,
            )
            for gain in rows
        ),
        words=("batches",),
        chosen=next((number for number, gain in enumerate(rows) if gain is gains.chosen), None),
    )


def _stages(document: AdviceDocument) -> str:
    return f"{document.plan.pipeline}: {', '.join(document.samples.stages)}"


def _epoch(document: AdviceDocument) -> list[str]:
    """Returns a line that says how many images the rates' epochs have; no line where that is not known."""
    images = document.samples.epoch_images
    return [] if images is None else [f"img/s: of whole epochs of {images:,.0f} images"]


def _print(console: Console, document: AdviceDocument, gains: Gains) -> None:
    console.print(_stages(document))
    if gains.all:
        print_table(console, _table(document, gains))
    for line in (*_epoch(document), "", *trial_sentences(document.samples)):
        console.print(line)


def _page(document: AdviceDocument, gains: Gains) -> str:
    limits = document.plan.limits
    facts = {
        "rounds": "each remedy trains in each round, in an order that is drawn anew",
        "limits": f"{limits.memory_bytes / 1e9:,.1f} GB of memory, {limits.budget_s:g} s of measuring",
        "remedies": "; ".join(f"{remedy.name}: {remedy.code}" for remedy in document.samples.remedies),
    }
    notes = [_stages(document), *_epoch(document), *_paragraphs(trial_sentences(document.samples))]
    tables = [_table(document, gains)]
    return page("What could be changed in your pipeline", document, tables=tables, notes=notes, facts=facts)


def screens_of(document: AdviceDocument, gains: Gains) -> tuple[Screen, ...]:
    """Returns the first screen; see `Kind`."""
    trial, plan = document.samples, document.plan
    tried = len(trial.contenders) - 1
    heading = (
        f"unstall: {_stages(document)}",
        f"{plan.model} on {plan.device.name}; {tried} {'remedy' if tried == 1 else 'remedies'} measured",
    )
    by_name = {gain.name: gain for gain in gains.all}
    shown = [by_name[name] for name in (AS_WRITTEN, *([gains.chosen.name] if gains.chosen else [])) if name in by_name]
    picture = Picture(
        columns=("img/s", "times"),
        signs={"#": "images/sec of whole epochs"},
        bars=tuple(
            ScreenBar(name=gain.name, cells=(f"{rate:,.0f}", f"{gain.best[0]:.2f}x"), parts={"#": rate})
            for gain in shown
            for rate in (gain.best[0] * shown[0].rate,)  # so that rates and times say the same
        ),
    )
    names = ", ".join(gain.name for gain in gains.all if gain.name != AS_WRITTEN)
    untried = ", ".join(one.name for one in trial.untried)
    why = [ScreenLine(label="NOT TRIED", text=f"{untried}: the report says why.")] if untried else []
    if gains.chosen is None:
        text = f"nothing that was tried is significantly faster: {names}." if names else "nothing could be tried."
        return (
            Screen(heading=heading, verdict=(ScreenLine(label="SAME", text=text),), picture=picture, why=tuple(why)),
        )
    faster = faster_line(trial, gains.chosen)
    offered = f", or apply {DIFF}, which lies beside the results" if trial.edits_of(gains.chosen.contender) else ""
    change = [ScreenLine(label="NEXT", text=f"edit these lines{offered}:", code=faster.code)] if faster.code else []
    verdict = ScreenLine(label=faster.label, text=faster.text)
    return (Screen(heading=heading, verdict=(verdict,), picture=picture, why=tuple(why), next=tuple(change)),)


def _paragraphs(lines: Sequence[str]) -> list[str]:
    """Returns lines as paragraphs: an indented line belongs to the one before it."""
    paragraphs: list[str] = []
    for line in lines:
        if line.startswith(" ") and paragraphs:
            paragraphs[-1] += f"\n{line}"
        else:
            paragraphs.append(line)
    return paragraphs


def _copies(document: AdviceDocument, gains: Gains) -> dict[str, Any]:
    return {**trial_copies(document.samples), "sentences": trial_sentences(document.samples)}


def _flat(gains: Gains) -> Sequence[Mapping[str, Any]]:
    return [
        {
            "pipeline": gain.name,
            "chosen": gain is gains.chosen,
            "images_per_sec": gain.rate,
            "of_as_written": gain.against[0],
            "ci95_low": gain.against[1] and gain.against[1][0],
            "ci95_high": gain.against[1] and gain.against[1][1],
        }
        for gain in gains.all
    ]


KIND = Kind(
    plan=AdviceAsked,
    samples=Trial,
    derive=derive,
    copies=_copies,
    report=_page,
    print=_print,
    rows=_flat,
    screens=screens_of,
)
