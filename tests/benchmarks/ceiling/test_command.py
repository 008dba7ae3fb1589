"""The decode ceiling: everybody decodes the same files, and what cannot be compared is refused."""

from __future__ import annotations

import re

import cv2
import numpy as np
import pytest
from PIL import Image

from benchmarks.ceiling import __main__ as ceiling
from benchmarks.ceiling import measure
from pipeline import PipelineConfig, from_folder
from pipeline.stages.opencv_decode import OpenCVDecoder


def test_the_ceiling_decodes_every_file_once_at_the_fraction_of_the_loaders(photos, monkeypatch):
    seen = []
    decode = OpenCVDecoder.decode

    def counting(self, index, encoded):
        image = decode(self, index, encoded)
        seen.append((index, image.shape))
        return image

    monkeypatch.setattr(OpenCVDecoder, "decode", counting)
    source = from_folder(photos)
    assert measure.decoding_alone(source, (64, 64))(0) > 0
    expected = OpenCVDecoder(source, PipelineConfig(decode="scaled"))
    assert sorted(index for index, _ in seen) == list(range(40))
    assert dict(seen) == {
        index: decode(expected, index, np.fromfile(source.paths[index], np.uint8)).shape for index in range(40)
    }


@pytest.mark.parametrize("name", ["read, decode", "read, decode, warp"])
def test_what_loaders_cannot_do_without_is_done_to_every_file_once(name, photos, monkeypatch):
    read, warped = [], []
    decode, warp = OpenCVDecoder.__call__, cv2.warpAffine

    def reading(self, index):
        read.append(index)
        return decode(self, index)

    def warping(image, *others):
        warped.append(image)
        return warp(image, *others)

    monkeypatch.setattr(OpenCVDecoder, "__call__", reading)
    monkeypatch.setattr(cv2, "warpAffine", warping)
    assert measure._ALONE[name](from_folder(photos), (64, 64))(0) > 0
    assert sorted(read) == list(range(40)) and len(warped) == (40 if "warp" in name else 0)


def test_loaders_stand_beside_the_ceiling(photos, capsys, monkeypatch):
    monkeypatch.setattr(measure, "_EPOCH_S", 0.2)
    assert ceiling.main(["--data", str(photos), "--variants", "tf-data-composed,python-composed", "--rounds", "3"]) == 0
    shown = capsys.readouterr().out
    assert "loading 40 JPEG photos" in shown and "3 rounds" in shown
    assert re.search(r"decode only +[\d,]+", shown)
    for name in ("read, decode", "read, decode, warp", "tf-data-composed", "python-composed"):
        assert re.search(rf"{name} +[\d,]+ +\d+% +\d+% to \d+%", shown)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--rounds", "1"], "--rounds must be at least 2. Received: 1."),
        (["--variants", "nope"], "--variants: 'nope' is no variant without worker processes."),
        (["--variants", "py-dataset-processes"], "--variants: 'py-dataset-processes' is no variant without worker"),
        (["--data", "nowhere"], "nowhere does not exist."),
    ],
)
def test_bad_input_gets_one_line(words, line, capsys):
    assert ceiling.main(words) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.startswith(line) and captured.err.count("\n") == 1


def test_files_that_cannot_be_decoded_at_a_fraction_are_refused(tmp_path, capsys):
    for name in "ab":
        (tmp_path / name).mkdir()
        Image.new("RGB", (90, 70)).save(tmp_path / name / "1.png")
    assert ceiling.main(["--data", str(tmp_path)]) == 2
    assert "must hold JPEG files only. Received: PNG." in capsys.readouterr().err
