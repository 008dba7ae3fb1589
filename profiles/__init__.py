"""Measures any batches feeding any Keras model, and says what the figures mean.

Independent of the rest of this project: it runs inside other people's scripts.
"""

import unstall  # noqa: F401 - from here on, who imports `profiles` decides whether it is this one
from profiles.devices import Device

__all__ = ["Device", "StallMonitor", "profile"]


def __getattr__(name: str) -> object:
    # Imported late: Keras.
    if name == "profile":
        from profiles.profiling import profile

        return profile
    if name == "StallMonitor":
        # First of all: `python -m profiles` imports what the monitor needs itself, as soon as Keras is imported.
        import keras  # noqa: F401

        from profiles.script.monitor import StallMonitor

        return StallMonitor
    raise AttributeError(f"module 'profiles' has no attribute {name!r}")
