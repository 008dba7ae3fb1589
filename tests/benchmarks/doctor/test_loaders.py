"""Every loader on every kind of bad file: it serves, skips or refuses each as the doctor says."""

import dataclasses
import itertools
import os
import pathlib

import numpy as np
import pytest

from tests import bad_files
from tests.bad_files import READS_ANIMATIONS, READS_WEBP
from tests.builders import build_fed
from unstall.benchmarks.lab.serve import one_line
from unstall.pipeline import ConfigError, PipelineConfig, from_folder, open_source, read_skip_list
from unstall.pipeline.building import READS, build, unread_here
from unstall.pipeline.config import CHOICES
from unstall.pipeline.errors import UnavailableError
from unstall.pipeline.export import export
from unstall.pipeline.sources.headers import image_format
from unstall.pipeline.sources.source import ImageSource
from unstall.pipeline.stages.opencv_decode import READS_GIF

SIDES = (16, 16)


def configs() -> dict[str, PipelineConfig]:
    """Every loader with every way to decode, to resample and to store that it has; without anything random."""
    found = {}
    for loader, decode, resample, storage in itertools.product(
        *(CHOICES[name] for name in ("loader", "decode", "resample", "storage"))
    ):
        composed = resample == "composed"
        kind = {"augment_with": "opencv", "augment_at": "batch"} if composed else {"augmentation": None}
        try:
            found[f"{loader}-{decode}-{resample}-{storage}"] = PipelineConfig(
                loader=loader,
                decode=decode,
                resample=resample,
                storage=storage,
                image_size=SIDES,
                shuffle_buffer=0,
                batch_size=16,
                **kind,
            )
        except ConfigError:
            continue
    return found


CONFIGS = configs()
# Kinds that the scan keeps, and that at least one decoder refuses; by those that do.
REFUSED = {
    "bad Huffman table": {"TensorFlow", "Pillow", "OpenCV"},
    "damaged PNG": {"TensorFlow", "Pillow", "OpenCV"},
    "cut GIF": {"TensorFlow", "Pillow", "OpenCV"},
    "cut BMP": {"TensorFlow", "Pillow", "OpenCV"},
    "animated WebP": {"TensorFlow"},
}
# Of older libraries, whole files as well.
if not READS_GIF:
    REFUSED |= {kind: {"OpenCV"} for kind in ("GIF named .jpg", "animated GIF")}
if not READS_WEBP:
    REFUSED["WebP named .jpg"] = {"TensorFlow"}
if not READS_ANIMATIONS:
    REFUSED["animated WebP"] = {"TensorFlow", "OpenCV"}


def decoder_of(config: PipelineConfig) -> str:
    """The decoder that a loader uses; of a copy at the model's size, the one that made the copy."""
    if config.storage in ("resized", "raw"):
        return "TensorFlow"
    if config.loader == "image_data_generator":
        return "Pillow"
    return "OpenCV" if config.loader in ("py_dataset", "python_batches") or config.composed else "TensorFlow"


def part(source: ImageSource, formats: set[str]) -> ImageSource:
    """The files of a source that are of some formats."""
    found = [image_format(path) for path in source.paths]
    chosen = np.array([index for index, one in enumerate(found) if one in formats])
    return dataclasses.replace(
        source,
        labels=source.labels[chosen],
        files=source.files.part(chosen),
        formats=tuple(sorted(set(found) & formats)),
        jpeg_sizes=source.jpeg_sizes[chosen],
        fingerprint=f"{source.fingerprint}-{'-'.join(sorted(formats))}",
    )


@pytest.fixture(scope="module")
def listed(examined):
    """A folder of every kind of file, their names by kind, and the doctor's skip list."""
    root, names, *_, out = examined
    return root, names, read_skip_list(out / "skip.jsonl")


def test_every_loader_is_among_those_that_are_tried():
    assert {config.loader for config in CONFIGS.values()} == set(CHOICES["loader"])
    assert {config.storage for config in CONFIGS.values()} == set(CHOICES["storage"])
    assert len(CONFIGS) >= 24


def test_kept_and_skipped_files_are_all_files_and_each_skipped_one_is_named_with_a_reason(listed):
    root, names, skip_list = listed
    source = open_source(str(root), skip_list=skip_list)
    files = [path for path in root.rglob("*") if path.is_symlink() or not path.is_dir()]
    assert source.images + len(source.skipped) == len(files)
    assert len({one.path for one in source.skipped}) == len(source.skipped) and all(s.reason for s in source.skipped)
    assert source.stale_skips == ()
    left_out = {one.path for one in source.skipped}
    assert {path for path in skip_list.entries if path in source.files} == set()
    # Beside the list, the scan leaves out what no loader takes: a text, a FIFO that is named like no image.
    assert left_out - set(skip_list.entries) == {names["text"], names["unnamed FIFO"]}


@pytest.mark.parametrize(
    "name",
    [
        # A copy is made of what the decoder gives: that "scaled" gives it as well is seen without a copy.
        pytest.param(
            name, marks=[pytest.mark.slow] * (config.storage in ("resized", "raw") and config.decode == "scaled")
        )
        for name, config in CONFIGS.items()
    ],
)
def test_a_loader_serves_all_that_the_skip_list_leaves_and_is_silent(name, listed, capfd):
    root, _, skip_list = listed
    config = CONFIGS[name]
    source = open_source(str(root), skip_list=skip_list)
    unreadable = set(source.formats) - READS[config.loader]
    if unreadable and config.storage == "files":
        with pytest.raises(UnavailableError, match=f"cannot read {', '.join(sorted(unreadable))} files"):
            build(config, source)
        source = part(source, READS[config.loader])
    [(images, labels)] = build_fed(config, source)
    assert images.shape == (source.images, *SIDES, 3) and labels.tolist() == source.labels.tolist()
    assert images.min() >= 0 and images.max() <= 1.01
    said = capfd.readouterr().err
    assert not any(words in said for words in ("JPEG", "libpng", "imdecode", "truncated"))


def with_one_bad(root: pathlib.Path, kind: str) -> pathlib.Path:
    for name in ("cats", "dogs"):
        (root / name).mkdir(parents=True)
        (root / name / "whole.jpg").write_bytes(bad_files.PHOTO)
    suffix, make = bad_files.CONTENTS[kind]
    (root / "dogs" / f"bad{suffix}").write_bytes(make())
    return root


# All kinds in files; the copies once. Where resampling is composed, and of copies: as `slow`.
PAIRS = [
    pytest.param(name, kind, marks=() if config.storage == "files" and not config.composed else pytest.mark.slow)
    for name, config in CONFIGS.items()
    for kind in REFUSED
    if config.storage == "files" or kind == "bad Huffman table"
]


@pytest.mark.long
@pytest.mark.parametrize(("name", "kind"), PAIRS)
def test_without_the_skip_list_a_loader_ends_with_an_error_where_its_decoder_refuses_a_file(name, kind, tmp_path):
    source = from_folder(with_one_bad(tmp_path / "photos", kind))
    assert source.images == 3
    config = CONFIGS[name]
    if set(source.formats) - (READS[config.loader] - unread_here(config)) and config.storage == "files":
        with pytest.raises(UnavailableError, match=r"cannot read \w+ files"):
            build(config, source)
    elif decoder_of(config) in REFUSED[kind]:
        with pytest.raises(Exception) as caught:
            build_fed(config, source)
        said = one_line(caught.value)
        assert "bad" in said or "unstall doctor names the file" in said
    else:
        [(images, _)] = build_fed(config, source)
        assert len(images) == 3


@pytest.mark.parametrize("decode", CHOICES["decode"])
def test_where_all_files_are_jpegs_the_ops_for_jpegs_serve_what_the_skip_list_leaves(decode, listed, capfd):
    root, _, skip_list = listed
    source = part(open_source(str(root), skip_list=skip_list), {"JPEG"})
    assert source.formats == ("JPEG",) and source.images > 20
    [(images, _)] = build_fed(CONFIGS[f"tf_data-{decode}-separate-files"], source)
    assert len(images) == source.images
    assert "JPEG" not in capfd.readouterr().err


def test_a_written_script_serves_what_the_skip_list_leaves(listed, tmp_path):
    """It lists the folder by itself: names as the system has them, UTF-8 or not, and those to leave out."""
    root, names, skip_list = listed
    source = open_source(str(root), skip_list=skip_list)
    assert names["no UTF-8"] in source.files and names["link loop"] in {one.file for one in source.skipped}
    script: dict = {"__name__": "exported"}
    exec(compile(export(CONFIGS["tf_data-full-separate-files"], source), "exported.py", "exec"), script)
    labels = np.concatenate([labels.numpy() for _, labels in script["make_dataset"]()])
    assert labels.tolist() == source.labels.tolist()


@pytest.mark.parametrize("kind", REFUSED)
def test_the_doctors_verdict_on_a_file_is_that_of_the_loaders(kind, listed):
    _, names, skip_list = listed
    reason = skip_list.entries[names[kind]].reason
    named = reason.split("by ")[1].split(" (")[0].split(", ")
    assert set(named) == REFUSED[kind]


def test_a_fifo_keeps_no_scan_waiting(listed):
    root, names, _ = listed
    source = from_folder(root)
    reasons = {one.path: one.reason for one in source.skipped}
    assert reasons[names["FIFO"]] == reasons[names["socket"]] == "not a regular file"
    assert reasons[names["link loop"]] == "cannot be read: Too many levels of symbolic links"
    assert os.stat(root / names["FIFO"]).st_size == 0
