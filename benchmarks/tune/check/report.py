"""The report of a check of the tuner: a table for each target, and how many choices reach the goal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from unstall.benchmarks.lab.tables import Table, page, print_table
from unstall.benchmarks.tune.check.results import GOAL_RATIO, NEAR_RATIO, CheckDocument, Checked, Results, derive
from unstall.benchmarks.tune.check.samples import CheckSamples
from unstall.benchmarks.tune.plan import CheckAsked
from unstall.profiles.report import Kind
from unstall.profiles.statistics import range_cell, range_text


def _title(checked: Checked) -> str:
    return f"{checked.target.model} on {checked.target.device.name}"


def _table(checked: Checked) -> Table:
    return Table(
        title=_title(checked),
        columns=("pipeline", "img/s", "steady", "predicted", "off", "95 %"),
        rows=tuple(
            (
                name + " (chosen)" * (name == checked.chosen) + " (best)" * (name == checked.best),
                f"{rate.whole:,.0f}",
                f"{rate.steady:,.0f}",
                f"{rate.predicted:,.0f}",
                f"{rate.off_ratio:.2f}",
                range_cell(rate.off[1]),
            )
            for name, rate in sorted(checked.rates.items(), key=lambda item: item[1].whole)
        ),
    )


def _choice(checked: Checked) -> str:
    is_best = checked.chosen == checked.best
    if checked.against is None:  # the check was stopped
        return "the best of all so far" if is_best else f"{checked.chosen}, which was not measured beside the best"
    if is_best:
        return "the best of all"
    ratio, interval = checked.against
    return f"{checked.chosen}: {ratio:.3f} ({range_text(interval, 3)})"


def _reached(results: Results) -> str:
    ended = [checked for checked in results.targets if checked.against is not None]
    count = sum(checked.exit_code == 0 for checked in ended)
    return f"{count} of {len(ended)} choices reach {GOAL_RATIO:.0%} of the best."


def _near(results: Results) -> str:
    ratios = [rate.off_ratio for rate in results.rates]
    far = [rate for rate in results.rates if not rate.near]
    undecided = sum(rate.may_be_near for rate in far)
    whose = "its interval" if undecided == 1 else "their intervals"
    may_be = f"; {undecided} more may be, by {whose}" if undecided else ""
    return (
        f"{len(ratios) - len(far)} of {len(ratios)} predictions are within {NEAR_RATIO - 1:.0%} of the steady rate, "
        f"the rate inside an epoch: {min(ratios):.2f} to {max(ratios):.2f} of it{may_be}."
    )


def _print(console: Console, document: CheckDocument, results: Results) -> None:
    for checked in results.targets:
        print_table(console, _table(checked))
        console.print(f"chosen: {_choice(checked)}\n")
    console.print(_reached(results))
    if results.rates:
        console.print(_near(results))


def _page(document: CheckDocument, results: Results) -> str:
    limits = document.plan.limits
    facts = {
        "pipelines": "all of a small space, measured in rounds side by side; the tuner chooses from the same",
        "choice": "measured again beside the best, unless they are the same",
        "predictions": "from costs that were measured beside the rounds",
        "limits": f"{limits.memory_bytes / 1e9:,.1f} GB of memory, {limits.disk_bytes / 1e9:,.1f} GB of disk, "
        f"{limits.budget_s:g} s of measuring for each search",
    }
    choices = [f"{_title(checked)}: chosen: {_choice(checked)}" for checked in results.targets]
    tables = [_table(checked) for checked in results.targets]
    sentences = [*choices, _reached(results), *([_near(results)] if results.rates else [])]
    return page("The tuner beside exhaustive search", document, tables=tables, sentences=sentences, facts=facts)


def _copies(document: CheckDocument, results: Results) -> dict[str, Any]:
    return {
        "goal_ratio": GOAL_RATIO,
        "results": [
            {
                "model": checked.target.model,
                "device": checked.target.device.name,
                "chosen": checked.chosen,
                "best": checked.best,
                "images_per_sec": {name: rate.whole for name, rate in checked.rates.items()},
                "steady_images_per_sec": {name: rate.steady for name, rate in checked.rates.items()},
                "predicted_images_per_sec": {name: rate.predicted for name, rate in checked.rates.items()},
                "off_ratio": {name: rate.off_ratio for name, rate in checked.rates.items()},
                "off_ci95": {name: rate.off[1] for name, rate in checked.rates.items()},
                "ratio": checked.against and checked.against[0],
                "ci95": checked.against and checked.against[1],
            }
            for checked in results.targets
        ],
    }


def _flat(results: Results) -> Sequence[Mapping[str, Any]]:
    return [
        {
            "model": checked.target.model,
            "device": checked.target.device.name,
            "pipeline": name,
            "chosen": name == checked.chosen,
            "best": name == checked.best,
            "images_per_sec": rate.whole,
            "steady_images_per_sec": rate.steady,
            "predicted_images_per_sec": rate.predicted,
            "off_ratio": rate.off_ratio,
            "off_low": rate.off[1] and rate.off[1][0],
            "off_high": rate.off[1] and rate.off[1][1],
        }
        for checked in results.targets
        for name, rate in checked.rates.items()
    ]


KIND = Kind(
    plan=CheckAsked, samples=CheckSamples, derive=derive, copies=_copies, report=_page, print=_print, rows=_flat
)
