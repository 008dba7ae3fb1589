"""Advice for a user's own tf.data pipeline, each piece of it measured beside the pipeline as it is written."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.lab.child import OPEN_TIMEOUT_S, Child, ChildDied, JobRefused
from benchmarks.lab.command import new_log
from benchmarks.lab.options import UserError
from benchmarks.tune.plan import Limits
from benchmarks.tune.results import EQUAL_RATIO
from benchmarks.tune.rounds import SESSION, Say, rounds_within
from benchmarks.tune.samples import PipelineFacts
from pipeline import from_arrays
from profiles import Device, clock
from profiles.remedies import AS_WRITTEN
from profiles.samples import Sample
from profiles.statistics import Interval, geometric_mean, range_cell, range_text, ratio_interval, significantly_above

_WINDOW_TIMEOUT_S = 180.0
# Rounds in which the chosen one is measured again beside the pipeline as written.
_ROUNDS_AGAIN = 5
# A gain that is worth a change.
_WORTH_IT = 1 + EQUAL_RATIO


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """One change and what it came to.

    Attributes:
      code: what to write.
      memory_bytes: of its cache.
      epoch_images_per_sec: of whole epochs of training, by round.
      against: how many times as fast as the pipeline as written, and the 95 % interval.
      again: the same of rounds that had no say in the choice; None where it was not in question.
    """

    name: str
    code: str
    memory_bytes: int
    epoch_images_per_sec: tuple[float, ...]
    against: tuple[float, Interval | None]
    again: tuple[float, Interval | None] | None = None

    @property
    def rate(self) -> float:
        """Images per second: the mean whose ratios are those of `against`."""
        return geometric_mean(self.epoch_images_per_sec)


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineAdvice:
    """What a search over a user's pipeline came to.

    Attributes:
      chosen: the fastest of those that are significantly faster than the pipeline as written, also when both were
        measured again; None without.
      epoch_images: images of an epoch of the user's; infinite where it has no end, or none was found.
    """

    stages: tuple[str, ...]
    measured: tuple[Advice, ...]
    chosen: Advice | None
    refused: tuple[str, ...]
    notes: tuple[str, ...]
    failed: tuple[tuple[str, str], ...]
    epoch_images: float
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
        rounds = rounds_within(limits.budget_s, began_ns)
        samples, failed = measure(child, [change.name for change in facts.changes], rounds, say)
        found = derive(facts, samples, failed)
        if found.chosen is not None:
            # The fastest of several has had luck as well: rounds that chose it say too much of it.
            samples, failed = measure(child, [AS_WRITTEN, found.chosen.name], range(_ROUNDS_AGAIN), say)
            found = confirmed(found, facts, samples, failed)
    except ChildDied as error:
        raise UserError(f"{text}: {error}. See {log}.", exit_code=3) from error
    except JobRefused as error:
        log.unlink(missing_ok=True)
        raise UserError(str(error)) from error
    finally:
        child.close()
    log.unlink(missing_ok=True)
    return replace(found, seconds=(clock.now_ns() - began_ns) / 1e9)


def measure(
    child: Child, names: Sequence[str], rounds: Iterable[int], say: Say
) -> tuple[dict[str, list[Sample]], list[tuple[str, str]]]:
    """Measures variants in rounds, in an order that is drawn anew in each.

    Returns:
      Samples by the name of a variant, and variants that failed, with the reason.
    Raises:
      JobRefused: if the pipeline as written fails.
    """
    samples: dict[str, list[Sample]] = {name: [] for name in names}
    failed: list[tuple[str, str]] = []
    order = random.Random()
    for number in rounds:
        say(f"round {number + 1}")
        for name in order.sample(list(samples), len(samples)):
            try:
                samples[name].append(child.ask("pipeline_window", name, number, timeout_s=_WINDOW_TIMEOUT_S))
            except JobRefused as error:
                if name == AS_WRITTEN:
                    raise
                failed.append((name, str(error)))
                del samples[name]
    return samples, failed


def derive(
    facts: PipelineFacts, samples: Mapping[str, Sequence[Sample]], failed: Sequence[tuple[str, str]] = ()
) -> PipelineAdvice:
    """Returns what the samples come to; a gain that is not significant, or hardly one, is none."""
    rates = {name: _rates(of, facts) for name, of in samples.items()}
    as_written = rates[AS_WRITTEN]
    measured = tuple(
        Advice(
            name=change.name,
            code=change.code,
            memory_bytes=change.memory_bytes,
            epoch_images_per_sec=rates[change.name],
            against=ratio_interval(rates[change.name], as_written),
        )
        for change in facts.changes
        if change.name in samples
    )
    faster = significantly_above([(one.epoch_images_per_sec, as_written) for one in measured if one.name != AS_WRITTEN])
    others = [one for one in measured if one.name != AS_WRITTEN]
    better = [one for one, is_faster in zip(others, faster, strict=True) if is_faster and one.against[0] >= _WORTH_IT]
    return PipelineAdvice(
        stages=facts.stages,
        measured=measured,
        chosen=max(better, key=lambda one: one.rate) if better else None,
        refused=facts.refused,
        notes=facts.notes,
        failed=tuple(failed),
        epoch_images=facts.epoch_images,
        seconds=0.0,
    )


def confirmed(
    found: PipelineAdvice,
    facts: PipelineFacts,
    samples: Mapping[str, Sequence[Sample]],
    failed: Sequence[tuple[str, str]] = (),
) -> PipelineAdvice:
    """Returns the advice with what the chosen one came to when it was measured again; it is none if it is no faster.

    Args:
      samples: of the pipeline as written and of the chosen one, in rounds that had no say in the choice.
    """
    assert found.chosen is not None
    if found.chosen.name not in samples:
        return replace(found, chosen=None, failed=(*found.failed, *failed))
    ratio, interval = ratio_interval(_rates(samples[found.chosen.name], facts), _rates(samples[AS_WRITTEN], facts))
    again = replace(found.chosen, again=(ratio, interval))
    measured = tuple(again if one is found.chosen else one for one in found.measured)
    holds = interval is not None and interval[0] > 1 and ratio >= _WORTH_IT
    return replace(found, measured=measured, chosen=again if holds else None)


def _rates(samples: Sequence[Sample], facts: PipelineFacts) -> tuple[float, ...]:
    return tuple(1 / _whole_s_per_image(sample, facts) for sample in samples)


def _whole_s_per_image(sample: Sample, facts: PipelineFacts) -> float:
    """Returns the time of an image in a whole epoch of the user's."""
    if facts.scaled:
        return sample.whole_s_per_image()
    return sample.s_per_image if math.isinf(facts.epoch_images) else sample.whole_s_per_image(round(facts.epoch_images))


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
    for one in sorted(advice.measured, key=lambda one: one.rate):
        ratio, interval = one.against
        table.add_row(
            one.name + (" *" if one is advice.chosen else ""),
            f"{one.rate:,.0f}",
            f"{ratio:.2f}x",
            range_cell(interval),
            style="bold" if one is advice.chosen else "",
        )
    console.print(table)
    if not math.isinf(advice.epoch_images):
        line(f"img/s: of whole epochs of {advice.epoch_images:,.0f} images")
    if advice.chosen is None:
        line(
            "\nNothing that was measured is significantly faster than the pipeline as it is written, "
            f"by {100 * EQUAL_RATIO:g} % or more."
        )
    else:
        ratio, interval = advice.chosen.again or advice.chosen.against
        again = "; measured again" if advice.chosen.again else ""
        line(f"\n(*) {ratio:.2f} times as fast ({range_text(interval)}{again}): {advice.chosen.code}")
        if advice.chosen.memory_bytes:
            line(f"Its cache takes {advice.chosen.memory_bytes / 1e6:,.0f} MB of memory.")
    for note in advice.notes:
        line(note)
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
                "epoch_images_per_sec": list(one.epoch_images_per_sec),
                "against": _ratio(one.against),
                "again": one.again and _ratio(one.again),
            }
            for one in advice.measured
        ],
        "epoch_images": None if math.isinf(advice.epoch_images) else advice.epoch_images,
        "refused": list(advice.refused),
        "notes": list(advice.notes),
        "failed": [{"name": name, "reason": reason} for name, reason in advice.failed],
        "seconds": advice.seconds,
    }


def _ratio(against: tuple[float, Interval | None]) -> dict[str, Any]:
    return {"ratio": against[0], "ci95": against[1] and list(against[1])}
