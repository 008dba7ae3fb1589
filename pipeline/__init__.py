"""What feeds a model: sources of images, descriptions of pipelines, and the loaders built from them. Public names."""

from typing import TYPE_CHECKING

from unstall.late import names_of
from unstall.pipeline.augmentation import Augmentation
from unstall.pipeline.config import PipelineConfig, config_from_toml
from unstall.pipeline.errors import ConfigError, SourceError
from unstall.pipeline.variants import BASELINE, VARIANTS

if TYPE_CHECKING:
    from unstall.pipeline.building import build
    from unstall.pipeline.loaders.python_batches import PythonBatches
    from unstall.pipeline.opening import open_source
    from unstall.pipeline.service.own import from_service
    from unstall.pipeline.sources.arrays import from_arrays
    from unstall.pipeline.sources.folder import from_folder
    from unstall.pipeline.sources.skip_list import read_skip_list
    from unstall.pipeline.sources.source import ImageSource
    from unstall.pipeline.sources.tfds import NoSplit, from_tfds

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

# Imported when they are asked for: a description of a pipeline needs none of NumPy, Pillow, OpenCV and TensorFlow.
__getattr__ = names_of(
    __name__,
    {
        "ImageSource": "sources.source",
        "NoSplit": "sources.tfds",
        "PythonBatches": "loaders.python_batches",
        "build": "building",
        "from_arrays": "sources.arrays",
        "from_folder": "sources.folder",
        "from_service": "service.own",
        "from_tfds": "sources.tfds",
        "open_source": "opening",
        "read_skip_list": "sources.skip_list",
    },
)
