"""Shows a trial of remedies: what each gained, at what cost, where, and how the code reads with it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from unstall.profiles.remedies import (
    EQUAL_RATIO,
    Gain,
    Gains,
    Trial,
    Untried,
    as_written_s_per_image,
    beyond_trial,
    gains_of,
    is_a_gain,
    is_unlike,
    loading_of,
)
from unstall.profiles.report.screen import ScreenLine
from unstall.profiles.results.attribution import bound_of
from unstall.profiles.results.rules import BOUND_NAMES, OTHERS_MATTER
from unstall.profiles.statistics import geometric_interval, geometric_mean, range_cell, range_text
from unstall.profiles.unit import Unit

HEADINGS = ("remedy", "times", "95 %", "batches", "needs")
# How the command and a call of `profiles.profile` set the budget.
OPTION, ARGUMENT = "--budget ", "budget_s="
# A need below this is none.
_LEAST_BYTES = 500_000
# Seconds that are worth a sentence.
_LEAST_LOST_S = 0.1
# What steps take beyond those of the trial is worth a sentence from this part of an epoch on.
_NOTED_STEPS = 0.05


def gain_rows(trial: Trial) -> list[tuple[str, ...]]:
    """Returns a row for each contender that is faster, the fastest first: as `HEADINGS` says."""
    gains = gains_of(trial)
    return [
        (
            f"{gain.name} *" if gain is gains.chosen else gain.name,
            f"{gain.best[0]:.2f}x",
            range_cell(gain.best[1]),
            _effect(gain),
            needs_text(trial, gain) or "-",
        )
        for gain in gains.helped()
    ]


def decided_line(trial: Trial) -> ScreenLine | None:
    """Returns the verdict of a trial that compared training on the data with training on batches in memory.

    None where it did not, or in too few rounds for an interval.
    """
    bound = decided_bound(trial)
    if bound is None:
        return None
    share, interval = loading_of(trial) or (0.0, None)
    low, high = interval or (0.0, 1.0)
    taken = [sample.others_ratio for sample in trial.in_memory if sample.others_ratio is not None]
    others = sum(taken) / len(taken) if taken else 0.0
    meanwhile = f", while other programs took {others:.0%} of the cores" if others >= OTHERS_MATTER else ""
    return ScreenLine(
        label=BOUND_NAMES[bound].upper(),
        text=f"{share:.0%} of an epoch is loading ({low:.0%} to {high:.0%}): measured after the script, in turns with "
        f"batches in memory{meanwhile}.",
    )


def decided_bound(trial: Trial) -> str | None:
    """Returns what bounds an epoch as a trial shows it, as `Attribution.bound` says; None where it does not."""
    _, interval = loading_of(trial) or (0.0, None)
    if interval is None:
        return None
    low, high = map(bound_of, interval)
    return low if low == high else "uncertain"


def brought_lines(trial: Trial, unit: Unit) -> tuple[ScreenLine, ...]:
    """Returns what the remedies brought that the script ran with: the rates before and after, and their ratio.

    Empty where they were not measured in turns with the data as written.
    """
    gains = gains_of(trial).all
    if len(gains) < 2:
        return ()
    as_written, gain = gains
    ratio, interval = gain.in_script
    over, later = _whole_texts(gain)
    times = f"{ratio:.2f}x ({range_text(interval)}){over}{later}"
    before, after = (rate_text(list(one.by_round.values()), unit) for one in (as_written, gain))
    return (
        ScreenLine(label="BEFORE", text=f"{before} as written, measured after the script in turns with the other."),
        ScreenLine(label="AFTER", text=f"{after} with {gain.name}: {times}. Batches: {gain.effect}."),
    )


def budget_that_tells(trial: Trial) -> int:
    """Returns a budget in seconds, twice what the trial took, for what is faster by its own interval alone."""
    return 2 * math.ceil(trial.seconds / 5) * 5


def before_and_after(
    names: Sequence[str], before: Sequence[float], after: Sequence[float], unit: Unit
) -> tuple[ScreenLine, ...]:
    """Returns the rates of whole epochs of an earlier run, and of one with remedies in place."""
    return (
        ScreenLine(label="BEFORE", text=f"{rate_text(before, unit)} as written, in the earlier run."),
        ScreenLine(label="AFTER", text=f"{rate_text(after, unit)} with {' + '.join(names)}, in this run."),
    )


def rate_text(rates: Sequence[float], unit: Unit) -> str:
    """Returns the mean of rates of whole epochs, with its 95 % interval where there are enough."""
    interval = geometric_interval(rates)
    low_high = "" if interval is None else f" ({interval[0]:,.0f} to {interval[1]:,.0f})"
    return f"{geometric_mean(rates):,.0f} {unit.rate}{low_high}"


def faster_line(trial: Trial, chosen: Gain) -> ScreenLine:
    """Returns what the chosen remedies gained and need, with the code."""
    ratio, interval = chosen.in_script
    needs = needs_text(trial, chosen)
    over, later = _whole_texts(chosen)
    return ScreenLine(
        label="FASTER",
        text=f"{ratio:.2f}x ({range_text(interval)}){over} with {chosen.name}, measured on your own data and "
        f"model{later}. Batches: {chosen.effect}.{f' Needs {needs}.' if needs else ''}{_in_words(trial, chosen)}",
        code=_code_of(chosen),
    )


def _whole_texts(gain: Gain) -> tuple[str, str]:
    """Returns (of which epochs a gain is told, what it is in the others), where its first epoch is unlike those."""
    if gain.first_ratio is None:
        return "", ""
    if gain.epochs is None:
        return "", "; its first epoch fills the cache"
    epochs = "only epoch" if gain.epochs == 1 else f"{gain.epochs} epochs"
    return f" over the script's {epochs}", f"; {gain.best[0]:.2f}x in a long training"


def _code_of(gain: Gain) -> tuple[str, ...]:
    return tuple((gain.contender.code or "").splitlines())


def _in_words(trial: Trial, gain: Gain) -> str:
    """Returns a sentence that says what to change, where no statements can be shown."""
    return "" if gain.contender.code else f" To change in your code: {trial.in_words(gain.contender)}."


def longer_line(trial: Trial, gains: Gains, words: str | None) -> ScreenLine | None:
    """Returns what a long training gains more with than with what is chosen for the epochs of the script."""
    gain = gains.for_long
    if gain is None:
        return None
    ratio, interval = gain.best
    names = ",".join(gain.contender.remedies)
    return ScreenLine(
        label="LONGER",
        text=f"in a long training, {ratio:.2f}x ({range_text(interval)}) with {gain.name}"
        + (":" if words is not None else f".{_in_words(trial, gain)}"),
        code=_code_of(gain) if words is None else (f"unstall profile --apply={names} {words}",),
    )


def tried_lines(trial: Trial, gains: Gains, budget: str = OPTION) -> tuple[ScreenLine, ...]:
    """Returns what was tried apart from the chosen remedies, with its gain, and what was not tried, with the reason.

    Args:
      budget: what sets the budget.
    """
    others = sorted((gain for gain in gains.all[1:] if gain is not gains.chosen), key=lambda gain: -gain.in_script[0])
    lines = []
    if others:
        told = ", ".join(f"{gain.name} {gain.in_script[0]:.2f}x ({range_text(gain.in_script[1])})" for gain in others)
        why = "" if gains.chosen is not None else f": none is shown to gain {100 * EQUAL_RATIO:g}% or more"
        lines.append(ScreenLine(label="TRIED", text=f"{told}{why}."))
    reasons: dict[str, list[str]] = {}
    for one in trial.untried:
        reasons.setdefault(_reason(one, budget).rstrip("."), []).append(one.name)
    for reason, names in reasons.items():
        who = "" if names == ["all"] else f"{', '.join(names)}: "
        lines.append(ScreenLine(label="NOT TRIED", text=f"{who}{reason}."))
    if trial.stopped:
        left = f": {', '.join(trial.left)}" if trial.left else ""
        lines.append(ScreenLine(label="STOPPED", text=f"not all remedies were tried{left}."))
    return tuple(lines)


def _reason(one: Untried, budget: str) -> str:
    """Returns why a remedy was not tried, and the budget that would do."""
    return one.reason if one.budget_s is None else f"{one.reason}; {budget}{one.budget_s} would do"


def needs_text(trial: Trial, gain: Gain) -> str:
    """Returns what a contender needs: memory, disk, and how long its first epoch takes to fill a cache."""
    remedies = [trial.remedy(name) for name in gain.contender.remedies]
    memory, disk = (sum(getattr(remedy, name) for remedy in remedies) for name in ("memory_bytes", "disk_bytes"))
    texts = [f"{size / 1e6:,.0f} MB {of}" for size, of in ((memory, "memory"), (disk, "disk")) if size >= _LEAST_BYTES]
    return ", ".join(texts)


def trial_sentences(trial: Trial, *, script: str | None = None, budget: str = OPTION) -> list[str]:
    """Returns what follows from a trial, a line each.

    Args:
      trial: of remedies.
      script: whose data were tried, to say how the best is put in place of them; None where there is no script.
      budget: what sets the budget.
    """
    gains = gains_of(trial)
    lines = []
    if (decided := decided_line(trial)) is not None:
        lines.append(f"{decided.label.lower()}: {decided.text}")
    if trial.contenders and (scope := _scope(trial)):
        lines.append(scope)
    chosen = gains.chosen
    if chosen is not None:
        ratio, interval = chosen.in_script
        again = "; measured again" if chosen.again else ""
        over, later = _whole_texts(chosen)
        lines.append(f"(*) {ratio:.2f} times as fast ({range_text(interval)}{again}){over}{later}: {chosen.name}.")
    elif len(trial.contenders) > 1:
        lines.append(
            "Nothing that was tried is significantly faster than the data as written, "
            f"by {100 * EQUAL_RATIO:g} % or more."
        )
        if helped := gains.helped():
            lines.append(
                f"{helped[0].name} is faster by its own interval, which can be chance among {len(gains.all) - 1} that "
                f"were compared: {budget}{budget_that_tells(trial)} tells more."
            )
    if chosen is not None:
        for remedy in (trial.remedy(one) for one in chosen.contender.remedies):
            lines.append(f"  {remedy.name} ({remedy.text}; batches: {remedy.effect})")
        if chosen.contender.code is None:
            lines.append(f"To change in your code: {trial.in_words(chosen.contender)}.")
        lines += [f"    {code}" for code in _code_of(chosen)]
    without = [gain.name for gain in gains.all[1:] if len(gain.contender.remedies) == 1 and not is_a_gain(gain.best)]
    if without:
        lines.append(f"{'No gain by itself' if gains.helped() else 'Tried'}: {', '.join(without)}.")
    lines += list(trial.notes)
    lines += [
        f"{f'not tried: {untried.name}' if untried.name != 'all' else 'nothing tried'}: {_reason(untried, budget)}"
        for untried in trial.untried
    ]
    if chosen is not None and script is not None and not trial.applied:
        lines.append(f"apply it: unstall profile --apply={','.join(chosen.contender.remedies)} {script}")
    return lines


def _scope(trial: Trial) -> str | None:
    """Says of which part of an epoch the rates are, and what is charged to it; None where nothing need be said."""
    if trial.batches is None or trial.epoch_batches is None:
        return None
    images_of_epoch = trial.epoch_images or 0
    beyond = beyond_trial(trial)
    lost_s, steps_s = beyond.edges_s * images_of_epoch, beyond.steps_s * images_of_epoch
    images = [sample.epoch_images / sample.epochs for one in trial.contenders for sample in one.samples[:1]]
    most = round(trial.batches * max(images) / images[0]) if images else trial.batches
    batches = str(trial.batches) if most == trial.batches else f"{trial.batches} to {most}"
    sentences = []
    if trial.batches < trial.epoch_batches:
        sentences.append(
            f"From {batches} of {math.ceil(trial.epoch_batches):,} batches; what an epoch loses at its edges is "
            "charged at the length of a whole epoch."
        )
    if lost_s >= _LEAST_LOST_S:
        sentences.append(
            f"An epoch of the script lost {lost_s:.1f} s more at its edges, presumably to {trial.edges_by}: charged "
            "wherever no remedy ends that."
        )
        if trial.edges_are_doubtful:
            sentences.append(
                f"Epochs in which that was seen: {trial.script_epochs}. Intervals go from none of it to all of it."
            )
    as_written_s = (as_written_s_per_image(trial) or 0.0) * images_of_epoch + lost_s + steps_s
    if steps_s > _NOTED_STEPS * as_written_s:
        sentences.append(
            f"Steps of the script took {steps_s:.1f} s more in an epoch than those of the trial (callbacks, progress "
            "bars, its own code, other programs): charged to the data as written and with every remedy."
        )
    script_s = (trial.script_s or 0.0) * images_of_epoch
    if is_unlike(trial):
        sentences.append(
            f"As written, an epoch takes {as_written_s:.1f} s in the trial and took {script_s:.1f} s in the script: "
            "gains are over the latter."
        )
    return " ".join(sentences) or None


def _effect(gain: Gain) -> str:
    if gain.effect == "close" and gain.contender.difference is not None:
        return f"close, {gain.contender.difference:.2g}"
    return gain.effect


def print_trial(console: Console, name: str, trial: Trial, script: str | None, budget: str = OPTION) -> None:
    """Prints the gains of the remedies for the data of a `fit` or loop, and what follows from them."""
    rows = gain_rows(trial)
    console.print()
    if rows:
        title = Text(f"remedies for {name}", style="bold")
        table = Table(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0))
        for heading in HEADINGS:
            table.add_column(
                heading,
                justify="right" if heading in ("times", "95 %") else "left",
                no_wrap=heading in ("times", "95 %"),
            )
        for row in rows:
            table.add_row(*row)
        console.print(table)
    else:
        console.print(Text(f"remedies for {name}", style="bold"))
    for line in trial_sentences(trial, script=script, budget=budget):
        console.print(Text(line), soft_wrap=line.startswith("    "))


def trial_copies(trial: Trial) -> dict[str, Any]:
    """Returns the gains of a trial for other tools."""
    gains, loading = gains_of(trial), loading_of(trial)
    return {
        "chosen": gains.chosen and gains.chosen.name,
        "for_long": gains.for_long and gains.for_long.name,
        "remedies": [
            {
                "name": gain.name,
                "remedies": list(gain.contender.remedies),
                "ratio": gain.best[0],
                "ci95": None if gain.best[1] is None else list(gain.best[1]),
                "measured_again": gain.again is not None,
                "in_script": {"ratio": gain.in_script[0], "ci95": gain.in_script[1] and list(gain.in_script[1])},
                "effect": gain.effect,
                "images_per_sec": gain.rate,
            }
            for gain in gains.all
        ],
        "loading": loading and {"ratio": loading[0], "ci95": loading[1] and list(loading[1])},
        "untried": [{"name": one.name, "reason": one.reason, "budget_s": one.budget_s} for one in trial.untried],
    }
