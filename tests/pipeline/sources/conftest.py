"""Keras' own folder of data sets, in a temporary place, with small files where the published ones would be."""

import dataclasses
import hashlib
import pathlib
from collections.abc import Callable

import pytest

from unstall.pipeline.sources.published_files import KERAS_FILES


@pytest.fixture
def keras_folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """The folder in which `keras.datasets` keeps its files, empty; a download fails."""

    def refuse(*_: object) -> None:
        raise AssertionError("Keras downloads")

    home = tmp_path / "keras"
    monkeypatch.setenv("KERAS_HOME", str(home))
    # Keras reads KERAS_HOME when it is imported, which it may have been.
    monkeypatch.setattr("keras.src.backend.config._KERAS_DIR", str(home))
    monkeypatch.setattr("keras.src.utils.file_utils.urlretrieve", refuse)
    (home / "datasets").mkdir(parents=True)
    return home / "datasets"


@pytest.fixture
def keras_keeps(keras_folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, bytes], pathlib.Path]:
    """Puts a small file where Keras keeps a data set; its checksum then counts as the published one."""

    def put(name: str, content: bytes) -> pathlib.Path:
        path = keras_folder / KERAS_FILES[name].cached
        path.write_bytes(content)
        small = dataclasses.replace(KERAS_FILES[name], sha256=hashlib.sha256(content).hexdigest())
        monkeypatch.setitem(KERAS_FILES, name, small)
        monkeypatch.setattr("keras.src.utils.file_utils.validate_file", lambda *_, **__: True)
        return path

    return put
