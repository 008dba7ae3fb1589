"""Measures the stage table of any data that feeds a model, by reading some of the data again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import keras

from unstall.profiles.measure.windows import Windows
from unstall.profiles.provenance import usable_cores
from unstall.profiles.stage_table import AnnotatedFunction, StageTable
from unstall.profiles.stages.lines import annotate
from unstall.profiles.stages.progress import Note, unnoted
from unstall.profiles.stages.python_stages import python_table
from unstall.profiles.stages.tf_graph import CutError, nodes, rebuilt

# Batches that the model trains on while the running pipeline is observed, and the batches between two observations.
_WATCHED_BATCHES, _LOOK_EVERY = 64, 4
_WATCHED_S = 15.0


def stage_table(
    data: Any,
    windows: Windows,
    *,
    names: Sequence[str] | None = None,
    files: int = 1,
    note: Note = unnoted,
) -> StageTable:
    """Measures what each stage of a loader costs.

    Args:
      data: what `fit` trains on: a tf.data.Dataset whose caches are full, or a keras.utils.PyDataset.
      windows: of the model on its device. On tf.data the model takes some steps while the pipeline is observed; on an
        emulated device a sleep takes their place.
      names: names of the images, where a tf.data pipeline begins with an index into them.
      files: from how many files a loader in Python makes a sample.
      note: called with the number of runs that were made, and of all.
    Returns:
      The table; without stages, and with the reason, where this kind of data cannot be taken apart.
    """
    cores = usable_cores()
    if isinstance(data, keras.utils.PyDataset):
        return python_table(data, windows, cores=cores, files=files, note=note)
    if not hasattr(data, "element_spec"):
        reason = f"a {type(data).__name__} is read once, and from outside: only its waiting can be seen"
        return StageTable(cores=cores, reason=reason)
    from unstall.profiles.stages.tf_model import NodeState, look
    from unstall.profiles.stages.tf_stages import tfdata_table

    try:
        pipeline = nodes(data)
        rebuilt(pipeline)  # raises before the model trains, if the pipeline cannot be built again
        running: list[dict[int, NodeState]] = []

        def observe(iterator: Any) -> None:
            seen = look(iterator, pipeline)
            if seen is not None:
                running.append(seen)

        batches = int(data.cardinality())
        steps = min(batches, _WATCHED_BATCHES) if batches > 0 else _WATCHED_BATCHES
        windows.watch(data, observe, steps=steps, every=_LOOK_EVERY, limit_s=_WATCHED_S)
        return tfdata_table(data, cores=cores, running=running, names=names, note=note)
    except CutError as error:
        return StageTable(cores=cores, reason=str(error))


def stages_and_lines(
    data: Any,
    windows: Windows,
    *,
    lines: bool,
    names: Sequence[str] | None = None,
    files: int = 1,
    note: Note = unnoted,
) -> tuple[StageTable, tuple[AnnotatedFunction, ...]]:
    """Measures what each stage of a loader costs and, if `lines`, times the lines of its slowest Python functions.

    Args:
      data, windows, names, files, note: as `stage_table` takes them.
    Returns:
      (the table, the functions). There are no functions where the loader has no stages.
    """
    table = stage_table(data, windows, names=names, files=files, note=note)
    if not lines or table.reason is not None:
        return table, ()
    try:
        return table, annotate(data)
    except CutError as error:
        return replace(table, unavailable=(*table.unavailable, str(error))), ()
