"""Measures the stage table of a tf.data pipeline, by short runs of the pipeline cut after each of its stages."""

from __future__ import annotations

import gc
import itertools
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from unstall.profiles import clock
from unstall.profiles.machine.mounts import Storage, storage_of
from unstall.profiles.measure.batches import batch_images
from unstall.profiles.stage_table import ImageTail, Stage, StageTable, image_name, tail_of
from unstall.profiles.stages.note import Note, unnoted
from unstall.profiles.stages.tf_graph import CutError, Node, nodes, rebuilt
from unstall.profiles.stages.tf_model import NodeState, look, written
from unstall.profiles.statistics import median

# How long a run of one cut lasts, about, and of how many batches of the pipeline at least.
RUN_S, LEAST_BATCHES = 0.12, 4
# Elements are counted over at least `LEAST_BATCHES`. Nodes that yield rarely need more: at most so many, for so long.
_MOST_BATCHES, _COUNT_S = 128, 1.0
ROUNDS = 3
# About how long all runs together may take.
_LIMIT_S = 20.0
# Batches in a run of the pipeline as written: many against those that are made ahead at the ends of the run.
_WHOLE_BATCHES = 32
# How often a run draws from tf.data while it is timed.
_DRAWS = 4
# How many images are timed one by one, and for how long at most.
TAIL_IMAGES, TAIL_S = 256, 2.0
# Stages without a function of the user's that take less than this part of an image's time share one row.
_SMALL_RATIO = 0.01
# Texts that are taken for the path of a file: with an extension, or with a folder and neither blanks nor commas. Others
# are the data themselves, such as a line of a table.
_PATH = re.compile(r"[^\n]*\.[A-Za-z]\w{0,9}|[^\s,;]*[/\\][^\s,;]*")
_LONGEST_PATH = 4096
# Nodes that the pipeline is not cut after: they cost almost nothing, which is counted in the next stage.
_FREE = {"range", "zip", "enumerate", "assert_cardinality", "take", "skip", "repeat", "restructured", "prefetch"}


def tfdata_table(
    dataset: Any,
    *,
    cores: float,
    running: Sequence[Mapping[int, NodeState]] = (),
    names: Sequence[str] | None = None,
    note: Note = unnoted,
) -> StageTable:
    """Measures what each stage of a tf.data pipeline costs.

    The pipeline is built again without parallelism, and runs cut after each stage. A stage's CPU time is the difference
    between the cuts behind and before it; its waiting is the difference of their wall time less CPU time. The median of
    the rounds counts, and for waiting the least, because other programs can only add to it. In the same
    rounds the whole pipeline runs as written: the stages must sum to its CPU time. Elements are drawn and dropped
    inside tf.data. The cost of this is measured on an empty pipeline and subtracted. Timing begins after some elements,
    so that filling a shuffle buffer counts for no stage.

    Args:
      dataset: yields batches and can be read again; its caches are full.
      cores: number of cores that this process may use.
      running: what was observed of the pipeline while a model trained on it, by position in `nodes(dataset)`.
      names: names of the images, where the pipeline begins with an index into them.
      note: called with the number of runs that were made, and of all.
    Raises:
      CutError: if the pipeline cannot be taken apart, or tf.data keeps no model of it.
    """
    pipeline = nodes(dataset)
    serial_datasets = rebuilt(pipeline)
    counts = _counts(pipeline, serial_datasets)
    cost = _Cuts(pipeline, dataset, serial_datasets, counts).measure(note)
    bytes_per_element = {at: seen.bytes_produced // max(seen.elements, 1) for at, seen in counts.seen.items()}
    stages = []
    for at, node in enumerate(pipeline):
        parallelism, buffer_size, autotuned, fill = _parameters(node, [seen[at] for seen in running if at in seen])
        stages.append(
            Stage(
                name=node.name,
                kind=node.kind,
                location=node.location,
                python=node.python,
                cpu_us_per_image=cost.cpu_us[at],
                wait_us_per_image=cost.wait_us[at],
                bytes_per_element=bytes_per_element.get(at),
                parallelism=parallelism,
                autotuned=autotuned,
                buffer_size=buffer_size,
                buffer_fill_ratio=fill,
                call_us_per_image=cost.call_us[at],
            )
        )
    return StageTable(
        stages=_without_small(stages),
        cores=cores,
        loader_cpu_us_per_image=cost.loader_cpu_us,
        effective_parallelism=cost.loader_cpu_us / cost.loader_wall_us,
        tail=_tail(pipeline, counts, names),
        storage=_storage(pipeline),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counts:
    """Elements of each node, counted in a short serial run.

    Attributes:
      seen: the last observation, by position.
      per_image: elements of each node for each image that reaches the model.
    """

    seen: Mapping[int, NodeState]
    per_image: tuple[float, ...]


def _counts(pipeline: list[Node], serial_datasets: list[Any]) -> _Counts:
    options = serial_options()
    options.autotune.enabled = True  # without it tf.data keeps no model to observe
    iterator = iter(serial_datasets[-1].with_options(options))
    looks: list[tuple[int, Mapping[int, NodeState]]] = []
    images, begin_ns = 0, clock.now_ns()
    for batch in itertools.islice(iterator, _MOST_BATCHES):
        images += batch_images(batch)
        seen = look(iterator, pipeline)
        if seen is None or not seen:
            raise CutError("tf.data keeps no model of it")
        looks.append((images, seen))
        # Go on until every node has yielded often enough: a node before `unbatch` yields once for many batches.
        # A source that is exhausted has vanished from the model.
        costly = [at for at in looks[0][1] if at in seen and pipeline[at].kind not in _FREE]
        counted = all(seen[at].elements - looks[0][1][at].elements >= LEAST_BATCHES - 1 for at in costly)
        if len(looks) >= LEAST_BATCHES and (counted or clock.now_ns() - begin_ns > _COUNT_S * 1e9):
            break
    if not looks:
        raise CutError("it gives no batch")
    per_image: list[float] = []
    for at, node in enumerate(pipeline):
        if at in looks[-1][1]:
            per_image.append(_per_image([(images, seen[at].elements if at in seen else 0) for images, seen in looks]))
        elif len(node.inputs) == 1:  # the serial run has no such node, and passes the elements of its input on
            per_image.append(per_image[node.inputs[0]])
        elif not node.inputs:  # an exhausted source
            per_image.append(0.0)
        else:
            raise CutError(f"tf.data's model of it lacks its {node.kind}")
    return _Counts(seen=looks[-1][1], per_image=tuple(per_image))


def _per_image(looks: Sequence[tuple[int, int]]) -> float:
    """Returns the elements of a node per image.

    Counts from the first moment, if there are more, because buffers were filled before the first batch. Counts to the
    last moment at which the elements grew, so that a node whose elements make many batches is equally far at both.

    Args:
      looks: (images, elements of the node) since the beginning, at successive moments; at least one.
    """
    last = max((at for at in range(1, len(looks)) if looks[at][1] > looks[at - 1][1]), default=len(looks) - 1)
    images, elements = looks[last]
    images_before, before = looks[0] if last else (0, 0)
    return (elements - before) / (images - images_before)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cost:
    """Costs in microseconds per image: of each node by itself, and of the whole pipeline as written.

    Attributes:
      call_us: CPU time of a node's calls if its function did next to nothing; None for nodes without a function.
    """

    cpu_us: tuple[float, ...]
    wait_us: tuple[float, ...]
    call_us: tuple[float | None, ...]
    loader_cpu_us: float
    loader_wall_us: float


class _Cuts:
    """Runs the pipeline cut after each node that may cost something."""

    def __init__(self, pipeline: list[Node], dataset: Any, serial_datasets: list[Any], counts: _Counts) -> None:
        self._pipeline = pipeline
        self._counts = counts
        self._dataset = dataset
        self._serial = serial_datasets
        self._cut = [node.kind not in _FREE or at == len(pipeline) - 1 for at, node in enumerate(pipeline)]

    def measure(self, note: Note) -> _Cost:
        images = self._images_in(RUN_S)
        elements = [max(1, round(images * ratio)) for ratio in self._counts.per_image]
        cuts = {at: Drain(self._serial[at], elements[at], serial_options()) for at, cut in enumerate(self._cut) if cut}
        whole = Drain(self._dataset, max(elements[-1], _WHOLE_BATCHES), self._dataset.options())
        nothing = tf.data.Dataset.range(2**62)
        empty = {count: Drain(nothing, count, serial_options()) for count in {elements[at] for at in cuts}}
        called = {at for at in cuts if self._pipeline[at].kind == "map" and not self._pipeline[at].python}
        most = max((elements[at] for at in called), default=0)
        # A function that returns what it is given would not be called.
        calls = [Drain(nothing.map(lambda number: number + 1), most, serial_options())] if called else []
        runs: dict[Drain, list[tuple[float, float]]] = {
            drain: [] for drain in (*cuts.values(), whole, *empty.values(), *calls)
        }
        began_ns = clock.now_ns()
        total = ROUNDS * len(runs)
        note(0, total)
        for number in range(ROUNDS):
            if number and (clock.now_ns() - began_ns) * (number + 1) / number > _LIMIT_S * 1e9:
                break
            gc.collect()
            for done, (drain, times) in enumerate(runs.items(), number * len(runs) + 1):
                times.append(drain.run())
                note(done, total)

        def per_image(drain: Drain, at: int, time_us: Callable[[Sequence[tuple[float, float]]], float]) -> float:
            return (time_us(runs[drain]) - time_us(runs[empty[elements[at]]])) * self._counts.per_image[at]

        call_us = max(_cpu_us(runs[calls[0]]) - _cpu_us(runs[empty[most]]), 0.0) if calls else 0.0
        last = len(self._pipeline) - 1
        cpu = {at: per_image(cut, at, _cpu_us) for at, cut in cuts.items()}
        wait = {at: per_image(cut, at, _wait_us) for at, cut in cuts.items()}
        positions = range(len(self._pipeline))
        return _Cost(
            cpu_us=tuple(self._own(cpu, at) for at in positions),
            wait_us=tuple(self._own(wait, at) for at in positions),
            call_us=tuple(call_us * self._counts.per_image[at] if at in called else None for at in positions),
            loader_cpu_us=per_image(whole, last, _cpu_us),
            loader_wall_us=per_image(whole, last, _wall_us),
        )

    def _own(self, totals: Mapping[int, float], at: int) -> float:
        """Returns the cost of a cut less that of its inputs. An input of two cuts is subtracted from both."""
        if at not in totals:
            return 0.0
        return totals[at] - sum(self._upstream(totals, below) for below in self._pipeline[at].inputs)

    def _upstream(self, totals: Mapping[int, float], at: int) -> float:
        """Returns the cost of the pipeline up to a node: of the nearest cuts, where it is not cut at this node."""
        if at in totals:
            return totals[at]
        return sum(self._upstream(totals, below) for below in self._pipeline[at].inputs)

    def _images_in(self, run_s: float) -> int:
        """Returns how many images the whole pipeline yields in about `run_s`: those of `LEAST_BATCHES` at least."""
        batches_per_image = self._counts.per_image[-1]
        batches, wall_us = LEAST_BATCHES, 0.0
        while wall_us < run_s * 1e6 / 3 and batches < 4096:
            batches *= 2
            drain = Drain(self._dataset, batches, self._dataset.options())
            wall_us = drain.run()[1] * drain.elements
        wanted = batches * run_s * 1e6 / max(wall_us, 1.0)
        return round(max(wanted, LEAST_BATCHES) / batches_per_image)


def _cpu_us(rounds: Sequence[tuple[float, float]]) -> float:
    """Returns the CPU time of an element, of its (CPU, wall) times in each round."""
    return median([cpu for cpu, _ in rounds])


def _wall_us(rounds: Sequence[tuple[float, float]]) -> float:
    return median([wall for _, wall in rounds])


def _wait_us(rounds: Sequence[tuple[float, float]]) -> float:
    """Returns what an element waits."""
    return min(wall - cpu for cpu, wall in rounds)


class Drain:
    """Draws elements of a dataset inside tf.data, and times several draws after a first one.

    Each draw reads many elements: `shard` drops all but every n-th, without calling a function. Directly behind a
    `batch`, `shard` would skip batches without copying their elements together; `enumerate` between them prevents that.
    """

    def __init__(self, dataset: Any, elements: int, options: Any) -> None:
        per_draw = math.ceil(elements / _DRAWS)
        self.elements = per_draw * _DRAWS
        self._dataset = dataset.repeat().enumerate().shard(per_draw, per_draw - 1).with_options(options)

    def run(self) -> tuple[float, float]:
        """Returns the CPU and the wall time of an element, in microseconds."""
        iterator, collects = iter(self._dataset), gc.isenabled()
        gc.disable()
        try:
            next(iterator)  # empties buffers that were filled while nothing was drawn; they are empty at the end, too
            wall_ns, cpu_ns = clock.now_ns(), clock.own_cpu_ns()
            for _ in range(_DRAWS):
                next(iterator)
            cpu_ns, wall_ns = clock.own_cpu_ns() - cpu_ns, clock.now_ns() - wall_ns
        finally:
            if collects:
                gc.enable()
        return cpu_ns / 1e3 / self.elements, wall_ns / 1e3 / self.elements


def serial_options() -> Any:
    """Returns tf.data options for a run on one thread, without autotuning and optimizations."""
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    options.threading.private_threadpool_size = 1
    options.threading.max_intra_op_parallelism = 1
    return options


def _parameters(node: Node, seen: Sequence[NodeState]) -> tuple[int | None, int | None, bool, float | None]:
    """Returns (parallelism, buffer size, whether AUTOTUNE chose one of them, how full the buffer was on average)."""
    parallelism, buffer_size, autotuned = written(node.dataset)
    if not seen:
        return parallelism, buffer_size, autotuned, None
    last = seen[-1]
    fill = None
    if last.buffer_size and node.kind in ("prefetch", "shuffle"):
        fill = float(np.mean([min(moment.buffered / moment.buffer_size, 1.0) for moment in seen if moment.buffer_size]))
    return last.parallelism or parallelism, last.buffer_size or buffer_size, autotuned or last.tunable, fill


def _without_small(stages: list[Stage]) -> tuple[Stage, ...]:
    total = sum(stage.busy_us_per_image for stage in stages)

    def small(stage: Stage) -> bool:
        plain = stage.location is None and stage.buffer_size is None
        return plain and stage.busy_us_per_image < _SMALL_RATIO * total

    rest = [stage for stage in stages if small(stage)]
    kept = [stage for stage in stages if not small(stage)]
    if rest:
        kept.append(
            Stage(
                name=", ".join(dict.fromkeys(stage.name for stage in rest)),
                kind="other tf.data",
                cpu_us_per_image=sum(stage.cpu_us_per_image for stage in rest),
                wait_us_per_image=sum(stage.wait_us_per_image or 0.0 for stage in rest),
            )
        )
    return tuple(kept)


def _tail(pipeline: list[Node], counts: _Counts, names: Sequence[str] | None) -> ImageTail | None:
    """Times single images through the stages before the first batch; None where no stages handle single images."""
    first = next((at for at, node in enumerate(pipeline) if node.location is not None and len(node.inputs) == 1), None)
    if first is None or not all(_is_single(counts.per_image[at]) for at in (first, *pipeline[first].inputs)):
        return None
    behind = {first}
    for at in range(first, len(pipeline)):
        if behind & set(pipeline[at].inputs) and _is_single(counts.per_image[at]):
            behind.add(at)
    last = max(behind)
    (source,) = pipeline[first].inputs
    elements = [tf.nest.flatten(element) for element in pipeline[source].dataset.take(TAIL_IMAGES)]
    labels = [_label(element, number, names) for number, element in enumerate(elements)]
    spec = pipeline[source].dataset.element_spec
    try:
        columns = [tf.stack(column) for column in zip(*elements, strict=True)]
    except (tf.errors.InvalidArgumentError, TypeError, ValueError):  # elements of different shapes
        return None
    in_order = tf.data.Dataset.from_tensor_slices(tf.nest.pack_sequence_as(spec, columns))
    single_images = rebuilt(pipeline, replaced={source: in_order})[last]
    times: list[tuple[str, float]] = []
    iterator = iter(single_images.with_options(serial_options()))
    began_ns = clock.now_ns()
    for label in labels:
        before_ns = clock.now_ns()
        if next(iterator, None) is None or clock.now_ns() - began_ns > TAIL_S * 1e9:
            break
        times.append((label, (clock.now_ns() - before_ns) / 1e3))
    if len(times) < 2:
        return None
    return tail_of(times[1:])  # the first time includes setting the iterator up


def _storage(pipeline: list[Node]) -> Storage | None:
    """Returns the storage of the first file that an element of a source names; None where none names a file."""
    for node in pipeline:
        if node.inputs or node.kind not in ("from_tensor_slices", "list_files", "from_tensors"):
            continue
        for element in node.dataset.take(1):
            for part in tf.nest.flatten(element):
                name = _path_in(part)
                if name is not None and os.path.exists(name):
                    return storage_of(name)
    return None


def _path_in(part: Any) -> str | None:
    """Returns the path of a file that a part of an element may be; None for any other part."""
    if not isinstance(part, tf.Tensor) or part.dtype != tf.string or part.shape.rank != 0:
        return None
    text: str = part.numpy().decode("utf-8", "backslashreplace")
    return text if len(text) < _LONGEST_PATH and _PATH.fullmatch(text) else None


def _is_single(elements_per_image: float) -> bool:
    return abs(elements_per_image - 1) < 0.05


def _label(element: Sequence[Any], number: int, names: Sequence[str] | None) -> str:
    """Names an image by a path in its element, by an index in its element into `names`, or else by its number."""
    for part in element:
        if (path := _path_in(part)) is not None:
            return image_name(path)
        if part.dtype.is_integer and part.shape.rank == 0 and names is not None and 0 <= int(part) < len(names):
            return names[int(part)]
    return f"element {number}"
