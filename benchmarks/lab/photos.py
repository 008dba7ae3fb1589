"""Splits photos into those on which a model trains and those with which it is tested."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import Progress

from unstall.benchmarks.lab.command import read_source, say_left_out
from unstall.pipeline import ImageSource, NoSplit, SourceError, from_tfds, read_skip_list
from unstall.text import printable

# The share of test photos in the published tutorial: 2,000 of 10,000.
_HELD_OUT_RATIO = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Splits:
    """The photos of a data set in two parts, which have the same classes.

    Attributes:
      how: where the test photos come from, in plain words.
    """

    train: ImageSource
    test: ImageSource
    how: str


def open_splits(
    data: str,
    *,
    seed: int,
    progress: Progress,
    errors: Console,
    skip_list: Path | None = None,
) -> Splits:
    """Opens the photos to train on and those to test with.

    If `data` is a folder with the folders `train` and `test` in it, or is the folder `train` with the folder `test`
    beside it, the photos in `test` are those to test with. Of `tfds:NAME`, they are the split `test` if there is one.
    Else they are a fifth of each class, drawn by `seed`.

    Args:
      data: a folder, `tfds:NAME` or `generated:N`.
      skip_list: a list of photos to leave out of either part.
    Raises:
      SourceError: if the photos cannot be used, or the classes of the two parts differ.
    """
    folder = Path(data)
    if (folder / "train").is_dir() and (folder / "test").is_dir():
        folder = folder / "train"
    beside = folder.resolve().with_name("test")
    if folder.resolve().name == "train" and beside.is_dir():
        train = read_source(str(folder), progress, errors, results=None, skip_list=skip_list)
        test = read_source(str(beside), progress, errors, results=None, skip_list=skip_list)
        return _given(train, test, "the folder test beside it")
    whole = read_source(data, progress, errors, results=None, skip_list=skip_list)
    if whole.kind == "tfds":
        try:
            test = from_tfds(data.removeprefix("tfds:"), split="test", skip_list=read_skip_list(skip_list))
        except NoSplit:
            pass  # many data sets have a single split
        else:
            say_left_out(errors, test)
            return _given(whole, test, "its split test")
    return held_out(whole, seed=seed)


def _given(train: ImageSource, test: ImageSource, how: str) -> Splits:
    if train.class_names != test.class_names:
        raise SourceError(
            f"The photos to test with must be of the classes to train on. Received: {_names(train)} in {train.name}, "
            f"{_names(test)} in {test.name}."
        )
    return Splits(train=train, test=test, how=how)


def _names(source: ImageSource) -> str:
    return ", ".join(map(printable, source.class_names))


def held_out(source: ImageSource, *, seed: int) -> Splits:
    """Draws a fifth of each class by `seed`, at least one photo, to test with; the rest is to train on.

    Raises:
      SourceError: if a class has fewer than two photos.
    """
    random = np.random.default_rng(seed)
    test = np.zeros(source.images, bool)
    for label, name in enumerate(source.class_names):
        members = np.flatnonzero(source.labels == label)
        if len(members) < 2:
            raise SourceError(
                f"{source.name}: class {printable(name)} has {len(members)} photo; at least 2 are needed, "
                "one of them to test with."
            )
        held = max(1, round(_HELD_OUT_RATIO * len(members)))
        test[random.permutation(members)[:held]] = True
    return Splits(
        train=source.part(np.flatnonzero(~test), f"train-{seed}"),
        test=source.part(np.flatnonzero(test), f"test-{seed}"),
        how=f"held out: {_HELD_OUT_RATIO:.0%} of each class, drawn with seed {seed}",
    )
