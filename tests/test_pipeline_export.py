"""Exported scripts: they import nothing of ours, and give the batches of the pipeline that they were written from."""

import ast
import dataclasses
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
from PIL import Image
from test_architecture import OURS

from pipeline import VARIANTS, Augmentation, PipelineConfig, build, from_arrays, from_folder
from pipeline.export import ExportError, export
from pipeline.tuning import candidates, kind_of

CROP = Augmentation(shear_degrees=0.0, zoom_range=0.0, crop_area=(0.08, 1.0))
BASE = PipelineConfig(batch_size=16, workers=2, prefetch=2, autotune=False)
COMPOSED = dataclasses.replace(
    BASE, decode="scaled", resample="composed", augment_with="opencv", augment_at="batch", shuffle_buffer=100
)
CONFIGS = {
    "as written": dataclasses.replace(BASE, workers=1, prefetch=0, rewrites=False),
    "AUTOTUNE": dataclasses.replace(VARIANTS["tf-data-autotune"], batch_size=16),
    "in order": dataclasses.replace(BASE, shuffle_buffer=0),
    "scaled": dataclasses.replace(BASE, decode="scaled"),
    "nearest": dataclasses.replace(BASE, interpolation="nearest", augmentation=None),
    "batch": dataclasses.replace(BASE, augment_at="batch"),
    "opencv": dataclasses.replace(BASE, augment_with="opencv", augment_at="batch"),
    "albumentations": dataclasses.replace(BASE, augment_with="albumentations"),
    "constant": dataclasses.replace(BASE, augmentation=Augmentation(shear_degrees=20.0, fill_mode="constant")),
    "memory cache": dataclasses.replace(BASE, cache="memory", shuffle_buffer=8),
    "memory cache in order": dataclasses.replace(BASE, cache="memory", shuffle_buffer=0),
    "disk cache": dataclasses.replace(BASE, cache="disk"),
    "uint8": dataclasses.replace(BASE, output_dtype="uint8"),
    "composed": COMPOSED,
    "composed uint8": dataclasses.replace(COMPOSED, output_dtype="uint8"),
    "composed full, in order": dataclasses.replace(COMPOSED, decode="full", shuffle_buffer=0),
    "composed crop": dataclasses.replace(COMPOSED, augmentation=CROP),
    "crop with a zoom": dataclasses.replace(COMPOSED, augmentation=dataclasses.replace(CROP, zoom_range=0.1)),
    "crop by tf ops": dataclasses.replace(BASE, augmentation=CROP),
    "raw": dataclasses.replace(COMPOSED, storage="raw", decode="full"),
    "raw, some batches a call": dataclasses.replace(COMPOSED, storage="raw", decode="full", batch_size=3),
    "raw crop uint8": dataclasses.replace(COMPOSED, storage="raw", augmentation=CROP, output_dtype="uint8"),
    "raw, no draw": dataclasses.replace(BASE, storage="raw", augmentation=None),
    "resized": dataclasses.replace(BASE, storage="resized"),
    "records": dataclasses.replace(BASE, storage="records"),
    "records composed": dataclasses.replace(COMPOSED, storage="records"),
    "no draw": dataclasses.replace(BASE, augmentation=None),
    "seed": dataclasses.replace(BASE, seed=7),
}


def script_of(config, source) -> dict:
    namespace = {"__name__": "exported"}
    exec(compile(export(config, source), "exported.py", "exec"), namespace)
    return namespace


def epochs(dataset, count: int = 2) -> list[list[tuple[np.ndarray, np.ndarray]]]:
    return [list(dataset.as_numpy_iterator()) for _ in range(count)]


def assert_same(one, other) -> None:
    for batches, others in zip(one, other, strict=True):
        for (images, labels), (other_images, other_labels) in zip(batches, others, strict=True):
            assert images.dtype == other_images.dtype and labels.dtype == other_labels.dtype
            np.testing.assert_array_equal(labels, other_labels)
            np.testing.assert_array_equal(images, other_images)


@pytest.mark.parametrize("name", CONFIGS)
def test_a_script_gives_the_same_batches_epoch_by_epoch(name, photos):
    config, source = CONFIGS[name], from_folder(photos)
    dataset = script_of(config, source)["make_dataset"]()
    with build(config, source) as loader:
        expected = epochs(loader.data)
    assert int(dataset.cardinality()) == len(expected[0])
    assert_same(epochs(dataset), expected)
    if config.augmentation is not None:
        assert not np.array_equal(expected[0][0][0], expected[1][0][0])


@pytest.mark.parametrize("name", CONFIGS)
def test_a_script_is_formatted_python_without_anything_of_ours(name, photos):
    text = export(CONFIGS[name], from_folder(photos))
    tree = ast.parse(text)
    imported = {
        alias.name.partition(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
    }
    imported |= {node.module.partition(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not imported & OURS and "tensorflow" in imported
    checked = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "E9,F", "-q", "-"],
        input=text,
        capture_output=True,
        text=True,
    )
    assert (checked.stdout, checked.returncode) == ("", 0)


def test_every_kind_of_the_tuner_can_be_written(photos):
    source = from_folder(photos)
    kinds = {kind_of(one) for one in candidates(BASE, cores=2, accelerator=True, scales=True)}
    for kind in kinds:
        compile(export(kind, source), "exported.py", "exec")


@pytest.mark.parametrize(("name", "frozen"), [("as written", True), ("AUTOTUNE", False)])
def test_a_script_says_whether_it_is_frozen(name, frozen, photos):
    text = export(CONFIGS[name], from_folder(photos))
    first = "frozen: nothing in it waits" if frozen else "not frozen: tf.data's own tuner is on"
    assert text.startswith(f'"""An input pipeline as plain tf.data, {first} ')
    assert f"options.autotune.enabled = {not frozen}" in text


def test_a_script_runs_by_itself(photos, tmp_path):
    (tmp_path / "script.py").write_text(export(CONFIGS["composed"], from_folder(photos)))
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stdout.startswith("(16, 64, 64, 3) <dtype: 'float32'> [")


def test_what_the_scan_left_out_is_left_out(photos, tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
        Image.new("RGB", (90, 70), (200, 10, 30)).save(tmp_path / name / "1.jpg")
        Image.new("RGB", (90, 70), (10, 200, 30)).save(tmp_path / name / "2.png")
        (tmp_path / name / "notes 'quoted\".txt").write_text("no image")
    source = from_folder(tmp_path)
    assert len(source.skipped) == 2
    config = dataclasses.replace(BASE, batch_size=3)
    with build(config, source) as loader:
        assert_same(epochs(script_of(config, source)["make_dataset"]()), epochs(loader.data))


def test_keras_layers_come_as_layers_for_the_model(photos):
    config = dataclasses.replace(BASE, augment_with="keras_layers", augment_at="device")
    names = [type(layer).__name__ for layer in script_of(config, from_folder(photos))["augmentation_layers"]()]
    assert names == ["RandomShear", "RandomZoom", "RandomFlip"]


def test_a_buffer_on_the_device_is_written_as_one(photos):
    config = dataclasses.replace(BASE, prefetch_to_device=True)
    assert 'prefetch_to_device("/GPU:0", PREFETCH)' in export(config, from_folder(photos))
    assert "prefetch_to_device" not in export(BASE, from_folder(photos))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"loader": "py_dataset", "augment_with": "opencv", "autotune": True, "prefetch": 0}, "only loader='tf_data'"),
        ({"location": "ram"}, "a RAM disk belongs to a machine"),
        ({"storage": "records", "shuffle_buffer": 0}, "TFRecord files are read from front to back"),
    ],
)
def test_what_cannot_be_written_is_said(values, expected, photos):
    with pytest.raises(ExportError, match=expected):
        export(dataclasses.replace(BASE, **values), from_folder(photos))


@pytest.mark.parametrize("values", [{"storage": "raw", "augmentation": None}, {"cache": "disk"}])
def test_a_file_that_is_read_in_windows_cannot_be_written(values, photos, monkeypatch):
    config = dataclasses.replace(BASE, **values)
    export(config, from_folder(photos))
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=1000))
    with pytest.raises(ExportError, match="MB of pixels in one file are more than half of the memory that is free"):
        export(config, from_folder(photos))
    export(dataclasses.replace(config, shuffle_buffer=0), from_folder(photos))  # in order: no windows


def test_arrays_in_memory_cannot_be_written():
    with pytest.raises(ExportError, match="arrays in memory are not there"):
        export(BASE, from_arrays(np.zeros((2, 8, 8, 3), np.uint8), np.array([0, 1])))
