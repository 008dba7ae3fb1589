"""One run of the augmentation table: every row prepared and looked at, then measured in rounds over all rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.augmentation.libraries import Row
from benchmarks.augmentation.workers import (
    RowFailed,
    Sample,
    Worker,
    look_for_loop,
    measure,
    peak_memory_bytes,
    picture,
)

# What the others are compared with: it takes any map, and clips as a camera does.
REFERENCE_LIBRARY = "opencv"
# So many photos are pictured and compared; the first is shown.
PICTURED = 2


@dataclass(slots=True, kw_only=True)
class Measured:
    """What a row came to so far.

    Attributes:
      row: which.
      graph_loop: whether its graph has a loop; None for a library without a graph.
      peak_memory_bytes: None if it could not be measured.
      difference_levels: mean absolute difference to the reference, of 255, on the interior.
      image: (side, side, 3) uint8, the first photo as this row makes it.
      samples: of one core and of all.
      failed: why there is nothing, in one line.
    """

    row: Row
    graph_loop: bool | None = None
    peak_memory_bytes: int | None = None
    difference_levels: float | None = None
    image: np.ndarray | None = None
    samples: list[Sample] = field(default_factory=list)
    failed: str = ""


def interior_difference(image: np.ndarray, reference: np.ndarray) -> float:
    """Returns the mean absolute difference of two stacks of images, without an eighth at each edge.

    Args:
      image, reference: (images, side, side, channels).
    Raises:
      ValueError: if their shapes differ.
    """
    if image.shape != reference.shape:
        raise ValueError(f"Images differ in shape. Received: {image.shape} and {reference.shape}.")
    margin = image.shape[1] // 8
    inside = (slice(None), slice(margin, -margin or None), slice(margin, -margin or None))
    return float(np.mean(np.abs(image[inside].astype(np.float64) - reference[inside])))


def run(
    rows: tuple[Row, ...],
    images: np.ndarray,
    *,
    batch_size: int,
    cores: int,
    rounds: int,
    step: Callable[[str], Any],
) -> list[Measured]:
    """Measures all rows.

    Args:
      rows: in the order of the table.
      images: (images, side, side, 3) uint8.
      batch_size: images a batch.
      cores: calls in parallel, beside one core alone.
      rounds: windows of each kind a row.
      step: told what comes next, outside all windows: `len(rows) * (rounds + 1)` times.
    """
    one_core = Worker(images, batch_size, cores=1)
    all_cores = Worker(images, batch_size, cores=cores)
    workers = (one_core,) if cores == 1 else (one_core, all_cores)
    table = [Measured(row=row) for row in rows]
    try:
        references: dict[str, np.ndarray] = {}
        for one in table:
            step(one.row.label)
            _attempt(one, _look, one_core, images, references)
            _attempt(one, _weigh, images, batch_size, cores)
        for number in range(rounds):
            for one in table:
                step(one.row.label)
                for worker in workers:
                    _attempt(one, _take_window, worker, number)
    finally:
        one_core.close()
        all_cores.close()
    return table


def _attempt(one: Measured, action: Callable[..., None], *arguments: Any) -> None:
    if one.failed:
        return
    try:
        action(one, *arguments)
    except RowFailed as error:
        one.failed = str(error)


def _look(one: Measured, worker: Worker, images: np.ndarray, references: dict[str, np.ndarray]) -> None:
    pictured, operation = images[:PICTURED], one.row.operation
    one.graph_loop = worker.ask(look_for_loop, one.row)
    if operation not in references:
        row = Row(operation=operation, library=REFERENCE_LIBRARY, placement="element")
        references[operation] = worker.ask(picture, row, pictured)
    made = worker.ask(picture, one.row, pictured)
    one.image = np.clip(np.round(made[0]), 0, 255).astype(np.uint8)
    one.difference_levels = interior_difference(made, references[operation])


def _weigh(one: Measured, images: np.ndarray, batch_size: int, cores: int) -> None:
    worker = Worker(images, batch_size, cores=cores)
    try:
        one.peak_memory_bytes = worker.ask(peak_memory_bytes, one.row)
    finally:
        worker.close()


def _take_window(one: Measured, worker: Worker, number: int) -> None:
    one.samples.append(worker.ask(measure, one.row, number))
