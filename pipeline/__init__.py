"""What feeds a model: sources of images, descriptions of pipelines, and the loaders built from them. Public names."""

from typing import TYPE_CHECKING

import unstall  # noqa: F401 - from here on, `import pipeline` in a user's file means the user's own package
from pipeline.augmentation import Augmentation
from pipeline.config import PipelineConfig, config_from_toml
from pipeline.errors import ConfigError, SourceError
from pipeline.opening import open_source
from pipeline.sources.arrays import from_arrays
from pipeline.sources.folder import from_folder
from pipeline.sources.skip_list import read_skip_list
from pipeline.sources.source import ImageSource
from pipeline.sources.tfds import NoSplit, from_tfds
from pipeline.variants import BASELINE, VARIANTS

if TYPE_CHECKING:
    from pipeline.building import build
    from pipeline.loaders.python_batches import PythonBatches
    from pipeline.service.own import from_service

__all__ = [
    "BASELINE",
    "VARIANTS",
    "Augmentation",
    "ConfigError",
    "ImageSource",
    "NoSplit",
    "PipelineConfig",
    "PythonBatches",
    "SourceError",
    "build",
    "config_from_toml",
    "from_arrays",
    "from_folder",
    "from_service",
    "from_tfds",
    "open_source",
    "read_skip_list",
]


def __getattr__(name: str) -> object:
    if name == "build":  # imported late: loads psutil and the code that prepares copies
        from pipeline.building import build

        return build
    if name == "PythonBatches":  # imported late: loads OpenCV
        from pipeline.loaders.python_batches import PythonBatches

        return PythonBatches
    if name == "from_service":  # imported late: loads TensorFlow
        from pipeline.service.own import from_service

        return from_service
    raise AttributeError(f"module 'pipeline' has no attribute {name!r}")
