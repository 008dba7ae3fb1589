"""The stage table of a tf.data pipeline: short runs of the pipeline, cut after each of its stages."""

from __future__ import annotations

import gc
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from profiles import clock
from profiles.measure.batches import batch_images
from profiles.stage_table import ImageTail, Stage, StageTable, tail_of
from profiles.stages.tf_graph import CutError, Node, nodes, serial
from profiles.stages.tf_model import Seen, look, written
from profiles.statistics import median

# A run of one cut lasts about so long, and at least so many elements of the last stage.
RUN_S, LEAST_BATCHES = 0.12, 4
# Elements are counted in so many batches at least, and in more, up to so many or so long, for a node that gives few.
_MOST_BATCHES, _COUNT_S = 128, 1.0
ROUNDS = 3
# Of the pipeline as written, enough that what is made ahead at its ends is little.
_WHOLE_BATCHES = 32
# A run draws so many times, after once that does not count.
_DRAWS = 4
# Read one at a time for the per-image times.
TAIL_IMAGES, TAIL_S = 256, 2.0
# Stages below this part of an image's time that run no function of the user's are summed up in one row.
_SMALL_RATIO = 0.01
# Not cut after: they cost next to nothing, and what they do cost is in the next stage.
_FREE = {"range", "zip", "enumerate", "assert_cardinality", "take", "skip", "repeat", "restructured", "prefetch"}


def tfdata_table(
    dataset: Any,
    *,
    cores: float,
    running: Sequence[Mapping[int, Seen]] = (),
    names: Sequence[str] | None = None,
    limit_s: float = 20.0,
) -> StageTable:
    """Measures what each stage of a tf.data pipeline costs.

    The pipeline is run with one thing done at a time, cut after each stage: differences of CPU time are the stages'
    own, and so are differences of what is left of the wall time. All of it runs as it is written in the same rounds:
    its CPU time is what the stages must sum to. Elements are drawn and dropped inside tf.data; what that costs is
    measured on an empty pipeline and taken off. A run begins after some elements, so that filling a shuffle buffer is
    in no stage.

    Args:
      dataset: gives batches, again and again; a cache in it must be full.
      cores: that this process may use.
      running: what was seen of the pipeline while a model trained on it, by position in `nodes(dataset)`.
      names: of images, where the pipeline begins with an index into them.
      limit_s: about how long all of it may take.
    Raises:
      CutError: if the pipeline cannot be taken apart, or has no model of its own.
    """
    pipeline = nodes(dataset)
    one_by_one = serial(pipeline)
    counts = _counts(pipeline, one_by_one)
    cost = _Cuts(pipeline, dataset, one_by_one, counts).measure(limit_s)
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
            )
        )
    return StageTable(
        stages=_without_small(stages),
        cores=cores,
        loader_cpu_us_per_image=cost.loader_cpu_us,
        effective_parallelism=cost.loader_cpu_us / cost.loader_wall_us,
        tail=_tail(pipeline, counts, names),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counts:
    """Elements of each node per image that reaches the model, from a short serial run."""

    seen: Mapping[int, Seen]
    per_image: tuple[float, ...]


def _counts(pipeline: list[Node], one_by_one: list[Any]) -> _Counts:
    options = serial_options()
    options.autotune.enabled = True  # there is no model without
    iterator = iter(one_by_one[-1].with_options(options))
    looks: list[tuple[int, Mapping[int, Seen]]] = []
    images, begin_ns = 0, clock.now_ns()
    for batch in itertools.islice(iterator, _MOST_BATCHES):
        images += batch_images(batch)
        seen = look(iterator, pipeline)
        if seen is None or not seen:
            raise CutError("tf.data keeps no model of it")
        looks.append((images, seen))
        # One that gives many batches at a time, such as in front of `unbatch`, has to be waited for.
        # A source that has given all it had is gone.
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
        elif len(node.inputs) == 1:  # what a serial run has no node for is as its input is
            per_image.append(per_image[node.inputs[0]])
        elif not node.inputs:  # a source that has given all it had
            per_image.append(0.0)
        else:
            raise CutError(f"tf.data's model of it lacks its {node.kind}")
    return _Counts(seen=looks[-1][1], per_image=tuple(per_image))


def _per_image(looks: Sequence[tuple[int, int]]) -> float:
    """Returns the elements of a node per image, from the images and its elements so far at several moments.

    From the first moment, if there are more: to make the first batch, buffers were filled. To the last one at which it
    grew: a node that gives many batches at a time is then as far as it was at the first.
    """
    last = max((at for at in range(1, len(looks)) if looks[at][1] > looks[at - 1][1]), default=len(looks) - 1)
    images, elements = looks[last]
    images_before, before = looks[0] if last else (0, 0)
    return (elements - before) / (images - images_before)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cost:
    """What came out, in microseconds per image: each node's own, and the pipeline's as written."""

    cpu_us: tuple[float, ...]
    wait_us: tuple[float, ...]
    loader_cpu_us: float
    loader_wall_us: float


class _Cuts:
    """Runs of the pipeline cut after each node that may cost anything."""

    def __init__(self, pipeline: list[Node], dataset: Any, one_by_one: list[Any], counts: _Counts) -> None:
        self._pipeline = pipeline
        self._counts = counts
        self._dataset = dataset
        self._serial = one_by_one
        self._cut = [node.kind not in _FREE or at == len(pipeline) - 1 for at, node in enumerate(pipeline)]

    def measure(self, limit_s: float) -> _Cost:
        images = self._images_in(RUN_S)
        elements = [max(1, round(images * ratio)) for ratio in self._counts.per_image]
        cuts = {at: Drain(self._serial[at], elements[at], serial_options()) for at, cut in enumerate(self._cut) if cut}
        whole = Drain(self._dataset, max(elements[-1], _WHOLE_BATCHES), self._dataset.options())
        nothing = tf.data.Dataset.range(2**62)
        empty = {count: Drain(nothing, count, serial_options()) for count in {elements[at] for at in cuts}}
        runs: dict[Drain, list[tuple[float, float]]] = {one: [] for one in (*cuts.values(), whole, *empty.values())}
        began_ns = clock.now_ns()
        for number in range(ROUNDS):
            if number and (clock.now_ns() - began_ns) * (number + 1) / number > limit_s * 1e9:
                break
            gc.collect()
            for drain, seen in runs.items():
                seen.append(drain.run())

        def per_image(drain: Drain, at: int, figure: Callable[[tuple[float, float]], float]) -> float:
            drawing = median([figure(run) for run in runs[empty[elements[at]]]])
            us = median([figure(run) for run in runs[drain]]) - drawing
            return us * self._counts.per_image[at]

        last = len(self._pipeline) - 1
        cpu = {at: per_image(cut, at, lambda run: run[0]) for at, cut in cuts.items()}
        beyond = {at: per_image(cut, at, lambda run: run[1] - run[0]) for at, cut in cuts.items()}
        places = range(len(self._pipeline))
        return _Cost(
            cpu_us=tuple(self._own(cpu, at) for at in places),
            wait_us=tuple(self._own(beyond, at) for at in places),
            loader_cpu_us=per_image(whole, last, lambda run: run[0]),
            loader_wall_us=per_image(whole, last, lambda run: run[1]),
        )

    def _own(self, totals: Mapping[int, float], at: int) -> float:
        """Returns what a cut costs beyond the cuts that it reads; a node that two read is charged once to each."""
        if at not in totals:
            return 0.0
        return totals[at] - sum(self._upstream(totals, below) for below in self._pipeline[at].inputs)

    def _upstream(self, totals: Mapping[int, float], at: int) -> float:
        if at in totals:
            return totals[at]
        return sum(self._upstream(totals, below) for below in self._pipeline[at].inputs)

    def _images_in(self, run_s: float) -> int:
        """Returns the images that the whole pipeline gives in about `run_s`, at least some batches of them."""
        batches_per_image = self._counts.per_image[-1]
        batches, wall_us = LEAST_BATCHES, 0.0
        while wall_us < run_s * 1e6 / 3 and batches < 4096:
            batches *= 2
            drain = Drain(self._dataset, batches, self._dataset.options())
            wall_us = drain.run()[1] * drain.elements
        wanted = batches * run_s * 1e6 / max(wall_us, 1.0)
        return round(max(wanted, LEAST_BATCHES) / batches_per_image)


class Drain:
    """Draws some elements of a dataset inside tf.data, then several times as many, which are timed.

    No function is called for it: `shard` passes over all elements but every n-th. It would spare a batch the copying,
    but `enumerate` before it does not let it.
    """

    def __init__(self, dataset: Any, elements: int, options: Any) -> None:
        per_draw = math.ceil(elements / _DRAWS)
        self.elements = per_draw * _DRAWS
        self._dataset = dataset.repeat().enumerate().shard(per_draw, per_draw - 1).with_options(options)

    def run(self) -> tuple[float, float]:
        """Returns the CPU and the wall time of an element, in microseconds."""
        iterator = iter(self._dataset)
        gc.disable()
        try:
            next(iterator)  # buffers that filled while nobody drew are empty then, as they are at the end
            wall_ns, cpu_ns = clock.now_ns(), clock.own_cpu_ns()
            for _ in range(_DRAWS):
                next(iterator)
            cpu_ns, wall_ns = clock.own_cpu_ns() - cpu_ns, clock.now_ns() - wall_ns
        finally:
            gc.enable()
        return cpu_ns / 1e3 / self.elements, wall_ns / 1e3 / self.elements


def serial_options() -> Any:
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    options.threading.private_threadpool_size = 1
    options.threading.max_intra_op_parallelism = 1
    return options


def _parameters(node: Node, seen: Sequence[Seen]) -> tuple[int | None, int | None, bool, float | None]:
    """Returns parallelism, buffer size, whether AUTOTUNE chose, and how full the buffer was on average."""
    parallelism, buffer_size, autotuned = written(node.dataset)
    if not seen:
        return parallelism, buffer_size, autotuned, None
    last = seen[-1]
    fill = None
    if last.buffer_size and node.kind in ("prefetch", "shuffle"):
        fill = float(np.mean([min(one.buffered / one.buffer_size, 1.0) for one in seen if one.buffer_size]))
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
    """Times single images through the stages before the first batch; None where no such part can be told."""
    first = next((at for at, node in enumerate(pipeline) if node.location is not None and len(node.inputs) == 1), None)
    if first is None or not all(_is_single(counts.per_image[at]) for at in (first, *pipeline[first].inputs)):
        return None
    behind = {first}
    for at in range(first, len(pipeline)):
        if behind & set(pipeline[at].inputs) and _is_single(counts.per_image[at]):
            behind.add(at)
    last = max(behind)
    (source,) = pipeline[first].inputs
    elements = [tf.nest.flatten(one) for one in pipeline[source].dataset.take(TAIL_IMAGES)]
    labels = [_label(one, number, names) for number, one in enumerate(elements)]
    spec = pipeline[source].dataset.element_spec
    try:
        columns = [tf.stack(column) for column in zip(*elements, strict=True)]
    except (tf.errors.InvalidArgumentError, TypeError, ValueError):  # elements of different shapes
        return None
    known_order = tf.data.Dataset.from_tensor_slices(tf.nest.pack_sequence_as(spec, columns))
    ready = serial(pipeline, {source: known_order})[last]
    times: list[tuple[str, float]] = []
    iterator = iter(ready.with_options(serial_options()))
    began_ns = clock.now_ns()
    for label in labels:
        before_ns = clock.now_ns()
        if next(iterator, None) is None or clock.now_ns() - began_ns > TAIL_S * 1e9:
            break
        times.append((label, (clock.now_ns() - before_ns) / 1e3))
    if len(times) < 2:
        return None
    return tail_of(times[1:])  # the first one made the iterator's buffers


def _is_single(elements_per_image: float) -> bool:
    return abs(elements_per_image - 1) < 0.05


def _label(element: Sequence[Any], number: int, names: Sequence[str] | None) -> str:
    """Names an image by the path that its element holds, by its index into `names`, or by its place."""
    for part in element:
        if part.dtype == tf.string and part.shape.rank == 0:
            text = part.numpy().decode("utf-8", "backslashreplace")
            return "/".join(text.split("/")[-2:]) if len(text) < 4096 else f"element {number}"
        if part.dtype.is_integer and part.shape.rank == 0 and names is not None and 0 <= int(part) < len(names):
            return names[int(part)]
    return f"element {number}"
