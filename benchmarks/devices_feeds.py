"""What feeds a case: photos by a pipeline, or the arrays that a network was published with."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from benchmarks.experiments import Case
from benchmarks.session import Refused
from models import MODELS
from pipeline.sources import ImageSource

if TYPE_CHECKING:
    from pipeline.loaders import Loader


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """Batches that `fit` takes, again and again, until closed.

    Attributes:
      data: a `tf.data.Dataset` or a `keras.utils.PyDataset`.
      name: of the data.
      examples: of all the data.
      served: of an epoch here.
      classes: that the labels tell apart.
      generated: whether the data were made up.
      parallel_batches: that may be in the making at once.
      buffered_batches: that may wait, made.
      validation: test data that `fit` takes; None where there are none.
      notes: what a reader of the results must know.
      loader: of photos.
    """

    data: Any
    name: str
    examples: int
    served: int
    classes: int
    generated: bool
    parallel_batches: int = 1
    buffered_batches: int = 0
    validation: Any = None
    notes: tuple[str, ...] = ()
    loader: Loader | None = None

    def forget(self) -> None:
        """Lets go of what the loader noted of its workers so far."""
        if self.loader is not None and self.loader.record is not None:
            self.loader.record.clear()

    def close(self) -> None:
        """Removes what a loader wrote for itself."""
        if self.loader is not None:
            self.loader.close()

    def __enter__(self) -> Feed:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_feed(case: Case, source: ImageSource | None, arrays: str | None, *, batches: int) -> Feed:
    """Opens the first so many batches of a case's data, or all where there are no more.

    Args:
      source: the photos; None where no case takes any.
      arrays: where the data of the other networks lie; None for wherever they are found.
    Raises:
      Refused: if the data cannot be opened here.
    """
    if case.config is None:
        return _of_arrays(case, arrays, batches)
    assert source is not None
    return _of_photos(case, source, batches)


def _of_photos(case: Case, source: ImageSource, batches: int) -> Feed:
    from pipeline.loaders import UnavailableError, build

    assert case.config is not None
    config = replace(case.config, image_size=MODELS[case.model].image_size)
    try:
        loader = build(config, source.take(min(source.images, batches * config.batch_size)), whole=source)
    except UnavailableError as error:
        raise Refused(str(error)) from error
    return Feed(
        data=loader.data,
        name=source.name,
        examples=source.images,
        served=loader.images,
        classes=len(source.class_names),
        generated=source.kind == "generated",
        parallel_batches=loader.parallel_batches,
        buffered_batches=loader.buffered_batches,
        notes=loader.notes,
        loader=loader,
    )


def _of_arrays(case: Case, arrays: str | None, batches: int) -> Feed:
    raise Refused("not yet")
