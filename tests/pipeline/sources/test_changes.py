"""What became of the photos while they were read: named, and in the fingerprint."""

import os
import shutil

import numpy as np
import pytest

from unstall.pipeline import PipelineConfig, from_arrays, from_folder
from unstall.pipeline.prepared.index import open_prepared
from unstall.pipeline.prepared.write import materialize
from unstall.pipeline.sources.changes import Change, FolderWatch


@pytest.fixture
def folder(photos, tmp_path):
    shutil.copytree(photos, tmp_path / "photos")
    (tmp_path / "photos" / "discs" / "notes.txt").write_text("no image")
    return tmp_path / "photos"


def delete(folder):
    (folder / "discs" / "000.jpg").unlink()
    return [("discs/000.jpg", "deleted")]


def change_of_size(folder):
    with (folder / "stripes" / "001.jpg").open("ab") as file:
        file.write(b"\0")
    return [("stripes/001.jpg", "changed")]


def change_of_time(folder):
    os.utime(folder / "stripes" / "001.jpg", (0, 0))
    return [("stripes/001.jpg", "changed")]


def add(folder):
    shutil.copy(folder / "discs" / "000.jpg", folder / "discs" / "0 \x1b[31m.jpg")
    return [("discs/0 \\x1b[31m.jpg", "new")]


def change_what_is_no_image(folder):
    (folder / "discs" / "notes.txt").write_text("still none")
    return [("discs/notes.txt", "changed")]


def remove_a_class(folder):
    shutil.rmtree(folder / "stripes")
    return [(f"stripes/{index:03d}.jpg", "deleted") for index in range(1, 40, 2)]


OF_THE_SOURCE = [delete, change_of_size, change_of_time, remove_a_class]


@pytest.mark.parametrize("do", [*OF_THE_SOURCE, add, change_what_is_no_image])
def test_every_change_is_named(do, folder):
    source = from_folder(folder)
    watch = FolderWatch(source)
    expected = do(folder)
    changes = watch.changes()
    assert [(file.path, file.what) for file in changes.files] == expected
    assert changes
    assert changes.differs == (do in OF_THE_SOURCE)
    assert (changes.fingerprint != source.fingerprint) == (do in OF_THE_SOURCE)
    assert changes.to_dict() == {
        "changed_files": [{"path": path, "what": what} for path, what in expected],
        "fingerprint_at_end": changes.fingerprint,
    }


def test_the_first_is_said_and_the_others_are_counted(folder):
    watch = FolderWatch(from_folder(folder))
    delete(folder)
    assert watch.changes().sentence() == "discs/000.jpg (deleted)"
    change_of_size(folder)
    assert watch.changes().sentence() == "discs/000.jpg (deleted), and 1 more"


def test_nothing_is_said_of_what_did_not_change(folder):
    source = from_folder(folder)
    changes = FolderWatch(source).changes()
    assert not changes
    assert changes.to_dict() == {}
    assert changes.fingerprint == source.fingerprint


def test_a_change_between_the_scan_and_the_watch_shows_in_the_fingerprint(folder):
    source = from_folder(folder)
    change_of_time(folder)
    changes = FolderWatch(source).changes()
    assert changes.files == ()
    assert changes
    assert changes.sentence() == "files were changed while the folder was scanned"


def test_arrays_cannot_change_behind_ones_back():
    source = from_arrays(np.zeros((4, 8, 8, 3), np.uint8), np.array([0, 1, 0, 1]))
    assert not FolderWatch(source).changes()


@pytest.mark.parametrize("form", ["raw", "records", "resized"])
def test_a_prepared_copy_does_not_change_by_itself(form, folder, tmp_path):
    materialize(from_folder(folder), tmp_path / "copy", form, PipelineConfig(image_size=(8, 8)))
    source = open_prepared(tmp_path / "copy")
    watch = FolderWatch(source)
    assert not watch.changes()
    if form == "resized":
        (tmp_path / "copy" / source.files[0]).unlink()
        assert watch.changes().files == (Change(path=source.files[0], what="deleted"),)
