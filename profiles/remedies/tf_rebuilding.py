"""A tf.data pipeline with one change more: parallelism, prefetch, tuning, place of a cache, order.

The pipeline is built again from its own traced functions. All pipelines that come of it, the one as written included,
read the same elements, cut in the same place.
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
      part: of an epoch, by which all that is built is cut.
      refused: changes that must not be made, and why; complete once `changes` was called.

    Args:
      dataset: gives batches.
      calls: at once, of a parallel map, batch or interleave.
      memory_limit_bytes: of a cache.
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
        """Names of its stages, in the order in which an element passes them."""
        return tuple(node.name for node in self._nodes)

    def as_written(self, batches: int) -> Any:
        """Returns so many batches of the pipeline with the settings that the user wrote."""
        return self._built(batches, "as written")[-1].with_options(self._dataset.options())

    def changes(self, batches: int) -> dict[Change, Any]:
        """Returns so many batches of the pipeline as written, which is the first, and with each change."""
        options = self._dataset.options()

        def with_options(dataset: Any, autotune: bool | None = None) -> Any:
            dataset = dataset.with_options(options)
            return dataset if autotune is None else dataset.with_options(_autotune(autotune))

        sequential = self._built(batches, None)[-1]
        parallel = self._built(batches, self._calls)[-1]
        auto = self._built(batches, tf.data.AUTOTUNE)[-1]
        calls = f"num_parallel_calls={self._calls}"
        frozen = "options.autotune.enabled = False"
        found = {
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
            shuffles = [one for one in range(at + 1) if self._nodes[one].kind == "shuffle"]
            code = f".cache() behind {self._nodes[at].name}"
            if shuffles:
                code += ", .shuffle(...) moved behind the cache"
            change = Change(name="cache", code=f"{code}, {calls}, .prefetch(2), {frozen}", memory_bytes=memory_bytes)
            found[change] = with_options(self._cached(batches, at, shuffles).prefetch(2), autotune=False)
        self.refused += [f"{one}: it is frozen by the cache behind it" for one in random_before_cache(self._dataset)]
        return found

    def _built(self, batches: int, calls: int | Literal["as written"] | None) -> list[Any]:
        return rebuilt(self._nodes, calls=calls, behind=self.part.behind(batches), buffers=self.part.buffers(batches))

    def _cache_place(self) -> tuple[int, int] | None:
        """Returns behind which node a cache belongs, the last before anything random and any batch, and its bytes."""
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
        behind, buffers = self.part.behind(batches), self.part.buffers(batches)
        sizes = [buffers.get(one, shuffle_buffer_of(self._nodes[one].dataset)) for one in shuffles]
        earlier = behind.get(at, lambda dataset: dataset)

        def cache(dataset: Any) -> Any:
            dataset = earlier(dataset).cache()
            return dataset.shuffle(max(sizes, key=lambda size: size if size > 0 else math.inf)) if sizes else dataset

        # A shuffle in front of a cache would be one order for ever.
        return rebuilt(self._nodes, calls=self._calls, behind={**behind, at: cache}, buffers=buffers, without=shuffles)[
            -1
        ]


def _draws(dataset: Any) -> str | None:
    """Says what in a transformation draws, or may, so that no cache belongs behind it; None where nothing does."""
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
