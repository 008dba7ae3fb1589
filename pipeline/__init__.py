"""What feeds a model: sources of images, descriptions of pipelines, and the loaders built from them. Public names."""

from typing import TYPE_CHECKING

from unstall.pipeline.augmentation import Augmentation
from unstall.pipeline.config import PipelineConfig, config_from_toml
from unstall.pipeline.errors import ConfigError, SourceError
from unstall.pipeline.opening import open_source
from unstall.pipeline.sources.arrays import from_arrays
from unstall.pipeline.sources.folder import from_folder
from unstall.pipeline.sources.skip_list import read_skip_list
from unstall.pipeline.sources.source import ImageSource
from unstall.pipeline.sources.tfds import NoSplit, from_tfds
from unstall.pipeline.variants import BASELINE, VARIANTS

if TYPE_CHECKING:
    from unstall.pipeline.building import build
    from unstall.pipeline.loaders.python_batches import PythonBatches
    from unstall.pipeline.service.own import from_service

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
        from unstall.pipeline.building import build

        return build
    if name == "PythonBatches":  # imported late: loads OpenCV
        from unstall.pipeline.loaders.python_batches import PythonBatches

        return PythonBatches
    if name == "from_service":  # imported late: loads TensorFlow
        from unstall.pipeline.service.own import from_service

        return from_service
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
