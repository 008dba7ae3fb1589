"""Opens Keras' backend in a child process: describes the backend, and checks that the device to measure is there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unstall.profiles import Device


class Refused(Exception):
    """The child cannot do what it was asked; the message says why."""


def open_backend(device: Device) -> dict[str, Any]:
    """Describes Keras' backend; hides GPUs from TensorFlow if another backend trains.

    Raises:
      Refused: if the device is missing, or the backend is none of `BACKENDS`.
    """
    import keras

    from unstall.profiles.measure import backends
    from unstall.profiles.measure.backends import check_backend, check_device

    try:
        check_backend()
    except ValueError as error:
        raise Refused(str(error)) from error
    if keras.backend.backend() != "tensorflow":
        import tensorflow as tf

        tf.config.set_visible_devices([], "GPU")  # TensorFlow only loads data here
    try:
        check_device(device)
    except ValueError as error:
        raise Refused(f"{error} Use the CPU, or install the GPU build of the backend.") from error
    return backends.backend()


def named_backend(backend: Mapping[str, Any]) -> str:
    """Returns the name of Keras' backend and its devices, in a few words, from what `open_backend` returns."""
    name, gpus = backend.get("keras_backend", "unknown"), backend.get("gpus", [])
    untested = " (TensorFlow on a GPU: untested)" if gpus and name == "tensorflow" else ""
    return f"Keras on {name}, {', '.join(gpus) or 'CPU'}{untested}"


def tf_device(device: Device) -> str:
    """Returns the device to which tf.data can prefetch: the CPU if another backend trains on the GPU."""
    import keras

    return "/GPU:0" if device.kind == "gpu" and keras.backend.backend() == "tensorflow" else "/CPU:0"
