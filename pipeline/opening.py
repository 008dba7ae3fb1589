"""Opens a source by the text that a user gives: a folder, a prepared copy, `tfds:NAME`, `generated:N`."""

from __future__ import annotations

from pathlib import Path

from unstall.pipeline.cache import cache_root, held
from unstall.pipeline.errors import SourceError
from unstall.pipeline.prepared.index import is_prepared, open_prepared
from unstall.pipeline.sources.folder import from_folder
from unstall.pipeline.sources.generated import generated_folder
from unstall.pipeline.sources.skip_list import SkipList
from unstall.pipeline.sources.source import ImageSource, Progress
from unstall.pipeline.sources.tfds import from_tfds
from unstall.text import printable


def open_source(text: str, *, skip_list: SkipList | None = None, progress: Progress | None = None) -> ImageSource:
    """Opens what `--data` names: a folder, a folder that `materialize` wrote, `tfds:NAME` or `generated:N`.

    Args:
      text: the name.
      skip_list: files to leave out, by their paths below the folder.
      progress: called with (files done, files in all).
    Raises:
      SourceError: if the source cannot be used.
    """
    kind, _, name = text.partition(":")
    if kind == "generated" and name:
        return _generated(name, skip_list, progress)
    if kind == "tfds" and name:
        return from_tfds(name, skip_list=skip_list, progress=progress)

    if is_prepared(Path(text)):
        if skip_list is not None:
            raise SourceError(
                f"{printable(text)} is a prepared copy, from which nothing can be left out. "
                "Make it again from the photos, with the skip list."
            )
        return open_prepared(Path(text))
    return from_folder(text, skip_list=skip_list, progress=progress)


def _generated(count: str, skip_list: SkipList | None, progress: Progress | None) -> ImageSource:
    if not count.isdecimal():
        raise SourceError(f"generated:N needs a number of photos, such as generated:2000. Received: generated:{count}.")
    try:
        folder = generated_folder(int(count), cache_root(), progress=progress)
    except ValueError as error:
        raise SourceError(str(error)) from error
    except OSError as error:
        where = printable(cache_root())
        raise SourceError(f"the photos cannot be written to {where}: {error.strerror or error}.") from error
    return from_folder(held(folder), kind="generated", name=f"generated:{count}", skip_list=skip_list)
