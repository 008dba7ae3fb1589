"""A list of files to leave out: what it names it names exactly, and what changed since is not left out by mistake."""

import hashlib
import json
import os
import pathlib
import shutil

import pytest

from tests import bad_files
from unstall.benchmarks import cli
from unstall.pipeline import PipelineConfig, SourceError, open_source, read_skip_list
from unstall.pipeline.commands import materialize as materialize_command
from unstall.pipeline.sources import photographs
from unstall.pipeline.sources.skip_list import Entry, SkipList, SkipListError, skip_list_text

HEADER = '{"format": "unstall skip list", "version": 1, "splits": []}\n'


@pytest.fixture
def pets(tmp_path):
    for name in ("cats", "dogs"):
        (tmp_path / "pets" / name).mkdir(parents=True)
        for index in range(3):
            path = tmp_path / "pets" / name / f"{index}.jpg"
            path.write_bytes(photographs.encode_photo(10 * (name == "dogs") + index, 0))
    return tmp_path / "pets"


def entry(root: pathlib.Path, path: str, reason: str = "undecodable") -> Entry:
    content = (root / path).read_bytes()
    return Entry(path=path, reason=reason, bytes=len(content), sha256=hashlib.sha256(content).hexdigest())


def listed(*entries: Entry) -> SkipList:
    return SkipList(entries={entry.path: entry for entry in entries})


def pairs(files) -> list[tuple[str, str]]:
    return [(file.path, file.reason) for file in files]


def test_a_listed_file_is_left_out_counted_and_named(pets):
    source = open_source(str(pets), skip_list=listed(entry(pets, "cats/1.jpg")))
    assert source.files == ("cats/0.jpg", "cats/2.jpg", "dogs/0.jpg", "dogs/1.jpg", "dogs/2.jpg")
    assert pairs(source.skipped) == [("cats/1.jpg", "skip list: undecodable")]
    assert source.fingerprint != open_source(str(pets)).fingerprint
    document = source.to_dict()
    assert (document["images"], document["skipped"]) == (5, 1) and "stale_skips" not in document


def test_entries_that_no_longer_apply_are_named_and_leave_nothing_out(pets):
    entries = [entry(pets, f"cats/{index}.jpg") for index in range(3)]
    unreadable = Entry(path="dogs/0.jpg", reason="unreadable", bytes=None, sha256=None)
    elsewhere = Entry(path="../secret", reason="no", bytes=1, sha256="0")
    content = bytearray((pets / "cats/0.jpg").read_bytes())
    content[-10] ^= 1
    (pets / "cats/0.jpg").write_bytes(content)
    (pets / "cats/1.jpg").write_bytes(content + b"1")
    (pets / "cats/2.jpg").unlink()
    shutil.copy(pets / "dogs/1.jpg", pets / "cats/3.jpg")
    source = open_source(str(pets), skip_list=listed(*entries, unreadable, elsewhere))
    assert source.images == 6 and source.skipped == ()
    assert pairs(source.stale_skips) == [
        ("cats/0.jpg", "has other content now"),
        ("cats/1.jpg", f"has {len(content) + 1:,} bytes now, and had {entries[1].bytes:,}"),
        ("dogs/0.jpg", "could not be read when it was listed, and now it can"),
        ("cats/2.jpg", "is not there"),
        ("../secret", "is not there"),
    ]
    assert [skip["path"] for skip in source.to_dict()["stale_skips"]][-1] == "../secret"
    sentences = source.left_out("all named in results.json")
    assert sentences == [
        "5 of the skip list's entries no longer apply: cats/0.jpg (has other content now) and 4 more; "
        "all named in results.json"
    ]


def test_a_listed_file_that_the_scan_leaves_out_anyway_has_the_scans_reason(pets):
    (pets / "cats/bad.jpg").write_bytes(b"")
    gone = Entry(path="cats/bad.jpg", reason="zero bytes", bytes=None, sha256=None)
    source = open_source(str(pets), skip_list=listed(gone))
    assert pairs(source.skipped) == [("cats/bad.jpg", "zero bytes")] and source.stale_skips == ()


def test_a_file_that_cannot_be_read_any_more_is_not_the_listed_one(pets, monkeypatch):
    listed_file = entry(pets, "cats/0.jpg")

    def denied(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(pathlib.Path, "open", denied)
    assert listed_file.stale(pets / "cats/0.jpg") == "cannot be read: Permission denied"


def test_a_class_of_which_everything_is_listed_is_refused(pets):
    everything = listed(*(entry(pets, f"cats/{index}.jpg") for index in range(3)))
    with pytest.raises(SourceError, match=r"no image in class folder cats.*skip list: undecodable"):
        open_source(str(pets), skip_list=everything)


def test_reasons_and_names_that_a_terminal_obeys_are_escaped(pets):
    name = "cats/\x1b[31mred\n.jpg"
    (pets / name).write_bytes(bad_files.PHOTO)
    source = open_source(str(pets), skip_list=listed(entry(pets, name, reason="\x1b]8;;http://x\x07")))
    assert pairs(source.skipped) == [(r"cats/\x1b[31mred\n.jpg", r"skip list: \x1b]8;;http://x\x07")]


def test_the_generated_photos_can_have_a_skip_list():
    whole = open_source("generated:6")
    source = open_source("generated:6", skip_list=listed(entry(whole.root, whole.files[0])))
    assert source.files == whole.files[1:] and len(source.skipped) == 1


def test_a_prepared_copy_has_no_skip_list(pets, tmp_path):
    from unstall.pipeline.prepared.write import materialize

    materialize(open_source(str(pets)), tmp_path / "copy", "raw", PipelineConfig(image_size=(8, 8)))
    with pytest.raises(SourceError, match="is a prepared copy, from which nothing can be left out. Make it again"):
        open_source(str(tmp_path / "copy"), skip_list=listed())


def test_one_list_serves_every_split(pets, tmp_path):
    pets.rename(tmp_path / "train")
    shutil.copytree(tmp_path / "train", tmp_path / "test")
    skip_list = SkipList(
        entries={file.path: file for file in (entry(tmp_path, "train/cats/1.jpg"), entry(tmp_path, "test/dogs/0.jpg"))},
        splits=("test", "train"),
    )
    for split, expected in (("train", "cats/1.jpg"), ("test", "dogs/0.jpg")):
        source = open_source(str(tmp_path / split), skip_list=skip_list)
        assert pairs(source.skipped) == [(expected, "skip list: undecodable")] and source.stale_skips == ()
    # In a folder that is none of the splits nothing is left out, and all entries are reported.
    (tmp_path / "test").rename(tmp_path / "holidays")
    source = open_source(str(tmp_path / "holidays"), skip_list=skip_list)
    assert source.skipped == () and len(source.stale_skips) == 2


# The file


def test_a_list_survives_its_file_whatever_the_names_are(tmp_path):
    names = [os.fsdecode(name) for name in bad_files.NAMES.values()]
    entries = [Entry(path=f"cats/{name}", reason=f"because of {name}", bytes=1, sha256="ab") for name in names]
    entries.append(Entry(path="cats/x", reason="unreadable", bytes=None, sha256=None))
    path = tmp_path / "skip.jsonl"
    path.write_text(skip_list_text(entries), encoding="ascii")
    assert len(path.read_text().splitlines()) == 1 + len(entries)
    assert dict(read_skip_list(path).entries) == {entry.path: entry for entry in entries}


def test_a_line_may_be_removed_by_hand_and_empty_ones_are_passed_over(tmp_path):
    entries = [Entry(path=f"cats/{name}", reason="r", bytes=1, sha256="ab") for name in "ab"]
    lines = skip_list_text(entries).splitlines()
    (tmp_path / "skip.jsonl").write_text(f"{lines[0]}\n\n{lines[2]}\n\n")
    assert list(read_skip_list(tmp_path / "skip.jsonl").entries) == ["cats/b"]


def test_no_list_is_none():
    assert read_skip_list(None) is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not a skip list of this version. Its first line must be"),
        (b"cats/1.jpg\n", "is not a skip list of this version"),
        (HEADER.replace("1,", "2,").encode(), "is not a skip list of this version"),
        (HEADER.replace("[]", "1").encode(), "is not a skip list of this version"),
        (HEADER.replace("[]", "[1]").encode(), "is not a skip list of this version"),
        (b"[" * 100_000, "is not a skip list of this version"),
        ("Kätzchen".encode(), "is not a skip list: it is not ASCII text"),
        (HEADER.encode() + b"cats/1.jpg\n", r"line 2: an entry must be an object .* Received: cats/1.jpg"),
        (HEADER.encode() + b"{}\n", "line 2"),
        (HEADER.encode() + b'{"path": 1, "reason": "", "bytes": 1, "sha256": ""}\n', "line 2"),
        (HEADER.encode() + b'{"path": "a", "reason": "", "bytes": true, "sha256": ""}\n', "line 2"),
        (HEADER.encode() + b'{"path": "a", "reason": "", "bytes": 1, "sha256": null}\n', "line 2"),
        (HEADER.encode() + b'{"path": "a", "reason": "", "bytes": 1, "sha256": "", "run": "x"}\n', "line 2"),
    ],
)
def test_what_is_no_skip_list_is_refused_in_one_line(content, message, tmp_path):
    path = tmp_path / "skip.jsonl"
    path.write_bytes(content)
    with pytest.raises(SkipListError, match=message) as caught:
        read_skip_list(path)
    assert "\n" not in str(caught.value) and str(caught.value).startswith("--skip-list ")


def test_a_list_that_is_not_there_or_no_file_is_refused(tmp_path):
    with pytest.raises(SkipListError, match="cannot be read: No such file or directory"):
        read_skip_list(tmp_path / "none.jsonl")
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(SkipListError, match="is not a file"):
        read_skip_list(tmp_path / "fifo")


# The commands


def test_materialize_leaves_the_listed_files_out_and_says_so(pets, tmp_path, capsys):
    (tmp_path / "skip.jsonl").write_text(skip_list_text([entry(pets, "dogs/1.jpg"), entry(pets, "cats/0.jpg")]))
    (pets / "cats/0.jpg").unlink()
    options = ["--as", "records", "--skip-list", str(tmp_path / "skip.jsonl")]
    assert materialize_command.main(["--data", str(pets), "--out", str(tmp_path / "copy"), *options]) == 0
    printed = " ".join(capsys.readouterr().err.split())
    assert "skipped 1 of 5 files: dogs/1.jpg (skip list: undecodable); unstall doctor names all" in printed
    assert "1 of the skip list's entries no longer apply: cats/0.jpg (is not there)" in printed
    assert open_source(str(tmp_path / "copy")).images == 4
    assert len(json.loads((tmp_path / "copy" / "index.json").read_text())["names"]) == 4


@pytest.mark.parametrize(
    "words", ["pipeline", "train --out trained.keras", "accuracy", "service plan", "service local", "trainers"]
)
def test_a_command_that_reads_images_refuses_a_list_that_is_none(words, pets, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "skip.jsonl").write_text("nothing")
    assert cli.main([*words.split(), "--data", str(pets), "--skip-list", "skip.jsonl"]) == 2
    assert "--skip-list skip.jsonl is not a skip list of this version" in capsys.readouterr().err.replace("\n", " ")
    assert not list((tmp_path / "runs").glob("*/*"))
