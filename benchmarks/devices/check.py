"""Checks which devices can compute: how TensorFlow and Keras' backend were built, their devices, a product on each."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.text import Text

from unstall.benchmarks.lab.child import Child, ChildDied, JobRefused
from unstall.benchmarks.lab.options import UserError
from unstall.profiles import Device, clock

# Time for imports and drivers. A driver that takes longer hangs.
_TIMEOUT_S = 120.0
# The side of the matrices of ones: every element of their product is the side.
_SIDE = 64
_SESSION = "benchmarks.devices.check:CheckSession"
# Every device stays visible.
_ALL = Device(kind="gpu", name="gpu")


class CheckSession:
    """Answers the parent; each request is a method."""

    def built(self) -> dict[str, str]:
        """Returns how TensorFlow and the backend in use were built."""
        import keras
        import tensorflow as tf

        info = tf.sysconfig.get_build_info()
        built = [
            f"{what} {info[key]}"
            for what, key in (("CUDA", "cuda_version"), ("cuDNN", "cudnn_version"), ("ROCm", "rocm_version"))
            if info.get(key)
        ]
        name = keras.backend.backend()
        facts = {
            "TensorFlow": f"{tf.__version__}, built {'with ' + ', '.join(built) if built else 'for the CPU only'}",
            "Keras": f"{keras.__version__}, backend {name}",
        }
        if name == "jax":
            import jax

            facts["JAX"] = f"{jax.__version__}, default {jax.default_backend()}"
        return facts

    def devices(self) -> list[tuple[str, str]]:
        """Names the devices that TensorFlow, and the backend in use where it is JAX, can see."""
        import keras
        import tensorflow as tf

        devices = [("TensorFlow", device.name) for device in tf.config.list_logical_devices()]
        if keras.backend.backend() == "jax":
            devices += [("JAX", name) for name in _jax_devices()]
        return devices

    def compute(self, library: str, name: str) -> float:
        """Multiplies two matrices on a device. Returns the seconds from the call to the result.

        Raises:
          ValueError: if the product is wrong.
        """
        begin_ns = clock.now_ns()
        product = _on_tensorflow(name) if library == "TensorFlow" else _on_jax(name)
        if not np.array_equal(product, np.full((_SIDE, _SIDE), _SIDE, np.float32)):
            raise ValueError(f"a product of ones must be {_SIDE} everywhere. Received: {product[0, 0]} and others")
        return (clock.now_ns() - begin_ns) / 1e9

    def close(self) -> None:
        """Does nothing: there is nothing to close."""


def _on_tensorflow(name: str) -> Any:
    import tensorflow as tf

    with tf.device(name):
        ones = tf.ones((_SIDE, _SIDE))
        return tf.matmul(ones, ones).numpy()


def _jax_devices() -> dict[str, Any]:
    """Returns all devices of JAX by name; `jax.devices()` has those of the fastest kind only."""
    from jax.extend import backend

    return {str(device): device for client in backend.backends().values() for device in client.devices()}


def _on_jax(name: str) -> Any:
    import jax

    ones = jax.device_put(np.ones((_SIDE, _SIDE), np.float32), _jax_devices()[name])
    return np.asarray(ones @ ones)


def check(console: Console) -> int:
    """Prints which devices compute.

    Returns:
      0, or 1 where a device does not compute.
    Raises:
      UserError: if TensorFlow or the backend cannot be imported.
    """
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "check.log"
        child = Child(_SESSION, _ALL, log)
        try:
            try:
                built = child.ask("built", timeout_s=_TIMEOUT_S)
                devices = child.ask("devices", timeout_s=_TIMEOUT_S)
            except (ChildDied, JobRefused) as error:
                raise UserError(f"nothing can be checked: {error}", exit_code=3) from error
            for name, text in built.items():
                console.print(Text(f"{name}: {text}"))
            failed = 0
            for library, name in devices:
                try:
                    seconds = child.ask("compute", library, name, timeout_s=_TIMEOUT_S)
                    answer = Text.assemble((" computes", "green"), f", {seconds * 1e3:.0f} ms for the first product")
                except (ChildDied, JobRefused) as error:
                    failed += 1
                    answer = Text.assemble((" fails", "bold red"), f": {error}")
                    if isinstance(error, ChildDied):
                        child = Child(_SESSION, _ALL, log)
                console.print(Text(f"{library} {name}:") + answer)
        except BaseException:  # `close` would wait for a child that computes
            child.kill()
            raise
        finally:
            child.close()
    if not any("GPU" in name or "cuda" in name.lower() for _, name in devices):
        console.print("No GPU is seen: the CPU is measured beside nothing, or beside --emulate RATE.")
    return 1 if failed else 0
