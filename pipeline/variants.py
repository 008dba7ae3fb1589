"""The named pipelines that the main job compares, each a difference from another."""

from __future__ import annotations

from dataclasses import replace

from unstall.pipeline.config import AUTO, PYTHON_LOADERS, PipelineConfig

# The tutorial as written: rescale 1/255, shear 0.2 degrees, zoom 0.2, horizontal flip, batch 32, one worker, queue 10.
BASELINE = PipelineConfig(loader="image_data_generator", augment_with="keras_generator", interpolation="nearest")
_FOUR_WORKERS = replace(BASELINE, workers=4)
_PY_DATASET = PipelineConfig(loader="py_dataset", augment_with="opencv", workers=4)
# Rewrites are off, so that the pipeline runs as written: tf.data would make it parallel and prefetching.
_TF_DATA = PipelineConfig(loader="tf_data", rewrites=False)
_PARALLEL = replace(_TF_DATA, workers=2)
_PREFETCH = replace(_PARALLEL, prefetch=2)
_AUTOTUNE = replace(_TF_DATA, workers=AUTO, prefetch=AUTO, rewrites=True)
# No autotuning: tf.data's tuner can block at the end of an epoch.
_COMPOSED = replace(
    _PREFETCH,
    decode="scaled",
    resample="composed",
    augment_with="opencv",
    augment_at="batch",
    autotune=False,
    rewrites=True,
)

VARIANTS: dict[str, PipelineConfig] = {
    "generator": BASELINE,
    "generator-4-workers": _FOUR_WORKERS,
    "generator-processes": replace(_FOUR_WORKERS, use_multiprocessing=True),
    "generator-batch-64": replace(_FOUR_WORKERS, batch_size=64),
    "generator-queue-64": replace(_FOUR_WORKERS, max_queue_size=64),
    "generator-ram": replace(_FOUR_WORKERS, location="ram"),
    "generator-no-augment": replace(BASELINE, augmentation=None),
    "py-dataset": _PY_DATASET,
    "py-dataset-albumentations": replace(_PY_DATASET, augment_with="albumentations"),
    "py-dataset-albumentations-processes": replace(
        _PY_DATASET, augment_with="albumentations", use_multiprocessing=True
    ),
    "py-dataset-processes": replace(_PY_DATASET, use_multiprocessing=True),
    "py-dataset-composed": replace(_PY_DATASET, workers=2, decode="scaled", resample="composed"),
    "python-batches": PipelineConfig(
        loader="python_batches", augment_with="opencv", workers=2, decode="scaled", resample="composed"
    ),
    "directory": PipelineConfig(
        loader="image_dataset_from_directory",
        augment_with="keras_layers",
        augment_at="batch",
        workers=AUTO,
        prefetch=AUTO,
    ),
    "tf-data": _TF_DATA,
    "tf-data-parallel": _PARALLEL,
    "tf-data-prefetch": _PREFETCH,
    "tf-data-autotune": _AUTOTUNE,
    "tf-data-cache": replace(_AUTOTUNE, cache="memory"),
    "tf-data-cache-disk": replace(_AUTOTUNE, cache="disk"),
    "tf-data-scaled-decode": replace(_AUTOTUNE, decode="scaled"),
    "tf-data-composed": _COMPOSED,
    "tf-data-raw": replace(_COMPOSED, storage="raw", decode="full"),
    "tf-data-batch-augment": replace(_AUTOTUNE, augment_at="batch"),
    "tf-data-device-augment": replace(_AUTOTUNE, augment_with="keras_layers", augment_at="device"),
    "tf-data-albumentations": replace(_AUTOTUNE, augment_with="albumentations"),
    "service-autotune": replace(_AUTOTUNE, service="local:2"),
    "service-albumentations": replace(_AUTOTUNE, augment_with="albumentations", service="local:2"),
    "tf-data-no-augment": replace(_AUTOTUNE, augmentation=None),
    "tf-data-uint8": replace(_AUTOTUNE, output_dtype="uint8"),
    "tf-data-device-prefetch": replace(_AUTOTUNE, prefetch=2, prefetch_to_device=True),
}

# What the main job runs by default: the tutorial's pipeline, and those that people choose in its place.
DEFAULT = ("generator", "py-dataset", "directory", "tf-data-autotune", "tf-data-scaled-decode", "tf-data-cache")
# With --thorough also what more workers of the tutorial's generator gain, and tf.data without anything in parallel.
THOROUGH = (DEFAULT[0], "generator-4-workers", *DEFAULT[1:3], "tf-data", *DEFAULT[3:])
GENERATORS = tuple(name for name, config in VARIANTS.items() if config.loader in PYTHON_LOADERS)
TF_DATA = tuple(name for name in VARIANTS if name not in GENERATORS)


def other_work(config: PipelineConfig) -> tuple[str, ...]:
    """Returns how the config's work differs from full decoding, bilinear resizing and augmentation; () if it does not.

    Two variants do *equal work* if they differ in the same ways.
    """
    marks = []
    if config.interpolation != "bilinear":
        marks.append(config.interpolation)
    elif config.loader == "image_data_generator" and config.storage == "files":
        marks.append("antialiased")  # only Pillow's bilinear averages over all pixels of the larger image
    if config.augmentation is None:
        marks.append("no augmentation")
    if config.decode == "scaled":
        marks.append("scaled decode")
    if config.storage == "resized":
        marks.append("compressed again")
    if config.composed and config.storage in ("files", "records"):
        marks.append("one resampling")  # a copy at the model's size leaves nothing to resize
    return tuple(marks)
