"""Times the steps of Keras' own `fit`, and counts the images that its pipeline makes, in the process that makes them.

`Windows` of `profiles.measure` are not used: who waits for whom needs each step of an epoch that all processes began
together, such as the second of a `fit`, and what was decoded in that epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from unstall.benchmarks.trainers.samples import ProcessEpoch
from unstall.profiles import clock
from unstall.profiles.devices import CPU
from unstall.profiles.measure.backends import backend_of

# In the first epoch of a `fit`, Keras opens the dataset more than once, to look at its batches.
_EPOCHS = 2


def counted(dataset: Any, decoded: list[int], batch_size: int) -> Any:
    """Adds the images of each batch to `decoded`, before anything divides the dataset among trainers.

    The function that counts is stateful, so that tf.data neither drops it nor moves a `shard` to the other side of it:
    each image that was decoded passes here, whether or not this process trains on it.

    Args:
      dataset: of `(images, labels)`, in whole batches.
      decoded: gets a number for each batch, from threads of tf.data's.
      batch_size: of each batch. Without it Keras could not divide a dataset whose last stage is a `map`.
    """

    def count(labels: Any) -> Any:
        decoded.append(len(labels))
        return labels

    def passes(images: Any, labels: Any) -> tuple[Any, Any]:
        shape = labels.shape
        labels = tf.numpy_function(count, [labels], labels.dtype)
        labels = tf.ensure_shape(tf.ensure_shape(labels, shape), (batch_size, *shape[1:]))
        return tf.ensure_shape(images, (batch_size, *images.shape[1:])), labels

    return dataset.map(passes)


class TimedFit(keras.callbacks.Callback):
    """Calls `fit` with the model's own train function inside one that is timed.

    Args:
      model: compiled, in whatever distribution.
      data: the dataset of this process.
      decoded: gets the images of each batch that the dataset makes.
    """

    def __init__(self, model: Any, data: Any, decoded: list[int]) -> None:
        super().__init__()
        self._fitted, self._data, self._decoded = model, data, decoded
        self._backend = backend_of(model, CPU)
        self._own: Callable[..., Any] | None = None
        # Of the epoch so far: when each step was asked for, had its batch, and was done; and images.
        self._steps: list[tuple[int, int, int]] = []
        self._begun_ns = self._trained = self._made = 0

    def epoch(self, subject: str, number: int, process: int) -> ProcessEpoch:
        """Trains for two epochs. Returns what was timed of the second, without `alone_ns`."""
        try:
            self._fitted.fit(self._data, epochs=_EPOCHS, shuffle=False, verbose=0, callbacks=[self])
        finally:
            if self._own is not None:
                self._fitted.train_function = self._own
        return ProcessEpoch(
            subject=subject,
            round=number,
            process=process,
            trained=self._trained,
            decoded=self._made,
            wall_ns=self._steps[-1][2] - self._begun_ns,
            wait_ns=tuple(came - asked for asked, came, _ in self._steps),
            step_ns=tuple(done - came for _, came, done in self._steps),
        )

    def on_train_begin(self, logs: Any = None) -> None:
        if self._own is None:
            self._own = self._fitted.train_function
        self._fitted.train_function = self._step

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._steps, self._trained = [], 0
        self._decoded.clear()
        self._begun_ns = clock.now_ns()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._made = sum(self._decoded)

    def _step(self, *arguments: Any) -> Any:
        """A step of `fit`: the arguments are the state, on JAX, and the iterator."""
        assert self._own is not None
        *state, iterator = arguments
        asked_ns = clock.now_ns()
        batch = next(iterator)
        came_ns = clock.now_ns()
        result = self._own(*state, iter((batch,)))
        self._backend.synchronise(result)
        self._steps.append((asked_ns, came_ns, clock.now_ns()))
        self._trained += self._images(batch)
        return result

    def _images(self, batch: Any) -> int:
        """Returns how many images of a batch this process trains on."""
        first = keras.tree.flatten(batch)[0]
        shards = getattr(first, "addressable_shards", None)
        return sum(int(shard.data.shape[0]) for shard in shards) if shards else int(self._backend.images(batch))
