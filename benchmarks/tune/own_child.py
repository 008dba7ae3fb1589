"""A user's own tf.data pipeline and what could be changed in it: parallelism, prefetch, cache place, order, freezing.

The pipeline is built again from its own traced functions, with one change more each time; nothing is guessed that is
not measured. Runs in a measuring child: see `benchmarks.tune.child`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import tensorflow as tf

import unstall
from benchmarks.tune.results import AS_WRITTEN, Change, PipelineFacts
from profiles.measure import TRAIN_WINDOW_S, epochs_for
from profiles.measure.batches import batch_images
from profiles.measure.windows import Windows
from profiles.provenance import usable_cores
from profiles.samples import Sample
from profiles.stages import CutError, nodes, python_in, random_before_cache, random_in, rebuilt, shuffle_buffer_of

# An epoch of the measurement lasts about so long, of at least so many batches.
_EPOCH_S, _LEAST_BATCHES = 2 * TRAIN_WINDOW_S, 12
_TRIAL_BATCHES = 6
# Transformations that give an element for an element, or put some together.
_ONE_EACH = {"map", "shuffle", "batch", "prefetch", "cache", "options"}


class PipelineError(ValueError):
    """A pipeline function that cannot be used; the message says what, the rule and the fix."""


def call(text: str) -> Any:
    """Imports `module:function` and returns the tf.data.Dataset that it gives.

    Raises:
      PipelineError: if there is no such function, it fails, or gives something else.
    """
    try:
        dataset = unstall.of_users(text)()
    except Exception as error:  # it is the user's code: whatever it raises, they get one line of it
        reason = (str(error).strip().splitlines() or [""])[0].rstrip(".")
        raise PipelineError(f"--pipeline {text}: {type(error).__name__}: {reason}.") from error
    if not isinstance(dataset, tf.data.Dataset):
        raise PipelineError(f"--pipeline {text} must return a tf.data.Dataset. Received: {type(dataset).__name__}.")
    return dataset


class UserPipeline:
    """The variants of one pipeline, each fed to the same model."""

    def __init__(self, dataset: Any, windows: Windows, memory_limit_bytes: float) -> None:
        self._windows = windows
        self._memory_limit_bytes = memory_limit_bytes
        self._calls = max(1, round(usable_cores()))
        self._dataset = dataset
        try:
            self._nodes = nodes(dataset, needs="changing a pipeline needs")
            rebuilt(self._nodes)
        except CutError as error:
            raise PipelineError(f"this pipeline cannot be taken apart: {error}.") from error
        self._refused: list[str] = []
        self._built: dict[str, Any] = {}
        self._epochs: dict[str, int] = {}
        self._limit: dict[int, Callable[[Any], Any]] = {}

    def facts(self) -> PipelineFacts:
        """Builds every variant of it, on as many elements as an epoch of the measurement needs."""
        batches = self._batches()
        self._limit = self._limited(batches)
        changes: list[Change] = []

        def add(change: Change, dataset: Any, *, autotune: bool | None = None) -> None:
            if autotune is not None:
                dataset = _with_autotune(dataset, autotune)
            changes.append(change)
            self._built[change.name] = dataset if self._limit else dataset.take(batches)

        # As it is, but for its end: the user's own parallelism and prefetch are kept by not building it again.
        changes.append(Change(name=AS_WRITTEN, code=""))
        self._built[AS_WRITTEN] = self._dataset.take(batches)
        plain = rebuilt(self._nodes, behind=self._limit)[-1]
        parallel = rebuilt(self._nodes, calls=self._calls, behind=self._limit)[-1]
        auto = rebuilt(self._nodes, calls=tf.data.AUTOTUNE, behind=self._limit)[-1]
        calls = f"num_parallel_calls={self._calls}"
        frozen = "options.autotune.enabled = False"
        add(Change(name="prefetch", code="sequential maps, .prefetch(2)"), plain.prefetch(2))
        add(
            Change(name="AUTOTUNE", code="num_parallel_calls=AUTOTUNE, .prefetch(AUTOTUNE)"),
            auto.prefetch(tf.data.AUTOTUNE),
            autotune=True,
        )
        add(Change(name="parallel", code=f"{calls}, .prefetch(2)"), parallel.prefetch(2))
        add(Change(name="frozen", code=f"{calls}, .prefetch(2), {frozen}"), parallel.prefetch(2), autotune=False)
        place = self._cache_place()
        if place is not None:
            at, memory_bytes = place
            shuffles = [one for one in range(at + 1) if self._nodes[one].kind == "shuffle"]
            code = f".cache() behind {self._nodes[at].name}"
            if shuffles:
                code += ", .shuffle(...) moved behind the cache"
            add(
                Change(name="cache", code=f"{code}, {calls}, .prefetch(2), {frozen}", memory_bytes=memory_bytes),
                self._cached(at, shuffles).prefetch(2),
                autotune=False,
            )
        self._refused += [f"{one}: it is frozen by the cache behind it" for one in random_before_cache(self._dataset)]
        return PipelineFacts(
            stages=tuple(node.name for node in self._nodes), changes=tuple(changes), refused=tuple(self._refused)
        )

    def window(self, name: str, round_: int) -> Sample:
        """Measures one window of training of one variant; the first fills its caches and says how long a window is."""
        dataset = self._built[name]
        if name not in self._epochs:
            self._windows.train(dataset, epochs=1, ramp_steps=2, round_=0, window="warmup")
            self._epochs[name] = epochs_for(
                self._windows.train(dataset, epochs=1, ramp_steps=2, round_=0, window="warmup")
            )
        return self._windows.train(dataset, epochs=self._epochs[name], ramp_steps=4, round_=round_)

    def _batches(self) -> int:
        """Returns the batches of an epoch of the measurement, from how long some take."""
        sample = self._windows.train(
            self._dataset.take(_TRIAL_BATCHES), epochs=1, ramp_steps=1, round_=0, window="warmup"
        )
        batches = max(_LEAST_BATCHES, math.ceil(_EPOCH_S * 1e9 / sample.wall_ns * len(sample.step_ns)))
        cardinality = int(self._dataset.cardinality())
        if cardinality <= 0:
            return batches
        # A cache that is not read to its end is thrown away.
        whole = any(node.kind == "cache" for node in self._nodes)
        return cardinality if whole else min(batches, cardinality)

    def _limited(self, batches: int) -> dict[int, Callable[[Any], Any]]:
        """Returns how the source of a chain gives only what those batches need, so that a cache is read to its end."""
        chain = [at for at, node in enumerate(self._nodes) if node.inputs != ((at - 1,) if at else ())]
        per_batch = next((batch_images(batch) for batch in self._dataset.take(1)), 1)
        elements = int(self._nodes[0].dataset.cardinality())
        one_each = all(node.kind in _ONE_EACH for node in self._nodes[1:])
        if chain or not one_each or elements <= 0:
            return {}
        return {0: lambda dataset: dataset.take(batches * per_batch)}

    def _cache_place(self) -> tuple[int, int] | None:
        """Returns behind which node a cache belongs, the last before anything random and any batch, and its bytes."""
        if not self._limit:
            self._refused.append("cache: only a chain from one finite source, element by element, is understood")
            return None
        last = None
        for at, node in enumerate(self._nodes):
            draws = _draws(node.dataset)
            if draws or node.kind == "batch":
                if draws and last is None:
                    self._refused.append(f"cache: {draws}")
                break
            if node.kind == "map":
                last = at
        if last is None:
            return None
        element = next(iter(self._nodes[last].dataset))
        element_bytes = sum(int(tf.size(part)) * part.dtype.size for part in tf.nest.flatten(element))
        memory_bytes = element_bytes * int(self._nodes[0].dataset.cardinality())
        if memory_bytes > self._memory_limit_bytes:
            self._refused.append(
                f"cache behind {self._nodes[last].name}: {memory_bytes / 1e6:,.0f} MB are more than --memory-limit"
            )
            return None
        return last, memory_bytes

    def _cached(self, at: int, shuffles: list[int]) -> Any:
        sizes = [shuffle_buffer_of(self._nodes[one].dataset) for one in shuffles]
        behind = dict(self._limit)

        def cache(dataset: Any) -> Any:
            dataset = dataset.cache()
            return dataset.shuffle(max(sizes)) if sizes else dataset

        earlier = behind.get(at, lambda dataset: dataset)
        behind[at] = lambda dataset: cache(earlier(dataset))
        # A shuffle in front of a cache would be one order for ever.
        return rebuilt(self._nodes, calls=self._calls, behind=behind, without=shuffles)[-1]


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


def _with_autotune(dataset: Any, enabled: bool) -> Any:
    options = tf.data.Options()
    options.autotune.enabled = enabled
    return dataset.with_options(options)
