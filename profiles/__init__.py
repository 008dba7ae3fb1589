"""Measures how batches feed a Keras model, and says what limits the speed of training.

This package imports nothing else of this project, because it runs inside other people's scripts.
"""

from unstall.profiles.devices import Device

__all__ = ["Device", "StallMonitor", "profile", "watch"]


def __getattr__(name: str) -> object:
    # Imported when they are asked for: the first and the last load Keras.
    if name == "profile":
        from unstall.profiles.profiling import profile

        return profile
    if name == "watch":
        from unstall.profiles.watching import watch

        return watch
    if name == "StallMonitor":
        # Keras first: under `unstall profile`, importing Keras runs a hook that imports what the monitor needs.
        import keras  # noqa: F401

        from unstall.profiles.script.monitor import StallMonitor

        return StallMonitor
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
