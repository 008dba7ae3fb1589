"""Builds a tf.data pipeline again with changes: parallelism, prefetch, tuning, a cache, the place of a shuffle.

The functions of the pipeline are not traced again. All pipelines that are built, also the one without a change, are cut
in the same place and read the same elements.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import tensorflow as tf

from profiles.remedies.changes import AS_WRITTEN, Change
from profiles.remedies.tf_part import EpochPart
from profiles.stages import nodes, python_in, random_before_cache, random_in, rebuilt, shuffle_buffer_of


class Rebuilding:
    """Builds a user's pipeline again, as it is written and with each change.

    Attributes:
      part: cuts all pipelines that are built to a part of an epoch.
      refused: changes that must not be made, and why. Complete once `changes` has returned.

    Args:
      dataset: a tf.data.Dataset of batches.
      calls: number of parallel calls of a map, batch or interleave.
      memory_limit_bytes: the largest cache in memory.
    Raises:
      CutError: if the pipeline cannot be taken apart or built again.
    """

    def __init__(self, dataset: Any, *, calls: int, memory_limit_bytes: float) -> None:
        self._dataset = dataset
        self._calls = calls
        self._memory_limit_bytes = memory_limit_bytes
        self._nodes = nodes(dataset, needs="changing a pipeline needs")
        self.refused: list[str] = []
        rebuilt(self._nodes, calls=calls)
        self.part = EpochPart(self._nodes)
        self.as_written(1)

    @property
    def stages(self) -> tuple[str, ...]:
        """Names of the pipeline's stages, in the order in which an element passes them."""
        return tuple(node.name for node in self._nodes)

    def as_written(self, batches: int) -> Any:
        """Returns the pipeline with the settings that the user wrote, cut to so many batches."""
        return self._built(batches, "as written")[-1].with_options(self._dataset.options())

    def changes(self, batches: int) -> dict[Change, Any]:
        """Returns the pipeline as written, which comes first, and with each change, all cut to so many batches."""
        options = self._dataset.options()

        def with_options(dataset: Any, autotune: bool | None = None) -> Any:
            dataset = dataset.with_options(options)
            return dataset if autotune is None else dataset.with_options(_autotune(autotune))

        sequential = self._built(batches, None)[-1]
        parallel = self._built(batches, self._calls)[-1]
        auto = self._built(batches, tf.data.AUTOTUNE)[-1]
        calls = f"num_parallel_calls={self._calls}"
        frozen = "options.autotune.enabled = False"
        pipelines = {
            Change(name=AS_WRITTEN, code=""): self.as_written(batches),
            Change(name="prefetch", code="sequential maps, .prefetch(2)"): with_options(sequential.prefetch(2)),
            Change(name="AUTOTUNE", code="num_parallel_calls=AUTOTUNE, .prefetch(AUTOTUNE)"): with_options(
                auto.prefetch(tf.data.AUTOTUNE), autotune=True
            ),
            Change(name="parallel", code=f"{calls}, .prefetch(2)"): with_options(parallel.prefetch(2)),
            Change(name="frozen", code=f"{calls}, .prefetch(2), {frozen}"): with_options(
                parallel.prefetch(2), autotune=False
            ),
        }
        place = self._cache_place()
        if place is not None:
            at, memory_bytes = place
            shuffles = [position for position in range(at + 1) if self._nodes[position].kind == "shuffle"]
            code = f".cache() behind {self._nodes[at].name}"
            if shuffles:
                code += ", .shuffle(...) moved behind the cache"
            change = Change(name="cache", code=f"{code}, {calls}, .prefetch(2), {frozen}", memory_bytes=memory_bytes)
            pipelines[change] = with_options(self._cached(batches, at, shuffles).prefetch(2), autotune=False)
        self.refused += [f"{draw}: it is frozen by the cache behind it" for draw in random_before_cache(self._dataset)]
        return pipelines

    def _built(self, batches: int, calls: int | Literal["as written"] | None) -> list[Any]:
        return rebuilt(self._nodes, calls=calls, behind=self.part.behind(batches), buffers=self.part.buffers(batches))

    def _cache_place(self) -> tuple[int, int] | None:
        """Returns (position of the node to put a cache behind, bytes of the cache); None if there is no such node.

        That is the last map before anything random and before any batch. Adds to `refused` why there is none.
        """
        if self.part.at or math.isinf(self.part.elements):
            self.refused.append("cache: only a chain from one finite source, element by element, is understood")
            return None
        last = None
        for at, node in enumerate(self._nodes):
            draws = _draws(node.dataset)
            if draws or node.kind == "batch":
                if draws and last is None:
                    self.refused.append(f"cache: {draws}")
                break
            if node.kind == "map":
                last = at
        if last is None:
            return None
        element = next(iter(self._built(1, None)[last]))
        element_bytes = sum(int(tf.size(part)) * part.dtype.size for part in tf.nest.flatten(element))
        memory_bytes = element_bytes * int(self.part.elements)
        if memory_bytes > self._memory_limit_bytes:
            self.refused.append(
                f"cache behind {self._nodes[last].name}: {memory_bytes / 1e6:,.0f} MB are more than --memory-limit"
            )
            return None
        return last, memory_bytes

    def _cached(self, batches: int, at: int, shuffles: list[int]) -> Any:
        """Returns the pipeline with a cache behind a node, and the shuffles before the cache moved behind it."""
        behind, buffers = self.part.behind(batches), self.part.buffers(batches)
        sizes = [buffers.get(position, shuffle_buffer_of(self._nodes[position].dataset)) for position in shuffles]
        cut = behind.get(at, lambda dataset: dataset)

        def cache(dataset: Any) -> Any:
            dataset = cut(dataset).cache()
            return dataset.shuffle(max(sizes, key=lambda size: size if size > 0 else math.inf)) if sizes else dataset

        # A shuffle before a cache would give every epoch the order of the first.
        return rebuilt(self._nodes, calls=self._calls, behind={**behind, at: cache}, buffers=buffers, without=shuffles)[
            -1
        ]


def _draws(dataset: Any) -> str | None:
    """Returns what in a transformation draws random numbers, or may, and what to do; None if nothing draws.

    No cache belongs behind such a transformation: all epochs would get the draws of the first.
    """
    if drawn := random_in(dataset):
        return (
            f"{', '.join(drawn)} is random, and nothing that costs time comes before it; draw in a map of its own, "
            "behind the decoding"
        )
    if python := python_in(dataset):
        return (
            f"{', '.join(python)}, which may draw, and a cache would keep the first epoch's draws for all that follow. "
            "Put it behind the cache, or say that it draws nothing: tf.numpy_function(..., stateful=False)."
        )
    return None


def _autotune(enabled: bool) -> Any:
    options = tf.data.Options()
    options.autotune.enabled = enabled
    return options
