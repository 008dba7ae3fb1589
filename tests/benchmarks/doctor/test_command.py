"""The command on a folder of every kind of bad file: what it finds and writes, and that it changes nothing."""

import hashlib
import json
import os
import pathlib
import re
import shutil

import pytest

from tests import PROJECT_ROOT, bad_files
from tests.bad_files import READS_ANIMATIONS, READS_WEBP
from unstall.benchmarks.doctor import __main__ as doctor
from unstall.benchmarks.doctor.decoders import Verdict
from unstall.benchmarks.doctor.examine import SUFFIXES, examine
from unstall.benchmarks.doctor.folder import entries, findings_of, list_folder
from unstall.benchmarks.doctor.measure import Examiner
from unstall.benchmarks.doctor.results import TROUBLES, ExaminedFile, Finding, in_order
from unstall.benchmarks.lab.show import show
from unstall.pipeline.sources import photographs
from unstall.pipeline.sources.headers import FORMATS, MAX_BYTES
from unstall.pipeline.sources.skip_list import read_skip_list
from unstall.pipeline.stages.opencv_decode import READS_GIF
from unstall.text import printable

# All that is found of each kind; where nothing is, every decoder takes it without a word.
CUT = {"undecodable", "truncated"}
EXPECTED: dict[str, set[str]] = {
    "zero bytes": {"zero bytes"},
    "one byte": {"not an image"},
    "header only": CUT,
    "cut at 25 %": CUT,
    "cut at 50 %": CUT,
    "cut at 95 %": CUT,
    "cut at 99 %": CUT,
    "end marker only": {"warnings"},
    "trailing bytes": set(),
    "extraneous bytes": {"warnings"},
    "damaged data": {"warnings"},
    "bad Huffman table": {"undecodable"},
    "damaged PNG": {"undecodable"},
    "cut PNG": CUT,
    "cut GIF": {"undecodable"},
    "cut BMP": {"undecodable"},
    "cut WebP": {"not an image"},
    "PNG named .jpg": {"wrong suffix"},
    "BMP named .jpg": {"wrong suffix"},
    "GIF named .jpg": {"wrong suffix"},
    "WebP named .jpg": {"wrong suffix"},
    "text named .jpg": {"not an image"},
    "HTML named .jpg": {"not an image"},
    "zip named .jpg": {"not an image"},
    "photo named .txt": {"wrong suffix"},
    "text": {"not listed"},
    "CMYK": {"CMYK", "not JFIF"},
    "grey": {"grey"},
    "16 bit": {"grey", "16 bit"},
    "RGBA": {"alpha"},
    "palette": {"palette"},
    "animated GIF": {"animated"},
    "animated WebP": {"animated", "undecodable"},
    "1 x 1": set(),
    "65,500 x 1": set(),
    "30,000 x 30,000": {"over the limit"},
    "progressive": set(),
    "arithmetic coding": {"warnings"},
    "Adobe, not JFIF": {"not JFIF"},
    **{f"EXIF {turn}": {"EXIF-rotated"} for turn in range(2, 9)},
    "newline": {"odd name"},
    "no UTF-8": {"name is not UTF-8"},
    "255 bytes": set(),
    "right to left": {"odd name"},
    "escape": {"odd name"},
    "markup": set(),
    "rich markup": set(),
    "formula": set(),
    "dangling link": {"broken link"},
    "link loop": {"link loop"},
    "FIFO": {"not a file"},
    "socket": {"not a file"},
    "unnamed FIFO": {"not listed"},
}


def run(root: pathlib.Path, out: pathlib.Path, capsys, *words: str) -> tuple[int, dict, str]:
    code = doctor.main(["--data", str(root), "--out", str(out), *words])
    return code, json.loads((out / "results.json").read_text()), capsys.readouterr().out


def troubles(document: dict) -> dict[str, set[str]]:
    by_path: dict[str, set[str]] = {}
    for finding in document["findings"]:
        by_path.setdefault(finding["path"], set()).add(finding["trouble"])
    return by_path


# What an older OpenCV or TensorFlow cannot read is undecodable to one of the decoders.
if not READS_GIF:
    EXPECTED["GIF named .jpg"] = {"wrong suffix", "undecodable"}
    EXPECTED["animated GIF"] = {"animated", "undecodable"}
if not READS_WEBP:
    EXPECTED["WebP named .jpg"] = {"wrong suffix", "undecodable"}


def test_at_least_thirty_kinds_are_tried(examined):
    _, names, *_ = examined
    assert set(names) == set(EXPECTED) and len(names) >= 30


@pytest.mark.parametrize("kind", EXPECTED)
def test_a_kind_of_file_is_found_for_what_it_is(kind, examined):
    _, names, _, document, *_ = examined
    assert troubles(document).get(printable(names[kind]), set()) == EXPECTED[kind]


def test_nothing_is_found_of_whole_photographs(examined):
    _, _, _, document, *_ = examined
    assert not any("whole-" in path for path in troubles(document))


def test_what_would_stop_a_training_gives_exit_code_1(examined):
    *_, code, document, _, _ = examined
    assert code == 1 and document["stops"] is True


def test_the_skip_list_holds_what_is_quarantined_and_nothing_else(examined):
    root, names, _, document, _, out = examined
    listed = read_skip_list(out / "skip.jsonl").entries
    expected = {names[kind] for kind, some in EXPECTED.items() if any(TROUBLES[name].quarantined for name in some)}
    assert set(listed) == expected and document["quarantined"] == len(expected)
    for path, entry in listed.items():
        if entry.sha256 is not None:
            content = (root / path).read_bytes()
            assert (entry.bytes, entry.sha256) == (len(content), hashlib.sha256(content).hexdigest())


def test_no_byte_that_a_terminal_obeys_is_printed(examined):
    *_, printed, _ = examined
    assert "\x1b" not in printed and "\u202e" not in printed
    assert r"\x1b[31mred" in printed and r"two\nlines.jpg" in printed
    assert max(map(len, printed.splitlines()[1:-1])) <= 80  # what holds the user's own paths is not broken


def test_the_files_that_stop_a_training_come_first_and_are_counted(examined):
    *_, document, printed, _ = examined
    stops = [finding["stops"] for finding in document["findings"]]
    assert stops == sorted(stops, reverse=True)
    stopping = {finding["path"] for finding in document["findings"] if finding["stops"]}
    assert f"{len(stopping)} of these would stop a training." in printed
    assert "1 must be mended by hand." in " ".join(printed.split())  # the name that is not UTF-8


def test_every_decoder_that_refuses_a_file_is_named(examined):
    _, names, _, document, *_ = examined
    details = {
        finding["path"]: finding["detail"] for finding in document["findings"] if finding["trouble"] == "undecodable"
    }
    by = "TensorFlow" if READS_ANIMATIONS else "TensorFlow, OpenCV"
    said = "WebP Animation" if READS_WEBP else "Unknown image file format"
    assert re.match(rf"by {by} \((TensorFlow: )?{said}", details[names["animated WebP"]])
    assert details[names["bad Huffman table"]].startswith("by TensorFlow, Pillow, OpenCV (TensorFlow: ")
    assert "Bogus Huffman table definition" in details[names["bad Huffman table"]]


def test_the_loaders_that_cannot_read_a_format_are_named(examined):
    _, _, _, document, *_ = examined
    refused = [finding["detail"] for finding in document["findings"] if finding["trouble"] == "refused by loaders"]
    # Of what is left: an older library may have refused all of a kind before.
    kinds = [*(["2 GIF"] if READS_GIF else []), *(["1 WEBP"] if READS_WEBP else [])]
    assert refused == [
        *([f"image_data_generator cannot read {', '.join(kinds)}"] if kinds else []),
        *(["image_dataset_from_directory cannot read 1 WEBP"] if READS_WEBP else []),
    ]


def photo_folder(root: pathlib.Path, names: dict[str, int]) -> pathlib.Path:
    for number, (name, count) in enumerate(names.items()):
        (root / name).mkdir(parents=True)
        for index in range(count):
            (root / name / f"{index}.jpg").write_bytes(photographs.encode_photo(100 * number + index, 0))
    return root


# Of children that start at once.
LIGHT = "tests.benchmarks.doctor.sessions:Light"


def test_a_healthy_folder_gives_exit_code_0_and_no_list(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(Examiner.__init__, "__defaults__", (LIGHT, 30.0))
    code, document, printed = run(photo_folder(tmp_path / "pets", {"cats": 3, "dogs": 3}), tmp_path / "out", capsys)
    assert (code, document["findings"], document["files"]) == (0, [], 6)
    assert "nothing is wrong" in printed and "Nothing would stop a training." in printed
    assert str(tmp_path) not in (tmp_path / "out" / "results.json").read_text()
    assert show([str(tmp_path / "out")]) == 0
    assert printed.startswith(capsys.readouterr().out)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["report.html", "results.json"]


def test_the_rate_of_the_storage_is_measured_where_that_is_asked(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(Examiner.__init__, "__defaults__", (LIGHT, 30.0))
    code, document, printed = run(
        photo_folder(tmp_path / "pets", {"cats": 3, "dogs": 3}), tmp_path / "out", capsys, "--storage"
    )
    assert code == 0 and document["plan"]["storage"]
    said = " ".join(document["storage"])
    # A RAM disk cannot be read cold.
    assert "2 readers" in said or "RAM disk" in said
    assert " ".join(printed.split()).count(said.split(". ")[0]) == 1


def told(findings: list[Finding]) -> list[tuple[str, str, str]]:
    return [(finding.trouble, finding.path, finding.detail) for finding in findings]


def test_splits_are_told_apart_and_compared(tmp_path):
    sizes = {"train/cats": 8, "train/dogs": 2, "test/cats": 1, "test/birds": 1}
    root = photo_folder(tmp_path / "pets", sizes)
    shutil.copy(root / "train/cats/0.jpg", root / "test/cats/leak.jpg")
    shutil.copy(root / "train/cats/1.jpg", root / "train/dogs/cat.jpg")
    shutil.copy(root / "train/cats/2.jpg", root / "train/cats/again.jpg")
    (root / "test/birds/0.jpg").write_bytes(b"")
    folder = list_folder(root)
    files = [examine(root, file, clean) for file in folder.files]
    assert told(in_order(findings_of(folder, files))) == [
        ("empty class", "test/birds", "no image can be used"),
        ("splits differ", "test", "has no dogs"),
        ("splits differ", "train", "has no birds"),
        # Nine cats and three dogs: three times as many is no imbalance yet.
        ("in two splits", "train/cats/0.jpg", "same content as test/cats/leak.jpg"),
        ("in two classes", "train/dogs/cat.jpg", "same content as train/cats/1.jpg"),
        ("duplicate", "train/cats/again.jpg", "same content as train/cats/2.jpg"),
    ]
    assert [(entry.path, entry.reason) for entry in entries(files)] == [("test/birds/0.jpg", "zero bytes: zero bytes")]


def test_a_split_that_lacks_all_classes_but_one_is_told_and_not_refused(tmp_path):
    root = photo_folder(tmp_path / "pets", {"train/cats": 1, "train/dogs": 1, "test/cats": 1})
    folder = list_folder(root)
    assert folder.classes == {"test": ("cats",), "train": ("cats", "dogs")}
    differing = [finding for finding in findings_of(folder, []) if finding.trouble == "splits differ"]
    assert [(finding.path, finding.detail, finding.stops) for finding in differing] == [("test", "has no dogs", True)]


def folder_findings(root: pathlib.Path) -> list[tuple[str, str, str]]:
    """What is odd about a folder as a whole, were every file in it a whole JPEG of its own."""
    folder = list_folder(root)
    whole = [ExaminedFile(path=file, format="JPEG", bytes=1, sha256=file, findings=()) for file in folder.files]
    return told(findings_of(folder, whole))


@pytest.mark.parametrize(("cats", "expected"), [(7, []), (8, [("imbalance", "", "cats 8, dogs 2: 4.0 times")])])
def test_classes_of_very_different_sizes_are_named(cats, expected, tmp_path):
    assert folder_findings(photo_folder(tmp_path / "pets", {"cats": cats, "dogs": 2})) == expected


def test_a_folder_that_cannot_be_listed_is_found(tmp_path, monkeypatch):
    root = photo_folder(tmp_path / "pets", {"cats": 1, "dogs": 1})
    (root / "cats" / "closed").mkdir()
    scandir = os.scandir

    def denied(path):
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", denied)
    assert folder_findings(root) == [("unreadable folder", "cats/closed", "Permission denied")]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda root: None, "does not exist"),
        (lambda root: root.write_bytes(b""), "is not a folder"),
        (lambda root: root.mkdir(), "is empty"),
        (lambda root: (root / "cats").mkdir(parents=True), "has one class folder, cats"),
    ],
)
def test_what_is_no_folder_of_classes_is_bad_input(make, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make(tmp_path / "pets")
    assert doctor.main(["--data", str(tmp_path / "pets")]) == 2
    printed = capsys.readouterr().err
    assert message in printed and "Traceback" not in printed
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("words", [["."], ["pets", "--out", "pets"], ["pets", "--out", "out/../pets/cats/new"]])
def test_it_writes_nothing_among_the_photos(words, tmp_path, monkeypatch, capsys):
    photo_folder(tmp_path / "pets", {"cats": 1, "dogs": 1})
    before = set(tmp_path.rglob("*"))
    monkeypatch.chdir(tmp_path / "pets" if words == ["."] else tmp_path)
    assert doctor.main(["--data", *words]) == 2
    said = capsys.readouterr().err
    assert f" would lie in the folder that is examined. Give one outside of {words[0]}." in said
    assert len(said.splitlines()) == 1
    assert set(tmp_path.rglob("*")) == before


def test_a_prepared_copy_is_bad_input(tmp_path, capsys):
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "index.json").write_text('{"format": "unstall prepared images"}')
    assert doctor.main(["--data", str(tmp_path / "copy"), "--out", str(tmp_path / "out")]) == 2
    assert "is a prepared copy. Give the folder of images" in capsys.readouterr().err


def test_a_folder_that_cannot_be_read_is_bad_input(tmp_path, capsys, monkeypatch):
    root = photo_folder(tmp_path / "pets", {"cats": 1, "dogs": 1})
    monkeypatch.setattr(os, "scandir", lambda path: (_ for _ in ()).throw(PermissionError(13, "Permission denied")))
    assert doctor.main(["--data", str(root), "--out", str(tmp_path / "out")]) == 2
    assert "cannot be read: Permission denied." in capsys.readouterr().err


def clean(name: str, encoded: bytes) -> Verdict:
    return Verdict()


def test_a_file_without_permission_is_unreadable(tmp_path, monkeypatch):
    """Root reads what has no permissions: the system's answer is a fake."""
    (tmp_path / "a.jpg").write_bytes(bad_files.PHOTO)

    def denied(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", denied)
    [finding] = examine(tmp_path, "a.jpg", clean).findings
    assert (finding.trouble, finding.detail, finding.stops) == ("unreadable", "Permission denied", True)


def test_a_file_that_cannot_be_read_to_its_end_is_unreadable(tmp_path, monkeypatch):
    (tmp_path / "a.jpg").write_bytes(bad_files.PHOTO)

    def failing(*_, **__):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("unstall.benchmarks.doctor.examine.os.open", failing)
    [finding] = examine(tmp_path, "a.jpg", clean).findings
    assert (finding.trouble, finding.detail) == ("unreadable", "Input/output error")


def test_a_file_of_hundreds_of_megabytes_is_refused_before_it_is_read(tmp_path):
    with (tmp_path / "a.jpg").open("wb") as file:
        file.write(bad_files.PHOTO)
        file.truncate(MAX_BYTES + 1)  # a hole: no room is taken
    examined = examine(tmp_path, "a.jpg", clean)
    assert [finding.trouble for finding in examined.findings] == ["over the limit"] and examined.sha256 is None


def test_images_over_the_limit_are_refused_before_any_decoder_sees_them(tmp_path):
    (tmp_path / "a.png").write_bytes(bad_files.png_claiming(7072, 7071))

    def never(name, encoded):
        raise AssertionError("a decoder was asked")

    [finding] = examine(tmp_path, "a.png", never).findings
    assert (finding.trouble, finding.detail) == (
        "over the limit",
        "7072x7071 pixels, over the limit of 50 megapixels",
    )


def test_the_suffixes_are_those_by_which_keras_and_our_loaders_choose():
    from keras.src.legacy.preprocessing.image import DirectoryIterator
    from keras.src.utils.image_dataset_utils import ALLOWLIST_FORMATS

    read_by_ours = {*FORMATS.values(), ".jpeg"}
    assert set(ALLOWLIST_FORMATS) <= set(SUFFIXES)
    assert {f".{name}" for name in DirectoryIterator.white_list_formats} & read_by_ours <= set(SUFFIXES)
    assert set(SUFFIXES) == read_by_ours


def test_every_trouble_has_its_line_in_the_documentation():
    lines = (PROJECT_ROOT / "docs" / "doctor.md").read_text().splitlines()
    table = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("| ")]
    documented = {row[0]: row[1:] for row in table if row[0] in TROUBLES}
    assert list(documented) == list(TROUBLES)
    for name, trouble in TROUBLES.items():
        stops, listed, meaning = documented[name]
        assert (stops == "yes", listed == "yes", meaning) == (trouble.stops, trouble.quarantined, trouble.meaning)


@pytest.mark.slow
def test_ten_thousand_photos_take_less_than_thirty_seconds_on_two_cores(real_photos, tmp_path, capsys):
    photos = sorted((real_photos / "train").glob("*/*.jpg"))
    for name in ("cats", "dogs"):
        (tmp_path / "pets" / name).mkdir(parents=True)
    for number in range(10_000):
        path = photos[number % len(photos)]
        shutil.copy(path, tmp_path / "pets" / path.parent.name / f"{number}.jpg")
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    code, document, printed = run(tmp_path / "pets", tmp_path / "out", capsys)
    seconds = float(" ".join(printed.split()).split("examined in ")[1].split(" s")[0])
    print(f"10,000 photos on 2 cores in {seconds} s")
    assert (code, document["files"]) == (0, 10_000)
    assert seconds < 30
