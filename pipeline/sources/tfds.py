"""Sources that are data sets of TensorFlow Datasets (TFDS), whose images are exported once to files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from unstall.needs import missing
from unstall.pipeline.cache import built_aside, cache_root, held
from unstall.pipeline.errors import SourceError, first_line
from unstall.pipeline.sources.folder import check_folder_name, from_folder
from unstall.pipeline.sources.skip_list import SkipList
from unstall.pipeline.sources.source import ImageSource, Progress
from unstall.text import printable


class NoSplit(SourceError):
    """The data set has no such split on this machine."""


def from_tfds(
    name: str, *, split: str = "train", skip_list: SkipList | None = None, progress: Progress | None = None
) -> ImageSource:
    """Exports the encoded images of a prepared TFDS data set into the cache, once, and scans them.

    Nothing is downloaded: the user must have prepared the data set (`tfds build NAME`), in TFDS' own folder or
    `TFDS_DATA_DIR`.

    Args:
      name: TFDS' name of the data set.
      split: "train", "test" or another that TFDS has prepared.
      skip_list: files to leave out.
      progress: called with (images exported, images in all).
    Raises:
      NoSplit: if the data set has no such split, or none that is prepared.
      SourceError: if it is none that TFDS can find, has no `image` and `label`, or cannot be exported.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if line := missing(f"tfds:{name}", "tensorflow_datasets"):
        raise SourceError(line)
    import tensorflow_datasets as tfds  # takes 3 s: only if it is needed

    try:
        builder = tfds.builder(name, try_gcs=False)
        info = builder.info
        prepared = split in info.splits
    except Exception as error:  # TFDS raises many types; all mean the same to the user
        raise SourceError(f"tfds:{name} is not a data set that TFDS can find here: {first_line(error)}.") from error
    if not prepared:
        raise NoSplit(
            f"tfds:{name} has no split {split!r} on this machine, and nothing is downloaded unasked. "
            f"Prepare it with `tfds build {name}`, or set TFDS_DATA_DIR to where it lies."
        )
    features = info.features
    if not hasattr(features, "keys") or not {"image", "label"} <= set(features.keys()):
        raise SourceError(f"tfds:{name} has no `image` and `label`; only image classification data sets can be read.")
    total = info.splits[split].num_examples
    folder = cache_root() / "tfds" / f"{name.replace('/', '-')}-{builder.version}-{split}"
    records = builder.as_dataset(split=split, decoders={"image": tfds.decode.SkipDecoding()}, shuffle_files=False)
    try:
        if not folder.is_dir():
            _export(records, features["label"].names, folder, progress, total)
    except OSError as error:
        where = printable(cache_root())
        raise SourceError(f"tfds:{name} cannot be exported to {where}: {error.strerror or error}.") from error
    return from_folder(held(folder), kind="tfds", name=name, skip_list=skip_list)


def _export(records: Any, class_names: list[str], folder: Path, progress: Progress | None, total: int) -> None:
    for class_name in class_names:
        check_folder_name(class_name)
    with built_aside(folder) as partial:
        for class_name in class_names:
            (partial / class_name).mkdir(parents=True)
        for index, record in enumerate(records.as_numpy_iterator()):
            target = partial / class_names[int(record["label"])] / f"{index:07d}"
            target.write_bytes(record["image"])
            if progress:
                progress(index + 1, total)
