"""Advice for a user's own tf.data pipeline, each piece of it measured beside the pipeline as it is written."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.lab.child import OPEN_TIMEOUT_S, Child, ChildDied, JobRefused
from benchmarks.lab.command import new_log
from benchmarks.lab.options import UserError
from benchmarks.tune.results import AS_WRITTEN, SESSION, Limits, Say, rounds_within
from pipeline import from_arrays
from profiles import Device, clock
from profiles.samples import Sample
from profiles.statistics import median, ratio_interval

_WINDOW_TIMEOUT_S = 180.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """One change and what it came to.

    Attributes:
      code: what to write.
      memory_bytes: of its cache.
      images_per_sec: of training by round.
      against: how many times as fast as the pipeline as written, and the 95 % interval.
    """

    name: str
    code: str
    memory_bytes: int
    images_per_sec: tuple[float, ...]
    against: tuple[float, float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineAdvice:
    """What a search over a user's pipeline came to; `chosen` is None where nothing helps significantly."""

    stages: tuple[str, ...]
    measured: tuple[Advice, ...]
    chosen: Advice | None
    refused: tuple[str, ...]
    failed: tuple[tuple[str, str], ...]
    seconds: float


def advise(
    text: str, model: str, classes: int, device: Device, batch_size: int, limits: Limits, out: Path, say: Say
) -> PipelineAdvice:
    """Measures what could be changed in the pipeline that `module:function` gives.

    Raises:
      UserError: if the function, the pipeline or the model cannot be used.
    """
    began_ns = clock.now_ns()
    source = from_arrays(np.zeros((classes, 1, 1, 3), np.uint8), np.arange(classes))
    log = new_log(out / "tune.log")
    child = Child(SESSION, device, log, device, source)
    try:
        say("opening the model")
        child.ask("backend", timeout_s=OPEN_TIMEOUT_S)
        child.ask("open_model", model, batch_size, timeout_s=OPEN_TIMEOUT_S)
        say("building the pipeline again")
        facts = child.ask("open_pipeline", text, model, limits.memory_bytes, timeout_s=OPEN_TIMEOUT_S)
        rates, failed = _rounds(child, [one.name for one in facts.changes], limits, began_ns, say)
    except ChildDied as error:
        raise UserError(f"{text}: {error}. See {log}.", exit_code=3) from error
    except JobRefused as error:
        log.unlink(missing_ok=True)
        raise UserError(str(error)) from error
    finally:
        child.close()
    log.unlink(missing_ok=True)
    as_written = rates[AS_WRITTEN]
    measured = tuple(
        Advice(
            name=one.name,
            code=one.code,
            memory_bytes=one.memory_bytes,
            images_per_sec=tuple(rates[one.name]),
            against=ratio_interval(rates[one.name], as_written),
        )
        for one in facts.changes
        if one.name in rates
    )
    better = [one for one in measured if one.against[1] > 1]
    return PipelineAdvice(
        stages=facts.stages,
        measured=measured,
        chosen=max(better, key=lambda one: median(one.images_per_sec)) if better else None,
        refused=facts.refused,
        failed=tuple(failed),
        seconds=(clock.now_ns() - began_ns) / 1e9,
    )


def _rounds(
    child: Child, names: list[str], limits: Limits, began_ns: int, say: Say
) -> tuple[dict[str, list[float]], list[tuple[str, str]]]:
    rates: dict[str, list[float]] = {name: [] for name in names}
    failed: list[tuple[str, str]] = []
    for number in rounds_within(limits.budget_s, began_ns):
        say(f"round {number + 1}")
        for name in list(rates)[::-1] if number % 2 else list(rates):
            try:
                sample: Sample = child.ask("pipeline_window", name, number, timeout_s=_WINDOW_TIMEOUT_S)
            except JobRefused as error:
                if name == AS_WRITTEN:
                    raise
                failed.append((name, str(error)))
                del rates[name]
            else:
                rates[name].append(1 / sample.s_per_image)
    return rates, failed


def print_advice(console: Console, advice: PipelineAdvice, text: str, model: str, device: Device) -> None:
    """Prints what was measured, what to write, and what must not be done."""

    def line(text: str) -> None:
        console.print(text, highlight=False, markup=False, emoji=False)

    line(f"{text}: {', '.join(advice.stages)}")
    title = Text(f"{model} on {device.name}", style="bold")
    table = Table(box=None, title=title, title_justify="left", pad_edge=False)
    table.add_column("pipeline")
    for column in ("img/s", "of as written", "95 %"):
        table.add_column(column, justify="right")
    for one in sorted(advice.measured, key=lambda one: median(one.images_per_sec)):
        ratio, low, high = one.against
        table.add_row(
            one.name + (" *" if one is advice.chosen else ""),
            f"{median(one.images_per_sec):,.0f}",
            f"{ratio:.2f}x",
            f"{low:.2f}-{high:.2f}",
            style="bold" if one is advice.chosen else "",
        )
    console.print(table)
    if advice.chosen is None:
        line("\nNothing that was measured is significantly faster than the pipeline as it is written.")
    else:
        ratio, low, high = advice.chosen.against
        line(f"\n(*) {ratio:.2f} times as fast ({low:.2f} to {high:.2f}): {advice.chosen.code}")
        if advice.chosen.memory_bytes:
            line(f"Its cache takes {advice.chosen.memory_bytes / 1e6:,.0f} MB of memory.")
    for reason in advice.refused:
        line(f"refused: {reason}")
    for name, reason in advice.failed:
        line(f"could not be measured: {name}: {reason}")


def to_dict(advice: PipelineAdvice) -> dict[str, Any]:
    """Returns what tune.json holds."""
    return {
        "stages": list(advice.stages),
        "chosen": None if advice.chosen is None else advice.chosen.name,
        "measured": [
            {
                "name": one.name,
                "code": one.code,
                "memory_bytes": one.memory_bytes,
                "images_per_sec": list(one.images_per_sec),
            }
            for one in advice.measured
        ],
        "refused": list(advice.refused),
        "failed": [{"name": name, "reason": reason} for name, reason in advice.failed],
        "seconds": advice.seconds,
    }
