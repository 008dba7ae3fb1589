"""Writes a described pipeline as a plain script: tf.data code to paste into a project; it imports nothing of ours.

The script comes from a template, not from the source of the functions that `build` runs. Scripts made of that source
(`inspect.getsource`) give the same batches but are longer: 152 lines instead of 109 for `tf-data-autotune`, 213 instead
of 142 for `tf-data-composed`, 88 instead of 69 for `tf-data-device-augment`. For those functions take every value as an
argument, and do things that a script does not need, such as planning ahead for worker processes, which load no
TensorFlow, and drawing for other libraries. The template writes numbers in place of arguments, and only the lines that
a config needs. tests/pipeline/test_export.py compares a script's stages and batches with those of the built pipeline
for every value of every field of the config, so that a difference between the two fails there.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from typing import Any

from unstall.needs import DISTRIBUTIONS
from unstall.pipeline.address import NO_SERVICE
from unstall.pipeline.config import AUTO, LONG_EPOCH, PipelineConfig
from unstall.pipeline.errors import ExportError
from unstall.pipeline.prepared.copies import cached_copy, prepared_copy
from unstall.pipeline.sources.folder import files_below
from unstall.pipeline.sources.source import ImageSource
from unstall.pipeline.sources.stored import MappedImages
from unstall.pipeline.stages.batching import batches_per_call, yields_batches
from unstall.pipeline.templating import code_template
from unstall.text import printable

# OpenCV's names of the ways to fill what lies outside of an image.
_BORDERS = {"nearest": "BORDER_REPLICATE", "reflect": "BORDER_REFLECT", "constant": "BORDER_CONSTANT"}


def export(config: PipelineConfig, source: ImageSource, given: str | None = None) -> str:
    """Returns a Python script whose `make_dataset()` gives the batches of `build(config, source)`, epoch by epoch.

    If the config needs a prepared copy or a cache on disk, the script reads it; it is made now if it does not exist.
    `make_dataset(folder, training=False)` gives the images of another folder or copy, in one order and not augmented.

    Args:
      config: with `loader="tf_data"`.
      source: all images of a folder, or of a prepared copy.
      given: the source as the user names it; the script names it where it reads a copy.
    Raises:
      ExportError: if the loader is another one, or a service makes the batches; or if the images are arrays in memory,
        are only a part of those that the script would read, or are more pixels in one file than the memory can hold.
    """
    if config.loader != "tf_data":
        raise ExportError(f"only loader='tf_data' is written as a script. Received: loader={config.loader!r}.")
    if config.location != "disk":
        raise ExportError(
            "a script may run on another machine, where the copy on the RAM disk is missing. Use location='disk'. "
            f"Received: location={config.location!r}."
        )
    if config.service != NO_SERVICE:
        raise ExportError(f"a script makes its own batches. Use service='none'. Received: service={config.service!r}.")
    copy = source
    if given is not None and os.path.exists(given):  # a script runs from any folder
        given = os.path.abspath(given)
    if config.storage != "files":
        copy, _ = prepared_copy(source, config)
    if config.cache == "disk":
        copy, _ = cached_copy(copy, config)
    return _render(config, copy, _copied(config, source, copy, given))


def _copied(config: PipelineConfig, source: ImageSource, copy: ImageSource, given: str | None) -> tuple[str, ...]:
    """Returns lines on the copy that the script reads: of what it is, and which command makes another."""
    if copy is source:
        return () if source.root is not None else ("a prepared copy; `unstall materialize` makes others like it",)
    # A comment ends with its line: no name of a folder can become code.
    of, data = printable(given or "these images"), printable(shlex.quote(given or "DIR"))
    if config.cache == "disk":
        return (f"a cache of {of}, decoded and resized",)
    made = f"unstall materialize --data {data} --out COPY {_copy_options(config, copy)}"
    return f"a prepared copy of {of}, which this command makes too:", made


def _copy_options(config: PipelineConfig, copy: ImageSource) -> str:
    """Returns the options of `unstall materialize` that make a copy such as this one, of any images."""
    form = "raw" if config.cache == "disk" else copy.kind
    size = "x".join(map(str, config.image_size))
    return f"--as {form}" + (f" --image-size {size} --decode {config.decode}" if form != "records" else "")


def _render(config: PipelineConfig, source: ImageSource, copied: tuple[str, ...]) -> str:
    return code_template("tf_data.py.j2").render(
        **_values(config, source),
        **_place(config, source),
        copied=copied,
        copy_options=_copy_options(config, source),
    )


def _values(config: PipelineConfig, source: ImageSource) -> dict[str, Any]:
    """Returns the template's values that depend on the config and the source, but not on where the images lie."""
    per_call = batches_per_call(source, config)
    by_index = config.cache != "memory" and source.records is None
    calls = f", num_parallel_calls=CALLS, deterministic={config.deterministic or 'not training'}"
    packages = packages_of(config, files=source.root is not None)
    return {
        "config": config,
        "installs": {package: f"pip install {DISTRIBUTIONS[package]}" for package in packages},
        "install": install_command(packages),
        "augmentation": config.augmentation,
        "drawn": drawn_text(config),
        "composed": config.composed,
        "crops_scaled": (
            config.composed
            and config.decode == "scaled"
            and config.augmentation is not None
            and config.augmentation.crops
            and source.arrays is None
        ),
        "draws": _draws(config),
        "batches_per_call": per_call,
        "whole_batches": yields_batches(source, config),
        "call_size": "BATCH_SIZE" if per_call == 1 else "CALL_SIZE",
        "classes": source.class_names,
        "images": source.images,
        "workers": "tf.data.AUTOTUNE" if config.workers == AUTO else str(config.workers),
        "prefetch": "tf.data.AUTOTUNE" if config.prefetch == AUTO else str(config.prefetch),
        "parallel": config.workers != 1,
        "calls": calls if config.workers != 1 else "",
        "border": _BORDERS[config.augmentation.fill_mode] if config.augmentation is not None else "",
        "layers": _layers(config),
        "jpeg_only": source.formats == ("JPEG",),
        "skipped": [skipped.file for skipped in source.skipped],
        "shuffles": config.shuffle_buffer > 0,
        "long_order": config.shuffle_buffer > 0 and source.images > LONG_EPOCH and (config.composed or by_index),
        "orders_cache": config.shuffle_buffer > 0 and config.cache == "memory" and source.records is None,
    }


def packages_of(config: PipelineConfig, *, files: bool = True) -> tuple[str, ...]:
    """Returns the packages besides TensorFlow that a pipeline's script imports, by the names under which it does.

    Args:
      files: whether the source is files of images, not a prepared copy.
    """
    by_library = {"opencv": ("cv2",), "albumentations": ("albumentations", "cv2")}
    packages = by_library.get(config.augment_with, ()) if _draws(config) else ()
    reads_files = files and config.storage in ("files", "resized")
    reads_headers = reads_files and config.composed and config.decode == "scaled"
    return (*packages, "PIL") if reads_headers else packages


def install_command(packages: Sequence[str]) -> str:
    """Returns the command that installs what a script needs besides TensorFlow; "" if that is nothing."""
    return f"pip install {' '.join(DISTRIBUTIONS[package] for package in packages)}" if packages else ""


def _draws(config: PipelineConfig) -> bool:
    """Whether a pipeline makes random draws itself: layers make their own."""
    by_layers = config.augment_at == "device" or config.augment_with.startswith("keras_")
    return config.augmentation is not None and not by_layers


def _place(config: PipelineConfig, source: ImageSource) -> dict[str, Any]:
    """Returns the template's values that depend on where the images lie, by absolute paths.

    Raises:
      ExportError: if a script cannot read them from there, or would also read images that the source does not have.
    """
    if _is_part(source):
        raise ExportError(
            "the script would serve images that this source does not have: the source is a part of a folder or of a "
            "prepared copy, or files have come to the folder since it was scanned."
        )
    if source.root is not None:
        return {"reads": "files", "folder": str(source.root)}
    if isinstance(source.arrays, MappedImages):
        if config.shuffle_buffer and not source.arrays.fits_in_memory:
            raise ExportError(
                f"the {source.arrays.nbytes / 1e6:,.0f} MB of pixels in one file are more than half of the memory that "
                "is free, and are read in windows of blocks, which a script does not do."
            )
        return {"reads": "raw", "folder": str(source.arrays.path.parent)}
    if source.records is not None:
        if not config.composed and not config.shuffle_buffer:
            raise ExportError("TFRecord files are read from front to back, through a shuffle buffer.")
        return {"reads": "records", "folder": str(source.records.paths[0].parent)}
    raise ExportError("images that are arrays in memory are not there when the script runs.")


def _is_part(source: ImageSource) -> bool:
    """Whether a script, which lists the folder or reads the whole copy, would serve more images than the source."""
    if source.root is not None:
        listed = {
            path for name in source.class_names for path in files_below(source.root / name, failed=lambda _: None)
        }
        skipped = {os.path.join(source.root, skipped.file) for skipped in source.skipped}
        return not listed <= {*source.paths, *skipped}
    if isinstance(source.arrays, MappedImages):
        return source.arrays.nbytes < source.arrays.path.stat().st_size
    return source.records is not None and not source.records.whole


def drawn_text(config: PipelineConfig) -> str:
    """Returns a sentence: what is drawn anew for each image in each epoch."""
    draws = config.augmentation
    if draws is None:
        return "No augmentation."
    parts = [
        f"sheared by up to {draws.shear_degrees:g} degrees" if draws.shear_degrees else "",
        f"zoomed by up to {draws.zoom_range:.0%}" if draws.zoom_range else "",
        f"cropped to {draws.crop_area[0]:.0%} to {draws.crop_area[1]:.0%} of their area" if draws.crops else "",
        f"mirrored in {draws.flip_probability:.0%} of cases" if draws.flip_probability else "",
    ]
    text = ", ".join(part for part in parts if part)
    if not text:
        return "No augmentation."
    where = ", by the layers of `augmentation_layers()`" if config.augment_with == "keras_layers" else ""
    return f"Images are {text}, anew in each epoch{where}."


def _layers(config: PipelineConfig) -> list[str]:
    """Returns Python expressions that make the layers of `stages.augment.keras_layers`; none without such layers."""
    from unstall.pipeline.stages.augment import keras_layer_arguments

    if config.augmentation is None or config.augment_with != "keras_layers":
        return []
    calls = []
    for name, offset, arguments in keras_layer_arguments(config.augmentation):
        texts = [f"{key}={value!r}" for key, value in arguments.items()]
        seed = f"SEED + {offset}" if offset else "SEED"
        calls.append(f"keras.layers.{name}({', '.join([*texts, f'seed={seed}'])})")
    return calls
