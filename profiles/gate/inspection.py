"""Inspects those properties of a loader that have no noise: stages, decodes and bytes per image, and workers."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterable, Iterator
from typing import Any
from unittest import mock

import numpy as np

from unstall.profiles.data import DataKind, adapter
from unstall.profiles.gate.feed import FIT, Feed
from unstall.profiles.gate.invariants import DIGITS, UNKNOWN, Invariants
from unstall.profiles.measure.batches import batch_images
from unstall.profiles.stages.tf_graph import CutError, check_names, functions_of, nodes, random_before_cache

_DECODES = re.compile(r"Decode(Image|Jpeg|Png|Bmp|Gif|WebP|AndCropJpeg)\w*")
# Operations that run one of their branches, chosen anew for each image.
_BRANCHES = re.compile(r"(Stateless)?(If|Case)")
_PYTHON_READERS = ("imread", "imdecode")


def inspect(feed: Feed) -> Invariants:
    """Returns the invariants of a feed that was warmed up, so that its caches are full.

    Reads an epoch of batches here, to count the images that Python functions in the loader decode.
    """
    data = feed.data
    if feed.reading != FIT:
        return Invariants(images=feed.images_served)
    library = adapter(data)
    if library.kind(data) in (DataKind.PY_DATASET, DataKind.IMAGE_ITERATOR):
        from unstall.profiles.stages.python_stages import workers_seen

        batches: Iterable[Any] = (data[index] for index in range(data.num_batches or 1))
        workers = library.workers_in_fit(data)
        with _python_decodes() as decoded:
            first, images = _read(batches)
        return Invariants(
            images=feed.images_served,
            decodes_per_image=round(decoded() / images, DIGITS),
            workers=workers,
            several_at_work=workers_seen(data, feed.opened.windows) > 1 if workers > 1 else None,
            **_batch(first),
        )
    try:
        check_names(data, "the stages, decoders and frozen draws of a pipeline need", rebuilds=True)
    except CutError as error:
        first, _ = _read(data)
        return Invariants(images=feed.images_served, stages=(f"{UNKNOWN}{error}",), **_batch(first))
    with _python_decodes() as decoded:
        first, images = _read(data)
        in_python = decoded() / images
    return Invariants(
        images=feed.images_served,
        stages=_stages(data),
        decodes_per_image=round(_graph_decodes(data) + in_python, DIGITS),
        random_before_cache=tuple(sorted(random_before_cache(data))),
        **_batch(first),
    )


def _read(batches: Iterable[Any]) -> tuple[Any, int]:
    """Reads an epoch. Returns its first batch and its images."""
    iterator = iter(batches)
    first = next(iterator)
    return first, sum(batch_images(batch) for batch in itertools.chain([first], iterator))


def _batch(batch: Any) -> dict[str, Any]:
    import keras

    parts = [np.asarray(part) for part in keras.tree.flatten(batch)]
    text = ", ".join(f"{part.dtype} ({', '.join(map(str, part.shape))})" for part in parts)
    return {"batch": text, "bytes_per_image": sum(part.nbytes for part in parts) / batch_images(batch)}


def _stages(dataset: Any) -> tuple[str, ...]:
    from unstall.profiles.stages.tf_model import written

    stages = []
    for node in nodes(dataset):
        parallelism, buffer_size, autotuned = written(node.dataset)
        words = [node.kind if node.name == node.kind else f"{node.kind} {node.name}"]
        if parallelism is not None:
            words.append(f"{parallelism} calls")
        if buffer_size is not None:
            words.append(f"buffer of {buffer_size}")
        if autotuned:
            words.append("AUTOTUNE")
        stages.append(", ".join(words))
    return tuple(stages)


def _graph_decodes(dataset: Any) -> int:
    """Counts how often an image is decoded by the traced functions of a pipeline.

    Each decoder in a function counts once per image, also where the function loops over a batch of images.
    """
    return sum(_decodes(wrapper) for node in nodes(dataset) for wrapper in functions_of(node.dataset))


def _decodes(wrapper: Any) -> int:
    graph = wrapper.function.graph.as_graph_def()
    library = {function.signature.name: function.node_def for function in graph.library.function}
    return _decodes_in(graph.node, library)


def _decodes_in(nodes: Iterable[Any], library: dict[str, Any]) -> int:
    """Counts the decoders that run when these nodes run: of alternative branches, those of the branch with the most."""
    total = 0
    for node in nodes:
        called = [_decodes_in(library[name], library) for name in _called(node) if name in library]
        total += bool(_DECODES.fullmatch(node.op))
        total += max(called, default=0) if _BRANCHES.fullmatch(node.op) else sum(called)
    return total


def _called(node: Any) -> Iterator[str]:
    for value in node.attr.values():
        functions = [value.func] if value.WhichOneof("value") == "func" else value.list.func
        yield from (function.name for function in functions)


@contextlib.contextmanager
def _python_decodes() -> Iterator[Any]:
    """Counts the images that OpenCV and Pillow decode within the context, in any thread of this process.

    Yields:
      A function that returns the count; it is called once, at the end.
    """
    count = itertools.count()

    def counted(function: Any) -> Any:
        def read(*arguments: Any, **options: Any) -> Any:
            next(count)
            return function(*arguments, **options)

        return read

    with contextlib.ExitStack() as stack:
        with contextlib.suppress(ImportError):
            import cv2

            for name in _PYTHON_READERS:
                stack.enter_context(mock.patch.object(cv2, name, counted(getattr(cv2, name))))
        with contextlib.suppress(ImportError):
            from PIL import ImageFile

            load = ImageFile.ImageFile.load

            def loaded(image: Any, *arguments: Any, **options: Any) -> Any:
                if getattr(image, "tile", None):  # not decoded yet; Pillow also calls `load` on images that are
                    next(count)
                return load(image, *arguments, **options)

            stack.enter_context(mock.patch.object(ImageFile.ImageFile, "load", loaded))
        yield lambda: next(count)
