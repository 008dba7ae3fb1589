"""`PipelineConfig`: the description of an input pipeline, its checks, and its form in TOML and JSON."""

from __future__ import annotations

import dataclasses
import json
import tomllib
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from unstall.pipeline.address import NO_SERVICE, parse_address
from unstall.pipeline.augmentation import Augmentation
from unstall.pipeline.errors import ConfigError
from unstall.text import did_you_mean

AUTO = "auto"
# An epoch of more images is ordered by `augmentation.LongOrder`, of which each part is computed when it is used; a
# shorter one is shuffled whole, which takes a millisecond.
LONG_EPOCH = 1 << 16

CHOICES: dict[str, tuple[str, ...]] = {
    "loader": ("tf_data", "image_data_generator", "py_dataset", "python_batches", "image_dataset_from_directory"),
    "interpolation": ("bilinear", "nearest"),
    "output_dtype": ("float32", "uint8"),
    "augment_with": ("tf_ops", "opencv", "albumentations", "keras_layers", "keras_generator"),
    "augment_at": ("element", "batch", "device"),
    "decode": ("full", "scaled"),
    "resample": ("separate", "composed"),
    "storage": ("files", "resized", "records", "raw"),
    "location": ("disk", "ram"),
    "cache": ("none", "memory", "disk"),
    "served": ("files", "images", "batches"),
    "autotune_algorithm": ("default", "hill_climb", "gradient_descent", "max_parallelism", "stage_based"),
}

# What each loader supports; anything else is refused. All of them also run without augmentation.
_AUGMENT_WITH = {
    "tf_data": ("tf_ops", "opencv", "albumentations", "keras_layers"),
    "image_data_generator": ("keras_generator",),
    "py_dataset": ("opencv", "albumentations"),
    "python_batches": ("opencv", "albumentations"),
    "image_dataset_from_directory": ("keras_layers",),
}
_AUGMENT_AT = {
    "tf_ops": ("element", "batch"),
    "opencv": ("element", "batch"),
    "albumentations": ("element",),
    "keras_layers": ("batch", "device"),
    "keras_generator": ("element",),
}
_STORAGE = {
    "tf_data": ("files", "resized", "records", "raw"),
    "py_dataset": ("files", "resized", "records", "raw"),
    "python_batches": ("files", "resized", "records", "raw"),
    "image_data_generator": ("files", "resized"),
    "image_dataset_from_directory": ("files", "resized"),
}
# The loaders whose batches are made in Python, by workers whose number nothing tunes.
PYTHON_LOADERS = ("image_data_generator", "py_dataset", "python_batches")
# The loaders that run code of ours. They also read arrays and records, decode at a fraction of the size, and compose.
OUR_LOADERS = ("tf_data", "py_dataset", "python_batches")


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineConfig:
    """Every setting that decides what a loader does and how fast.

    A variant is a config that `dataclasses.replace` makes from another.

    Raises:
      ConfigError: if a setting is wrong, or settings contradict each other.
    """

    # What reads the files: tf.data, Keras' ImageDataGenerator, our keras.utils.PyDataset, our PythonBatches with worker
    # processes, or Keras' image_dataset_from_directory.
    loader: str = "tf_data"
    # Images per batch. 32 is the tutorial's batch size, and Keras' default.
    batch_size: int = 32
    # (height, width) in pixels; set from the model, never by hand.
    image_size: tuple[int, int] = (64, 64)
    # How a decoded photo is resized to `image_size`. Keras' generators use `nearest`, everything else `bilinear`.
    interpolation: str = "bilinear"
    # `float32` in [0, 1], or `uint8`, which the model's first layer rescales on the device.
    output_dtype: str = "float32"
    # The random draw for each image, or None.
    augmentation: Augmentation | None = field(default_factory=Augmentation)
    # The library that applies the draw.
    augment_with: str = "tf_ops"
    # Where the draw is applied: to an image, to a batch, or by layers in front of the model.
    augment_at: str = "element"
    # `scaled`: decodes JPEGs at 1/2, 1/4 or 1/8 of their size, never below `image_size`. Where crops are composed, no
    # crop is below it (but for the rounding to whole pixels), so that each draw has a fraction of its own.
    decode: str = "full"
    # `composed`: OpenCV resizes and augments the decoded image in one resampling, a batch at a time.
    resample: str = "separate"
    # What is read: the source's files, or a copy that is made once: JPEG files at `image_size`, TFRecord of the files'
    # bytes, or pixels at `image_size` in one memory-mapped file.
    storage: str = "files"
    # `ram`: the files are copied to a RAM disk first.
    location: str = "disk"
    # Where decoded, resized images are kept, before anything random. `memory`: in the process, from the first epoch on.
    # `disk`: in a file in the user's cache folder, which is made before the first epoch and serves later runs, too.
    cache: str = "none"
    # tf.data: `num_parallel_calls`; 1 is a sequential map, `auto` lets tf.data's tuner choose. Keras loaders: number of
    # threads or processes.
    workers: int | str = 1
    # Keras loaders: worker processes instead of threads.
    use_multiprocessing: bool = False
    # Keras loaders with more than one worker: batches that may wait in the queue. 10 is Keras' default.
    max_queue_size: int = 10
    # tf.data: batches prepared ahead; 0 for none, `auto` lets tf.data's tuner choose.
    prefetch: int | str = 0
    # tf.data: prefetch into device memory instead of the host's; without a GPU the same as `prefetch`.
    prefetch_to_device: bool = False
    # tf.data: `options.autotune.enabled`.
    autotune: bool = True
    # tf.data: `options.autotune.autotune_algorithm`, by which its tuner chooses numbers of calls and batches ahead.
    autotune_algorithm: str = "default"
    # Whether `fit` gets the dataset repeated, with `steps_per_epoch`: one iterator then serves all epochs. Calls that
    # make or augment whole batches, and the buffer, work on at the end of each. Or else each epoch begins with a new
    # iterator and an empty buffer.
    one_iterator: bool = False
    # tf.data: its graph rewrites, which turn a sequential map and batch into a parallel, prefetching node.
    rewrites: bool = True
    # tf.data with a cache in memory, or records: images in the shuffle buffer, which is filled before an epoch's first
    # batch. Other pipelines shuffle the whole list of images; if a file is larger than memory, 64 blocks of 1 MB at a
    # time. 0: every loader serves the images in the source's order.
    shuffle_buffer: int = 512
    # tf.data: which worker processes make the batches. `none`: this process does. `local:N`: N processes on this host,
    # which the loader starts and ends. HOST:PORT: those of the dispatcher there (`unstall service`).
    service: str = NO_SERVICE
    # What a service's workers send: the bytes of files, decoded and resized images, or whole batches, augmented. This
    # process does the rest.
    served: str = "batches"
    # tf.data: elements in order although workers finish out of order. Without it `one_iterator` may serve batches of an
    # epoch before the last ones of the epoch before.
    deterministic: bool = True
    # Seed of the order and of every draw; at least 0.
    seed: int = 0

    def __post_init__(self) -> None:
        self._check_types()
        for name, choices in CHOICES.items():
            value = getattr(self, name)
            if value not in choices:
                raise ConfigError(
                    f"`{name}` must be one of {', '.join(choices)}. Received: {name}={value!r}."
                    f"{did_you_mean(str(value), choices)}"
                )
        for name, least in {"batch_size": 1, "max_queue_size": 1, "shuffle_buffer": 0, "seed": 0}.items():
            if getattr(self, name) < least:
                raise ConfigError(f"`{name}` must be at least {least}. Received: {name}={getattr(self, name)}.")
        for name, least in {"workers": 1, "prefetch": 0}.items():
            value = getattr(self, name)
            if (isinstance(value, str) and value != AUTO) or (isinstance(value, int) and value < least):
                raise ConfigError(f'`{name}` must be at least {least}, or "auto". Received: {name}={value!r}.')
        self._check_augmentation()
        self._check_loader()
        self._check_resample()
        self._require_one_of("storage", _STORAGE, "loader")
        self._check_service()

    @property
    def composed(self) -> bool:
        """Whether an image is resized and augmented in one resampling."""
        return self.resample == "composed" and self.augmentation is not None

    def _require(self, name: str, value: object, why: str) -> None:
        """Refuses any other value of a setting; `why` says what else asks for this one."""
        if getattr(self, name) != value:
            raise ConfigError(f"`{name}` must be {value!r} {why}. Received: {name}={getattr(self, name)!r}.")

    def _require_one_of(self, name: str, choices: Mapping[str, tuple[str, ...]], other: str) -> None:
        """Refuses a value of a setting that does not go with another setting; `choices` says which do."""
        value, others = getattr(self, name), getattr(self, other)
        if value not in choices[others]:
            raise ConfigError(
                f"`{name}` must be one of {', '.join(choices[others])} for {other}={others!r}. "
                f"Received: {name}={value!r}."
            )

    def _check_types(self) -> None:
        for name, expected in typing.get_type_hints(type(self)).items():
            value = getattr(self, name)
            kinds = typing.get_args(expected) if isinstance(expected, types.UnionType) else (expected,)
            kinds = tuple(typing.get_origin(kind) or kind for kind in kinds)
            wrong_bool = isinstance(value, bool) and bool not in kinds
            if wrong_bool or not isinstance(value, kinds):
                names = " or ".join("none" if kind is type(None) else kind.__name__ for kind in kinds)
                raise ConfigError(f"`{name}` must be of type {names}. Received: {name}={value!r}.")
        size = self.image_size
        if not (len(size) == 2 and all(type(side) is int and side > 0 for side in size)):
            raise ConfigError(
                f"`image_size` must be two whole numbers above 0, (height, width). Received: image_size={size!r}."
            )

    def _check_augmentation(self) -> None:
        if self.augmentation is None:
            return
        self._require_one_of("augment_with", _AUGMENT_WITH, "loader")
        if self.augment_with.startswith("keras_") and self.augmentation.crops:
            raise ConfigError(
                f"`crop_area` must be (1, 1) for augment_with={self.augment_with!r}: Keras has no random resized crop. "
                f"Received: crop_area={self.augmentation.crop_area}."
            )
        if self.augment_with.startswith("keras_") and self.augmentation.flip_probability not in (0.0, 0.5):
            raise ConfigError(
                f"`flip_probability` must be 0 or 0.5 for augment_with={self.augment_with!r}: Keras has no other. "
                f"Received: flip_probability={self.augmentation.flip_probability}."
            )
        self._require_one_of("augment_at", _AUGMENT_AT, "augment_with")

    def _check_loader(self) -> None:
        only_tf_data = {
            "cache": "none",
            "output_dtype": "float32",
            "prefetch_to_device": False,
            "rewrites": True,
            "autotune": True,
            "autotune_algorithm": "default",
            "one_iterator": False,
            "service": NO_SERVICE,
            "served": "batches",
            "deterministic": True,
        }
        here = f"for loader={self.loader!r}"
        if self.loader != "tf_data":
            for name, default in only_tf_data.items():
                self._require(name, default, f"{here}: only tf_data has the choice")
        if self.loader not in OUR_LOADERS:
            self._require("decode", "full", f"{here}: it cannot decode at a fraction of the size")
        if self.loader in PYTHON_LOADERS:
            if self.workers == AUTO:
                raise ConfigError(f"`workers` must be a number {here}: nothing tunes it. Received: workers='auto'.")
            self._require("prefetch", 0, f"{here}: `max_queue_size` is its queue")
        if self.use_multiprocessing and self.loader not in ("py_dataset", "image_data_generator"):
            why = "its workers are processes" if self.loader == "python_batches" else "tf.data uses threads"
            raise ConfigError(f"`use_multiprocessing` must be false {here}: {why}. Received: use_multiprocessing=True.")
        if self.loader == "image_dataset_from_directory":
            self._require("interpolation", "bilinear", here)
        if not self.autotune and AUTO in (self.workers, self.prefetch):
            raise ConfigError(
                "`workers` and `prefetch` must be numbers where autotune is off. "
                f"Received: autotune=False, workers={self.workers!r}, prefetch={self.prefetch!r}."
            )
        if not self.autotune and self.autotune_algorithm != "default":
            raise ConfigError(
                "`autotune_algorithm` must be 'default' where autotune is off: nothing uses it. "
                f"Received: autotune=False, autotune_algorithm={self.autotune_algorithm!r}."
            )
        if self.prefetch_to_device and self.prefetch == 0:
            raise ConfigError(
                "`prefetch` must be at least 1 with prefetch_to_device: it is the size of that buffer. "
                "Received: prefetch_to_device=True, prefetch=0."
            )

    def _check_resample(self) -> None:
        if self.resample == "separate":
            return
        if self.loader not in OUR_LOADERS:
            self._require("resample", "separate", f"for loader={self.loader!r}: it resizes by itself")
        if self.augmentation is None:
            return
        needed = {"augment_with": "opencv", "interpolation": "bilinear", "cache": "none"}
        if self.loader == "tf_data":
            needed["augment_at"] = "batch"
        for name, value in needed.items():
            self._require(name, value, "for resample='composed'")

    def _check_service(self) -> None:
        if self.composed:
            self._require("served", "batches", "for resample='composed': one call reads, decodes and augments")
        if parse_address(self.service) is None:
            return
        needed: dict[str, tuple[object, str]] = {
            "storage": ("files", "workers read files"),
            "location": ("disk", "workers read files where they are"),
            "cache": ("none", "the workers' batches are new in each epoch"),
            "prefetch_to_device": (False, "the batches come from Python"),
        }
        for name, (value, why) in needed.items():
            self._require(name, value, f"with a service: {why}")
        if self.augmentation is not None and self.augment_with == "keras_layers" and self.augment_at != "device":
            raise ConfigError(
                "`augment_with` must not be 'keras_layers' with a service, but on the device: Keras' layers keep a "
                f"random state that workers do not share. Received: augment_at={self.augment_at!r}."
            )


def config_to_dict(config: PipelineConfig) -> dict[str, Any]:
    """Returns the config as JSON and TOML hold it: tuples as lists, no augmentation as False."""
    values = dataclasses.asdict(config)
    values["image_size"] = list(config.image_size)
    if config.augmentation is None:
        values["augmentation"] = False
    else:
        table = values["augmentation"]
        values["augmentation"] = {key: list(part) if isinstance(part, tuple) else part for key, part in table.items()}
    return values


def config_from_dict(values: dict[str, Any], base: PipelineConfig | None = None) -> PipelineConfig:
    """Makes a config from what `config_to_dict` returns, or a part of it.

    Args:
      values: settings by name.
      base: gives the settings that `values` lacks; by default those of `PipelineConfig()`.
    Raises:
      ConfigError: if a key is unknown, or the config refuses a value.
    """
    base = base or PipelineConfig()
    names = _names(PipelineConfig)
    values = dict(values)
    for key in values:
        if key not in names:
            raise ConfigError(f"`{key}` is not a setting.{did_you_mean(key, names)} Known: {', '.join(names)}.")
    if isinstance(values.get("image_size"), list):
        values["image_size"] = tuple(values["image_size"])
    if "augmentation" in values:
        values["augmentation"] = _augmentation(values["augmentation"])
    return dataclasses.replace(base, **values)


def _names(config: type[PipelineConfig] | type[Augmentation]) -> list[str]:
    return [setting.name for setting in dataclasses.fields(config)]


def _augmentation(value: Any) -> Augmentation | None:
    names = _names(Augmentation)
    if value is False:
        return None
    if value is True:
        return Augmentation()
    if not isinstance(value, dict):
        raise ConfigError(
            f"`augmentation` must be true, false or a table of {', '.join(names)}. Received: augmentation={value!r}."
        )
    for key in value:
        if key not in names:
            raise ConfigError(f"`augmentation.{key}` is not a setting.{did_you_mean(key, names)}")
    table: dict[str, Any] = {key: tuple(part) if isinstance(part, list) else part for key, part in value.items()}
    try:
        return Augmentation(**table)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"`augmentation`: {error}") from error


def config_to_toml(config: PipelineConfig) -> str:
    """Returns the config as TOML, with every setting, so that the file means the same after a default changes."""
    values = config_to_dict(config)
    table = values.pop("augmentation")
    lines = _toml_lines(values)
    if table is False:
        return "\n".join([*lines, "augmentation = false", ""])
    lines += ["", "[augmentation]", *_toml_lines(table), ""]
    return "\n".join(lines)


def _toml_lines(values: dict[str, Any]) -> list[str]:
    # JSON writes names, numbers, truth values and lists of them as TOML does. Only TOML escapes the character DEL.
    texts = {key: json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f") for key, value in values.items()}
    return [f"{key} = {text}" for key, text in texts.items()]


def config_from_toml(text: str) -> PipelineConfig:
    """Makes a config from the text of `config_to_toml`, or a part of it.

    Raises:
      ConfigError: if the text is not TOML, or for the reasons of `config_from_dict`.
    """
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"not a TOML file: {error}.") from error
    return config_from_dict(values)
