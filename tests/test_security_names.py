"""Names lead nowhere: none of a file, class or variant has anything written outside of its folder."""

import dataclasses
import os
import pathlib

import bad_files
import numpy as np
import pytest

from benchmarks import command
from benchmarks.options import UserError, parser, read_request
from pipeline import SourceError, from_folder, sources
from pipeline.folders import check_folder_name
from pipeline.sources import folder_of_links
from profiles.results import write_atomically

LEADING_OUT = ["../outside", "/tmp/outside", "a/../../outside", "..", ".", "", ".hidden", "a\0b"]


def tree(root: pathlib.Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*")}


@pytest.fixture
def pets(tmp_path):
    for name in ("cats", "dogs"):
        (tmp_path / "pets" / name).mkdir(parents=True)
        (tmp_path / "pets" / name / "1.jpg").write_bytes(bad_files.PHOTO)
    return tmp_path / "pets"


@pytest.mark.parametrize("name", LEADING_OUT)
def test_a_class_that_leads_out_of_a_folder_is_no_name_of_one(name):
    with pytest.raises(SourceError, match=r"^class .* cannot be the name of a folder\.$"):
        check_folder_name(name)


@pytest.mark.parametrize("name", ["cats", "Kätz chen [1]", "a.b", "=1+1", "a\nb"])
def test_a_class_may_have_any_other_name(name):
    check_folder_name(name)


@pytest.mark.parametrize("name", LEADING_OUT[:4])
def test_a_folder_of_links_is_not_left_by_a_class_name(name, pets, tmp_path, monkeypatch):
    monkeypatch.setenv("UNSTALL_CACHE", str(tmp_path / "cache"))
    source = dataclasses.replace(from_folder(pets), class_names=("cats", name))
    before = tree(tmp_path)
    with pytest.raises(SourceError, match="cannot be the name of a folder"):
        folder_of_links(source)
    assert tree(tmp_path) == before


@pytest.mark.parametrize("name", LEADING_OUT[:4])
def test_an_exported_data_set_is_not_left_by_a_class_name(name, tmp_path):
    class Records:
        def as_numpy_iterator(self):
            yield {"image": bad_files.PHOTO, "label": np.int64(1)}

    with pytest.raises(SourceError, match="cannot be the name of a folder"):
        sources._export(Records(), ["cats", name], tmp_path / "export", None, 1)
    assert tree(tmp_path) == set()


@pytest.mark.parametrize("name", ["a b", "x;y", "../up", "é", "a\nb", "<b>", "$(x)", "[bold]"])
def test_a_variant_is_named_by_letters_digits_dots_hyphens_and_underscores(name, tmp_path):
    path = tmp_path / f"{name.replace('/', '_ ')}.toml"
    path.write_text("workers = 2\n")
    with pytest.raises(UserError, match="its name is the variant's, of letters, digits"):
        read_request(parser().parse_args(["--config", str(path)]), tmp_path)


def test_a_variant_may_have_a_plain_name(tmp_path):
    (tmp_path / "My_own-2.1.toml").write_text("workers = 2\n")
    request = read_request(parser().parse_args(["--config", str(tmp_path / "My_own-2.1.toml")]), tmp_path)
    assert "My_own-2.1" in request.variants


def test_looking_whether_a_folder_can_be_written_to_touches_no_file_of_the_users(tmp_path):
    (tmp_path / "mine").write_text("mine")
    os.utime(tmp_path / "mine", ns=(1, 1))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".writable").symlink_to(tmp_path / "mine")
    command.check_out(tmp_path / "out")
    assert (tmp_path / "mine").stat().st_mtime_ns == 1
    assert os.readlink(tmp_path / "out" / ".writable") == str(tmp_path / "mine")


def test_results_take_the_place_of_a_link_and_do_not_follow_it(tmp_path):
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "results.json").symlink_to(tmp_path / "mine")
    write_atomically(tmp_path / "results.json", "{}\n")
    assert (tmp_path / "mine").read_text() == "mine"
    assert not (tmp_path / "results.json").is_symlink()
