"""The differences between Keras' backends: the train function, where a batch lies, how to wait for the device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np

from profiles.devices import Device
from profiles.provenance import usable_threads


def each(function: Callable[[Any], Any], batch: Any) -> Any:
    """Applies a function to every array of a batch, also where the images are a dict or a list of inputs."""
    return keras.tree.map_structure(function, batch)


class TensorFlow:
    """Keras on TensorFlow, where a train function is `(iterator) -> logs`."""

    # How many batches ahead of its step `fit` draws a batch.
    drawn_ahead = 0

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


class Jax:
    """Keras on JAX, where a train function is `(state, iterator) -> (logs, state)`. Methods as in `TensorFlow`."""

    def __init__(self, device: Device) -> None:
        # Keras 3.15 sends each batch to an accelerator one step ahead; on a CPU it does not.
        self.drawn_ahead = 1 if device.kind == "gpu" else 0

    @staticmethod
    def gpus() -> list[str]:
        import jax

        return [device.device_kind for device in jax.devices() if device.platform == "gpu"]

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
        return all(leaf.is_ready() for leaf in keras.tree.flatten(result))


def check_backend() -> str:
    """Returns the name of Keras' backend, a key of `BACKENDS`.

    Raises:
      ValueError: if the backend is another one, whose train function cannot be timed.
    """
    name = keras.backend.backend()
    if name not in BACKENDS:
        raise ValueError(f"KERAS_BACKEND must be one of {', '.join(BACKENDS)}. Received: {name}.")
    return name


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
    kind = "gpu" if BACKENDS[check_backend()].gpus() else "cpu"
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
