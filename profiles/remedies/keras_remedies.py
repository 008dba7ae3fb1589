"""Remedies for what `fit` reads without a tf.data pipeline of the user's: a PyDataset, and arrays."""

from __future__ import annotations

import math
import multiprocessing
import multiprocessing.dummy
import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from unstall import forks
from unstall.profiles.data.keras import PyDatasets, has_workers
from unstall.profiles.measure.batches import FitData, batch_images
from unstall.profiles.remedies.data import Data, Failed
from unstall.profiles.remedies.equality import Comparison, compare
from unstall.profiles.remedies.remedy import PREFETCH, TUNER, Edit, Need, Remedy, Untried
from unstall.profiles.stages.places import Place

# Batches that are compared.
_COMPARED_BATCHES = 4
# Batches that lie ready in the queue for each worker.
_QUEUE_PER_WORKER = 4
# Workers that give no batch for so long never will.
_BATCH_LIMIT_S = 30.0


class PyDatasetData(Data):
    """A PyDataset, or one of Keras' old generators.

    Args:
      dataset: what was given to `fit`.
      needs: what it loses, the most first, which calls for remedies.
      calls: how many calls at once the cores can take.
      place: the call of `fit`; None where it is not known.
      name: the variable that holds the dataset in the code of that call; None where it is not known.
    Raises:
      Failed: if the dataset has no end, or no batch.
    """

    def __init__(
        self, dataset: Any, *, needs: Collection[Need], calls: int, place: Place | None = None, name: str | None = None
    ) -> None:
        super().__init__()
        if dataset.num_batches is None:
            raise Failed("the data have no end")
        if not dataset.num_batches:
            raise Failed("the data have no batch")
        self._dataset = dataset
        self._place, self._name = place, name
        is_tuned = keras.backend.backend() == "tensorflow" and not has_workers(dataset)
        self.edges_by = TUNER if is_tuned else None
        self._number = int(dataset.num_batches)
        self.epoch_batches = float(self._number)
        self.epoch_images = float(self._number * batch_images(dataset[0]))
        self.remedies = self._find(frozenset(needs), max(2, calls))

    def ahead(self, names: Sequence[str]) -> int:
        """Returns how many batches the queue holds with these remedies; none without workers."""
        return PyDatasets().ahead(self.built(names, 1)).buffered_batches

    def built(self, names: Sequence[str], batches: float) -> Any:
        part = None if math.isinf(batches) else min(int(batches), self._number)
        return _Part(self._dataset, part, **self._settings(names))

    def _first_batches(self, names: Sequence[str]) -> list[Any]:
        """Returns the first batches: as workers make them, or as this thread makes them without remedies."""
        part, settings = self.built(names, _COMPARED_BATCHES), self._settings(names)
        if not names:
            return [part[index] for index in range(part.num_batches)]
        return _made_by_workers(part, settings["workers"], processes=settings["use_multiprocessing"])

    def _settings(self, names: Sequence[str]) -> dict[str, Any]:
        settings = {name: getattr(self._dataset, name) for name in ("workers", "use_multiprocessing", "max_queue_size")}
        for name in names:
            settings |= self._changed[name]
        return settings

    def _find(self, needs: frozenset[Need], calls: int) -> tuple[Remedy, ...]:
        data = self._dataset
        workers, processes = int(data.workers or 1), bool(data.use_multiprocessing)
        queue = max(int(data.max_queue_size), _QUEUE_PER_WORKER * calls)
        many = 4 * calls
        changed: dict[str, dict[str, Any]] = {}
        if needs & {"waiting", "interference"}:
            if workers < calls and not processes:
                changed["workers"] = {"workers": calls, "max_queue_size": queue}
            if workers < many and not processes:
                changed["more-workers"] = {"workers": many, "max_queue_size": max(queue, many)}
            if (workers < calls or not processes) and self._forks_draw_alike():
                reason = "its batches draw random numbers, and Keras' workers, which are forks, would draw alike"
                self.untried.append(Untried(name="processes", reason=reason))
            elif workers < calls or not processes:
                changed["processes"] = {"workers": calls, "use_multiprocessing": True, "max_queue_size": queue}
        elif "edges" in needs and self.edges_by:
            changed["workers"] = {"workers": calls}
        if processes and needs & {"waiting", "interference", "edges"}:
            if workers > calls:
                changed["fewer-workers"] = {"workers": calls}
            changed["threads"] = {"workers": calls, "use_multiprocessing": False, "max_queue_size": queue}
        self._changed = changed
        return tuple(self._remedy(name, settings) for name, settings in self._changed.items())

    def _forks_draw_alike(self) -> bool:
        """Whether a batch depends on what forks have in common: the random states of Python and NumPy, or a counter.

        Keras' old generators count their batches, and add that to their seed.
        """
        states, seen = (random.getstate(), np.random.get_state()), getattr(self._dataset, "total_batches_seen", None)
        readings = []
        try:
            for seed in (1, 1, 2):
                random.seed(seed)
                np.random.seed(seed)
                readings.append([np.array(leaf) for leaf in keras.tree.flatten(self._dataset[0])])
        except Exception:  # code of the user's, which shows its error where the data are read
            return False
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])
            if seen is not None:
                self._dataset.total_batches_seen = seen
        again, drawn = (compare([readings[0]], [reading]).effect for reading in readings[1:])
        return drawn != "identical" if again == "identical" else seen is not None

    def _remedy(self, name: str, settings: Mapping[str, Any]) -> Remedy:
        variable = self._name or "data"
        lines = [f"{variable}.{key} = {value}" for key, value in settings.items()]
        if settings.get("use_multiprocessing") and keras.backend.backend() == "tensorflow":
            lines.insert(0, forks.LINE)
        ready = settings.get("max_queue_size", self._dataset.max_queue_size)
        kind = "processes" if settings.get("use_multiprocessing") else "threads"
        return Remedy(
            name=name,
            text=f"batches made by {settings['workers']} {kind}, {ready} ready at most"
            + (", which switch tf.data's tuner off" if self.edges_by else ""),
            code="\n".join(lines),
            effect="identical",
            ends_edges=self.edges_by is not None,
            place=None if self._place is None else str(self._place),
            edits=()
            if self._place is None or self._name is None
            else tuple(Edit(place=self._place, kind="before", text=line) for line in lines),
        )


class _Part(keras.utils.PyDataset):
    """The first batches of a PyDataset, or all of each epoch's, with settings of its own."""

    def __init__(self, data: Any, batches: int | None, **settings: Any) -> None:
        super().__init__(**settings)
        self._data = data
        self._batches = batches

    def __len__(self) -> int:
        return int(self._data.num_batches) if self._batches is None else self._batches

    def __getitem__(self, index: int) -> Any:
        return self._data[index]

    def on_epoch_begin(self) -> None:
        if hasattr(self._data, "on_epoch_begin"):
            self._data.on_epoch_begin()

    def on_epoch_end(self) -> None:
        self._data.on_epoch_end()


# The data whose batches a pool makes: workers that are forked find them here, as Keras' own workers find theirs.
_shared: list[Any] = []


def _shared_batch(index: int) -> Any:
    return _shared[0][index]


def _made_by_workers(data: Any, workers: int, *, processes: bool) -> list[Any]:
    """Returns the batches of a PyDataset as workers make them side by side.

    Raises:
      Failed: if they do not come in time.
    """
    _shared[:] = [data]
    pool_class = multiprocessing.get_context("fork").Pool if processes else multiprocessing.dummy.Pool
    with forks.not_collecting():
        pool = pool_class(workers)
    try:
        batches = pool.imap(_shared_batch, range(data.num_batches))
        return [batches.next(timeout=_BATCH_LIMIT_S) for _ in range(data.num_batches)]
    except multiprocessing.TimeoutError as error:
        raise Failed(f"its workers gave no batch within {_BATCH_LIMIT_S:g} s") from error
    finally:
        pool.terminate()
        _shared.clear()


def _as_keras_has_them(array: Any) -> Any:
    """Returns an array as `fit` feeds it to the model: floats of any size as Keras' own type of floats."""
    array = np.asarray(array)
    floats = keras.config.floatx()
    return array.astype(floats, copy=False) if array.dtype.kind == "f" else array


def _is_sliced_as_it_is(part: Any) -> bool:
    """Whether `from_tensor_slices` makes of a part of the arguments of `fit` what `fit` makes of it."""
    parts = part.values() if isinstance(part, dict) else [part]
    return all(isinstance(leaf, np.ndarray) and _as_keras_has_them(leaf).dtype == leaf.dtype for leaf in parts)


class ArrayData(Data):
    """Arrays that were given to `fit`.

    Args:
      arguments: of `fit`: `x`, `y`, `sample_weight`, `batch_size`, `shuffle`.
      needs: what it loses, the most first, which calls for remedies.
      place: the call of `fit`; None where it is not known.
      edits: whether what `fit` was given can be written as a tf.data.Dataset in its place: not with `validation_split`.
    Raises:
      Failed: if the backend is not TensorFlow, or an array has another length than the first.
    """

    edges_by = TUNER

    def __init__(
        self,
        arguments: Mapping[str, Any],
        *,
        needs: Collection[Need],
        place: Place | None = None,
        edits: bool = True,
    ) -> None:
        super().__init__()
        if keras.backend.backend() != "tensorflow":
            raise Failed("arrays are fed in another way on TensorFlow only")
        given = [arguments.get(name) for name in ("x", "y", "sample_weight")]
        while given and given[-1] is None:
            given.pop()
        self._arrays = keras.tree.map_structure(_as_keras_has_them, tuple(given))
        leaves = [leaf for leaf in keras.tree.flatten(self._arrays) if leaf is not None]
        lengths = {leaf.shape[0] if leaf.ndim else 0 for leaf in leaves}
        if any(part is None for part in self._arrays):
            raise Failed("weights are given without labels")
        if len(lengths) != 1:
            raise Failed("the arrays have several lengths")
        (self._samples,) = lengths
        self._gives_batch_size = bool(arguments.get("batch_size"))
        self._batch_size = int(arguments.get("batch_size") or 32)
        self._shuffles = bool(arguments.get("shuffle", True))
        self._place = place
        self._edits = edits and all(map(_is_sliced_as_it_is, given))
        self.epoch_images = float(self._samples)
        self.epoch_batches = float(math.ceil(self._samples / self._batch_size))
        self.remedies = self._find() if frozenset(needs) & {"waiting", "interference", "edges"} else ()

    def ahead(self, names: Sequence[str]) -> int:
        """Returns how many batches lie ready at most; Keras' own dataset of arrays has as many."""
        return PREFETCH

    def built(self, names: Sequence[str], batches: float) -> Any:
        samples = int(min(self._samples, batches * self._batch_size))
        parts = keras.tree.map_structure(lambda leaf: leaf[:samples], self._arrays)
        if names:
            return self._dataset(parts, samples, seed=None)
        named = dict(zip(("x", "y", "sample_weight"), parts, strict=False))
        return FitData(arguments={**named, "batch_size": self._batch_size, "shuffle": self._shuffles})

    def _by_hand(self, data: Any) -> Iterator[Any]:
        parts = tuple(data.arguments[name] for name in ("x", "y", "sample_weight") if name in data.arguments)
        samples = np.asarray(keras.tree.flatten(parts)[0]).shape[0]
        return iter(self._dataset(parts, samples, seed=None))

    def compared(self, names: Sequence[str]) -> Comparison:
        """Compares the batches with those of the arrays, which the remedy cuts and shuffles as Keras does."""
        samples = min(self._samples, _COMPARED_BATCHES * self._batch_size)
        parts = keras.tree.map_structure(lambda leaf: np.asarray(leaf[:samples]), self._arrays)

        def batch_from(first: int) -> Any:
            return keras.tree.map_structure(lambda leaf: leaf[first : first + self._batch_size], parts)

        ours = [batch_from(first) for first in range(0, samples, self._batch_size)]
        made = self._dataset(parts, samples, seed=1)
        return compare(ours, [keras.tree.map_structure(np.asarray, batch) for batch in made])

    def _dataset(self, parts: Any, samples: int, *, seed: int | None) -> Any:
        import tensorflow as tf

        dataset = tf.data.Dataset.from_tensor_slices(parts)
        if self._shuffles:
            dataset = dataset.shuffle(samples, seed=seed)
        options = tf.data.Options()
        options.autotune.enabled = False
        return dataset.batch(self._batch_size).prefetch(PREFETCH).with_options(options)

    def _find(self) -> tuple[Remedy, ...]:
        lines = ("without_tuner = tf.data.Options()", "without_tuner.autotune.enabled = False")
        edits: list[Edit] = []
        if self._place is not None and self._edits:
            made = self._calls("{batch_size}" if self._gives_batch_size else self._batch_size)
            dataset = f"tf.data.Dataset.from_tensor_slices({{data}}){made}.with_options(without_tuner)"
            edits = [Edit(place=self._place, kind="before", text=line) for line in lines]
            edits.append(Edit(place=self._place, kind="feed", text=dataset))
        return (
            Remedy(
                name="own-dataset",
                text="the arrays as a tf.data.Dataset without tf.data's tuner, which Keras leaves on",
                code=f"tf.data.Dataset.from_tensor_slices((x, y)){self._calls(self._batch_size)}, with "
                "options.autotune.enabled = False",
                effect="other order" if self._shuffles else "identical",
                ends_edges=True,
                place=None if self._place is None else str(self._place),
                edits=tuple(edits),
                memory_bytes=sum(np.asarray(leaf).nbytes for leaf in keras.tree.flatten(self._arrays)),
            ),
        )

    def _calls(self, batch_size: int | str) -> str:
        """Returns the calls behind the dataset of the arrays, with a batch size or the code that says it."""
        shuffle = f".shuffle({self._samples})" if self._shuffles else ""
        return f"{shuffle}.batch({batch_size}).prefetch({PREFETCH})"
