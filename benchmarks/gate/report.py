"""Renders the documents of the gate: a table, and a sentence for each verdict, on the terminal and as a page.

Over 400 lines: the terminal, the page and the figures for other tools say the same sentences of the same answers.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.table import Table as TerminalTable
from rich.text import Text

from unstall.benchmarks.gate.plan import AskedCheck, AskedComparisons, Question
from unstall.benchmarks.gate.results import (
    CheckDocument,
    CheckResult,
    Comparison,
    ComparisonResult,
    ComparisonsDocument,
    derive_check,
    derive_comparisons,
)
from unstall.benchmarks.gate.samples import SIDES, CheckSamples, ComparisonSamples, Process, invariants_of
from unstall.benchmarks.lab.tables import Table
from unstall.profiles.gate import (
    EPOCH,
    IMPROVED,
    INCONCLUSIVE,
    REGRESSION,
    SAME,
    STEADY,
    Baseline,
    Decision,
    JudgedFigure,
    differences,
    looks,
    rate_of,
    text_of,
    unread_stages,
)
from unstall.profiles.report import Document, Figure, Kind, ScreenLine, html, print_lines
from unstall.profiles.statistics import median, median_interval
from unstall.profiles.text import rate_text

# What a figure is called in a table.
_SHORT = {STEADY: "steady", EPOCH: "with epoch edges"}
_STYLES = {REGRESSION: "bold red", IMPROVED: "bold green", SAME: "bold green"}
# So many packages that differ are named.
_MOST_PACKAGES = 8
_STOPPED = "stopped: nothing was decided"
_VERDICT = "verdict"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer to one question.

    Attributes:
      verdict: in a word or two.
      sentence: the verdict and its numbers.
      changes: the invariants, which have no noise, that differ between A and B, in words.
      lack: what it would take to decide; empty where it is decided.
    """

    verdict: str
    sentence: str
    changes: tuple[str, ...] = ()
    lack: str = ""


# Comparisons


def comparison_grid(results: Sequence[ComparisonResult]) -> Table:
    """Returns a table of all comparisons, with a row for each figure."""
    rows = []
    for result in results:
        comparison, title = result.comparison, result.name
        for figure in comparison.figures or (EPOCH,):
            label = _named(title, figure, comparison.figures, between="\n  " if title else "  ")
            rates = (_rate(comparison.processes(side), figure) for side in SIDES)
            rows.append((label, *rates, *_cells(comparison, result.decision, figure)))
            title = ""
    return Table(columns=("", "A img/s", "B img/s", "B/A", "interval", "pairs", _VERDICT), rows=rows)


def comparison_answers(results: Sequence[ComparisonResult]) -> tuple[Answer, ...]:
    """Returns each comparison's verdict in a sentence, and the invariants that differ between A and B."""
    return tuple(
        Answer(
            verdict=_verdict_of(result.decision),
            sentence=f"{' '.join(result.name.split())}: {_sentence(result.comparison, result.decision)}",
            changes=_changes(result.comparison),
            lack=_lack(result.decision, "pairs", "the same again with --most-pairs {}"),
        )
        for result in results
    )


def _rate(processes: Sequence[Process], figure: str) -> str:
    return rate_text(median([rate_of(process.images_per_sec, figure) for process in processes])) if processes else "-"


def _cells(comparison: Comparison, decision: Decision | None, figure: str) -> tuple[str, ...]:
    if decision is None:
        return "-", "-", str(comparison.pairs), "-"
    judged = decision.figures.get(figure)
    if judged is None:
        return "-", "-", str(decision.pairs), decision.verdict
    low, high = judged.interval
    return f"{judged.ratio:.3f}", f"{low:.3f} to {high:.3f}", str(decision.pairs), judged.verdict


def _sentence(comparison: Comparison, decision: Decision | None) -> str:
    if decision is None:
        return _STOPPED
    at_least = comparison.question.at_least
    asked = f"asked for at least {at_least:g} times A: " if at_least is not None else ""
    spread = comparison.spread(decision.figure) if decision.figure else None
    noise = "" if spread is None else f", one measurement varies by {spread:.1%}"
    return asked + _verdict(decision, f"{decision.pairs} pairs{noise}")


def _changes(comparison: Comparison) -> tuple[str, ...]:
    if comparison.question.at_least is not None:
        return ()  # a floor compares subjects that do different work anyway
    if (packages := _packages(comparison)) is not None:
        return packages
    before, now = (invariants_of(comparison.processes(side)) for side in SIDES)
    if before is None or now is None:
        return ()
    return (*differences(before, now), *unread_stages(before, now))


def _packages(comparison: Comparison) -> tuple[str, ...] | None:
    """Returns the packages whose versions differ between two environments; None where there was one environment."""
    before, now = ([process.packages for process in comparison.processes(side)][:1] for side in SIDES)
    if not (before and now and before[0] and now[0]):
        return None
    names = sorted({*before[0], *now[0]})
    changed = [(name, before[0].get(name, "none"), now[0].get(name, "none")) for name in names]
    listed = [f"{name} {old} against {new}" for name, old, new in changed if old != new]
    if not listed:
        return ("the environments have the same packages",)
    more = f", and {len(listed) - _MOST_PACKAGES} more" if len(listed) > _MOST_PACKAGES else ""
    return (f"the environments differ in {', '.join(listed[:_MOST_PACKAGES])}{more}",)


def _comparison_facts(document: ComparisonsDocument) -> list[tuple[str, str]]:
    asked = document.plan
    questions = tuple(asked.questions.values())
    return [
        *(("asked", _asked(question)) for question in questions),
        *((("commits", " and ".join(asked.commits)),) if asked.commits else ()),
        ("measured", asked.measure),
        ("photos", asked.data or "the subjects' own"),
        ("pairs", f"of fresh processes, looked at after {_listed(questions[0].pairs) if questions else 'none'}"),
        ("order", f"of each pair by a coin, seed {asked.seed}"),
    ]


def _asked(question: Question) -> str:
    if question.at_least is not None:
        return f"whether {question.b} serves {question.at_least:g} times the images/sec of {question.a}"
    loss = _percent(question.threshold)
    return f"whether {question.b} serves as many images/sec as {question.a}; a loss of {loss} counts"


def _comparisons_page(document: ComparisonsDocument, results: Sequence[ComparisonResult]) -> str:
    facts = _comparison_facts(document)
    return _page(document, "B against A", comparison_grid(results), comparison_answers(results), facts)


def _print_comparisons(console: Console, document: ComparisonsDocument, results: Sequence[ComparisonResult]) -> None:
    _print(console, comparison_grid(results), comparison_answers(results))


def _comparison_copies(document: ComparisonsDocument, results: Sequence[ComparisonResult]) -> dict[str, Any]:
    return {"comparisons": {result.name: result.comparison.to_dict(result.decision) for result in results}}


def _comparison_rows(results: Sequence[ComparisonResult]) -> list[dict[str, Any]]:
    rows = []
    for result in results:
        comparison, decision = result.comparison, result.decision
        if decision is None and not comparison.pairs:
            continue
        for figure in comparison.figures or (EPOCH,):
            judged = None if decision is None else decision.figures.get(figure)
            rows.append(
                {
                    "comparison": " ".join(result.name.split()),
                    "figure": figure,
                    "ratio": None if judged is None else judged.ratio,
                    "low": None if judged is None else judged.interval[0],
                    "high": None if judged is None else judged.interval[1],
                    "pairs": comparison.pairs,
                    "figure_verdict": None if judged is None else judged.verdict,
                    "verdict": None if decision is None else decision.verdict,
                    "reason": None if decision is None else decision.reason,
                }
            )
    return rows


def _comparison_figures(results: Sequence[ComparisonResult]) -> tuple[Figure, ...]:
    """Returns B over A for each figure of each comparison; without one where nothing was measured."""
    figures = []
    for result, answer in zip(results, comparison_answers(results), strict=True):
        decision, name = result.decision, " ".join(result.name.split())
        for figure in result.comparison.figures or (EPOCH,):
            judged = None if decision is None else decision.figures.get(figure)
            figures.append(
                Figure(
                    name=_named(name, figure, result.comparison.figures),
                    measure="ratio",
                    value=None if judged is None else judged.ratio,
                    **_interval_of(judged),
                    judgement=_judgement(decision),
                    text=". ".join(filter(None, (answer.sentence, answer.lack))),
                )
            )
    return tuple(figures)


def _interval_of(judged: JudgedFigure | None) -> dict[str, Any]:
    """Returns the fields of a `Figure` that say how sure it is; none where it was not judged."""
    return {} if judged is None else {"interval": judged.interval, "confidence": judged.confidence}


def _judgement(decision: Decision | None) -> Literal["passed", "failed", "undecided"]:
    verdict = None if decision is None else decision.verdict
    return "failed" if verdict == REGRESSION else "passed" if verdict in (SAME, IMPROVED) else "undecided"


COMPARISONS = Kind(
    plan=AskedComparisons,
    samples=ComparisonSamples,
    derive=derive_comparisons,
    copies=_comparison_copies,
    report=_comparisons_page,
    print=_print_comparisons,
    rows=_comparison_rows,
    figures=_comparison_figures,
)


# Checks


def check_grid(result: CheckResult) -> Table | None:
    """Returns a table of the ratio to each anchor, as recorded and now; None where nothing was measured."""
    processes, baseline = result.check.processes, result.check.asked.baseline
    if not processes:
        return None
    rows = []
    for figure, before in baseline.figures.items():
        rates = [rate_of(process.images_per_sec, figure) for process in processes]
        for anchor, ratios in before.ratios.items():
            now = _over_anchor(processes, figure, anchor)
            mark = "judges: varied least" if anchor == before.judge else ""
            change = f"{_middle(now) / _middle(ratios):.3f}"
            label = _named(anchor, figure, baseline.figures)
            rows.append((label, f"{_middle(ratios):.4g}", f"{_middle(now):.4g}", change, mark))
        rows.append(
            (
                _named("(images/sec)", figure, baseline.figures),
                rate_text(before.images_per_sec),
                rate_text(median(rates)),
                f"{median(rates) / before.images_per_sec:.3f}",
                f"floor {rate_text(before.floor_images_per_sec)}",
            )
        )
    return Table(columns=("images/sec over", "recorded", "now", "now/recorded", ""), rows=rows)


def _over_anchor(processes: Sequence[Process], figure: str, anchor: str) -> list[float]:
    """Returns for each process the rate of a figure divided by the rate of an anchor."""
    return [rate_of(process.images_per_sec, figure) / median(process.anchors[anchor]) for process in processes]


def _percent(ratio: float) -> str:
    return f"{100 * ratio:g}%"


def _middle(values: Sequence[float]) -> float:
    """Returns the median of ratios as the verdict takes it, of their logarithms."""
    return math.exp(median([math.log(value) for value in values]))


def check_answer(result: CheckResult) -> Answer:
    """Returns the check's verdict in a sentence."""
    decision = result.decision
    allowed = f", allowed {1 - result.check.asked.threshold:.3f}x"
    of = "x of what was recorded"
    verdict = _STOPPED if decision is None else _verdict(decision, f"{decision.pairs} processes", of, allowed)
    changes = (decision.note,) if decision is not None and decision.note else ()
    return Answer(
        verdict=_verdict_of(decision),
        sentence=f"{result.check.asked.name}: {verdict}",
        changes=changes,
        lack=_lack(
            decision,
            "processes",
            "the same again with --most-processes {}",
            result.check.asked.again,
        ),
    )


def _check_facts(document: CheckDocument) -> list[tuple[str, str]]:
    asked = document.plan
    counts = _listed([look.pairs for look in looks(asked.most_processes)])
    return [
        ("subject", asked.subject),
        ("asked", f"whether it is as fast as recorded, against anchors; a loss of {_percent(asked.threshold)} counts"),
        ("measured", asked.measure),
        ("photos", asked.data or "the subject's own"),
        ("processes", f"fresh, looked at after {counts}"),
    ]


def _check_page(document: CheckDocument, result: CheckResult) -> str:
    heading = "A benchmark against its baseline"
    return _page(document, heading, check_grid(result), (check_answer(result),), _check_facts(document))


def _print_check(console: Console, document: CheckDocument, result: CheckResult) -> None:
    _print(console, check_grid(result), (check_answer(result),))


def _check_copies(document: CheckDocument, result: CheckResult) -> dict[str, Any]:
    return {"ratios": _check_rows(result), "decision": result.decision and result.decision.to_dict()}


def _check_rows(result: CheckResult) -> list[dict[str, Any]]:
    """Returns a row for each ratio; if there is a verdict without a measurement, a single row without a ratio."""
    check, decision = result.check, result.decision
    verdict = {
        "benchmark": check.asked.name,
        "processes": len(check.processes),
        "verdict": None if decision is None else decision.verdict,
        "reason": None if decision is None else decision.reason,
    }
    if not check.processes:
        return [] if decision is None else [{"figure": None, "anchor": None, "recorded": None, "now": None, **verdict}]
    return [
        {
            "figure": figure,
            "anchor": anchor,
            "recorded": _middle(ratios),
            "now": _middle(_over_anchor(check.processes, figure, anchor)),
            **verdict,
        }
        for figure, before in check.asked.baseline.figures.items()
        for anchor, ratios in before.ratios.items()
    ]


def _check_figures(result: CheckResult) -> tuple[Figure, ...]:
    """Returns each ratio to an anchor over the recorded one."""
    answer, judgement = check_answer(result), _judgement(result.decision)
    text = ". ".join(filter(None, (answer.sentence, answer.lack)))
    rows, baseline = _check_rows(result), result.check.asked.baseline
    if not rows or rows[0]["figure"] is None:
        return (Figure(name=result.check.asked.name, measure="ratio", value=None, judgement=judgement, text=text),)

    def of_row(row: Mapping[str, Any]) -> Figure:
        judged = None if result.decision is None else result.decision.figures.get(row["figure"])
        if row["anchor"] != baseline.figures[row["figure"]].judge:
            judged = None
        return Figure(
            name=_named(f"{row['benchmark']} over {row['anchor']}", row["figure"], baseline.figures),
            measure="ratio",
            value=row["now"] / row["recorded"],
            **_interval_of(judged),
            judgement=judgement,
            text=text,
        )

    return tuple(map(of_row, rows))


CHECK = Kind(
    plan=AskedCheck,
    samples=CheckSamples,
    derive=derive_check,
    copies=_check_copies,
    report=_check_page,
    print=_print_check,
    rows=_check_rows,
    figures=_check_figures,
)


# Baselines


def print_baseline(console: Console, baseline: Baseline, path: Path) -> None:
    """Prints the ratios and rates of a baseline that was recorded."""
    rows = []
    for figure, values in baseline.figures.items():
        for anchor, ratios in values.ratios.items():
            low, high = median_interval(ratios)
            mark = "judges: varied least" if anchor == values.judge else ""
            label = _named(anchor, figure, baseline.figures)
            rows.append((label, f"{median(ratios):.4g}", f"{low:.4g} to {high:.4g}", mark))
    _print_grid(console, Table(columns=("images/sec over", "ratio", "95 % interval", ""), rows=rows))
    rates = "; ".join(
        _named(f"{rate_text(values.images_per_sec)} images/sec", figure, baseline.figures, between=" ")
        + f", floor {rate_text(values.floor_images_per_sec)}"
        for figure, values in baseline.figures.items()
    )
    console.print(f"\n{rates}. Recorded: {path}", soft_wrap=True)


# Used by comparisons, checks and baselines


def _named(text: str, figure: str, figures: Collection[str], between: str = ", ") -> str:
    """Returns a text followed by the figure's name, or the text alone where there is only one figure."""
    return f"{text}{between}{_SHORT[figure]}" if len(figures) > 1 else text


def _verdict(decision: Decision, measured: str, of: str = "", allowed: str = "") -> str:
    """Returns a verdict and its numbers.

    Args:
      measured: how many, and how noisy.
      of: what the ratio is of; empty where the question says it.
      allowed: what ratio was; empty where the question says it.
    """
    judged = decision.judged
    if judged is None:
        return f"{decision.verdict}: {decision.reason}"
    low, high = judged.interval
    reason = f"{decision.reason}; " if decision.reason else ""
    interval = f"{low:.3f} to {high:.3f} at {judged.confidence:.1%}"
    text = f"{decision.verdict}: {reason}{decision.words} {judged.ratio:.3f}{of} ({interval}; {measured}){allowed}"
    if decision.verdict == INCONCLUSIVE:
        text += ". Too noisy to tell, or too near the threshold: neither a pass nor a fail"
    return text


def _lack(decision: Decision | None, unit: str, option: str, again: str = "") -> str:
    """Returns what it would take to decide; empty where it is decided.

    Args:
      option: what to type for `{}` pairs or processes.
      again: what to type to record again.
    """
    if decision is None or decision.lack is None:
        return ""
    option = option.format(decision.lack.rounds)
    return text_of(decision.lack, decision.pairs, unit=unit, option=option, again=again)


def _listed(counts: Sequence[int]) -> str:
    return f"{', '.join(map(str, counts[:-1]))} and {counts[-1]}" if len(counts) > 1 else str(counts[0])


def _verdict_of(decision: Decision | None) -> str:
    return "STOPPED" if decision is None else decision.verdict.upper()


def _print(console: Console, grid: Table | None, answers: Sequence[Answer]) -> None:
    """Prints each answer, and below each what changed, then the table, and what to do where nothing was decided."""
    console.print()
    for answer in answers:
        print_lines(console, [ScreenLine(label=answer.verdict, text=f"{answer.sentence}.")])
        print_lines(console, [ScreenLine(label="CHANGED", text=line) for line in answer.changes])
    if grid is not None:
        console.print()
        _print_grid(console, grid)
    lacks = dict.fromkeys(answer.lack for answer in answers if answer.lack)
    if lacks:
        console.print()
        print_lines(console, [ScreenLine(label="NEXT", text=f"{lack}.") for lack in lacks])


def _print_grid(console: Console, grid: Table) -> None:
    """Prints a table whose verdicts are coloured."""
    table = TerminalTable(box=None, padding=(0, 2, 0, 0))
    for number, column in enumerate(grid.columns):
        words = number == 0 or column in ("", _VERDICT)
        # Where a name takes several lines, the last line stands beside the figures.
        table.add_column(column, justify="left" if words else "right", overflow="fold", vertical="bottom")
    for row in grid.rows:
        table.add_row(*(_cell(column, cell) for column, cell in zip(grid.columns, row, strict=True)))
    console.print(table)


def _cell(column: str, cell: str) -> Text:
    return Text(cell, style=_STYLES.get(cell, "bold yellow") if column == _VERDICT else "")


def _page(
    document: Document[Any, Any],
    heading: str,
    grid: Table | None,
    answers: Sequence[Answer],
    facts: Sequence[tuple[str, str]],
) -> str:
    return html.template(Path(__file__).with_name("gate.html.j2")).render(
        document=document, heading=heading, grid=grid, answers=answers, facts=facts, verdict=_VERDICT
    )
