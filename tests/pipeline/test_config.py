"""The description of a pipeline: what it refuses, and that TOML and JSON keep it.

Over 400 lines: every refusal of the description has its case here.
"""

import dataclasses
import json
import tomllib

import pytest

from unstall.pipeline import VARIANTS, Augmentation, ConfigError, PipelineConfig
from unstall.pipeline.config import AUTO, CHOICES, config_from_dict, config_from_toml, config_to_dict, config_to_toml
from unstall.text import did_you_mean

FIELDS = [setting.name for setting in dataclasses.fields(PipelineConfig)]
GENERATOR = {"loader": "image_data_generator", "augment_with": "keras_generator"}
PY_DATASET = {"loader": "py_dataset", "augment_with": "opencv"}
DIRECTORY = {"loader": "image_dataset_from_directory", "augment_with": "keras_layers", "augment_at": "batch"}
PYTHON_BATCHES = {"loader": "python_batches", "augment_with": "opencv"}
LOADERS = {
    "tf_data": {"loader": "tf_data"},
    "image_data_generator": GENERATOR,
    "py_dataset": PY_DATASET,
    "python_batches": PYTHON_BATCHES,
    "image_dataset_from_directory": DIRECTORY,
}
# Each differs from the defaults in a way that no variant does.
ODD = {
    "no-augmentation": PipelineConfig(augmentation=None),
    "everything-off": PipelineConfig(autotune=False, rewrites=False, deterministic=False, shuffle_buffer=0),
    "numbers": PipelineConfig(workers=7, prefetch=3, batch_size=1, shuffle_buffer=1, max_queue_size=1, seed=2**40),
    "auto": PipelineConfig(workers=AUTO, prefetch=AUTO),
    "not-square": PipelineConfig(image_size=(1, 224)),
    "own-draw": PipelineConfig(
        augmentation=Augmentation(shear_degrees=1e-05, zoom_range=0, flip_probability=1, fill_mode="reflect")
    ),
    "to-device": PipelineConfig(prefetch=1, prefetch_to_device=True, output_dtype="uint8"),
    "served": PipelineConfig(service="trainer:5050", served="files"),
    "processes": PipelineConfig(**PY_DATASET, workers=3, use_multiprocessing=True, decode="scaled", location="ram"),
}


def message_of(**values: object) -> str:
    with pytest.raises(ConfigError) as caught:
        PipelineConfig(**values)
    return str(caught.value)


SIZE_RULE = "`image_size` must be two whole numbers above 0, (height, width)."


@pytest.mark.parametrize("name", CHOICES)
def test_a_value_that_is_no_choice_is_refused_with_the_choices(name):
    expected = f"`{name}` must be one of {', '.join(CHOICES[name])}. Received: {name}='zzz'."
    assert message_of(**{name: "zzz"}) == expected


@pytest.mark.parametrize(
    ("name", "typed", "meant"),
    [
        ("loader", "tfdata", "tf_data"),
        ("interpolation", "nearst", "nearest"),
        ("output_dtype", "float64", "float32"),
        ("augment_with", "open_cv", "opencv"),
        ("augment_at", "batches", "batch"),
        ("decode", "scale", "scaled"),
        ("location", "disc", "disk"),
        ("cache", "mem", "memory"),
        ("served", "image", "images"),
    ],
)
def test_a_misspelt_choice_is_refused_with_the_nearest_one(name, typed, meant):
    assert message_of(**{name: typed}).endswith(f"Received: {name}={typed!r}. Did you mean {meant!r}?")


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("batch_size", 0, "`batch_size` must be at least 1. Received: batch_size=0."),
        ("batch_size", -3, "`batch_size` must be at least 1. Received: batch_size=-3."),
        ("max_queue_size", 0, "`max_queue_size` must be at least 1. Received: max_queue_size=0."),
        ("shuffle_buffer", -1, "`shuffle_buffer` must be at least 0. Received: shuffle_buffer=-1."),
        ("seed", -1, "`seed` must be at least 0. Received: seed=-1."),
        (
            "image_size",
            (0, 64),
            "`image_size` must be two whole numbers above 0, (height, width). Received: image_size=(0, 64).",
        ),
        (
            "image_size",
            (64, -1),
            "`image_size` must be two whole numbers above 0, (height, width). Received: image_size=(64, -1).",
        ),
        ("workers", 0, '`workers` must be at least 1, or "auto". Received: workers=0.'),
        ("workers", "many", "`workers` must be at least 1, or \"auto\". Received: workers='many'."),
        ("prefetch", -1, '`prefetch` must be at least 0, or "auto". Received: prefetch=-1.'),
        ("prefetch", "all", "`prefetch` must be at least 0, or \"auto\". Received: prefetch='all'."),
    ],
)
def test_a_number_too_small_is_refused(name, value, expected):
    assert message_of(**{name: value}) == expected


@pytest.mark.parametrize("value", [(), (64,), (64, 64, 3), ("64", "64"), (64.0, 64.0), (True, 64)])
def test_an_image_size_that_is_not_two_whole_numbers_is_refused(value):
    with pytest.raises(ConfigError, match="`image_size` must be .*Received: image_size="):
        PipelineConfig(image_size=value)


@pytest.mark.parametrize(
    ("name", "value", "types"),
    [
        ("loader", 1, "str"),
        ("batch_size", "32", "int"),
        ("batch_size", 32.0, "int"),
        ("batch_size", True, "int"),
        ("batch_size", None, "int"),
        ("image_size", 64, "tuple"),
        ("image_size", [64, 64], "tuple"),
        ("interpolation", None, "str"),
        ("output_dtype", 8, "str"),
        ("augmentation", False, "Augmentation or none"),
        ("augmentation", {"zoom_range": 0.1}, "Augmentation or none"),
        ("augment_with", None, "str"),
        ("augment_at", 0, "str"),
        ("decode", 2, "str"),
        ("resample", True, "str"),
        ("storage", None, "str"),
        ("location", None, "str"),
        ("cache", False, "str"),
        ("workers", 1.5, "int or str"),
        ("workers", True, "int or str"),
        ("use_multiprocessing", 1, "bool"),
        ("max_queue_size", 1.5, "int"),
        ("prefetch", None, "int or str"),
        ("prefetch_to_device", "yes", "bool"),
        ("autotune", 0, "bool"),
        ("autotune_algorithm", True, "str"),
        ("one_iterator", 1, "bool"),
        ("rewrites", "off", "bool"),
        ("service", 2, "str"),
        ("served", 2, "str"),
        ("shuffle_buffer", False, "int"),
        ("deterministic", None, "bool"),
        ("seed", 0.5, "int"),
    ],
)
def test_a_value_of_another_type_is_refused(name, value, types):
    assert message_of(**{name: value}) == f"`{name}` must be of type {types}. Received: {name}={value!r}."


COMPOSED = {"resample": "composed", "augment_with": "opencv", "augment_at": "batch"}


def test_composed_is_only_what_has_a_draw_to_compose():
    assert PipelineConfig(**COMPOSED).composed
    assert not PipelineConfig(**COMPOSED, augmentation=None).composed
    assert not PipelineConfig().composed


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (
            {"loader": "image_data_generator", "augment_with": "keras_generator", "augment_at": "element"},
            "`resample` must be 'separate' for loader='image_data_generator': it resizes by itself. "
            "Received: resample='composed'.",
        ),
        ({"augment_with": "tf_ops"}, "`augment_with` must be 'opencv' for resample='composed'. Received: .*'tf_ops'"),
        ({"interpolation": "nearest"}, "`interpolation` must be 'bilinear' for resample='composed'. Received: "),
        ({"cache": "memory"}, "`cache` must be 'none' for resample='composed'. Received: cache='memory'"),
        ({"cache": "disk"}, "`cache` must be 'none' for resample='composed'. Received: cache='disk'"),
        ({"augment_at": "element"}, "`augment_at` must be 'batch' for resample='composed'. Received: "),
        (
            {"served": "files"},
            "`served` must be 'batches' for resample='composed': one call .* Received: served='files'",
        ),
        ({"served": "images"}, "`served` must be 'batches' for resample='composed': .* Received: served='images'"),
    ],
)
def test_what_cannot_be_composed_is_refused(values, expected):
    with pytest.raises(ConfigError, match=expected):
        PipelineConfig(**{**COMPOSED, **values})


def test_a_py_dataset_composes_where_it_augments():
    assert PipelineConfig(loader="py_dataset", resample="composed", augment_with="opencv").composed


@pytest.mark.parametrize(
    ("loader", "storage"),
    [("image_data_generator", "raw"), ("image_dataset_from_directory", "records")],
)
def test_a_storage_that_a_loader_cannot_read_is_refused(loader, storage):
    with pytest.raises(ConfigError, match=f"`storage` must be .* for loader='{loader}'.*Received: storage='{storage}'"):
        PipelineConfig(loader=loader, storage=storage, augmentation=None)


@pytest.mark.parametrize("augment_with", ["keras_layers", "keras_generator"])
def test_keras_augmentation_cannot_crop(augment_with):
    loader = "tf_data" if augment_with == "keras_layers" else "image_data_generator"
    at = "batch" if augment_with == "keras_layers" else "element"
    with pytest.raises(ConfigError, match="`crop_area` must be \\(1, 1\\) for augment_with='keras_.*Received: "):
        PipelineConfig(
            loader=loader, augment_with=augment_with, augment_at=at, augmentation=Augmentation(crop_area=(0.08, 1.0))
        )


def test_every_field_has_a_type_that_is_refused():
    # So that a new field cannot come without one.
    table = test_a_value_of_another_type_is_refused.pytestmark[0].args[1]
    assert {row[0] for row in table} == set(FIELDS)


@pytest.mark.parametrize(
    ("loader", "augment_with", "allowed"),
    [
        ("tf_data", "keras_generator", "tf_ops, opencv, albumentations, keras_layers"),
        ("image_data_generator", "opencv", "keras_generator"),
        ("image_data_generator", "tf_ops", "keras_generator"),
        ("py_dataset", "tf_ops", "opencv, albumentations"),
        ("py_dataset", "keras_layers", "opencv, albumentations"),
        ("image_dataset_from_directory", "opencv", "keras_layers"),
    ],
)
def test_a_library_that_the_loader_cannot_use_is_refused(loader, augment_with, allowed):
    assert message_of(loader=loader, augment_with=augment_with) == (
        f"`augment_with` must be one of {allowed} for loader={loader!r}. Received: augment_with={augment_with!r}."
    )


@pytest.mark.parametrize(
    ("augment_with", "augment_at", "allowed"),
    [
        ("tf_ops", "device", "element, batch"),
        ("opencv", "device", "element, batch"),
        ("albumentations", "batch", "element"),
        ("keras_layers", "element", "batch, device"),
    ],
)
def test_a_place_where_the_library_cannot_work_is_refused(augment_with, augment_at, allowed):
    assert message_of(augment_with=augment_with, augment_at=augment_at) == (
        f"`augment_at` must be one of {allowed} for augment_with={augment_with!r}. Received: augment_at={augment_at!r}."
    )


@pytest.mark.parametrize("loader", ["image_data_generator", "image_dataset_from_directory"])
def test_without_augmentation_its_library_does_not_matter(loader):
    config = PipelineConfig(loader=loader, augmentation=None)
    assert (config.augment_with, config.augment_at) == ("tf_ops", "element")


def test_workers_of_python_batches_are_processes_in_any_case():
    assert message_of(**PYTHON_BATCHES, use_multiprocessing=True) == (
        "`use_multiprocessing` must be false for loader='python_batches': its workers are processes. "
        "Received: use_multiprocessing=True."
    )


@pytest.mark.parametrize("loader", sorted(LOADERS.keys() - {"tf_data"}))
@pytest.mark.parametrize(
    ("name", "value", "default"),
    [
        ("cache", "memory", "none"),
        ("output_dtype", "uint8", "float32"),
        ("prefetch_to_device", True, False),
        ("rewrites", False, True),
        ("autotune", False, True),
        ("autotune_algorithm", "hill_climb", "default"),
        ("one_iterator", True, False),
        ("served", "files", "batches"),
        ("deterministic", False, True),
    ],
)
def test_a_setting_of_tf_data_alone_is_refused_elsewhere(loader, name, value, default):
    assert message_of(**LOADERS[loader], **{name: value}) == (
        f"`{name}` must be {default!r} for loader={loader!r}: only tf_data has the choice. Received: {name}={value!r}."
    )


def test_an_algorithm_needs_a_tuner_that_uses_it():
    assert PipelineConfig(autotune_algorithm="stage_based").autotune
    assert message_of(autotune=False, workers=1, prefetch=0, autotune_algorithm="hill_climb") == (
        "`autotune_algorithm` must be 'default' where autotune is off: nothing uses it. "
        "Received: autotune=False, autotune_algorithm='hill_climb'."
    )


@pytest.mark.parametrize("loader", ["image_data_generator", "image_dataset_from_directory"])
def test_scaled_decode_is_refused_where_the_loader_decodes_for_itself(loader):
    assert message_of(**LOADERS[loader], decode="scaled") == (
        f"`decode` must be 'full' for loader={loader!r}: it cannot decode at a fraction of the size. "
        "Received: decode='scaled'."
    )


@pytest.mark.parametrize("loader", ["image_data_generator", "py_dataset", "python_batches"])
def test_workers_in_python_have_no_tuner(loader):
    assert message_of(**LOADERS[loader], workers=AUTO) == (
        f"`workers` must be a number for loader={loader!r}: nothing tunes it. Received: workers='auto'."
    )


@pytest.mark.parametrize("loader", ["image_data_generator", "py_dataset"])
@pytest.mark.parametrize("prefetch", [1, AUTO])
def test_keras_loaders_have_a_queue_and_no_prefetch(loader, prefetch):
    assert message_of(**LOADERS[loader], prefetch=prefetch) == (
        f"`prefetch` must be 0 for loader={loader!r}: `max_queue_size` is its queue. Received: prefetch={prefetch!r}."
    )


@pytest.mark.parametrize("loader", ["tf_data", "image_dataset_from_directory"])
def test_tf_data_has_no_worker_processes(loader):
    assert message_of(**LOADERS[loader], use_multiprocessing=True) == (
        f"`use_multiprocessing` must be false for loader={loader!r}: tf.data uses threads. "
        "Received: use_multiprocessing=True."
    )


def test_the_directory_loader_resizes_bilinear_only():
    assert message_of(**DIRECTORY, interpolation="nearest") == (
        "`interpolation` must be 'bilinear' for loader='image_dataset_from_directory'. "
        "Received: interpolation='nearest'."
    )


@pytest.mark.parametrize(("workers", "prefetch"), [(AUTO, 0), (1, AUTO), (AUTO, AUTO)])
def test_auto_is_refused_where_the_tuner_is_off(workers, prefetch):
    assert message_of(autotune=False, workers=workers, prefetch=prefetch) == (
        "`workers` and `prefetch` must be numbers where autotune is off. "
        f"Received: autotune=False, workers={workers!r}, prefetch={prefetch!r}."
    )


def test_prefetch_to_device_needs_a_buffer():
    assert message_of(prefetch_to_device=True) == (
        "`prefetch` must be at least 1 with prefetch_to_device: it is the size of that buffer. "
        "Received: prefetch_to_device=True, prefetch=0."
    )


def test_a_config_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'batch_size'"):
        PipelineConfig().batch_size = 8


@pytest.mark.parametrize(
    ("key", "meant"),
    [("batchsize", "batch_size"), ("worker", "workers"), ("prefetch_size", "prefetch"), ("seeds", "seed")],
)
def test_an_unknown_setting_is_refused_with_the_nearest_name(key, meant):
    with pytest.raises(ConfigError) as caught:
        config_from_dict({key: 1})
    assert str(caught.value) == (f"`{key}` is not a setting. Did you mean {meant!r}? Known: {', '.join(FIELDS)}.")


def test_an_unknown_setting_like_no_other_is_refused_without_a_guess():
    with pytest.raises(ConfigError, match="^`zzz` is not a setting. Known: loader, batch_size, "):
        config_from_dict({"zzz": 1})


def test_an_unknown_setting_of_the_augmentation_is_refused_with_the_nearest_name():
    with pytest.raises(ConfigError) as caught:
        config_from_dict({"augmentation": {"zoom": 0.1}})
    assert str(caught.value) == "`augmentation.zoom` is not a setting. Did you mean 'zoom_range'?"


@pytest.mark.parametrize("value", [None, 1, "yes", ["flip"]])
def test_an_augmentation_that_is_no_table_is_refused(value):
    with pytest.raises(ConfigError) as caught:
        config_from_dict({"augmentation": value})
    assert str(caught.value) == (
        "`augmentation` must be true, false or a table of shear_degrees, zoom_range, flip_probability, fill_mode, "
        "crop_area, crop_aspect. "
        f"Received: augmentation={value!r}."
    )


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"zoom_range": 2}, r"`zoom_range` must be at least 0 and below 1\. Received: zoom_range=2\."),
        ({"shear_degrees": "0.2"}, "shear_degrees|not supported between"),
        ({"fill_mode": 1}, "`fill_mode` must be one of nearest, reflect, constant. Received: fill_mode=1."),
    ],
)
def test_a_bad_value_in_the_augmentation_table_is_a_config_error(values, reason):
    with pytest.raises(ConfigError, match=f"^`augmentation`: .*(?:{reason})"):
        config_from_dict({"augmentation": values})


def test_absent_settings_keep_the_value_of_the_base():
    base = PipelineConfig(workers=5, seed=9)
    assert config_from_dict({"seed": 1}, base) == dataclasses.replace(base, seed=1)
    assert config_from_dict({}) == PipelineConfig()
    assert config_from_toml("batch_size = 8") == dataclasses.replace(PipelineConfig(), batch_size=8)


def test_true_and_false_switch_the_augmentation():
    assert config_from_dict({"augmentation": False}).augmentation is None
    own = PipelineConfig(augmentation=Augmentation(zoom_range=0.4))
    assert config_from_dict({"augmentation": True}, own).augmentation == Augmentation()


@pytest.mark.parametrize("size", [[64, 96], (64, 96)])
def test_an_image_size_may_be_a_list_or_a_tuple(size):
    assert config_from_dict({"image_size": size}).image_size == (64, 96)


def test_reading_does_not_change_what_was_read():
    values = {"image_size": [64, 96], "augmentation": {"zoom_range": 0.1}}
    config_from_dict(values)
    assert values == {"image_size": [64, 96], "augmentation": {"zoom_range": 0.1}}


@pytest.mark.parametrize("text", ["batch_size = ", "= 3", "[augmentation"])
def test_text_that_is_no_toml_is_refused(text):
    with pytest.raises(ConfigError, match=r"^not a TOML file: .+ \(at .*\)\.$"):
        config_from_toml(text)


@pytest.mark.parametrize("config", [*VARIANTS.values(), *ODD.values()], ids=[*VARIANTS, *ODD])
def test_a_config_survives_toml_and_json(config):
    assert config_from_toml(config_to_toml(config)) == config
    assert config_from_dict(json.loads(json.dumps(config_to_dict(config), allow_nan=False))) == config
    # Nothing comes from the base: every field is written.
    base = PipelineConfig(seed=123, workers=9, image_size=(9, 9), augmentation=Augmentation(zoom_range=0.9))
    assert config_from_dict(config_to_dict(config), base) == config
    assert set(config_to_dict(config)) == set(FIELDS)


def test_numbers_from_numpy_survive_toml():
    numpy = pytest.importorskip("numpy")
    config = PipelineConfig(augmentation=Augmentation(zoom_range=numpy.float64(0.3)))
    assert config_from_toml(config_to_toml(config)) == config


@pytest.mark.parametrize("host", ['a"b', "a\\b", "größe-😀", "a\x7fb"])
def test_an_address_with_letters_that_toml_escapes_survives_toml(host):
    config = PipelineConfig(service=f"{host}:80")
    assert config_from_toml(config_to_toml(config)) == config


def test_toml_is_written_as_people_would_write_it():
    text = config_to_toml(PipelineConfig(workers=AUTO, prefetch=2))
    assert text.splitlines() == [
        'loader = "tf_data"',
        "batch_size = 32",
        "image_size = [64, 64]",
        'interpolation = "bilinear"',
        'output_dtype = "float32"',
        'augment_with = "tf_ops"',
        'augment_at = "element"',
        'decode = "full"',
        'resample = "separate"',
        'storage = "files"',
        'location = "disk"',
        'cache = "none"',
        'workers = "auto"',
        "use_multiprocessing = false",
        "max_queue_size = 10",
        "prefetch = 2",
        "prefetch_to_device = false",
        "autotune = true",
        'autotune_algorithm = "default"',
        "one_iterator = false",
        "rewrites = true",
        "shuffle_buffer = 512",
        'service = "none"',
        'served = "batches"',
        "deterministic = true",
        "seed = 0",
        "",
        "[augmentation]",
        "shear_degrees = 0.2",
        "zoom_range = 0.2",
        "flip_probability = 0.5",
        'fill_mode = "nearest"',
        "crop_area = [1.0, 1.0]",
        "crop_aspect = [0.75, 1.3333333333333333]",
    ]
    assert tomllib.loads(config_to_toml(PipelineConfig(augmentation=None)))["augmentation"] is False


def test_the_nearest_name_is_given_only_where_one_is_near():
    assert did_you_mean("tf-dat", ["tf-data", "generator"]) == " Did you mean 'tf-data'?"
    assert did_you_mean("zzz", ["tf-data", "generator"]) == ""
