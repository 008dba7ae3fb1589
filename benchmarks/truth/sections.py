"""What is shown of each group of `truth`: its heading, its tables and its notes, as text.

Over 400 lines: a function for each kind of group, and no group is shown anywhere else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from unstall.benchmarks.truth.coverage import ROUNDS, real_intervals
from unstall.benchmarks.truth.gate_simulated import POWER
from unstall.benchmarks.truth.plan import Asked
from unstall.benchmarks.truth.promises import (
    COVERAGE_BOUND,
    FAULTS,
    GATE_PARTS,
    GRIDS,
    LEAST_REPEATS,
    OURS,
    PAIRS,
    PHOTOS,
    PLANTED,
    RATE_BOUND,
    SHARE_BOUND,
    SHARES,
    SIMULATED,
    SIMULATED_FEW,
    SIMULATION,
    TRACEML,
    WATCHING_RATIO,
)
from unstall.benchmarks.truth.results import PLAIN, Bias, Check, Results, TruthDocument, loading_of, verdict_counts
from unstall.benchmarks.truth.samples import Attempt, Figure, Group
from unstall.profiles.gate import EPOCH, FAILED, IMPROVED, INCONCLUSIVE, REGRESSION, SAME
from unstall.profiles.results import bound_of
from unstall.profiles.statistics import CONFIDENCE, median, range_text, share_interval

_VERDICTS = {REGRESSION: "regr.", IMPROVED: "impr.", SAME: "same", INCONCLUSIVE: "open", FAILED: "failed"}
_FEW = f"false of {SIMULATED_FEW}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table.

    Attributes:
      rows: cells, as many as columns.
      words: the numbers of the columns that hold words; the others hold figures.
      wrong: row and column of each cell that is not as promised.
      gap: blanks between columns on the terminal.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    title: str = ""
    words: tuple[int, ...] = (0,)
    wrong: frozenset[tuple[int, int]] = frozenset()
    gap: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """What is shown of a group.

    Attributes:
      name: of the group, where its heading has one.
      heading: what the group measures; "" where its tables say so.
      before, notes: lines above and below the tables.
    """

    name: str = ""
    heading: str = ""
    before: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()


def sections(document: TruthDocument, results: Results) -> Iterator[Section]:
    """Yields what is shown of each group."""
    for group in document.samples.groups:
        checks = results.groups[group.name]
        repeats = min((len(figure.measured) for figure in group.figures), default=0)
        biases = [check.bias for check in checks if check.bias is not None]
        if checks and len(biases) == len(checks):
            yield _repeated(group, checks, biases)
        elif group.name in PLANTED and repeats > 1:
            tested = f"From {LEAST_REPEATS} repeats on, the mean is tested against zero."
            yield replace(_planted(group.name, checks), notes=(f"Medians of {repeats} repeats. {tested}",))
        elif group.name in GRIDS:
            yield _grid(group.name, checks)
        elif group.name in PLANTED:
            yield _planted(group.name, checks)
        else:
            yield _SECTIONS[group.name](document.plan, group, checks)


# Planted loads


def _planted(name: str, checks: Sequence[Check]) -> Section:
    table = Table(
        columns=("case", "figure", "truth", "found", "off", "promised"),
        rows=tuple(
            (check.case, check.figure, f"{check.truth:,.1f}", f"{check.measured:,.1f}", _off(check), check.promised)
            for check in checks
        ),
        words=(0, 1),
        wrong=_wrong(checks, column=4),
    )
    return Section(name=name, heading=PLANTED[name].title, tables=(table,))


def _repeated(group: Group, checks: Sequence[Check], biases: Sequence[Bias]) -> Section:
    """Shows how far the repeats of a case are off, in the mean, and how many of them are near enough."""
    rows = []
    for figure, check, bias in zip(group.figures, checks, biases, strict=True):
        mean, low, high = (f"{off:+.1f}" if check.in_points else f"{off:+.1%}" for off in (bias.mean, *bias.interval))
        tested = (str(bias.within), mean, f"{low} to {high}", f"{bias.p_value:.2f}")
        rows.append((check.case, check.figure, str(len(figure.measured)), *tested, check.promised))
    table = Table(
        columns=("case", "figure", "repeats", "within", "off", "95% interval", "p", "promised"),
        rows=tuple(rows),
        words=(0, 1),
        wrong=_wrong(checks, column=4),
        gap=1,
    )
    return Section(name=group.name, heading=PLANTED[group.name].title, tables=(table,))


def _off(check: Check) -> str:
    return f"{check.off:+.1f} points" if check.in_points else f"{check.off:+.1%}"


def _wrong(checks: Sequence[Check], *, column: int) -> frozenset[tuple[int, int]]:
    return frozenset((row, column) for row, check in enumerate(checks) if not check.holds)


def _grid(name: str, checks: Sequence[Check]) -> Section:
    """Shows how far shares are off in points, and rates in per cent, in a cell for each pair of times."""
    cells = list(zip(checks[::2], checks[1::2], strict=True))
    texts: dict[str, dict[str, str]] = {}
    for share, rate in cells:
        load, step = share.case.split(", ")[-2:]
        texts.setdefault(load, {})[step] = f"{share.off:+.1f} {rate.off:+.1%}"
    steps = list(next(iter(texts.values())))
    places = [(row, 1 + column) for row, of_load in enumerate(texts.values()) for column in range(len(of_load))]
    table = Table(
        columns=("", *steps),
        # A run that was stopped has not measured the last cells.
        rows=tuple((load, *(of_load.get(step, "") for step in steps)) for load, of_load in texts.items()),
        wrong=frozenset(
            place for place, (share, rate) in zip(places, cells, strict=True) if not (share.holds and rate.holds)
        ),
    )
    note = (
        f"In each cell: loading share, points off (promised {SHARE_BOUND.most:g}); images/sec, off (promised "
        f"{RATE_BOUND.text}). Largest: {max(abs(share.off) for share, _ in cells):.1f} points, "
        f"{max(abs(rate.off) for _, rate in cells):.1%}."
    )
    return Section(name=name, heading=PLANTED[name].title, tables=(table,), notes=(note,))


# The monitor


def _watching(asked: Asked, group: Group, checks: Sequence[Check]) -> Section:
    lines = [
        f"{asked.options['model']} on {check.case}: with the monitor {check.measured:.4f} times the images/sec of "
        f"without ({range_text(check.interval, 4)}, {len(figure.measured)} pairs of epochs)"
        for check, figure in zip(checks, group.figures, strict=True)
    ]
    return Section(notes=(*lines, _monitor_sentence(checks)))


def _monitor_sentence(checks: Sequence[Check]) -> str:
    """Says what the intervals show. A ratio above 1 by more than is promised is a fault of the comparison."""
    refuted = [check.interval for check in checks if check.holds is False and check.interval is not None]
    if any(high < 1 - WATCHING_RATIO for _, high in refuted):
        return "The monitor costs more than 1 %."
    if refuted:
        return "Training was more than 1 % faster with the monitor: the comparison is wrong. Repeat it."
    if all(check.holds for check in checks):
        return "The monitor changes images/sec by less than 1 %."
    return "Not shown that the monitor changes images/sec by less than 1 %: more --pairs, or a quieter machine."


# Generated photos


def _photos(asked: Asked, group: Group, checks: Sequence[Check]) -> Section:
    by_figure = {check.figure: check for check in checks}
    rows = []
    for figure in group.figures:
        check = by_figure.get(figure.name)
        real, generated = median(figure.truth), median(figure.measured)
        places = 2 if figure.name == "bits per pixel" else 0
        ratio = generated / real if check is None else 1 + check.off
        rows.append((_photo_figure(figure.name), f"{real:,.{places}f}", f"{generated:,.{places}f}", f"{ratio:.3f}"))
    table = Table(
        columns=("", "real", "generated", "ratio"),
        rows=tuple(rows),
        title=PHOTOS.title,
        wrong=frozenset(
            (row, 3)
            for row, figure in enumerate(group.figures)
            if figure.name in by_figure and not by_figure[figure.name].holds
        ),
    )
    return Section(tables=(table,))


def _photo_figure(name: str) -> str:
    sizes = ("photos", "mean bytes", "mean pixels", "bits per pixel")
    return name if name in sizes else f"{name}, photos/sec on one core"


# Intervals


def _simulated(asked: Asked, group: Group, checks: Sequence[Check]) -> Section:
    by_noise: dict[str, list[Check]] = {}
    for check in checks:
        by_noise.setdefault(check.case.partition(",")[0], []).append(check)
    table = Table(
        columns=("noise", *map(str, ROUNDS)),
        rows=tuple((noise, *(f"{check.measured:.1f}" for check in row)) for noise, row in by_noise.items()),
        title=f"% of {asked.options['simulations']:,} simulated intervals that hold the truth",
        wrong=frozenset(
            (at, 1 + column)
            for at, row in enumerate(by_noise.values())
            for column, check in enumerate(row)
            if not check.holds
        ),
        gap=1,
    )
    shares = [check.measured for check in checks if check.measured is not None]
    least, most = 100 * CONFIDENCE - COVERAGE_BOUND.most, 100 * CONFIDENCE + COVERAGE_BOUND.most
    answer = "as promised" if all(check.holds for check in checks) else "not as promised"
    notes = (
        f"Columns: rounds; {CONFIDENCE:.0%} is written.",
        f"From {min(shares):.1f}% to {max(shares):.1f}%: {answer}, {least:g}% to {most:g}%.",
    )
    return Section(tables=(table,), notes=notes)


def _real(asked: Asked, group: Group, checks: Sequence[Check]) -> Section:
    real = real_intervals(group.figures)
    low, high = share_interval(real.held, real.intervals)
    subject = group.figures[0].case.partition(",")[0]
    note = (
        f"The main job, {subject} against itself, {real.rounds} rounds: {real.held} of {real.intervals} intervals hold "
        f"1 ({low:.0%} to {high:.0%}; p = {real.p_value:.2g} if {CONFIDENCE:.0%} do). Their half width: "
        f"{real.half_width:.1%} (median)."
    )
    return Section(before=("",), notes=(note,))


# Verdicts


def _verdicts(asked: Asked, group: Group, checks: Sequence[Check]) -> Section:
    (plain,) = next(case.attempts for case in group.cases if case.name == PLAIN)
    truth = loading_of(plain)
    counts = verdict_counts(group)
    table = Table(
        columns=("", "runs", "right", "wrong", "uncertain", "loading found", "promised"),
        rows=tuple(
            (
                check.case,
                *map(str, (counted.runs, counted.right, counted.wrong, counted.uncertain)),
                f"{counted.low:.0%} to {counted.high:.0%}",
                check.promised,
            )
            for check, counted in zip(checks, counts.values(), strict=True)
        ),
        words=(0, 6),
        wrong=_wrong(checks, column=6),
    )
    line = f"The truth, by plain runs: {truth:.0%} of an epoch is loading, {bound_of(truth)}-bound."
    return Section(before=(line,), tables=(table,))


# Others who attribute


def _shares(asked: Asked, group: Group, checks: Sequence[Check]) -> Section:
    by_case: dict[str, dict[str, Figure]] = {}
    for figure in group.figures:
        by_case.setdefault(figure.case, {})[figure.name] = figure
    rows = []
    for case, figures in by_case.items():
        truth = median([each for figure in figures.values() for each in figure.truth])
        rows.append((case, f"{truth:.1f}", *(_range_of(_errors(figures[tool])) for tool in (OURS, TRACEML))))
    worst = {
        tool: max(abs(off) for figure in group.figures if figure.name == tool for off in _errors(figure))
        for tool in (OURS, TRACEML)
    }
    table = Table(
        columns=("case", "waits, %", f"{OURS}, off", f"{TRACEML}, off"),
        rows=(*rows, ("largest", "", *(f"{worst[tool]:.1f}" for tool in (OURS, TRACEML)))),
        wrong=frozenset((row, 2) for row, check in enumerate(checks) if not check.holds),
    )
    rounds = len(group.figures[0].measured)
    note = f"off: points from what the script noted in the same run; the range over {rounds} runs."
    heading = "What two tools find of the time that a PyTorch script waits for its batches."
    return Section(heading=heading, tables=(table,), notes=(note,))


def _errors(figure: Figure) -> list[float]:
    return [measured - truth for truth, measured in zip(figure.truth, figure.measured, strict=True)]


def _range_of(errors: Sequence[float]) -> str:
    return f"{min(errors):+.1f} to {max(errors):+.1f}" if len(errors) > 1 else f"{errors[0]:+.1f}"


def _pairs(asked: Asked, group: Group, checks: Sequence[Check]) -> Section:
    rows = []
    for case in group.cases:
        answers = Counter(attempt.answer for attempt in case.attempts)
        ratios = [attempt.figures["ratio"][0] for attempt in case.attempts]
        counts = (str(answers[answer]) for answer in ("regression", "improvement", "equivalent"))
        rows.append((case.name, str(len(ratios)), *counts, f"{min(ratios):.3f} to {max(ratios):.3f}"))
    columns = ("compare", "pairs", "regression", "improvement", "neither", "ratios of step times")
    note = "The gate's verdicts on the same against itself: --only gate --only same."
    heading = "Pairs of runs of the same code, compared."
    return Section(heading=heading, tables=(Table(columns=columns, rows=tuple(rows)),), notes=(note,))


# The gate


def _tries(asked: Asked, group: Group, checks: Sequence[Check]) -> Section:
    rows = []
    for case, check in zip(group.cases, checks, strict=True):
        verdicts = Counter(attempt.answer for attempt in case.attempts)
        ratios = [attempt.figures["ratio"][0] for attempt in case.attempts if "ratio" in attempt.figures]
        rows.append(
            (
                GATE_PARTS[case.name].text,
                str(len(case.attempts)),
                *(str(verdicts[verdict]) for verdict in _VERDICTS),
                f"{np.mean([len(pair_ratios(attempt)) for attempt in case.attempts]):.0f}",
                f"{median(ratios):.3f}" if ratios else "-",
                check.promised,
            )
        )
    table = Table(
        columns=("tried", "tries", *_VERDICTS.values(), "pairs", "ratio", "promised"),
        rows=tuple(rows),
        words=(0, 9),
        wrong=_wrong(checks, column=9),
        gap=1,
    )
    return Section(tables=(table,))


def _simulation(asked: Asked, group: Group, checks: Sequence[Check]) -> Section:
    """Shows false alarms by noise, and how often the gate catches a loss."""
    (spread,) = group.cases[0].attempts
    pairs = int(spread.figures["pairs"][0])
    where = f"of this machine, by {pairs} pairs of the same" if pairs else "supposed: nothing was measured yet"
    by_name = {(figure.case, figure.name): figure.measured[0] for figure in group.figures}
    alarms = Table(
        columns=("noise", _FEW, f"false of {SIMULATED:,}", "promised"),
        rows=tuple(
            (
                check.case,
                f"{by_name[check.case, _FEW]:.0f}",
                f"{check.measured:.2f}%",
                check.promised.replace(" points", "%"),
            )
            for check in checks
        ),
        wrong=_wrong(checks, column=2),
    )
    spreads = dict.fromkeys(figure.case for figure in group.figures if figure.name in POWER)
    power = Table(
        columns=("varies by", *POWER),
        rows=tuple(
            (case, *(f"{by_name[case, name]:.1f}% ({by_name[case, f'{name}: pairs']:.0f})" for name in POWER))
            for case in spreads
        ),
        title="caught, of losses of both figures, and of one alone (Gaussian noise)",
        words=(),
        gap=1,
    )
    line = f"simulated, one measurement varies by {spread.figures['spread'][0]:.1%} ({where})"
    return Section(before=("", line), tables=(alarms, power))


def pair_ratios(attempt: Attempt) -> list[float]:
    """Returns images/sec of B over A of each pair of an attempt, by whole epochs."""
    rates = [attempt.figures.get(f"{side} {EPOCH}", ()) for side in ("A", "B")]
    return [b / a for a, b in zip(*rates, strict=False)]


def _faults(asked: Asked, group: Group, checks: Sequence[Check]) -> Section:
    table = Table(
        columns=("fault", "exit code", "promised"),
        rows=tuple((check.case, f"{check.measured:.0f}", f"{check.truth:.0f}") for check in checks),
        wrong=_wrong(checks, column=1),
    )
    return Section(before=("",), tables=(table,))


_SECTIONS: Mapping[str, Callable[[Asked, Group, Sequence[Check]], Section]] = {
    "watching": _watching,
    "photos": _photos,
    "simulated": _simulated,
    "real": _real,
    "verdicts": _verdicts,
    SHARES: _shares,
    PAIRS: _pairs,
    "tries": _tries,
    SIMULATION: _simulation,
    FAULTS: _faults,
}
