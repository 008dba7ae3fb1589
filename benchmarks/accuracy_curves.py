"""Lays out learning curves: accuracies in, coordinates for small SVGs out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.accuracy_child import Trained
from benchmarks.accuracy_plan import PIPELINES, Plan, Run
from profiles.graphs import COLOURS, Frame, Tick, round_step

FRAME = Frame(width=380, height=230, left=44, right=368, top=30, bottom=186)
PIPELINE_COLOURS = dict(zip(PIPELINES, COLOURS, strict=False))
_LEVEL, _TICKS = 0.1, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One run: the share of test photos that are right behind each pass."""

    colour: str
    title: str
    points: str
    end_x: float
    end_y: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """The runs of one rung; `published_y` is where its published figure lies."""

    rung: str
    levels: tuple[Tick, ...]
    passes: tuple[Tick, ...]
    curves: tuple[Curve, ...]
    published_y: float


def panels_of(plan: Plan, trained: Mapping[Run, Trained], published: Mapping[str, float]) -> tuple[Panel, ...]:
    """Lays out every rung with a run, all on the same axes.

    Args:
      published: the figure of each rung, 0 to 1.
    """
    accuracies = {
        run: [one.correct / len(found.right) for one in found.passes] for run, found in trained.items() if found.passes
    }
    if not accuracies:
        return ()
    least = min(min(values) for values in accuracies.values())
    low = min(math.floor(least / _LEVEL + 1e-9), 5) * _LEVEL  # half is what guessing gets of two classes
    last = max(len(values) for values in accuracies.values())

    def x(number: float) -> float:
        ratio = (number - 1) / (last - 1) if last > 1 else 0.5
        return round(FRAME.left + (FRAME.right - FRAME.left) * ratio, 1)

    def y(accuracy: float) -> float:
        return round(FRAME.bottom - (FRAME.bottom - FRAME.top) * (accuracy - low) / (1 - low), 1)

    count = round((1 - low) / _LEVEL)
    levels = tuple(
        Tick(at=y(level), text=f"{level:.0%}") for level in (low + _LEVEL * number for number in range(count + 1))
    )
    passes = tuple(Tick(at=x(number), text=f"{number:,}") for number in ticks(last))
    return tuple(
        Panel(
            rung=rung,
            levels=levels,
            passes=passes,
            curves=tuple(
                Curve(
                    colour=PIPELINE_COLOURS[run.pipeline],
                    title=f"{run.label}: {values[-1]:.1%}",
                    points=" ".join(f"{x(number)},{y(value)}" for number, value in enumerate(values, start=1)),
                    end_x=x(len(values)),
                    end_y=y(values[-1]),
                )
                for run, values in accuracies.items()
                if run.rung == rung
            ),
            published_y=y(published[rung]),
        )
        for rung in plan.rungs
        if any(run.rung == rung for run in accuracies)
    )


def ticks(last: int) -> tuple[int, ...]:
    """Returns pass 1, the last, and round numbers between them."""
    step = max(1, int(round_step(last / _TICKS)))
    between = [number for number in range(step, last, step) if number > 1 and last - number >= step / 2]
    return tuple(dict.fromkeys([1, *between, last]))
