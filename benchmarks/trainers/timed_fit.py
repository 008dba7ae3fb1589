"""Times the steps of Keras' own `fit`: waiting for the batch, and the step, in each replica where there are several."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import keras
import tensorflow as tf

from unstall.benchmarks.trainers.counting import Counter
from unstall.profiles import clock
from unstall.profiles.devices import CPU
from unstall.profiles.measure.backends import backend_of

# In the first epoch of a `fit`, Keras opens the dataset more than once, to look at its batches.
_EPOCHS = 2


@dataclass(slots=True, kw_only=True)
class TimedEpoch:
    """What was timed of an epoch, filled in while the epoch runs; attributes as in `samples.ProcessEpoch`."""

    images: int = 0
    decoded: int = 0
    wall_ns: int = 0
    wait_ns: list[int] = field(default_factory=list)
    step_ns: list[int] = field(default_factory=list)
    replica_ns: list[list[int]] = field(default_factory=list)


class Marks:
    """When each replica began a step, and when it had its own gradients, by the number of the replica."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begun_ns: dict[int, int] = {}
        self.took_ns: dict[int, list[int]] = {}

    def begin(self, replica: int) -> int:
        with self._lock:
            self._begun_ns[int(replica)] = clock.now_ns()
        return replica

    def end(self, replica: int, *gradients: Any) -> int:
        with self._lock:
            took_ns = clock.now_ns() - self._begun_ns[int(replica)]
            self.took_ns.setdefault(int(replica), []).append(took_ns)
        return replica


class TimedReplicas(keras.Model):
    """A model whose replicas note when they begin a step and when they have their own gradients.

    What follows, the sum of all gradients, ends in all replicas at the same time.
    """

    marks: Marks

    def train_step(self, data: Any) -> Any:
        images, labels = data
        replica = tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.int32)
        # The labels make the mark wait for the batch.
        begun = tf.numpy_function(lambda number, _: self.marks.begin(number), [replica, labels], tf.int32)
        with tf.control_dependencies([begun]):
            images = tf.identity(images)
        with tf.GradientTape() as tape:
            outputs = self(images, training=True)
            loss = self.compute_loss(x=images, y=labels, y_pred=outputs, training=True)
        gradients = tape.gradient(loss, self.trainable_weights)
        few = [tf.reshape(gradient, (-1,))[:1] for gradient in gradients]
        with tf.control_dependencies([tf.numpy_function(self.marks.end, [replica, *few], tf.int32)]):
            gradients = [tf.identity(gradient) for gradient in gradients]
        self.optimizer.apply_gradients(zip(gradients, self.trainable_weights, strict=True))
        return self.compute_metrics(images, labels, outputs)


def timed_replicas(model: Any) -> tuple[Any, Marks]:
    """Returns the same network, compiled alike, whose replicas are timed; call it in the scope of their strategy."""
    timed = TimedReplicas(model.inputs, model.outputs)
    timed.marks = Marks()
    timed.compile_from_config(model.get_compile_config() | {"jit_compile": False})
    return timed, timed.marks


class TimedFit(keras.callbacks.Callback):
    """Calls `fit` with the model's own train function inside one that is timed.

    Args:
      model: compiled, in whatever distribution.
      data: the dataset of this process.
      counter: of the dataset's images.
      marks: of the model's replicas, or None.
    """

    def __init__(self, model: Any, data: Any, counter: Counter, marks: Marks | None) -> None:
        super().__init__()
        self._trained, self._data, self._counter, self._marks = model, data, counter, marks
        self._backend = backend_of(model, CPU)
        self._own: Callable[..., Any] | None = None
        self._timed = TimedEpoch()
        self._begun_ns = self._decoded_before = 0

    def epoch(self) -> TimedEpoch:
        """Trains for two epochs. Returns what was timed of the second."""
        try:
            self._trained.fit(self._data, epochs=_EPOCHS, shuffle=False, verbose=0, callbacks=[self])
        finally:
            if self._own is not None:
                self._trained.train_function = self._own
        return self._timed

    def on_train_begin(self, logs: Any = None) -> None:
        if self._own is None:
            self._own = self._trained.train_function
        self._trained.train_function = self._step

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._timed, self._decoded_before = TimedEpoch(), self._counter.images
        if self._marks is not None:
            self._marks.took_ns.clear()
        self._begun_ns = clock.now_ns()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._timed.decoded = self._counter.images - self._decoded_before
        if self._marks is not None:
            self._timed.replica_ns = [took_ns for _, took_ns in sorted(self._marks.took_ns.items())]

    def _step(self, *arguments: Any) -> Any:
        """A step of `fit`: the arguments are the state, on JAX, and the iterator."""
        assert self._own is not None
        *state, iterator = arguments
        asked_ns = clock.now_ns()
        batch = next(iterator)
        came_ns = clock.now_ns()
        result = self._own(*state, iter((batch,)))
        self._backend.synchronise(result)
        done_ns = clock.now_ns()
        self._timed.images += self._images(batch)
        self._timed.wait_ns.append(came_ns - asked_ns)
        self._timed.step_ns.append(done_ns - came_ns)
        self._timed.wall_ns = done_ns - self._begun_ns
        return result

    def _images(self, batch: Any) -> int:
        """Returns how many images of a batch this process trains on."""
        first = keras.tree.flatten(batch)[0]
        shards = getattr(first, "addressable_shards", None)
        return sum(int(shard.data.shape[0]) for shard in shards) if shards else int(self._backend.images(batch))
