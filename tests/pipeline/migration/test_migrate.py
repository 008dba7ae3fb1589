"""A migrated script: the written module does what Keras does, the comparison finds what differs, the diff applies."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.checks import run_here, run_python, state
from unstall.benchmarks.cli import main
from unstall.pipeline.migration import comparing
from unstall.pipeline.migration.loaders import Draws, loaders_of
from unstall.pipeline.migration.values import Script
from unstall.pipeline.migration.writing import module_text, script_text

pytestmark = pytest.mark.long

FLOW = "from keras.preprocessing.image import ImageDataGenerator\n"
_legacy = tf.keras.preprocessing.image
DRAWN = (
    "rotation_range=40, width_shift_range=0.3, height_shift_range=0.2, shear_range=15, zoom_range=[0.7, 1.2], "
    "horizontal_flip=True, vertical_flip=True"
)


def module_of(text: str, folder: Path, **cached: int) -> types.ModuleType:
    loaders, _ = loaders_of(Script(text))
    path = folder / f"written_{len(list(folder.iterdir()))}.py"
    path.write_text(module_text("train.py", loaders, cached))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("fill", ["nearest", "reflect", "constant"])
def test_each_number_drawn_does_what_it_does_in_keras(fill: str, tmp_path: Path, monkeypatch: Any) -> None:
    """The same random numbers, planted in both: the same images, but for the last bits of the interpolation."""
    text = f"{FLOW}a = ImageDataGenerator({DRAWN}, fill_mode='{fill}', cval=7).flow_from_directory('x', (24, 24))\n"
    module = module_of(text, tmp_path)
    random = np.random.default_rng(0)
    uniform = random.random((8, 6)).astype(np.float32)
    images = random.integers(0, 256, (6, 24, 24, 3)).astype(np.float32)
    monkeypatch.setattr(tf.random, "stateless_uniform", lambda shape, seed: tf.constant(uniform))
    ours = module.augment_a(images, (1, 2)).numpy()
    even = 2 * uniform - 1
    generator = _legacy.ImageDataGenerator(fill_mode=fill, cval=7)
    for index, image in enumerate(images):
        numbers = {
            "theta": 40 * even[0, index],
            "tx": 0.2 * 24 * even[1, index],
            "ty": 0.3 * 24 * even[2, index],
            "shear": 15 * even[3, index],
            "zx": 0.7 + 0.5 * uniform[4, index],
            "zy": 0.7 + 0.5 * uniform[5, index],
            "flip_horizontal": uniform[6, index] < 0.5,
            "flip_vertical": uniform[7, index] < 0.5,
        }
        theirs = generator.apply_transform(image, numbers)
        off = np.abs(ours[index] - theirs)
        # SciPy and TensorFlow fill the ring between the last pixel's centre and the border in different ways.
        assert np.median(off) < 0.01 and np.mean(off > 1) < (0.2 if fill == "constant" else 0.01)


def test_channels_and_brightness_are_keras(tmp_path: Path, monkeypatch: Any) -> None:
    drawn = "channel_shift_range=30.0, brightness_range=(0.5, 1.5)"
    module = module_of(f"{FLOW}a = ImageDataGenerator({drawn}).flow_from_directory('x', (8, 8))\n", tmp_path)
    images = np.random.default_rng(0).integers(0, 256, (3, 8, 8, 3)).astype(np.float32)
    uniform = np.float32([[0.1, 0.6, 0.9], [0.2, 0.5, 0.95]])
    monkeypatch.setattr(tf.random, "stateless_uniform", lambda shape, seed: tf.constant(uniform))
    ours = module.augment_a(images, (1, 2)).numpy()
    for index, image in enumerate(images):
        numbers = {
            "channel_shift_intensity": 30 * (2 * uniform[0, index] - 1),
            "brightness": 0.5 + uniform[1, index],
        }
        assert np.abs(ours[index] - _legacy.ImageDataGenerator().apply_transform(image, numbers)).max() <= 1


CALLS = {
    "nearest, binary": ("rescale=1 / 255", "target_size=(16, 24), class_mode='binary'"),
    "grayscale, categorical": ("", "target_size=(16, 16), color_mode='grayscale'"),
    "bilinear, sparse": ("", "target_size=(16, 16), interpolation='bilinear', class_mode='sparse'"),
    "no labels": ("samplewise_center=True", "target_size=(16, 16), class_mode=None"),
    "images as labels": (
        "samplewise_center=True, samplewise_std_normalization=True",
        "target_size=(16, 16), class_mode='input'",
    ),
    "a part, other classes": (
        "validation_split=0.25",
        "target_size=(16, 16), subset='validation', classes=['stripes', 'discs']",
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_equivalent_reads_what_keras_reads(name: str, photos: Path, tmp_path: Path) -> None:
    generator, call = CALLS[name]
    text = f"{FLOW}a = ImageDataGenerator({generator}).flow_from_directory({str(photos)!r}, {call})\n"
    [loader], _ = loaders_of(Script(text))
    compared = comparing.compare(loader, 1000, tmp_path)
    assert compared.images[0] == compared.images[1] == (10 if loader.part else 40)
    assert compared.unlike == 0 and compared.off_levels <= 1
    assert min(compared.rates.after) > 0 and len(compared.rates.before) == 3


def test_labels_are_an_array_as_of_keras(photos: Path, tmp_path: Path) -> None:
    made = f"ImageDataGenerator().flow_from_directory({str(photos)!r}, (8, 8), shuffle=False)"
    module = module_of(f"{FLOW}a = {made}\nprint(a.classes, a.labels)\n", tmp_path)
    ours, theirs = module.a(str(photos)), _legacy.ImageDataGenerator().flow_from_directory(str(photos), shuffle=False)
    for name in ("classes", "labels"):
        assert getattr(ours, name).dtype == getattr(theirs, name).dtype
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))


def test_a_wrong_equivalent_is_found(photos: Path, tmp_path: Path, monkeypatch: Any) -> None:
    """Planted: the written module does not augment, and reads the images at another interpolation."""
    text = f"{FLOW}a = ImageDataGenerator(rotation_range=60).flow_from_directory({str(photos)!r}, (24, 24))\n"
    [loader], _ = loaders_of(Script(text))

    def wrong(script: str, loaders: Any, cached: Any) -> str:
        plain = dataclasses.replace(loaders[0], draws=Draws(), call={**loaders[0].call, "interpolation": "bilinear"})
        return module_text(script, [plain], cached)

    monkeypatch.setattr(comparing, "module_text", wrong)
    compared = comparing.compare(loader, None, tmp_path)
    assert compared.unlike > 30
    assert compared.moved_levels is not None and compared.moved_levels[1] < 0.8 * compared.moved_levels[0]


def test_no_class_is_missing_in_what_is_compared() -> None:
    paths = [f"data/{name}/{number}.jpg" for name, count in (("a", 9), ("b", 1), ("c", 6)) for number in range(count)]
    sample = [path.removeprefix("data/").removesuffix(".jpg") for path in comparing._sample(paths, "data", 4)]
    assert sample == ["a/0", "a/4", "a/8", "b/0", "c/0", "c/2"]
    flat = [f"data/{number}.jpg" for number in range(8)]  # without labels, images need no folder of a class
    assert comparing._sample(flat, "data", 4) == flat[::2]


def test_keras_own_dataset_keeps_its_reader_and_gets_a_cache(photos: Path, tmp_path: Path) -> None:
    call = f"{str(photos)!r}, image_size=(16, 16), validation_split=0.5, subset='training', seed=4, batch_size=8"
    text = f"import keras\na = keras.utils.image_dataset_from_directory({call})\n"
    [loader], _ = loaders_of(Script(text))
    compared = comparing.compare(loader, 1000, tmp_path)
    assert compared.images == (20, 20) and compared.unlike == 0 and compared.off_levels == 0
    [data] = [module_of(text, tmp_path, a=1000).a(str(photos))]
    first, second = (np.concatenate([labels for _, labels in data]).tolist() for _ in range(2))
    assert data.class_names == ["discs", "stripes"] and len(data) == 3
    assert sorted(first) == sorted(second) and first != second  # shuffled behind the cache
    [again] = [module_of(text, tmp_path, a=1000).a(str(photos))]
    assert np.concatenate([labels for _, labels in again]).tolist() == first  # by the script's seed


def test_arrays_are_augmented_anew_in_each_epoch_and_never_end_where_steps_are_counted(tmp_path: Path) -> None:
    text = (
        f"{FLOW}a = ImageDataGenerator(rotation_range=30, validation_split=0.2).flow(x, y, batch_size=4, "
        "subset='training', shuffle=False)\nmodel.fit(a, steps_per_epoch=2)\n"
        "b = ImageDataGenerator().flow(x, batch_size=4, shuffle=False)\n"
    )
    module = module_of(text, tmp_path)
    x, y = np.random.default_rng(0).random((10, 8, 8, 3)).astype("float32"), np.arange(10)
    images, labels = zip(
        *((images.numpy(), labels.numpy()) for images, labels in module.a(x, y).repeat().take(4)), strict=True
    )
    [loader, _], _ = loaders_of(Script(text))
    assert "model.fit(a.repeat(), steps_per_epoch=2)" in script_text(Script(text), [loader], "data")
    assert module_of(text.replace("model.fit", "print(a.n)\nmodel.fit"), tmp_path).a(x, y).n == 8
    assert np.concatenate(labels).tolist() == [2, 3, 4, 5, 6, 7, 8, 9] * 2
    assert np.abs(images[0] - images[2]).mean() > 0.01
    assert np.array_equal(np.concatenate([batch.numpy() for batch in module.b(x)]), x)


def test_a_function_of_ones_own_is_called_for_each_image(photos: Path, tmp_path: Path) -> None:
    call = f"flow_from_directory({str(photos)!r}, (8, 8), batch_size=size, class_mode='binary', shuffle=False)"
    text = f"{FLOW}a = ImageDataGenerator(preprocessing_function=mine).{call}\n"
    shapes = []

    def mine(image: np.ndarray) -> np.ndarray:
        shapes.append(image.shape)
        return (image * 0 + 5).astype(np.float64)  # Keras takes any numbers

    images, _ = next(iter(module_of(text, tmp_path).a(str(photos), 4, mine)))
    assert images.shape == (4, 8, 8, 3) and float(tf.reduce_mean(images)) == 5 and set(shapes) == {(8, 8, 3)}


def test_what_a_script_sets_before_it_imports_keras_stays_before_the_new_import(tmp_path: Path) -> None:
    text = (
        "import os\nos.environ['KERAS_BACKEND'] = 'jax'\n"
        f"import keras\n{FLOW}train_data = ImageDataGenerator().flow_from_directory(folder)\n"
    )
    (tmp_path / "train.py").write_text(text)
    assert main(["migrate", str(tmp_path / "train.py"), "--no-compare"]) == 0
    script = Script(text)
    loaders, _ = loaders_of(script)
    assert script_text(script, loaders, "other").splitlines()[1:5] == [
        "os.environ['KERAS_BACKEND'] = 'jax'",
        "import keras",
        FLOW.rstrip(),
        "import other",
    ]


def test_the_module_has_no_name_of_the_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "train.py").write_text(f"{FLOW}train_data = ImageDataGenerator().flow_from_directory(folder)\n")
    assert main(["migrate", str(tmp_path / "train.py"), "--no-compare"]) == 0
    assert "flow_from_directory -> train_data2.train_data." in capsys.readouterr().out


SCRIPT = """#!/usr/bin/env python
'''Trains — with a dash that is two bytes more.'''
from __future__ import annotations
import sys
import keras, tensorflow as tf
from tensorflow.keras.preprocessing.image import ImageDataGenerator

keras.utils.set_random_seed(1)
é = "photos"; SIZE = (16, 16)
plain = ImageDataGenerator(rescale=1./255)
unused = ImageDataGenerator(
    rescale=1./255,
)
train = plain.flow_from_directory(é, target_size=SIZE,
                                  class_mode="binary", batch_size=8)
test = ImageDataGenerator(rescale=1./255).flow_from_directory(é, SIZE, class_mode="binary", shuffle=False)
model = keras.Sequential([keras.Input((16, 16, 3)), keras.layers.Flatten(), keras.layers.Dense(1, "sigmoid")])
model.compile("sgd", "binary_crossentropy")
model.fit(train, steps_per_epoch=train.samples // 8, epochs=2, verbose=0)
print(train.class_indices, train.n, test.classes[:3], len(test), round(model.evaluate(test, verbose=0), 1))
"""


@pytest.fixture(scope="module")
def migrated(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    folder = tmp_path_factory.mktemp("migrated")
    (folder / "photos").symlink_to(photos)
    (folder / "train.py").write_text(SCRIPT, encoding="utf-8")
    return folder, run_python(folder, "-m", "unstall", "migrate", "train.py", "--write", "fix.diff")


def test_the_command_says_what_it_did_and_leaves_the_script_alone(migrated) -> None:
    folder, done = migrated
    assert done.returncode == 0, done.stderr
    assert (folder / "train.py").read_text(encoding="utf-8") == SCRIPT
    assert "MIGRATED       train.py:14 flow_from_directory -> train_data.train. 16x16." in done.stdout
    assert done.stdout.count("\nSAME ") == 2 and done.stdout.count("40 files; 40 of 40 images are alike") == 2
    assert done.stdout.rstrip().endswith("NEXT           patch -p1 < fix.diff")
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert sorted(path.name for path in folder.iterdir()) == ["fix.diff", "photos", "train.py"]


def test_the_patched_script_trains_and_prints_what_it_printed(migrated) -> None:
    folder, _ = migrated
    with contextlib.chdir(folder):
        before, code = run_here(folder / "train.py")
    subprocess.run(["patch", "-p1", "-s", "-i", "fix.diff"], cwd=folder, check=True, timeout=60)
    try:
        text = (folder / "train.py").read_text(encoding="utf-8")
        assert "train = train_data.train(é)\n" in text and "test = train_data.test(é)\n" in text
        assert "plain = " not in text and "unused = ImageDataGenerator(" in text
        after = run_python(folder, "train.py")
    finally:
        subprocess.run(["patch", "-p1", "-s", "-R", "-i", "fix.diff"], cwd=folder, check=True, timeout=60)
    assert (code, after.returncode) == (0, 0), after.stderr[-2000:]
    lines = [printed.splitlines()[-1] for printed in (before, after.stdout)]
    assert (
        lines[0].startswith("{'discs': 0, 'stripes': 1} 40 [0 0 0] 2 ") and lines[0].split()[:9] == lines[1].split()[:9]
    )


def test_a_module_of_that_name_is_not_overwritten(migrated, monkeypatch: Any, capsys: Any) -> None:
    folder, _ = migrated
    monkeypatch.chdir(folder)
    (folder / "train_data.py").write_text("mine")
    try:
        assert main(["migrate", "train.py", "--no-compare"]) == 0
    finally:
        (folder / "train_data.py").unlink()
    printed = capsys.readouterr().out
    assert "train_data2.train" in printed and "SAME" not in printed


BAD = {
    "no such file": (["nowhere.py"], "nowhere.py: No such file or directory."),
    "no Python": (["bad.py"], "bad.py, line 1: this is no Python that can be read"),
    "nothing in it": (["empty.py"], "empty.py has no ImageDataGenerator"),
    "a diff that is there": (["flow.py", "--write", "bad.py"], "the file exists, and is not overwritten"),
    "a place that is none": (["flow.py", "--no-compare", "--write", "nowhere/fix.diff"], "cannot be written"),
    "bytes": (["bytes.py"], "bytes.py: this is no Python that can be read"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_line(name: str, tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    (tmp_path / "bad.py").write_text("def (:\n")
    (tmp_path / "empty.py").write_text("print(1)\n")
    (tmp_path / "flow.py").write_text(f"{FLOW}a = ImageDataGenerator().flow_from_directory('x')\n")
    (tmp_path / "bytes.py").write_bytes(b"\xff\xfe\x00")
    monkeypatch.chdir(tmp_path)
    before = state(tmp_path)
    words, message = BAD[name]
    assert main(["migrate", *words]) == (3 if name == "a place that is none" else 2)
    printed = capsys.readouterr()
    assert message in printed.err and printed.err.count("\n") == 1
    assert state(tmp_path) == before


def test_a_folder_that_keras_refuses_is_told_and_the_rest_is_written(
    tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    (tmp_path / "flow.py").write_text(f"{FLOW}a = ImageDataGenerator().flow_from_directory('no/where')\n")
    monkeypatch.chdir(tmp_path)
    assert main(["migrate", "flow.py", "--write", "fix.diff"]) == 0
    assert "NOT COMPARED   no/where: " in capsys.readouterr().out
    assert "def a(directory):" in (tmp_path / "fix.diff").read_text()


def test_a_folder_that_cannot_be_read_is_told_and_no_memory_is_blamed(
    tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    (tmp_path / "data.py").write_text("import keras\na = keras.utils.image_dataset_from_directory('no/where')\n")
    monkeypatch.chdir(tmp_path)
    assert main(["migrate", "data.py"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "STAYS data.py:2 image_dataset_from_directory: no/where: " in printed
    assert "tf.data already" in printed and "memory" not in printed


def test_what_to_type_next_may_be_pasted_into_a_shell(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    (tmp_path / "my train.py").write_text(f"{FLOW}a = ImageDataGenerator().flow_from_directory('x')\n")
    (tmp_path / "my loop.py").write_text("print(1)\n")
    monkeypatch.chdir(tmp_path)
    assert main(["migrate", "my train.py", "--no-compare"]) == 0
    assert main(["migrate", "my train.py", "--no-compare", "--write", "my fix.diff"]) == 0
    assert main(["migrate", "my loop.py"]) == 2
    printed = capsys.readouterr()
    assert "unstall migrate 'my train.py' --write fix.diff\n" in printed.out
    assert "patch -p1 < 'my fix.diff'\n" in printed.out
    assert printed.err.endswith("unstall profile 'my loop.py'\n")


def test_names_in_a_script_become_no_code(tmp_path: Path) -> None:
    hostile = 'x\');import os;os.abort()#\n"""'
    call = f"flow_from_directory({hostile!r}, (8, 8), classes=[{hostile!r}])"
    text = f"{FLOW}a = ImageDataGenerator(rescale=1 / 255).{call}\n"
    loaders, _ = loaders_of(Script(text))
    written = module_text("train.py", loaders, {})
    compile(written, "written", "exec")
    assert repr([hostile]) in written
    compile(script_text(Script(text), loaders, "train_data"), "edited", "exec")


def test_a_variable_may_have_the_name_of_a_helper(photos: Path, tmp_path: Path) -> None:
    text = f"{FLOW}tf = ImageDataGenerator().flow_from_directory('x', (8, 8))\nmodel.fit(tf)\n"
    [loader], _ = loaders_of(Script(text))
    assert loader.name == "tf_2"
    assert len(module_of(text, tmp_path).tf_2(str(photos))) == 2


def test_the_script_of_a_hostile_name_becomes_no_code(tmp_path: Path) -> None:
    loaders, _ = loaders_of(Script(f"{FLOW}a = ImageDataGenerator().flow_from_directory('x')\n"))
    name = 'x"""\nimport os\nos.abort()\n"""\\.py'
    written = module_text(name, loaders, {})
    assert "a script" in written and "abort" not in written


KINDS_OF_FILES = {
    "lines that end as on Windows": (b"", b"\r\n", "train.py"),
    "a mark in front of UTF-8": ("\ufeff".encode(), b"\n", "train.py"),
    "a name with spaces": (b"", b"\n", "my train.py"),
    "a form feed in a line": (b"'a\x0cb'\n", b"\n", "train.py"),
}


@pytest.mark.parametrize("name", KINDS_OF_FILES)
def test_the_diff_applies_to_every_kind_of_file(name: str, tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    before, line_end, file = KINDS_OF_FILES[name]
    lines = [
        b"from keras.preprocessing.image import ImageDataGenerator",
        b"g = ImageDataGenerator(rescale=1 / 255)",
        b"a = g.flow_from_directory('x')",
        b"print(len(a))",
    ]
    (tmp_path / file).write_bytes(before + line_end.join(lines))
    monkeypatch.chdir(tmp_path)
    assert main(["migrate", file, "--no-compare", "--write", "fix.diff"]) == 0
    subprocess.run(["patch", "-p1", "-s", "-i", "fix.diff"], cwd=tmp_path, check=True, timeout=60)
    module = "images_data" if " " in file else "train_data"
    changed = [lines[0], f"import {module}".encode(), f"a = {module}.a('x')".encode(), lines[3]]
    assert (tmp_path / file).read_bytes() == before + line_end.join(changed)
