"""Profiles data that feeds a model, in a script or a notebook: measurement, stages, verdict and report in one call."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from profiles import provenance
from profiles.devices import Device
from profiles.measure import backends
from profiles.measure.measure import measured
from profiles.measure.schedule import ROUNDS
from profiles.report import document
from profiles.report import text as text_report
from profiles.report.text import print_stages
from profiles.results.result import Result
from profiles.results.verdict import Verdict, evidence_of, judge
from profiles.stages.take_apart import stages_and_lines
from profiles.stages.tf_graph import CutError, random_before_cache
from profiles.text import Terminal


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What a profile came to; `print(profile)` says it, and a notebook shows it."""

    result: Result
    verdict: Verdict

    def __str__(self) -> str:
        text = io.StringIO()
        self.print(Terminal(width=100, file=text))
        return text.getvalue().strip("\n")

    def __repr__(self) -> str:
        return str(self)

    def print(self, console: Console | None = None) -> None:
        """Prints the table, the stages and the verdict."""
        console = console or Terminal()
        text_report.print_results(console, [self.verdict], baseline=None)
        if self.result.stages is not None:
            print_stages(console, self.result.contender.label, self.result.stages)

    def to_dict(self) -> dict[str, Any]:
        """Returns the results file's content."""
        return document.document(
            [self.result.to_dict()],
            [self.verdict],
            created=document.now(),
            complete=True,
            provenance={**provenance.machine(), **backends.backend()},
            settings={"rounds": len(self.result.of("train"))},
            dataset=document.unlisted("given", self.result, self.result.contender.variant),
        )

    def save(self, folder: str | Path) -> Path:
        """Writes results.json and report.html. Returns the report's path.

        Raises:
          FileExistsError: if the folder holds results already.
        """
        folder = Path(folder)
        if (folder / document.RESULTS).exists():
            raise FileExistsError(f"{folder} holds results already. Choose another folder, or remove them.")
        one = self.result.contender
        lines = text_report.verdict_lines([self.verdict], None)
        document.write(folder, self.to_dict(), {(one.model, one.device.name): lines})
        return folder / document.REPORT


def profile(
    data: Any,
    model: Any,
    *,
    device: str | Device = "auto",
    rounds: int = ROUNDS,
    name: str = "data",
    lines: bool = False,
    image_names: Sequence[str] | None = None,
) -> Profile:
    """Says how much of training `model` on `data` is loading, how much compute, and which stage of loading costs it.

    Trains the model for some epochs of the data: weights, optimizer and metrics move on. Profile a copy
    (`keras.models.clone_model`) of one that you want to keep.

    Args:
      data: batches of `(images, labels)`, finite: a tf.data.Dataset, a keras.utils.PyDataset, or any other re-iterable
        or a function that returns an iterable (those two without a stage table).
      model: compiled, `steps_per_execution` 1.
      device: what the model runs on: "auto", "cpu", "gpu", or "emulated:RATE", which sleeps in place of the model's
        step.
      rounds: of training and of the model alone, at least 1; of the loader alone, at most 3 of them.
      name: of the data, in the report.
      lines: also time the lines of the Python functions that matter.
      image_names: of the images, where a tf.data pipeline begins with an index into them.
    Raises:
      ValueError: if the data or the model cannot be measured.
    """
    result, windows = measured(data, model, device=device, rounds=rounds, name=name)
    stages, annotated = stages_and_lines(data, windows, lines=lines, names=image_names)
    result = replace(result, stages=stages, lines=annotated)
    frozen: tuple[str, ...] = ()
    try:
        frozen = random_before_cache(data)
    except CutError as error:
        result = replace(result, flags=(*result.flags, str(error)))
    (verdict,) = judge([result], lambda one: replace(evidence_of(one), frozen_by_cache=frozen))
    return Profile(result=result, verdict=verdict)
