"""The description of an input pipeline: one frozen value, built by one function per loader."""

from __future__ import annotations

import dataclasses
import tomllib
import types
import typing
from dataclasses import dataclass, field
from typing import Any

from pipeline.augmentation import Augmentation
from pipeline.errors import ConfigError
from pipeline.text import did_you_mean

AUTO = "auto"
# Of the images that one call of Python makes where it makes several batches (`stages.read.batches_per_call`). With
# twice as many, a loader with one call at a time was put off by each: a buffer of two batches is empty before it ends.
CALL_BYTES = 1 << 20

CHOICES: dict[str, tuple[str, ...]] = {
    "loader": ("tf_data", "image_data_generator", "py_dataset", "image_dataset_from_directory"),
    "interpolation": ("bilinear", "nearest"),
    "output_dtype": ("float32", "uint8"),
    "augment_with": ("tf_ops", "opencv", "albumentations", "keras_layers", "keras_generator"),
    "augment_at": ("element", "batch", "device"),
    "decode": ("full", "scaled"),
    "resample": ("separate", "composed"),
    "storage": ("files", "resized", "records", "raw"),
    "location": ("disk", "ram"),
    "cache": ("none", "memory", "disk"),
}

# What each loader can do; anything else is refused. Every loader takes no augmentation, too.
_AUGMENT_WITH = {
    "tf_data": ("tf_ops", "opencv", "albumentations", "keras_layers"),
    "image_data_generator": ("keras_generator",),
    "py_dataset": ("opencv", "albumentations"),
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
    "image_data_generator": ("files", "resized"),
    "image_dataset_from_directory": ("files", "resized"),
}
_KERAS_WORKERS = ("image_data_generator", "py_dataset")


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineConfig:
    """Everything that decides what a loader does and how fast, and nothing else.

    A variant is one of these, made from another with `dataclasses.replace`.

    Raises:
      ConfigError: if the parts contradict each other.
    """

    # Who reads the files: tf.data, Keras' ImageDataGenerator, our keras.utils.PyDataset, or Keras'
    # image_dataset_from_directory.
    loader: str = "tf_data"
    # Images per batch. 32: the tutorial's, and Keras' own default.
    batch_size: int = 32
    # (height, width) in pixels; set from the model, never by hand.
    image_size: tuple[int, int] = (64, 64)
    # How a decoded photo becomes `image_size`; Keras' generators use `nearest`, everything else `bilinear`.
    interpolation: str = "bilinear"
    # `float32` in [0, 1], or `uint8`, which the model's first layer rescales on the device.
    output_dtype: str = "float32"
    # What is drawn per image, or None.
    augmentation: Augmentation | None = field(default_factory=Augmentation)
    # The library that applies the draw.
    augment_with: str = "tf_ops"
    # Per image, per batch, or by layers in front of the model.
    augment_at: str = "element"
    # `scaled`: JPEGs decoded at 1/2, 1/4 or 1/8 of their size, never below `image_size`.
    decode: str = "full"
    # `composed`: resize and augmentation in one resampling of the decoded image, by OpenCV, a batch at a time.
    resample: str = "separate"
    # What is read: the source's files, or a copy that is prepared once: JPEG files at `image_size`, TFRecord of the
    # files' bytes, or pixels at `image_size` in one memory-mapped file.
    storage: str = "files"
    # `ram`: the files are copied to a RAM disk first.
    location: str = "disk"
    # Where decoded, resized images are kept, always before anything random: in the process after the first epoch, or in
    # a file in the user's cache folder, made before the first and used again by later runs.
    cache: str = "none"
    # tf.data: `num_parallel_calls`, 1 a sequential map, `auto` tf.data's tuner. Keras loaders: threads, or processes.
    workers: int | str = 1
    # Keras loaders: worker processes instead of threads.
    use_multiprocessing: bool = False
    # Keras loaders with more than one worker: batches that may wait. 10: Keras' default.
    max_queue_size: int = 10
    # tf.data: batches prepared ahead, `auto` lets tf.data's tuner choose, 0 none.
    prefetch: int | str = 0
    # tf.data: prefetch into device memory instead of the host's; the same as `prefetch` where there is no GPU.
    prefetch_to_device: bool = False
    # tf.data: `options.autotune.enabled`.
    autotune: bool = True
    # tf.data: its own graph rewrites, which turn a sequential map and batch into a parallel, prefetching node.
    rewrites: bool = True
    # tf.data with a cache in memory, or records: images in the shuffle buffer behind it, which is filled before an
    # epoch's first batch. All else shuffles the whole list; of a file that memory cannot hold, 64 blocks of 1 MB at a
    # time. 0 serves the files in their order, whatever the loader.
    shuffle_buffer: int = 512
    # tf.data: elements in order although workers finish out of order.
    deterministic: bool = True
    # Of the order and of every draw; at least 0.
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
        self._check_storage()

    @property
    def composed(self) -> bool:
        """Whether an image is resampled once, for its size and its draw together."""
        return self.resample == "composed" and self.augmentation is not None

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
        allowed = _AUGMENT_WITH[self.loader]
        if self.augment_with not in allowed:
            raise ConfigError(
                f"`augment_with` must be one of {', '.join(allowed)} for loader={self.loader!r}. "
                f"Received: augment_with={self.augment_with!r}."
            )
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
        places = _AUGMENT_AT[self.augment_with]
        if self.augment_at not in places:
            raise ConfigError(
                f"`augment_at` must be one of {', '.join(places)} for augment_with={self.augment_with!r}. "
                f"Received: augment_at={self.augment_at!r}."
            )

    def _check_loader(self) -> None:
        tf_data = self.loader == "tf_data"
        only_tf_data = {
            "cache": "none",
            "output_dtype": "float32",
            "prefetch_to_device": False,
            "rewrites": True,
            "autotune": True,
            "deterministic": True,
        }
        for name, default in only_tf_data.items():
            if not tf_data and getattr(self, name) != default:
                raise ConfigError(
                    f"`{name}` must be {default!r} for loader={self.loader!r}: only tf_data has the choice. "
                    f"Received: {name}={getattr(self, name)!r}."
                )
        if self.decode == "scaled" and self.loader not in ("tf_data", "py_dataset"):
            raise ConfigError(
                f"`decode` must be 'full' for loader={self.loader!r}: it cannot decode at a fraction of the size. "
                "Received: decode='scaled'."
            )
        if self.loader in _KERAS_WORKERS:
            if self.workers == AUTO:
                raise ConfigError(
                    f"`workers` must be a number for loader={self.loader!r}: Keras has no tuner. "
                    "Received: workers='auto'."
                )
            if self.prefetch != 0:
                raise ConfigError(
                    f"`prefetch` must be 0 for loader={self.loader!r}: `max_queue_size` is its queue. "
                    f"Received: prefetch={self.prefetch!r}."
                )
        elif self.use_multiprocessing:
            raise ConfigError(
                f"`use_multiprocessing` must be false for loader={self.loader!r}: tf.data uses threads. "
                "Received: use_multiprocessing=True."
            )
        if self.loader == "image_dataset_from_directory" and self.interpolation != "bilinear":
            raise ConfigError(
                "`interpolation` must be 'bilinear' for loader='image_dataset_from_directory'. "
                f"Received: interpolation={self.interpolation!r}."
            )
        if not self.autotune and AUTO in (self.workers, self.prefetch):
            raise ConfigError(
                "`workers` and `prefetch` must be numbers where autotune is off. "
                f"Received: autotune=False, workers={self.workers!r}, prefetch={self.prefetch!r}."
            )
        if self.prefetch_to_device and self.prefetch == 0:
            raise ConfigError(
                "`prefetch` must be at least 1 with prefetch_to_device: it is the size of that buffer. "
                "Received: prefetch_to_device=True, prefetch=0."
            )

    def _check_resample(self) -> None:
        if self.resample == "separate":
            return
        if self.loader not in ("tf_data", "py_dataset"):
            raise ConfigError(
                f"`resample` must be 'separate' for loader={self.loader!r}: it resizes by itself. "
                "Received: resample='composed'."
            )
        needed = {"augment_with": "opencv", "interpolation": "bilinear", "cache": "none"}
        if self.loader == "tf_data":
            needed["augment_at"] = "batch"
        for name, value in needed.items():
            if self.augmentation is not None and getattr(self, name) != value:
                raise ConfigError(
                    f"`{name}` must be {value!r} for resample='composed'. Received: {name}={getattr(self, name)!r}."
                )

    def _check_storage(self) -> None:
        allowed = _STORAGE[self.loader]
        if self.storage not in allowed:
            raise ConfigError(
                f"`storage` must be one of {', '.join(allowed)} for loader={self.loader!r}. "
                f"Received: storage={self.storage!r}."
            )


def config_to_dict(config: PipelineConfig) -> dict[str, Any]:
    """Returns the config as JSON and TOML hold it: `image_size` a list, no augmentation as False."""
    values = dataclasses.asdict(config)
    values["image_size"] = list(config.image_size)
    if config.augmentation is None:
        values["augmentation"] = False
    else:
        table = values["augmentation"]
        values["augmentation"] = {key: list(one) if isinstance(one, tuple) else one for key, one in table.items()}
    return values


def config_from_dict(values: dict[str, Any], base: PipelineConfig | None = None) -> PipelineConfig:
    """Reads a config; keys that are absent keep the value of `base` (default: the defaults).

    Raises:
      ConfigError: at an unknown key, naming the nearest known one, or a value that the config refuses.
    """
    base = base or PipelineConfig()
    fields = [one.name for one in dataclasses.fields(PipelineConfig)]
    values = dict(values)
    for key in values:
        if key not in fields:
            raise ConfigError(f"`{key}` is not a setting.{did_you_mean(key, fields)} Known: {', '.join(fields)}.")
    if isinstance(values.get("image_size"), list):
        values["image_size"] = tuple(values["image_size"])
    if "augmentation" in values:
        values["augmentation"] = _augmentation(values["augmentation"])
    return dataclasses.replace(base, **values)


def _augmentation(value: Any) -> Augmentation | None:
    known = [one.name for one in dataclasses.fields(Augmentation)]
    if value is False:
        return None
    if value is True:
        return Augmentation()
    if not isinstance(value, dict):
        raise ConfigError(
            f"`augmentation` must be true, false or a table of {', '.join(known)}. Received: augmentation={value!r}."
        )
    for key in value:
        if key not in known:
            raise ConfigError(f"`augmentation.{key}` is not a setting.{did_you_mean(key, known)}")
    value = {key: tuple(one) if isinstance(one, list) else one for key, one in value.items()}
    try:
        return Augmentation(**value)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"`augmentation`: {error}") from error


def config_to_toml(config: PipelineConfig) -> str:
    """Writes every field, so that the file stays true when a default changes."""
    values = config_to_dict(config)
    table = values.pop("augmentation")
    lines = [f"{key} = {_toml(value)}" for key, value in values.items()]
    if table is False:
        return "\n".join([*lines, "augmentation = false", ""])
    lines += ["", "[augmentation]", *(f"{key} = {_toml(value)}" for key, value in table.items()), ""]
    return "\n".join(lines)


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{value}"'  # only names from CHOICES and "auto" get here: nothing to escape
    if isinstance(value, list):
        return "[" + ", ".join(_toml(part) for part in value) + "]"
    return repr(float(value)) if isinstance(value, float) else str(value)


def config_from_toml(text: str, base: PipelineConfig | None = None) -> PipelineConfig:
    """Reads `config_to_toml`'s output, or any part of it.

    Raises:
      ConfigError: if the text is not TOML, or as `config_from_dict`.
    """
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"not a TOML file: {error}.") from error
    return config_from_dict(values, base)
