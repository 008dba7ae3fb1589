"""What feeds a model: sources of images, described pipelines, and the loaders built from them."""

from pipeline.augmentation import Augmentation
from pipeline.config import ConfigError, PipelineConfig
from pipeline.skip_list import read_skip_list
from pipeline.sources import ImageSource, SourceError, from_arrays, from_folder, from_tfds, open_source
from pipeline.variants import BASELINE, VARIANTS

__all__ = [
    "BASELINE",
    "VARIANTS",
    "Augmentation",
    "ConfigError",
    "ImageSource",
    "PipelineConfig",
    "PythonBatches",
    "SourceError",
    "build",
    "from_arrays",
    "from_folder",
    "from_tfds",
    "open_source",
    "read_skip_list",
]


def __getattr__(name: str) -> object:
    if name == "build":  # imported late: psutil, then TensorFlow
        from pipeline.loaders import build

        return build
    if name == "PythonBatches":  # imported late: OpenCV
        from pipeline.python_batches import PythonBatches

        return PythonBatches
    raise AttributeError(f"module 'pipeline' has no attribute {name!r}")
