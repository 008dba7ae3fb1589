"""Runs a subject's operation: in tf.data, in a compiled model, or in Python threads.

Every feed serves batches without an end, so that subjects differ only in the operation, the library and the placement.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from unstall.benchmarks.evidence.augmentation.libraries import LIBRARIES, Apply, Subject
from unstall.benchmarks.evidence.augmentation.operations import OPERATIONS
from unstall.profiles.stages import every_node

# TensorFlow ops that run a function repeatedly.
_LOOP_OPS = {"While", "StatelessWhile", "For", "MapDefun", "Enter"}


def open_feed(subject: Subject, images: np.ndarray, *, batch_size: int, calls: int) -> Iterator[Any]:
    """Starts a feed.

    Args:
      subject: what the feed does.
      images: (images, side, side, 3) uint8, served in this order over and over.
      batch_size: number of images in a batch.
      calls: number of parallel calls; with 1, batches are made one after another and none is prepared ahead. A model
        always has one call at a time.
    Returns:
      An iterator of batches, (batch_size, side, side, 3) float32 in [0, 255].
    """
    side = images.shape[1]
    library = LIBRARIES[subject.library]
    draws = np.tile(np.array(OPERATIONS[subject.operation](side), np.float32), (len(images), 1))
    apply = library.build(subject.operation, side, subject.placement)
    if library.kind == "python":
        return _in_python(apply, images, draws, batch_size, calls)
    if library.kind == "arrays":
        apply = _through_numpy(apply, subject.placement)
    if subject.placement == "model":
        return _in_model(apply, images, draws, batch_size)
    return iter(_dataset(apply, images, draws, batch_size, calls, subject.placement))


def has_loop(subject: Subject, *, side: int, batch_size: int) -> bool | None:
    """Returns whether the subject's traced function runs a loop in its graph; None for a library without a graph."""
    import tensorflow as tf

    library = LIBRARIES[subject.library]
    if library.kind != "tensors":
        return None
    apply = library.build(subject.operation, side, subject.placement)
    batch = () if subject.placement == "element" else (batch_size if subject.placement == "model" else None,)
    image = tf.TensorSpec((*batch, side, side, 3), tf.uint8)
    draw = tf.TensorSpec((*batch, len(OPERATIONS[subject.operation](side))), tf.float32)
    return graph_has_loop(tf.function(apply).get_concrete_function(image, draw).graph.as_graph_def())


def graph_has_loop(graph: Any) -> bool:
    """Returns whether a GraphDef, or a function that it calls directly or indirectly, contains a loop."""
    return any(node.op in _LOOP_OPS for node in every_node(graph))


def _dataset(
    apply: Apply, images: np.ndarray, draws: np.ndarray, batch_size: int, calls: int, placement: str
) -> Any:  # a tf.data.Dataset
    import tensorflow as tf

    dataset = tf.data.Dataset.from_tensor_slices((images, draws)).repeat()
    parallel = None if calls == 1 else calls
    if placement == "element":
        dataset = dataset.map(apply, num_parallel_calls=parallel).batch(batch_size)
    else:
        dataset = dataset.batch(batch_size).map(apply, num_parallel_calls=parallel)
    options = tf.data.Options()
    options.autotune.enabled = False
    # Without its default rewrites, because with them tf.data would run the sequential map in parallel, and prefetch.
    options.experimental_optimization.apply_default_optimizations = False
    options.threading.private_threadpool_size = calls
    return dataset.with_options(options)


def _through_numpy(apply: Apply, placement: str) -> Apply:
    """Returns a function that calls an array library from a graph: for each image, or for a batch in a Python loop."""
    import tensorflow as tf

    def batch(images: np.ndarray, draws: np.ndarray) -> np.ndarray:
        return np.stack([apply(image, draw) for image, draw in zip(images, draws, strict=True)])

    function = apply if placement == "element" else batch

    def called(images: Any, draws: Any) -> Any:
        result = tf.numpy_function(function, [images, draws], tf.uint8, stateful=False)
        result.set_shape((*images.shape[:-3], None, None, 3))
        return tf.cast(result, tf.float32)

    return called


def _in_model(apply: Apply, images: np.ndarray, draws: np.ndarray, batch_size: int) -> Iterator[Any]:
    """Calls the compiled model, one batch at a time, as a training step does."""
    import tensorflow as tf

    step = tf.function(apply)
    order = np.arange(batch_size) % len(images)
    image_batch, draw_batch = tf.constant(images[order]), tf.constant(draws[order])
    while True:
        yield step(image_batch, draw_batch)


def _in_python(
    apply: Apply, images: np.ndarray, draws: np.ndarray, batch_size: int, calls: int
) -> Iterator[np.ndarray]:
    """Makes batches as Keras' own workers do: each batch in one thread, in order, and one batch ahead per thread."""

    def batch(number: int) -> np.ndarray:
        order = np.arange(number * batch_size, (number + 1) * batch_size) % len(images)
        return np.stack([apply(images[index], draws[index]) for index in order])

    if calls == 1:
        number = 0
        while True:
            yield batch(number)
            number += 1
    with ThreadPoolExecutor(calls) as threads:
        pending = deque(threads.submit(batch, number) for number in range(calls))
        number = calls
        while True:
            yield pending.popleft().result()
            pending.append(threads.submit(batch, number))
            number += 1
