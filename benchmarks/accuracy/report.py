"""Derives results from the document of a ladder, prints a table and a verdict, and draws a page of learning curves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from unstall.benchmarks.accuracy.parser import RUNGS
from unstall.benchmarks.accuracy.plan import PIPELINES, Asked, Run
from unstall.benchmarks.accuracy.results import (
    VERDICTS,
    Cell,
    Difference,
    RungResult,
    difference_of,
    judge,
    rung_results,
    scripts,
)
from unstall.benchmarks.accuracy.samples import Measurements, ScriptCount, Trained
from unstall.benchmarks.lab.backend import named_backend
from unstall.profiles.report import Document, Kind, charts, html
from unstall.profiles.report.document import content_of
from unstall.profiles.statistics import LEAST_ROUNDS

_LEVEL, _TICKS = 0.1, 4
# The label of the published figure's line, and its style: a dashed black line.
_PUBLISHED, _PUBLISHED_STYLE = "published, after 800 passes over 8,000 photos", 6


def learning_curves(
    trained: Mapping[Run, Trained], published: Mapping[str, float]
) -> dict[str, list[charts.ChartLine]]:
    """Returns the lines of a chart for each rung that has a run: a line for each run, and one for the published figure.

    A run's line is the share of test photos that are right after each pass.

    Args:
      published: the figure of each rung, 0 to 1, in the order of the rungs.
    """
    accuracies = {run: values for run, ended in trained.items() if (values := _accuracies(ended))}
    last = max((len(values) for values in accuracies.values()), default=0)
    curves: dict[str, list[charts.ChartLine]] = {}
    for rung, figure in published.items():
        runs = [_curve(run, values) for run, values in accuracies.items() if run.rung == rung]
        points = tuple(charts.Point(x=number, y=figure) for number in (1, last))
        if runs:
            curves[rung] = [*runs, charts.ChartLine(label=_PUBLISHED, points=points, style=_PUBLISHED_STYLE)]
    return curves


def _curve(run: Run, accuracies: Sequence[float]) -> charts.ChartLine:
    text = f"{run.label}: {accuracies[-1]:.1%}"
    points = tuple(
        charts.Point(x=number, y=accuracy, text=text if number == len(accuracies) else "")
        for number, accuracy in enumerate(accuracies, start=1)
    )
    return charts.ChartLine(label=run.pipeline, points=points, style=PIPELINES.index(run.pipeline))


def _accuracies(ended: Trained) -> list[float]:
    return [tested.correct / len(ended.right) for tested in ended.passes]


def axes_of(lines: Sequence[charts.ChartLine]) -> tuple[charts.Axis, charts.Axis]:
    """Returns the axes that all charts share: passes, and the share of test photos that are right."""
    points = [point for line in lines for point in line.points if point is not None]
    least, last = min(point.y for point in points), int(max(point.x for point in points))
    low = min(math.floor(least / _LEVEL + 1e-9), 5) * _LEVEL  # guessing one of two classes gets half of them right
    levels = [low + _LEVEL * number for number in range(round((1 - low) / _LEVEL) + 1)]
    return (
        charts.Axis(
            title="passes over the photos",
            low=min(1, last - 1),
            high=max(2, last),
            labels=tuple((number, f"{number:,}") for number in ticks(last)),
        ),
        charts.Axis(title="accuracy", low=low, high=1.0, labels=tuple((level, f"{level:.0%}") for level in levels)),
    )


def ticks(last: int) -> tuple[int, ...]:
    """Returns pass 1, the last, and round numbers between them."""
    step = max(1, int(charts.round_step(last / _TICKS)))
    between = [number for number in range(step, last, step) if number > 1 and last - number >= step / 2]
    return tuple(dict.fromkeys([1, *between, last]))


AccuracyDocument = Document[Asked, Measurements]


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """What is derived from a document.

    Attributes:
      trained: the result of each run.
      train_photos, test_photos: numbers of photos.
      rungs: the results of each rung, with both pipelines.
      difference: between the pipelines, over seeds; None where no seed has a pair of runs on each rung.
    """

    trained: Mapping[Run, Trained]
    train_photos: int
    test_photos: int
    rungs: tuple[RungResult, ...]
    difference: Difference | None

    @property
    def exit_code(self) -> int:
        """The exit code of the verdict."""
        return VERDICTS[judge(self.difference)]


def derive(document: AccuracyDocument) -> Results:
    """Derives the rungs, and the difference that the tuned pipeline makes."""
    assert document.dataset is not None
    train_photos, test_photos = (document.dataset[part]["images"] for part in ("train", "test"))
    trained = {ended.run: ended.trained for ended in document.samples.runs}
    return Results(
        trained=trained,
        train_photos=train_photos,
        test_photos=test_photos,
        rungs=rung_results(document.plan, trained, train_photos=train_photos, test_photos=test_photos),
        difference=difference_of(document.plan, trained),
    )


def _copies(document: AccuracyDocument, results: Results) -> dict[str, Any]:
    return {
        "passes": document.plan.passes(results.train_photos),
        "rungs": results.rungs,
        "difference": None if results.difference is None else results.difference.to_dict(),
        "verdict": judge(results.difference),
    }


def _print(console: Console, document: AccuracyDocument, results: Results) -> None:
    """Prints the table, what its columns mean, the verdict and the prediction experiment."""
    console.print(table(results.rungs))
    for line in legend(document, results):
        console.print(line, style="dim")
    for left_out in document.left_out:
        console.print(f"no result: {left_out.who}: {left_out.reason}", style="yellow")
    console.print()
    console.print(verdict_text(results.difference), style="bold")
    for line in script_lines(scripts(results.trained)):
        console.print(line)


def _flat(results: Results) -> list[dict[str, Any]]:
    return [
        {
            "rung": result.rung,
            "pipeline": pipeline,
            "runs": cell.runs,
            "accuracy": cell.accuracy,
            "accuracy_low": cell.low,
            "accuracy_high": cell.high,
            "images_per_sec": cell.images_per_sec,
            "published": result.published,
        }
        for result in results.rungs
        for pipeline, cell in result.cells.items()
        if cell is not None
    ]


def table(results: Sequence[RungResult]) -> Table:
    """Returns the table for a terminal of 80 columns."""
    grid = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    grid.add_column("rung", vertical="bottom")
    for pipeline in PIPELINES:
        grid.add_column(f"{pipeline}\naccuracy %", justify="right", no_wrap=True)
        grid.add_column("\nimg/s", justify="right", no_wrap=True)
    grid.add_column("tuned -\ngenerator", justify="right", no_wrap=True)
    grid.add_column("\npublished", justify="right", no_wrap=True)
    for result in results:
        grid.add_row(*cells(result))
    return grid


def cells(result: RungResult) -> list[str]:
    """Returns a rung's line of the table, for the terminal and for the page."""
    texts = [result.rung]
    for pipeline in PIPELINES:
        cell = result.cells[pipeline]
        texts += [
            _accuracy(cell),
            "-" if cell is None or cell.images_per_sec is None else f"{cell.images_per_sec:,.0f}",
        ]
    texts.append("-" if result.difference is None else f"{100 * result.difference:+.1f}")
    generator = result.cells["generator"]
    against = None if generator is None else generator.against
    published = f"{100 * result.published:.0f}"
    return [*texts, f"({published})" if against is None else f"{published} {against}"]


def _accuracy(cell: Cell | None) -> str:
    return "-" if cell is None else f"{100 * cell.accuracy:.1f} ({100 * cell.low:.0f}-{100 * cell.high:.0f})"


def legend(document: AccuracyDocument, results: Results) -> list[str]:
    """Returns the lines below the table, which say what the table shows."""
    asked, photos = document.plan, results.train_photos
    passes = asked.passes(photos)
    compared = [asked.as_published(rung, train_photos=photos, test_photos=results.test_photos) for rung in asked.rungs]
    lines = [
        f"{passes * photos:,} images seen by each run: {passes:,} {'pass' if passes == 1 else 'passes'} over "
        f"{photos:,} photos; {asked.seeds} {'seed' if asked.seeds == 1 else 'seeds'}. tuned: {asked.tuned_name}.",
        f"accuracy: mean over seeds, on {results.test_photos:,} test photos ({document.samples.tested_with}), and the "
        "95 % interval that so many photos allow.",
        "img/s: training as it ran, whole passes after a run's first.",
        *dict.fromkeys(f"trained by {named_backend(trained.backend)}." for trained in results.trained.values()),
    ]
    if not all(compared):
        lines.append(
            "published: in brackets, for context only: it is of 6,400,000 images seen of 8,000 photos, and 2,000 test "
            "photos."
        )
    return lines


def verdict_text(difference: Difference | None) -> str:
    """Returns in a sentence or two whether the tuned pipeline costs accuracy."""
    not_shown = "Whether the tuned pipeline costs accuracy is not shown"
    if difference is None:
        return f"{not_shown}: no seed has a pair of runs on each rung."
    seeds = len(difference.by_seed)
    mean = f"{100 * difference.mean:+.1f} points"
    if difference.low is None or difference.high is None:
        counted = "1 seed" if seeds == 1 else f"{seeds} seeds"
        return f"{not_shown}: {mean} over {counted}, and an interval needs {LEAST_ROUNDS}. Repeat with more --seeds."
    interval = (
        f"{mean} (95 % interval {100 * difference.low:+.1f} to {100 * difference.high:+.1f}) over {seeds} seeds, on "
        f"{difference.photos:,} test photos"
    )
    verdict = judge(difference)
    if verdict == "not shown either way":
        return f"{not_shown} either way: {interval}. Repeat with more --seeds."
    return f"The tuned pipeline {verdict}{' accuracy' if verdict == 'costs' else ' of accuracy'}: {interval}."


def script_lines(tried: Sequence[tuple[Run, ScriptCount]]) -> list[str]:
    """Returns how many photos the published and the corrected prediction script get wrong, a line for each network."""
    if not tried:
        return []
    return [
        "",
        "The published prediction script forgets to rescale and tests == 1; corrected, it rescales and tests > 0.5. "
        "Both on the generator's networks and the same pixels:",
        *(
            f"  {run.rung}, seed {run.seed}: {count.published_wrong:,} of {count.images:,} wrong as published, "
            f"{count.corrected_wrong:,} corrected"
            for run, count in tried
        ),
    ]


def _page(document: AccuracyDocument, results: Results) -> str:
    curves = learning_curves(results.trained, {result.rung: result.published for result in results.rungs})
    lines = [line for some in curves.values() for line in some]
    return html.template(Path(__file__).with_name("accuracy.html.j2")).render(
        document=content_of(document, KIND, results),
        rungs=RUNGS,
        table=[cells(result) for result in results.rungs],
        pipelines=PIPELINES,
        legend=legend(document, results),
        verdict=verdict_text(results.difference),
        scripts=scripts(results.trained),
        charts=[charts.line_chart(*axes_of(lines), some, title=f"{rung}: accuracy") for rung, some in curves.items()],
        legend_of_lines=charts.legend_of_lines(lines),
    )


KIND = Kind(plan=Asked, samples=Measurements, derive=derive, copies=_copies, report=_page, print=_print, rows=_flat)
