"""Profiles data that feeds a model, in a script or a notebook: measurement, stages, verdict and report in one call."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from profiles import provenance
from profiles.devices import Device
from profiles.measure import backends
from profiles.measure.ahead import Ahead
from profiles.measure.measure import measure_samples
from profiles.measure.schedule import ROUNDS
from profiles.report.document import REPORT, RESULTS, Document, content_of, now, write
from profiles.report.measurements import (
    CALL,
    KIND,
    Measurement,
    MeasurementDocument,
    Measurements,
    Plan,
    derive,
    unlisted_dataset,
)
from profiles.results.result import Result
from profiles.results.verdict import Verdict
from profiles.script.report import with_facts_of
from profiles.stages.ahead import ahead_of
from profiles.stages.take_apart import stages_and_lines
from profiles.stages.tf_graph import CutError
from profiles.text import Terminal


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What `profile` measured. Print it, or let a notebook show it."""

    document: MeasurementDocument

    @property
    def verdict(self) -> Verdict:
        """What limits the speed of training."""
        (verdict,) = derive(self.document)
        return verdict

    @property
    def result(self) -> Result:
        """The rates, the shares of an epoch, and the stages."""
        return self.verdict.result

    def __str__(self) -> str:
        text = io.StringIO()
        self.print(Terminal(width=100, file=text))
        return text.getvalue().strip("\n")

    def __repr__(self) -> str:
        return str(self)

    def print(self, console: Console | None = None) -> None:
        """Prints the table, the stages and the verdict."""
        KIND.print(console or Terminal(), self.document, [self.verdict])

    def to_dict(self) -> dict[str, Any]:
        """Returns the content of results.json."""
        return content_of(self.document, KIND, [self.verdict])

    def save(self, folder: str | Path) -> Path:
        """Writes results.json and report.html into a folder, and returns the path of the report.

        Raises:
          FileExistsError: if the folder holds results already.
        """
        folder = Path(folder)
        if (folder / RESULTS).exists():
            raise FileExistsError(f"{folder} holds results already. Choose another folder, or remove them.")
        write(folder, self.document, KIND, [self.verdict])
        return folder / REPORT


def profile(
    data: Any,
    model: Any,
    *,
    device: str | Device = "auto",
    rounds: int = ROUNDS,
    name: str = "data",
    lines: bool = False,
    class_weight: Mapping[int, float] | None = None,
    image_names: Sequence[str] | None = None,
    files_per_sample: int = 1,
) -> Profile:
    """Measures how much of training `model` on `data` is loading and how much compute, and what each stage costs.

    Trains the model for some epochs of the data, which changes weights, optimizer and metrics. To keep a model, profile
    a copy (`keras.models.clone_model`).

    Args:
      data: finite batches of what the model's train step takes, such as `(images, labels)`: a tf.data.Dataset, a
        keras.utils.PyDataset, any other iterable that can be read again, or a function that returns an iterable. The
        last two get no stage table.
      model: compiled, `steps_per_execution` 1.
      device: what the model runs on: "auto", "cpu", "gpu", or "emulated:RATE", which sleeps in place of the model's
        step.
      rounds: of training and of the model alone, at least 1. The loader alone is measured in the first 3 of them.
      name: of the data, in the report.
      lines: also time the lines of the slowest Python functions of the data.
      class_weight: of `fit`, for a tf.data.Dataset or a PyDataset.
      image_names: names of the images, where a tf.data pipeline begins with an index into them.
      files_per_sample: from how many files the data makes a sample, such as 2 for a photo and its mask.
    Raises:
      ValueError: if the data or the model cannot be measured.
    """
    if files_per_sample < 1:
        raise ValueError(f"`files_per_sample` must be at least 1. Received: files_per_sample={files_per_sample}.")
    created = now()
    ahead: Ahead | None = None
    unread: tuple[str, ...] = ()
    try:
        ahead = ahead_of(data)
    except CutError as error:
        unread = (str(error),)
    subject, samples, windows = measure_samples(
        data, model, device=device, rounds=rounds, name=name, ahead=ahead, class_weight=class_weight
    )
    subject = replace(subject, doubts=(*subject.doubts, *unread), unit=subject.unit.of_files(files_per_sample))
    stages, annotated = stages_and_lines(data, windows, lines=lines, names=image_names, files=files_per_sample)
    measurement = Measurement(subject=with_facts_of(subject, data), windows=(name,), stages=stages, lines=annotated)
    return Profile(
        document=Document(
            command=CALL,
            created=created,
            complete=True,
            provenance={**provenance.machine(), **backends.backend()},
            plan=Plan(rounds=rounds, data=name),
            dataset=unlisted_dataset("given", name, subject.images),
            samples=Measurements(subjects=(measurement,), windows={name: tuple(samples)}),
        )
    )
