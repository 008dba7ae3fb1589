"""Exported scripts: they import nothing of ours, and give the batches of the pipeline that they were written from.

Long because every axis of the config has its case, and all share the photos and scripts that are made here.
"""

import ast
import contextlib
import dataclasses
import functools
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace

import keras
import numpy as np
import psutil
import pytest
import tensorflow as tf
from PIL import Image

import unstall.pipeline.export as exporting
from tests.checks import OURS
from unstall.needs import DISTRIBUTIONS
from unstall.pipeline import VARIANTS, Augmentation, PipelineConfig, build, from_arrays, from_folder
from unstall.pipeline.augmentation import FILL_MODES
from unstall.pipeline.commands import materialize as materialize_command
from unstall.pipeline.config import CHOICES
from unstall.pipeline.cost_model import candidates, kind_of
from unstall.pipeline.errors import ConfigError, ExportError
from unstall.pipeline.export import export
from unstall.pipeline.prepared.copies import prepared_copy
from unstall.pipeline.prepared.write import materialize
from unstall.pipeline.stages import batching, order
from unstall.pipeline.stages import epochs as planned
from unstall.pipeline.stages.augment import keras_layers
from unstall.profiles.stages.tf_graph import functions_of, upstream

CROP = Augmentation(shear_degrees=0.0, zoom_range=0.0, crop_area=(0.08, 1.0))
BASE = PipelineConfig(batch_size=5, workers=2, prefetch=2, autotune=False)
COMPOSED = dataclasses.replace(
    BASE, decode="scaled", resample="composed", augment_with="opencv", augment_at="batch", shuffle_buffer=100
)
LAYERS = dataclasses.replace(BASE, augment_with="keras_layers", augment_at="device")
# The values of every field that a script can have. A field that is missing here fails
# `test_every_value_of_every_field_is_compared`.
VALUES = {
    "loader": ("tf_data",),
    "batch_size": (5, 2, 64),
    "image_size": ((64, 64), (40, 72)),
    "interpolation": CHOICES["interpolation"],
    "output_dtype": CHOICES["output_dtype"],
    "augmentation": (None, CROP),  # and AUGMENTATION_VALUES
    "augment_with": ("tf_ops", "opencv", "albumentations", "keras_layers"),
    "augment_at": CHOICES["augment_at"],
    "decode": CHOICES["decode"],
    "resample": CHOICES["resample"],
    "storage": CHOICES["storage"],
    "location": ("disk",),
    "cache": CHOICES["cache"],
    "workers": (2, 1, "auto"),
    "use_multiprocessing": (False,),
    "max_queue_size": (10, 3),
    "prefetch": (2, 0, "auto"),
    "prefetch_to_device": (False, True),
    "autotune": (False, True),
    "autotune_algorithm": CHOICES["autotune_algorithm"],
    "one_iterator": (False, True),
    "rewrites": (True, False),
    "service": ("none",),
    "served": CHOICES["served"],  # nothing without a service
    "shuffle_buffer": (512, 8, 0),
    "deterministic": (True, False),
    "seed": (0, 7),
}
AUGMENTATION_VALUES = {
    "shear_degrees": (0.2, 0.0, 20.0),
    "zoom_range": (0.2, 0.0, 0.5),
    "flip_probability": (0.5, 0.0, 0.3, 1.0),
    "fill_mode": FILL_MODES,
    "crop_area": ((1.0, 1.0), (0.3, 0.8)),
    "crop_aspect": ((3 / 4, 4 / 3), (0.5, 2.5)),
}
# What no script can have: the config or the export refuses it.
REFUSED = {
    "loader": ("image_data_generator", "py_dataset", "python_batches", "image_dataset_from_directory"),
    "augment_with": ("keras_generator",),
    "location": ("ram",),
    "use_multiprocessing": (True,),
    "service": ("local:2",),
}
# Each is changed in one field at a time, and in each field of its augmentation. The first is changed in every field and
# has the tuner on, which "auto" needs; the others are changed in the fields that their part of the template reads.
BASES = {
    "tf ops": (dataclasses.replace(BASE, autotune=True), tuple(VALUES)),
    "composed": (
        COMPOSED,
        ("image_size", "output_dtype", "decode", "storage", "shuffle_buffer", "seed"),
    ),
    "keras layers": (LAYERS, ("augment_at", "seed")),
}
COMBINED = {
    "AUTOTUNE": dataclasses.replace(VARIANTS["tf-data-autotune"], batch_size=5),
    "not in order": dataclasses.replace(BASE, workers=1, deterministic=False),
    "opencv by batch": dataclasses.replace(BASE, augment_with="opencv", augment_at="batch"),
    "layers by batch, no flip": dataclasses.replace(
        LAYERS, augment_at="batch", augmentation=Augmentation(flip_probability=0.0)
    ),
    "layers by batch, uint8": dataclasses.replace(LAYERS, augment_at="batch", output_dtype="uint8"),
    "memory cache, in order": dataclasses.replace(BASE, cache="memory", shuffle_buffer=0),
    "memory cache, no draw": dataclasses.replace(BASE, cache="memory", shuffle_buffer=8, augmentation=None),
    "composed full, in order": dataclasses.replace(COMPOSED, decode="full", shuffle_buffer=0),
    "crop with a zoom": dataclasses.replace(COMPOSED, augmentation=dataclasses.replace(CROP, zoom_range=0.1)),
    "raw": dataclasses.replace(COMPOSED, storage="raw", decode="full"),
    "raw, some batches a call": dataclasses.replace(COMPOSED, storage="raw", decode="full", batch_size=2),
    "raw crop uint8": dataclasses.replace(COMPOSED, storage="raw", augmentation=CROP, output_dtype="uint8"),
    "raw, by batch": dataclasses.replace(BASE, storage="raw", augment_at="batch"),
    "raw, no draw": dataclasses.replace(BASE, storage="raw", augmentation=None),
    "raw, memory cache": dataclasses.replace(BASE, storage="raw", cache="memory", shuffle_buffer=8),
    "raw, memory cache, by batch": dataclasses.replace(
        BASE, storage="raw", cache="memory", shuffle_buffer=8, augment_at="batch"
    ),
    "raw, memory cache, no draw": dataclasses.replace(
        BASE, storage="raw", cache="memory", shuffle_buffer=8, augmentation=None
    ),
    "raw, memory cache, layers": dataclasses.replace(
        LAYERS, augment_at="batch", storage="raw", cache="memory", shuffle_buffer=8
    ),
    "raw, disk cache": dataclasses.replace(BASE, storage="raw", cache="disk"),
    "records, memory cache": dataclasses.replace(BASE, storage="records", cache="memory", shuffle_buffer=8),
    "records, no draw": dataclasses.replace(BASE, storage="records", augmentation=None),
    "records composed, in order": dataclasses.replace(COMPOSED, storage="records", shuffle_buffer=0),
}


def changed_one_at_a_time() -> dict[str, PipelineConfig]:
    """The bases, and each with one field changed; left out is what a config cannot be."""
    configs = {base_name: base for base_name, (base, _) in BASES.items()}
    for base_name, (base, fields) in BASES.items():
        changes = [(field, value) for field in fields for value in VALUES[field]]
        changed = {
            f"{base_name}, {field}={value}": {field: value} for field, value in changes if field != "augmentation"
        }
        changed |= {f"{base_name}, no draw": {"augmentation": None}, f"{base_name}, crop": {"augmentation": CROP}}
        for field, values in AUGMENTATION_VALUES.items():
            for value in values:
                usual = CROP if field == "crop_aspect" else Augmentation()  # the aspect matters with a crop only
                augmentation = dataclasses.replace(usual, **{field: value})
                changed[f"{base_name}, {field}={value}"] = {"augmentation": augmentation}
        for name, change in changed.items():
            with contextlib.suppress(ConfigError):
                config = dataclasses.replace(base, **change)
                if config != base:
                    configs[name] = config
    return configs


CONFIGS = changed_one_at_a_time() | COMBINED


@pytest.fixture(scope="module")
def few(photos, tmp_path_factory):
    """Twelve small photographs, six a class: enough to tell orders and draws apart, and to be decoded at a half."""
    folder = tmp_path_factory.mktemp("few")
    for name in sorted(path.name for path in photos.iterdir()):
        (folder / name).mkdir()
        for path in sorted((photos / name).iterdir())[:6]:
            photo = Image.open(path)
            photo.thumbnail((200, 200))
            photo.save(folder / name / path.name)
    return from_folder(folder)


@pytest.fixture(scope="module", autouse=True)
def several_batches_a_call() -> Iterator[None]:
    """Lets a call of Python make half of the few images here: an eighth of them is not a batch."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batching, "_AT_ONCE_RATIO", 1)
        patch.setattr(batching, "_AT_ONCE_OF_A_PART_RATIO", 1)
        yield


written = functools.cache(export)


def test_a_script_makes_several_batches_by_a_call_as_its_pipeline_does(few):
    config = CONFIGS["raw, some batches a call"]
    assert (few.images, config.batch_size, config.workers) == (12, 2, 2)
    assert "CALL_SIZE = 3 * BATCH_SIZE" in written(config, few)


def script_of(config, source) -> dict:
    namespace = {"__name__": "exported"}
    exec(compile(written(config, source), "exported.py", "exec"), namespace)
    return namespace


def epochs(dataset, count: int = 2) -> list[list[tuple[np.ndarray, np.ndarray]]]:
    return [list(dataset.as_numpy_iterator()) for _ in range(count)]


def assert_same(one, other) -> None:
    for batches, others in zip(one, other, strict=True):
        for (images, labels), (other_images, other_labels) in zip(batches, others, strict=True):
            assert images.dtype == other_images.dtype and labels.dtype == other_labels.dtype
            np.testing.assert_array_equal(labels, other_labels)
            np.testing.assert_array_equal(images, other_images)


def steps_of(dataset) -> list[tuple]:
    """What tf.data does, last step first: the kinds of its steps with their buffers, workers and options.

    A pipeline makes the plan of an epoch by `scan`, in parts where it is long; a script makes it at once, by `map`.
    """
    options = dataset.options()
    steps = [
        (
            options.autotune.enabled,
            options.autotune.autotune_algorithm,
            options.deterministic,
            options.experimental_optimization.apply_default_optimizations,
        )
    ]
    waiting = [dataset]
    while waiting:
        step = waiting.pop()
        numbers = ("_buffer_size", "_num_parallel_calls", "_batch_size", "_cycle_length", "_seed", "_deterministic")
        values = {name: getattr(step, name, None) for name in numbers}
        kind = type(step).__name__.replace("Scan", "Map")
        steps.append((kind, {name: getattr(v, "numpy", lambda v=v: v)() for name, v in values.items()}))
        waiting += step._inputs()
    return steps


def described(layers) -> list[tuple]:
    """Layers as class and config, without the name, which Keras counts up."""
    return [(type(layer), layer.get_config() | {"name": None}) for layer in layers]


@pytest.mark.parametrize(
    "config",
    [
        dataclasses.replace(BASE, augmentation=None),
        dataclasses.replace(BASE, augmentation=None, storage="raw"),
        dataclasses.replace(BASE, augmentation=None, cache="memory"),
        dataclasses.replace(BASE, storage="raw"),
        COMPOSED,
        dataclasses.replace(COMPOSED, storage="records"),
    ],
)
def test_a_script_orders_a_long_epoch_as_its_pipeline_does(few, config, monkeypatch):
    for module in (exporting, order, planned):
        monkeypatch.setattr(module, "LONG_EPOCH", 5)
    monkeypatch.setattr(order, "PLANNED_AT_ONCE", 2)
    script = {"__name__": "exported"}
    exec(compile(export(config, few), "exported.py", "exec"), script)
    with build(config, few) as loader:
        assert_same(epochs(script["make_dataset"]()), epochs(loader.data))


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"decode": "full", "storage": "raw"},
        {"resample": "separate", "cache": "memory"},
        {"resample": "separate", "augment_at": "element"},
        {"resample": "separate", "augmentation": None, "prefetch_to_device": True},
    ],
)
def test_a_script_trains_with_one_iterator_on_the_same_batches(few, changed, monkeypatch):
    monkeypatch.setattr(batching, "_AT_ONCE_RATIO", 0.7)  # of three batches two a call, where calls make several
    monkeypatch.setattr(batching, "_AT_ONCE_OF_A_PART_RATIO", 1.0)
    config = dataclasses.replace(COMPOSED, one_iterator=True, **changed)
    script = script_of(config, few)
    expected = [batch for batches in epochs(script["make_dataset"]()) for batch in batches]
    arguments = script["fit_arguments"]()
    assert arguments["steps_per_epoch"] == len(expected) // 2
    steps = steps_of(arguments["x"])
    with build(config, few, device="/GPU:0") as loader:
        assert steps == steps_of(loader.endless)
    if config.augmentation is not None and config.augment_at == "batch":
        # What makes or augments whole batches goes on over the end of an epoch.
        kinds = [kind for kind, _ in steps[1:]]
        assert "_ParallelMapDataset" in kinds[: kinds.index("_RepeatDataset")]
    assert_same([list(arguments["x"].take(len(expected)).as_numpy_iterator())], [expected])


def test_a_script_trains_on_a_folder_or_a_part_with_or_without_one_iterator(few):
    script = script_of(dataclasses.replace(COMPOSED, one_iterator=True), few)
    whole, half = (script["fit_arguments"](str(few.root), part=(0.0, share)) for share in (1.0, 0.5))
    assert (whole["steps_per_epoch"], half["steps_per_epoch"]) == (3, 2)
    plain = script_of(COMPOSED, few)["fit_arguments"](str(few.root))
    assert list(plain) == ["x"]
    assert_same([list(plain["x"].as_numpy_iterator())], [list(whole["x"].take(3).as_numpy_iterator())])


def layers_in(script: dict) -> list:
    return script["augmentation_layers"]() if "augmentation_layers" in script else []


# Draws that change nothing: a config that resamples once needs some.
NO_CHANGE = Augmentation(shear_degrees=0.0, zoom_range=0.0, flip_probability=0.0)


# What changes no image of a pipeline that draws nothing: many configs have the same plain images.
IN_NUMBERS = ("batch_size", "workers", "prefetch", "prefetch_to_device", "max_queue_size", "one_iterator", "seed")


@functools.cache
def plain_images(config, source) -> tuple[np.ndarray, np.ndarray]:
    with build(config, source) as loader:
        return concatenated(epochs(loader.data, 1)[0])


def concatenated(batches) -> tuple[np.ndarray, np.ndarray]:
    images, labels = zip(*batches, strict=True)
    return np.concatenate(images), np.concatenate(labels)


def assert_plain(batches, config, source) -> None:
    """The batches are those of a pipeline that neither shuffles nor augments, as validation needs them."""
    draws = dataclasses.replace(NO_CHANGE, fill_mode=config.augmentation.fill_mode) if config.composed else None
    plain = dataclasses.replace(config, augmentation=draws, shuffle_buffer=0, cache="none", deterministic=True)
    plain = dataclasses.replace(plain, **{name: getattr(BASE, name) for name in IN_NUMBERS})
    given, wanted = concatenated(batches), plain_images(plain, source)
    assert [each.dtype for each in given] == [each.dtype for each in wanted]
    if config.storage == "records" and not config.composed:  # read in the order in which the copy has them
        given, wanted = map(by_brightness, (given, wanted))
    np.testing.assert_array_equal(given[1], wanted[1])
    # Boxes of whole pixels are resized, which rounds in another way than a map.
    levels = 4 / (255 if config.output_dtype == "float32" else 1)
    crops = config.composed and config.augmentation.crops
    np.testing.assert_allclose(given[0], wanted[0], rtol=0, atol=levels if crops else 0)


def by_brightness(images_and_labels):
    images, labels = images_and_labels
    order = np.argsort(images.mean(axis=(1, 2, 3), dtype=np.float64))
    return images[order], labels[order]


# A script that differs from another in one number. Another value of the same field is compared in every run.
OTHER_NUMBERS = (
    *("batch_size=64", "max_queue_size=3", "shuffle_buffer=8", "shear_degrees=20.0", "zoom_range=0.5"),
    *("flip_probability=0.3", "crop_area=(0.3, 0.8)", "crop_aspect=(0.75, 1.3333333333333333)"),
)
# Both parts are compared in other cases, and no line of the template is for the two together.
OF_TWO = ("layers by batch, uint8", "crop with a zoom", "raw crop uint8")


def case(name):
    """Most changes of the second and third base run with `-m claims` alone: the first base has them all."""
    is_full = name.startswith(("composed, ", "keras layers, ")) and not name.endswith(("=0", "=0.0", "crop", "no draw"))
    full = (is_full and name not in COMBINED) or name.endswith(OTHER_NUMBERS) or name in OF_TWO
    return pytest.param(name, marks=pytest.mark.claims if full else ())


@pytest.mark.long
@pytest.mark.parametrize("name", [case(name) for name in CONFIGS])
def test_a_script_gives_the_same_batches_epoch_by_epoch(name, few):
    config = CONFIGS[name]
    script = script_of(config, few)
    dataset = script["make_dataset"]()
    with build(config, few, device="/GPU:0") as loader:  # without a GPU a buffer on the device is one on the host
        # A script with one iterator repeats even a single epoch, once.
        assert [step for step in steps_of(dataset) if step[0] != "_RepeatDataset"] == steps_of(loader.data)
        if config.one_iterator:
            assert steps_of(script["fit_arguments"]()["x"]) == steps_of(loader.endless)
        expected = epochs(loader.data)
        device_layers = [layer for layer in loader.device_layers if not isinstance(layer, keras.layers.Rescaling)]
        assert int(dataset.cardinality()) == int(loader.data.cardinality())
    by_layers = config.augmentation is not None and config.augment_with == "keras_layers"
    layers = keras_layers(config.augmentation, seed=config.seed) if by_layers else []
    assert described(layers_in(script)) == described(layers)
    assert_plain(epochs(script["make_dataset"](training=False), 1)[0], config, few)
    if config.augment_at == "device":
        assert described(device_layers) == described(layers)
    if not config.deterministic and config.workers != 1:
        return  # the order is that in which workers finish: two runs differ, and only the steps can be compared
    assert_same(epochs(dataset), expected)
    if config.augmentation is not None and config.augment_at != "device":
        assert not np.array_equal(expected[0][0][0], expected[1][0][0])


def test_every_value_of_every_field_is_compared():
    assert VALUES.keys() == PipelineConfig.__dataclass_fields__.keys()
    assert AUGMENTATION_VALUES.keys() == Augmentation.__dataclass_fields__.keys()
    for field, choices in CHOICES.items():
        assert {*VALUES[field], *REFUSED.get(field, ())} == {*choices}
    for field, values in VALUES.items():
        assert {*values} <= {getattr(config, field) for config in CONFIGS.values()}
    augmentations = {config.augmentation for config in CONFIGS.values() if config.augmentation is not None}
    for field, values in AUGMENTATION_VALUES.items():
        assert {*values} <= {getattr(augmentation, field) for augmentation in augmentations}


@pytest.mark.parametrize(("field", "value"), [(field, value) for field, values in REFUSED.items() for value in values])
def test_what_no_script_can_have_is_refused(field, value, few):
    with pytest.raises((ConfigError, ExportError), match=field if field != "location" else "RAM disk"):
        export(dataclasses.replace(BASE, **{field: value}), few)


# Libraries that only some scripts import. Each set of them that a script can have is a case below.
OPTIONAL = {"cv2", "PIL", "albumentations", "keras"}
SETS = ((), ("cv2",), ("PIL", "cv2"), ("albumentations", "cv2"), ("keras",))
# Imports neither our packages nor those that its first argument names, and runs the scripts that follow.
_RUN = """
import runpy, sys

class Blocked:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in blocked:
            raise ModuleNotFoundError(f"{name} is blocked")

blocked = sys.argv[1].split(",")
sys.meta_path.insert(0, Blocked())
for script in sys.argv[2:]:
    runpy.run_path(script, run_name="__main__")
"""


def imported_by(text: str) -> set[str]:
    nodes = list(ast.walk(ast.parse(text)))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom)]
    return {name.partition(".")[0] for name in names}


def test_scripts_import_what_they_use_and_nothing_of_ours(few, tmp_path):
    for number, config in enumerate(CONFIGS.values()):
        text = written(config, few)
        (tmp_path / f"{number}.py").write_text(text)
        imported = imported_by(text)
        assert not imported & {*OURS, "unstall"} and "tensorflow" in imported
        assert tuple(sorted(imported & OPTIONAL)) in SETS
        needed = {DISTRIBUTIONS[name] for name in imported & OPTIONAL - {"keras"}}  # TensorFlow brings Keras
        said = text.splitlines()[2]
        if needed:
            assert {*said.removeprefix("It needs TensorFlow, and what this installs: pip install ").split()} == needed
        else:
            assert said == "It needs nothing but TensorFlow."
    checked = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "E9,F", "-q", str(tmp_path)],
        capture_output=True,
        text=True,
    )
    assert (checked.stdout, checked.returncode) == ("", 0)


# Of the sets with OpenCV, one runs always; that of Keras has the same lines as the one without any library, and layers.
@pytest.mark.long
@pytest.mark.parametrize(
    "libraries",
    [pytest.param(libraries, marks=() if libraries in ((), ("cv2",)) else pytest.mark.claims) for libraries in SETS],
    ids=lambda libraries: " and ".join(libraries) or "none",
)
def test_a_script_runs_without_our_packages_and_without_libraries_it_does_not_use(libraries, few, tmp_path):
    """Of the scripts that import these, as many run as have a line that no earlier script has, whatever its numbers."""
    configs, lines = [], set()
    for config in CONFIGS.values():
        own = {*re.sub(r"FOLDER = .*|\d", "", written(config, few)).splitlines()}
        if imported_by(written(config, few)) & OPTIONAL == {*libraries} and own - lines:
            configs.append(config)
            lines |= own
    scripts = [tmp_path / f"{number}.py" for number in range(len(configs))]
    for script, config in zip(scripts, configs, strict=True):
        script.write_text(written(config, few))
    # Keras imports Pillow if it is there, TensorFlow imports Keras, and albumentations what it likes.
    blocked = {*OURS, "unstall", "cv2", "PIL", "albumentations"} - {*libraries}
    if "albumentations" in libraries:
        blocked.remove("PIL")
    done = subprocess.run(
        [sys.executable, "-c", _RUN, ",".join(sorted(blocked)), *map(str, scripts)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    expected = [
        f"({min(config.batch_size, few.images)}, {config.image_size[0]}, {config.image_size[1]}, 3) "
        f"<dtype: '{config.output_dtype}'> ["
        for config in configs
    ]
    printed = done.stdout.splitlines()
    assert len(printed) == len(expected) > 0
    assert all(line.startswith(start) for line, start in zip(printed, expected, strict=True))


@pytest.mark.parametrize("name", ["composed", "records, no draw", "raw", "memory cache, no draw"])
def test_a_script_reads_another_folder_for_validation(name, few, photos, tmp_path):
    config = CONFIGS[name]
    for folder in photos.iterdir():
        (tmp_path / "test" / folder.name).mkdir(parents=True)
        for path in sorted(folder.iterdir())[6:10]:
            shutil.copy(path, tmp_path / "test" / folder.name)
    other = from_folder(tmp_path / "test")
    folder = tmp_path / "test"
    if config.storage != "files":
        folder = tmp_path / "copy"
        materialize(other, folder, config.storage, config)
    dataset = script_of(config, few)["make_dataset"](str(folder), training=False)
    first, second = epochs(dataset)
    assert_same([first], [second])
    assert_plain(first, config, other)


@pytest.mark.parametrize("name", ["composed", "memory cache, no draw"])
def test_a_script_divides_one_folder_as_keras_does(name, few):
    """The same images as of `flow_from_directory` with `validation_split=0.25`: the first of each class to validate."""
    script = script_of(CONFIGS[name], few)
    generator = tf.keras.preprocessing.image.ImageDataGenerator(validation_split=0.25)
    for subset, part in (("training", (0.25, 1.0)), ("validation", (0.0, 0.25))):
        flow = generator.flow_from_directory(str(few.root), (8, 8), subset=subset, shuffle=False)
        paths, labels = script["list_images"](str(few.root), part)
        listed = paths if isinstance(paths, list) else [path.decode() for path in paths.numpy()]
        assert listed == flow.filepaths and labels.numpy().tolist() == flow.classes.tolist()
        served = script["make_dataset"](training=subset == "training", part=part)
        assert sum(len(labels) for _, labels in served) == flow.samples > 0


@pytest.mark.long
def test_a_script_has_paths_that_hold_in_any_folder_and_the_command_of_a_copy(few, monkeypatch, tmp_path):
    monkeypatch.chdir(few.root.parent)
    raw = export(dataclasses.replace(BASE, storage="raw"), few, few.root.name)
    (tmp_path / "files.py").write_text(export(BASE, few, few.root.name))
    (tmp_path / "raw.py").write_text(raw)
    (tmp_path / "elsewhere").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", _RUN, "unstall", "../files.py", "../raw.py"],
        cwd=tmp_path / "elsewhere",
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("(5, 64, 64, 3) <dtype: 'float32'> [") == 2
    command = re.search(r"unstall materialize (.*)", raw)[1].replace("COPY", str(tmp_path / "copy"))
    assert materialize_command.main(shlex.split(command)) == 0
    script = script_of(dataclasses.replace(BASE, storage="raw"), few)
    same = [list(script["make_dataset"](folder, training=False)) for folder in (script["FOLDER"], tmp_path / "copy")]
    for (images, labels), (others, other_labels) in zip(*same, strict=True):
        assert np.array_equal(images, others) and np.array_equal(labels, other_labels)


def test_the_libraries_that_are_blocked_cannot_be_imported(tmp_path):
    (tmp_path / "script.py").write_text("import cv2")
    command = [sys.executable, "-c", _RUN, "cv2", "script.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and "ModuleNotFoundError: cv2 is blocked" in done.stderr


def test_every_kind_of_the_tuner_can_be_written(few):
    kinds = {kind_of(one) for one in candidates(BASE, cores=2, accelerator=True, scales=True)}
    for kind in kinds:
        compile(written(kind, few), "exported.py", "exec")


@pytest.mark.parametrize(("name", "frozen"), [("composed", True), ("AUTOTUNE", False)])
def test_a_script_says_whether_it_is_frozen(name, frozen, photos):
    text = export(CONFIGS[name], from_folder(photos))
    first = "frozen: nothing in it waits" if frozen else "not frozen: tf.data's own tuner is on"
    assert text.startswith(f'"""An input pipeline as plain tf.data, {first} ')
    assert f"options.autotune.enabled = {not frozen}" in text


@pytest.fixture(scope="module")
def mixed(photos, tmp_path_factory):
    """Photographs in three formats, half of them in a folder below their class, and files that the scan leaves out."""
    folder = tmp_path_factory.mktemp("mixed")
    for name in sorted(path.name for path in photos.iterdir()):
        (folder / name / "more").mkdir(parents=True)
        for index, path in enumerate(sorted((photos / name).iterdir())[:6]):
            photo = Image.open(path)
            photo.thumbnail((200, 200))
            photo.save(
                folder / name / ("more" if index % 2 else "") / f"{path.stem}.{('jpg', 'png', 'bmp')[index % 3]}"
            )
        (folder / name / "notes 'quoted\".txt").write_text("no image")
    return from_folder(folder)


@pytest.mark.parametrize("storage", CHOICES["storage"])
@pytest.mark.parametrize("decode", CHOICES["decode"])
@pytest.mark.parametrize("base", [BASE, COMPOSED], ids=["tf ops", "composed"])
def test_a_script_reads_every_format_and_leaves_out_what_the_scan_did(base, decode, storage, mixed):
    assert mixed.formats == ("BMP", "JPEG", "PNG") and (mixed.images, len(mixed.skipped)) == (12, 2)
    config = dataclasses.replace(base, decode=decode, storage=storage)
    with build(config, mixed) as loader:
        assert_same(epochs(script_of(config, mixed)["make_dataset"]()), epochs(loader.data))


@pytest.mark.parametrize("storage", ["files", "raw"])
def test_a_script_says_on_top_what_its_batches_hold(storage, few):
    text = export(dataclasses.replace(BASE, storage=storage), few)
    top = " ".join(ast.get_docstring(ast.parse(text)).split())
    assert "float32 in [0, 1], so leave out a `Rescaling(1 / 255)` of your model; labels int32" in top
    assert "Images are sheared by up to 0.2 degrees, zoomed by up to 20%, mirrored in 50% of cases, anew" in top
    assert script_of(dataclasses.replace(BASE, storage=storage), few)["CLASSES"] == list(few.class_names)
    plain = export(dataclasses.replace(BASE, augmentation=None, output_dtype="uint8"), few)
    assert "No augmentation." in plain and "put `keras.layers.Rescaling(1 / 255)` in front" in plain


def test_paths_are_no_constants_of_a_function(tmp_path):
    """A function's constants are copied with its graph, several times for each iterator; what it is given is not."""
    for name in "ab":
        (tmp_path / name).mkdir()
        for index in range(70):  # TensorFlow makes a constant of up to 128 elements
            Image.new("RGB", (8, 8)).save(tmp_path / name / f"{index}.jpg")
    dataset = script_of(BASE, from_folder(tmp_path))["make_dataset"]()
    graphs = [wrapper.function.graph.as_graph_def() for node in upstream(dataset) for wrapper in functions_of(node)]
    assert len(graphs) > 2
    assert not any(b".jpg" in graph.SerializeToString() for graph in graphs)


@pytest.mark.parametrize("content", [b"no image", b""])
def test_a_file_that_opencv_cannot_decode_is_named(content, tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
        Image.new("RGB", (90, 70)).save(tmp_path / name / "1.jpg")
    script = script_of(COMPOSED, from_folder(tmp_path))
    dataset = script["make_dataset"]()
    (tmp_path / "b" / "1.jpg").write_bytes(content)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"b/1\.jpg' cannot be decoded by OpenCV"):
        epochs(dataset)


@pytest.mark.parametrize("storage", CHOICES["storage"])
def test_a_part_of_a_source_cannot_be_written(storage, few):
    config = dataclasses.replace(BASE, storage=storage)
    source = few if storage == "files" else prepared_copy(few, config)[0]
    export(config, source)
    with pytest.raises(ExportError, match="serve images that this source does not have"):
        export(config, source.take(4))


def test_a_folder_that_has_got_another_file_since_the_scan_cannot_be_written(tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
        Image.new("RGB", (90, 70)).save(tmp_path / name / "1.jpg")
    source = from_folder(tmp_path)
    export(BASE, source)
    Image.new("RGB", (90, 70)).save(tmp_path / "a" / "2.jpg")
    with pytest.raises(ExportError, match="files have come to the folder"):
        export(BASE, source)


@pytest.mark.parametrize("place", ["batch", "device"])
@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, ["RandomShear", "RandomZoom", "RandomFlip"]),
        ({"shear_degrees": 0.0}, ["RandomZoom", "RandomFlip"]),
        ({"zoom_range": 0.0}, ["RandomShear", "RandomFlip"]),
        ({"flip_probability": 0.0}, ["RandomShear", "RandomZoom"]),
        ({"shear_degrees": 0.0, "zoom_range": 0.0, "flip_probability": 0.0}, []),
    ],
)
def test_only_layers_that_draw_come_as_layers_for_the_model(place, values, expected, few):
    config = dataclasses.replace(LAYERS, augment_at=place, augmentation=Augmentation(**values), seed=7)
    layers = layers_in(script_of(config, few))
    assert [type(layer).__name__ for layer in layers] == expected
    assert described(layers) == described(keras_layers(config.augmentation, seed=7))


def test_a_script_with_nothing_to_draw_has_no_layers_and_needs_no_keras(few):
    nothing = Augmentation(shear_degrees=0.0, zoom_range=0.0, flip_probability=0.0)
    for place in ("batch", "device"):
        config = dataclasses.replace(LAYERS, augment_at=place, augmentation=nothing)
        script = script_of(config, few)
        assert "augmentation_layers" not in script and "keras" not in script
        with build(config, few) as loader:
            assert loader.device_layers == ()
            assert_same(epochs(script["make_dataset"]()), epochs(loader.data))


def test_a_buffer_on_the_device_is_written_as_one(photos):
    config = dataclasses.replace(BASE, prefetch_to_device=True)
    assert 'prefetch_to_device("/GPU:0", PREFETCH)' in export(config, from_folder(photos))
    assert "prefetch_to_device" not in export(BASE, from_folder(photos))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"loader": "py_dataset", "augment_with": "opencv", "autotune": True, "prefetch": 0}, "only loader='tf_data'"),
        ({"location": "ram"}, "a script may run on another machine"),
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


def test_a_folder_for_validation_is_read_with_its_own_files_and_refused_with_other_classes(few, photos, tmp_path):
    script = script_of(CONFIGS["composed"], few)
    for folder in photos.iterdir():
        (tmp_path / folder.name).mkdir()
        shutil.copy(next(folder.iterdir()), tmp_path / folder.name)
    (tmp_path / "discs" / ".DS_Store").write_bytes(b"no image")
    assert sum(len(labels) for _, labels in script["make_dataset"](str(tmp_path), training=False)) == 2
    (tmp_path / ".ipynb_checkpoints").mkdir()
    (tmp_path / ".ipynb_checkpoints" / "1-checkpoint.jpg").write_bytes(b"")
    (tmp_path / "Squares").mkdir()
    assert len(script["list_images"](str(tmp_path))[0]) == 2
    (tmp_path / "Squares" / "1.jpg").write_bytes(b"")
    with pytest.raises(ValueError, match="has a folder 'Squares', which is none of the classes discs, stripes"):
        script["make_dataset"](str(tmp_path), training=False)


def test_a_copy_of_other_classes_is_refused(few, tmp_path):
    config = CONFIGS["raw"]
    script = script_of(config, few)
    other = dataclasses.replace(few, class_names=("discs", "squares"))
    materialize(other, tmp_path / "copy", "raw", config)
    with pytest.raises(ValueError, match="has the classes discs, squares, and its labels are of these; here they are"):
        script["make_dataset"](str(tmp_path / "copy"), training=False)


def test_a_script_for_jpegs_reads_another_format_of_another_folder(few, tmp_path):
    script = script_of(dataclasses.replace(BASE, decode="scaled"), few)
    for name in few.class_names:
        (tmp_path / name).mkdir()
        Image.new("RGB", (90, 70)).save(tmp_path / name / "1.png")
    [(images, _)] = script["make_dataset"](str(tmp_path), training=False)
    assert len(images) == 2


def test_arrays_in_memory_cannot_be_written():
    with pytest.raises(ExportError, match="arrays in memory are not there"):
        export(BASE, from_arrays(np.zeros((2, 8, 8, 3), np.uint8), np.array([0, 1])))


def test_photos_in_the_place_of_a_copy_are_refused_with_the_command_that_makes_one(few):
    script = script_of(dataclasses.replace(BASE, storage="raw"), few)
    for folder, given in ((str(few.root), few.root), ("my photos", "'my photos'")):
        command = f"no prepared copy.*unstall materialize --data {given} --out COPY --as raw"
        with pytest.raises(FileNotFoundError, match=command):
            script["make_dataset"](folder, training=False)


def test_a_folder_without_images_is_named(few, tmp_path):
    with pytest.raises(FileNotFoundError, match=f"{tmp_path} has no images in folders"):
        script_of(BASE, few)["make_dataset"](str(tmp_path), training=False)


def test_the_name_of_a_folder_is_no_code(few):
    text = export(dataclasses.replace(BASE, storage="raw"), few, 'my """ photos\nraise SystemExit')
    compile(text, "exported.py", "exec")
    assert [line for line in text.splitlines() if "SystemExit" in line and not line.startswith("# ")] == []
