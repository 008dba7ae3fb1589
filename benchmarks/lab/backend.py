"""Opens Keras' backend in a child process: what computes there, and whether it is the device that is measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from profiles import Device


class Refused(Exception):
    """The job, the model or the device cannot be measured; the message says why."""


def open_backend(device: Device) -> dict[str, Any]:
    """Describes the backend; TensorFlow is kept off a GPU on which another backend trains.

    Raises:
      Refused: where the device is not there, or the backend is not known here.
    """
    import keras

    from profiles.measure import backends
    from profiles.measure.backends import check_backend, check_device

    try:
        check_backend()
    except ValueError as error:
        raise Refused(str(error)) from error
    if keras.backend.backend() != "tensorflow":
        import tensorflow as tf

        tf.config.set_visible_devices([], "GPU")  # it only loads data here
    try:
        check_device(device)
    except ValueError as error:
        raise Refused(f"{error} Use --device cpu or emulated:RATE, or install the GPU build of the backend.") from error
    return backends.backend()


def named_backend(backend: Mapping[str, Any]) -> str:
    """Returns in a few words what computes, of what `open_backend` describes: Keras' backend, and its device."""
    name, gpus = backend.get("keras_backend", "unknown"), backend.get("gpus", [])
    untested = " (TensorFlow on a GPU: untested)" if gpus and name == "tensorflow" else ""
    return f"Keras on {name}, {', '.join(gpus) or 'CPU'}{untested}"


def tf_device(device: Device) -> str:
    """Returns where tf.data can prefetch to: TensorFlow sees no GPU where another backend trains on it."""
    import keras

    return "/GPU:0" if device.kind == "gpu" and keras.backend.backend() == "tensorflow" else "/CPU:0"
