"""The differences between Keras' backends: the train function, where a batch lies, how to wait for the device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np

from unstall.profiles.devices import CPU, Device
from unstall.profiles.measure.batches import batch_images, first_array
from unstall.profiles.provenance import usable_threads


def each(function: Callable[[Any], Any], batch: Any) -> Any:
    """Applies a function to every array of a batch, also where the images are a dict or a list of inputs.

    None stands for labels or weights that are absent, and stays None.
    """
    return keras.tree.map_structure(lambda part: None if part is None else function(part), batch)


def again_and_again(batch: Any) -> Iterator[Any]:
    """Yields one batch again and again, as arrays of NumPy's."""
    arrays = each(np.asarray, batch)
    while True:
        yield arrays


def batches_of_step(batch: Any, draw: Callable[[], Any]) -> Iterator[Any]:
    """Yields the batch that was drawn for a step, and further ones for as long as the step asks and there are any."""
    try:
        while True:
            yield batch
            batch = draw()
    except StopIteration:
        return


class TensorFlow:
    """Keras on TensorFlow, where a train function is `(iterator) -> logs`."""

    # How many batches ahead of its step `fit` draws a batch.
    drawn_ahead = 0
    # Whether the host goes on while the device computes: Keras turns the logs of each step into numbers here.
    behind_host = False
    # In how many parts a batch is trained on.
    replicas = 1

    def __init__(self, device: Device) -> None:
        import tensorflow as tf

        self._tf = tf

    @staticmethod
    def gpus() -> list[str]:
        """Returns the names of the GPUs that this backend can use."""
        import tensorflow as tf

        return [
            tf.config.experimental.get_device_details(gpu).get("device_name", "unknown")
            for gpu in tf.config.list_physical_devices("GPU")
        ]

    def no_logs(self) -> Any:
        return {}

    def images(self, batch: Any) -> int:
        """Returns the number of images in a batch that `fit` hands to the train function."""
        return batch_images(batch)

    def endless(self, batch: Any) -> Any:
        """Returns what `fit` can train on without end, of one batch. The batch's length is no part of its type."""
        parts = keras.tree.flatten(batch)
        if any(part is None for part in parts):
            return again_and_again(batch)
        if not all(len(part.shape) for part in parts):
            return self._tf.data.Dataset.from_tensors(batch).repeat()
        return self._tf.data.Dataset.from_tensor_slices(batch).batch(batch_images(batch)).repeat()

    def own_step(self, train: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a function that runs one step of a train function that a model has made itself.

        The train function gets an iterator of tf.data's, as in `fit`. The iterator gives the batch that was drawn for
        the step, and draws further ones when it is asked for them.

        Args:
          train: the train function.
        Returns:
          The function. It takes a batch, and a function that draws another one.
        """
        steps: list[Iterator[Any]] = []
        iterators: list[Any] = []

        def batches() -> Iterator[Any]:
            # All batches of the step that runs, and then those of the next one. Without any the data have ended, in a
            # step that has asked for too many.
            while (batch := next(steps[-1], None)) is not None:
                yield batch
            iterators.clear()

        def step(batch: Any, draw: Callable[[], Any]) -> Any:
            steps[:] = [batches_of_step(batch, draw)]
            if not iterators:
                iterators.append(iter(self._dataset(batches, batch)))
            return train(iterators[0])

        return step

    def _dataset(self, batches: Callable[[], Iterator[Any]], like: Any) -> Any:
        """Returns a dataset that draws nothing ahead of its consumer.

        Args:
          batches: yields batches of any length.
          like: such a batch.
        """
        options = self._tf.data.Options()
        options.autotune.enabled = False
        options.experimental_optimization.apply_default_optimizations = False
        specs = each(self._of_any_length, like)
        return self._tf.data.Dataset.from_generator(batches, output_signature=specs).with_options(options)

    def _of_any_length(self, part: Any) -> Any:
        spec = self._tf.type_spec_from_value(part)
        dense = isinstance(spec, self._tf.TensorSpec) and spec.shape.rank
        return self._tf.TensorSpec((None, *spec.shape[1:]), spec.dtype) if dense else spec

    def on_host(self, batch: Any) -> Any:
        with self._tf.device("/CPU:0"):
            return each(self._tf.identity, batch)

    def on_device(self, batch: Any) -> Any:
        return each(self._tf.identity, batch)

    def as_fit_passes(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yields batches as `fit` hands them to the train function."""
        return batches

    def predict(self, real: Callable[..., Any], inputs: Any, data: Any) -> Any:
        """Runs a model's own predict function `real` on `inputs` in place of the data that `predict` passes to it."""
        return real([(inputs,)])

    def synchronise(self, result: Any) -> None:
        self._tf.test.experimental.sync_devices()


class Replicated(TensorFlow):
    """Keras on TensorFlow, for a model with several replicas, each of which trains on its own part of a batch.

    Args:
      strategy: the model's `tf.distribute.Strategy`.
    """

    def __init__(self, device: Device, strategy: Any) -> None:
        super().__init__(device)
        self._strategy = strategy
        self.replicas = strategy.num_replicas_in_sync

    def images(self, batch: Any) -> int:
        first = first_array(batch)
        return sum(batch_images(part) for part in self._strategy.experimental_local_results(first))

    def own_step(self, train: Callable[..., Any]) -> Callable[..., Any]:
        # An iterator of TensorFlow's for several replicas draws batches ahead. A trace of one batch does not.
        traced = self._tf.function(lambda batch: train(iter((batch,))), reduce_retracing=True, autograph=False)
        return lambda batch, draw: traced(batch)

    def on_host(self, batch: Any) -> Any:
        return self._divided(batch, fetch=False)

    def on_device(self, batch: Any) -> Any:
        return self._divided(batch, fetch=True)

    def _divided(self, batch: Any, *, fetch: bool) -> Any:
        """Divides a batch among the replicas, as `fit` does."""
        dataset = self._tf.data.Dataset.from_tensors(batch)
        options = self._tf.distribute.InputOptions(experimental_fetch_to_device=fetch)
        return next(iter(self._strategy.experimental_distribute_dataset(dataset, options)))


class Jax:
    """Keras on JAX, where a train function is `(state, iterator) -> (logs, state)`. Methods as in `TensorFlow`."""

    replicas = 1

    def __init__(self, device: Device) -> None:
        # Keras 3.15 sends each batch to an accelerator one step ahead; on a CPU it does not.
        self.drawn_ahead = 1 if device.kind == "gpu" else 0
        self.behind_host = device.kind == "gpu"

    @staticmethod
    def gpus() -> list[str]:
        import jax

        return [device.device_kind for device in jax.devices() if device.platform == "gpu"]

    def images(self, batch: Any) -> int:
        return batch_images(batch)

    def endless(self, batch: Any) -> Any:
        if isinstance(batch, tuple):
            return again_and_again(batch)
        return TensorFlow(CPU).endless(batch)  # such batches come from tf.data

    def own_step(self, train: Callable[..., Any]) -> Callable[..., Any]:
        return lambda batch, draw, state: train(state, batches_of_step(batch, draw))

    def no_logs(self, state: Any) -> Any:
        return {}, state

    def on_host(self, batch: Any) -> Any:
        return each(np.asarray, batch)

    def on_device(self, batch: Any) -> Any:
        import jax

        return each(lambda part: jax.device_put(np.asarray(part)), batch)

    def as_fit_passes(self, batches: Iterator[Any]) -> Iterator[Any]:
        if not self.drawn_ahead:
            yield from batches
            return
        ahead = self.on_device(next(batches))
        for batch in batches:
            ready, ahead = ahead, self.on_device(batch)
            yield ready

    def predict(self, real: Callable[..., Any], inputs: Any, state: Any, iterator: Any) -> Any:
        return real(state, iter(((inputs,),)))

    def synchronise(self, result: Any) -> None:
        import jax

        jax.block_until_ready(result)

    @staticmethod
    def is_ready(result: Any) -> bool:
        """Whether the device has computed a result; does not wait."""
        return all(leaf.is_ready() for leaf in keras.tree.flatten(result) if hasattr(leaf, "is_ready"))


def check_backend() -> str:
    """Returns the name of Keras' backend, a key of `BACKENDS`.

    Raises:
      ValueError: if the backend is another one, whose train function cannot be timed.
    """
    name = keras.backend.backend()
    if name not in BACKENDS:
        raise ValueError(f"KERAS_BACKEND must be one of {', '.join(BACKENDS)}. Received: {name}.")
    return name


def synchronise_torch() -> Callable[[Any], None] | None:
    """Returns what waits for PyTorch's GPU on Keras' torch backend; None where the script has used none by now."""
    import torch

    return (lambda result: torch.cuda.synchronize()) if torch.cuda.is_initialized() else None


def backend_of(model: Any, device: Device) -> Any:
    """Returns the backend that trains a model, one of `BACKENDS` or `Replicated`."""
    name = check_backend()
    strategy = getattr(model, "distribute_strategy", None)
    if name == "tensorflow" and strategy is not None and strategy.num_replicas_in_sync > 1:
        return Replicated(device, strategy)
    return BACKENDS[name](device)


def check_device(device: Device) -> None:
    """Checks that Keras would train on this device.

    Raises:
      ValueError: if the device is a GPU and there is none, or the device is the CPU and Keras would use a GPU.
    """
    gpus = BACKENDS[check_backend()].gpus()
    if device.kind == "gpu" and not gpus:
        raise ValueError(f"there is no GPU that Keras can use here (backend {keras.backend.backend()}).")
    if device.kind == "cpu" and gpus:
        raise ValueError("Keras would train on the GPU. Measure device='gpu', or hide it (CUDA_VISIBLE_DEVICES=-1).")


def device_here() -> Device:
    """Returns the device that Keras trains on by default: the GPU where there is one, else the CPU."""
    if keras.backend.backend() == "torch":
        on_gpu = synchronise_torch() is not None
    else:
        on_gpu = bool(BACKENDS[check_backend()].gpus())
    kind = "gpu" if on_gpu else "cpu"
    return Device(kind=kind, name=kind)


BACKENDS: dict[str, Any] = {"tensorflow": TensorFlow, "jax": Jax}


def backend() -> dict[str, Any]:
    """Describes Keras and its backend, for the provenance of a document."""
    name = keras.backend.backend()
    description: dict[str, Any] = {
        "keras_backend": name,
        "precision": keras.config.dtype_policy().name,
        "threads": "unknown",
        "gpus": [],
    }
    if name in BACKENDS:
        description["gpus"] = BACKENDS[name].gpus()
    if name == "tensorflow":
        import tensorflow as tf

        description["threads"] = {
            "inter_op": tf.config.threading.get_inter_op_parallelism_threads() or usable_threads(),
            "intra_op": tf.config.threading.get_intra_op_parallelism_threads() or usable_threads(),
        }
    return description
