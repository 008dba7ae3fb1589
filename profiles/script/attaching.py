"""Watches the loops of a script over the data of a library that the script has imported."""

from __future__ import annotations

import sys
from collections.abc import Callable

from unstall.profiles.script.loop_sources import TfDatasets, TorchLoaders
from unstall.profiles.script.loops import Loops


def attach(library: str, loops: Loops) -> Callable[[], None]:
    """Tells `loops` of each pass over the data of a library. Returns what ends that.

    Args:
      library: one of `profiles.script.LIBRARIES`, which is imported. Nothing is done for another module of that name.
    """
    if library == "torch.utils.data":
        return TorchLoaders().attach(loops)
    if library == "tensorflow":
        return TfDatasets().attach(loops)
    if library == "keras" and hasattr(sys.modules["keras"], "Model"):
        from unstall.profiles.script.keras_loops import KerasData

        return KerasData().attach(loops)
    if library == "grain" and hasattr(sys.modules["grain"], "IterDataset"):
        from unstall.profiles.script.grain_loops import GrainData

        return GrainData().attach(loops)
    return lambda: None
