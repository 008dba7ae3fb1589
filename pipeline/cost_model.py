"""The tuner's cost model: the pipelines that it chooses from, and a prediction of their rates from measured stages.

The prediction accounts for resources, as in Plumber (Kuchnik et al., MLSys 2022), and includes the consumer's own work.
It assumes the following; the tuner measures the best pipelines, to catch where that is wrong:

- A stage takes the same CPU time for an image in any pipeline, but for a measured factor: two hardware threads of one
  core share that core's units. In the bound of one stage the factor grows with that stage's own calls; in the bound of
  all cores it is whole. Sequential stages have none.
- Parallel calls multiply a stage's rate, up to the number of cores; for a stage that runs Python, up to a measured
  number of calls. With one call at a time all stages run one after the other, in one thread.
- The CPU times of all stages add up on the cores, with that of a consumer that computes there. Nothing else runs there.
- A loader slows its consumer down by more than that: the threads of a model wait for one another, and each batch waits
  for a core to be handed over. By how much was measured beside a loader that always had work; with less work it is in
  proportion.
- Loading and computing overlap completely if batches are made ahead, and not at all if not. Without a buffer at its
  end, a pipeline makes its last sequential stage while the consumer waits.
- Caches are full, and files are in the page cache: the first epoch is not predicted. Nor are the edges of epochs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from unstall.pipeline.config import AUTO, PipelineConfig
from unstall.pipeline.errors import ConfigError
from unstall.pipeline.prepared.index import estimated_bytes
from unstall.pipeline.stages.batching import calls_at_once, most_call_bytes

# A stage's name and what its cost depends on: ("load", "files", "scaled"), ("augment", "opencv", "batch").
StageKey = tuple[str, ...]

_FLOAT32_BYTES, _UINT8_BYTES = 4, 1
# A consumer that takes this many times as long for an image as alone is limited by the cores.
_SLOWED_RATIO = 1.1


@dataclass(frozen=True, slots=True, kw_only=True)
class StageCost:
    """The measured cost of a stage.

    Attributes:
      us_per_image: microseconds per image, one call at a time.
      most_calls: parallel calls beyond which the rate does not grow; None if only the cores limit it.
      crowded_factor: how many times as much CPU time an image takes while all cores run this stage.
    """

    us_per_image: float
    most_calls: float | None = None
    crowded_factor: float = 1.0

    def busy_us(self, busy: float, cores: float) -> float:
        """Returns the microseconds per image while so many of the cores are busy."""
        part = min(max((busy - 1) / (cores - 1), 0.0), 1.0) if cores > 1 else 0.0
        return self.us_per_image * (1 + (self.crowded_factor - 1) * part)


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumer:
    """The measured cost of what takes the batches, such as a training step.

    Attributes:
      us_per_image: microseconds per image, fed with batches that are ready: a step, and the hand-over of a batch.
      cpu_us_per_image: the CPU time of that on the loader's cores.
      crowded_us_per_image: the same as `us_per_image` beside a loader that always has work for all other cores, but for
        one at least.
      crowd_us_per_image: the CPU time that this loader took meanwhile, per image of the consumer.
      crowd_calls: how many calls at once this loader made; 0 where there was none.
    """

    us_per_image: float
    cpu_us_per_image: float
    crowded_us_per_image: float = 0.0
    crowd_us_per_image: float = 0.0
    crowd_calls: int = 0

    def beside_us(self, loader_us: float, cores: float) -> float:
        """Returns the microseconds per image beside a loader that takes so much CPU time for an image."""
        if not self.crowd_calls:
            return self.us_per_image
        slowed_us = max(self.crowded_us_per_image - self.us_per_image, 0.0)
        part = min(loader_us / self.crowd_us_per_image, 1.0)
        return self.us_per_image + slowed_us * part + max(loader_us - self.crowd_us_per_image, 0.0) / cores

    def delay_us(self, loader_us: float, cores: float) -> float:
        """Returns the microseconds per image for which a loader that makes one call at a time waits for a core."""
        if not self.crowd_calls:
            return 0.0
        waiting_ratio = max(1 - self.crowd_us_per_image / (self.crowded_us_per_image * self.crowd_calls), 0.0)
        return waiting_ratio * self.beside_us(loader_us, cores)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """The predicted rate of a pipeline, and its needs.

    Attributes:
      images_per_sec: rate of training.
      loader_images_per_sec: rate of the loader alone.
      loader_us_per_image: microseconds that the stages take for an image, one call at a time: the CPU time that the
        loader takes from a model on the same cores, without what it takes more while all cores are busy.
      limit: what limits training: a stage's name, "one call", "cores" or "compute".
      memory_bytes: the cache and the buffers of the whole run.
      disk_bytes: the cache or the prepared copy.
    """

    images_per_sec: float
    loader_images_per_sec: float
    loader_us_per_image: float
    limit: str
    memory_bytes: int
    disk_bytes: int


def stages_of(config: PipelineConfig) -> tuple[tuple[StageKey, bool], ...]:
    """Returns the stages that an image passes in every epoch but the first, and whether each runs in parallel calls."""
    tail: tuple[StageKey, bool] = (("batch", "batches" if config.composed else "elements", config.output_dtype), False)
    # `decode` does not matter to copies at `image_size`.
    read = (config.storage, config.decode) if config.storage in ("files", "records") else (config.storage,)
    if config.composed:
        return ((("composed", *read), True), tail)
    stages: list[tuple[StageKey, bool]] = []
    if config.cache == "none":
        stages.append((("load", *read), True))
    else:
        stages.append((("cached", config.cache), config.cache == "disk"))
    if config.augmentation is not None and config.augment_at != "device":
        stages.append((("augment", config.augment_with, config.augment_at), True))
    return (*stages, tail)


def predict(
    config: PipelineConfig,
    costs: Mapping[StageKey, StageCost],
    consumer: Consumer,
    *,
    cores: float,
    images: int,
    source_bytes: int,
) -> Prediction:
    """Predicts the rate and the needs of a pipeline.

    Args:
      config: a pipeline with `loader="tf_data"`.
      costs: the cost of each of its stages.
      consumer: what takes the batches.
      cores: number of CPU cores.
      images: number of images in an epoch; a cache or a prepared copy must hold them all.
      source_bytes: size of these images' files.
    Raises:
      KeyError: if `costs` lacks a stage.
    """
    workers = cores if config.workers == AUTO else int(config.workers)
    stages = stages_of(config)
    total_us = sum(costs[key].us_per_image for key, _ in stages)
    crowded_us = sum(costs[key].busy_us(cores, cores) for key, _ in stages)
    limits: dict[str, float] = {"cores": crowded_us / cores}
    one_call = config.workers == 1
    if one_call:
        limits["one call"] = total_us
    else:
        for key, parallel in stages:
            calls = min(workers, costs[key].most_calls or math.inf, cores) if parallel else 1
            limits[" ".join(key)] = costs[key].busy_us(calls, cores) / calls
    loader_us = max(limits.values())
    slowest = max(limits, key=lambda name: limits[name])
    if one_call and not _makes_ahead(config):
        train_us, limit = loader_us + consumer.us_per_image, slowest
    else:
        shared_us = (crowded_us + consumer.cpu_us_per_image) / cores
        last, last_us = _last_stage(config, costs)
        beside_us = consumer.beside_us(crowded_us, cores)
        consumed_us = beside_us + last_us
        slowed = beside_us > _SLOWED_RATIO * consumer.us_per_image
        consumed = " ".join(last) if last_us > consumer.us_per_image else "cores" if slowed else "compute"
        loaded_us = loader_us + (consumer.delay_us(total_us, cores) if one_call else 0.0)
        train_us = max(loaded_us, consumed_us, shared_us)
        limit = slowest if train_us == loaded_us else consumed if train_us == consumed_us else "cores"
    memory_bytes, disk_bytes = needs(config, images, source_bytes)
    return Prediction(
        images_per_sec=1e6 / train_us,
        loader_images_per_sec=1e6 / loader_us,
        loader_us_per_image=total_us,
        limit=limit,
        memory_bytes=memory_bytes,
        disk_bytes=disk_bytes,
    )


def _last_stage(config: PipelineConfig, costs: Mapping[StageKey, StageCost]) -> tuple[StageKey, float]:
    """Returns the sequential stage at the end, and its microseconds per image while the consumer waits for it."""
    behind_augmentation = config.augment_at == "batch" and not config.composed
    key = ("batch", "batches", config.output_dtype) if behind_augmentation else stages_of(config)[-1][0]
    return key, costs[key].us_per_image if key in costs and not _makes_ahead(config) else 0.0


def _makes_ahead(config: PipelineConfig) -> bool:
    """Whether a pipeline makes a batch while the consumer works on the one before.

    Without `prefetch`, too, if TensorFlow's rewrites make one operation of `batch` and of a function of one image in
    front of it: that operation makes a batch ahead, also where calls are made one at a time. Not where an augmentation
    of batches follows it: that runs while the consumer waits, and is most of the work of such pipelines.
    """
    per_image = config.augmentation is not None and config.augment_at == "element"
    loads = config.cache == "none" and config.storage != "raw"  # raw pixels are read batch by batch
    only_loads = loads and (config.augmentation is None or config.augment_at == "device")
    return config.prefetch != 0 or (config.rewrites and (per_image or only_loads))


def needs(config: PipelineConfig, images: int, source_bytes: int) -> tuple[int, int]:
    """Returns a pipeline's bytes of memory (cache, shuffle buffer, batches that are made or being made) and of disk."""
    height, width = config.image_size
    pixels = height * width * 3
    batch_bytes = config.batch_size * pixels * (_UINT8_BYTES if config.output_dtype == "uint8" else _FLOAT32_BYTES)
    calls = calls_at_once(config)
    ahead = 8 if config.prefetch == AUTO else int(config.prefetch)
    memory_bytes = (calls + ahead + 1) * batch_bytes
    if config.composed and config.storage == "raw":
        memory_bytes += most_call_bytes(config, images)
    if config.cache == "memory":
        memory_bytes += (images + config.shuffle_buffer) * pixels * _FLOAT32_BYTES
    disk_bytes = 0
    if config.cache == "disk":
        disk_bytes += estimated_bytes("raw", images, config.image_size, source_bytes, dtype="float32")
    if config.storage != "files":
        disk_bytes += estimated_bytes(config.storage, images, config.image_size, source_bytes)
    return memory_bytes, disk_bytes


def candidates(
    base: PipelineConfig, *, cores: float, accelerator: bool, scales: bool, sends: bool = False
) -> Iterator[PipelineConfig]:
    """Yields every pipeline that the tuner chooses from.

    Each has fixed numbers of workers and batches ahead, and tf.data's tuner off: the tuner can block at the end of an
    epoch, for seconds.

    Args:
      base: gives batch size, image size, augmentation, seed and order.
      cores: number of CPU cores.
      accelerator: whether the model runs on one, so that layers and uint8 make sense.
      sends: whether TensorFlow runs the model there, so that it can keep a buffer in the accelerator's memory.
      scales: whether the source is JPEG files, which can be decoded at a fraction of their size.
    """
    base = replace(base, loader="tf_data", autotune=False, rewrites=True, interpolation="bilinear", location="disk")
    for kind in _kinds(base, accelerator=accelerator, scales=scales):
        for workers in _workers(cores):
            yield replace(kind, workers=workers, prefetch=0)  # the simplest: no buffer, and an iterator an epoch
            yield replace(kind, workers=workers, prefetch=2, one_iterator=True)
            if sends:
                yield replace(kind, workers=workers, prefetch=2, one_iterator=True, prefetch_to_device=True)


def kind_of(config: PipelineConfig) -> PipelineConfig:
    """Returns the config with one worker and no buffer on the host: configs of a kind do the same work, byte for byte.

    A buffer on the device is a kind of its own, so that it is measured beside the same without it: their predictions
    are equal.
    """
    return replace(config, workers=1, prefetch=config.prefetch if config.prefetch_to_device else 0, one_iterator=False)


def _workers(cores: float) -> list[int]:
    """Returns the numbers of workers to choose from: 1, 2, 4, ... up to the cores, the cores, and one more."""
    most = max(1, round(cores))
    powers = (2**power for power in range(most.bit_length()))
    return sorted({*powers, most, most + 1})


def _kinds(base: PipelineConfig, *, accelerator: bool, scales: bool) -> Iterator[PipelineConfig]:
    """Yields a pipeline of each kind: storage, decoding, cache, augmentation, output dtype and resampling differ."""
    augments = [("tf_ops", "element"), ("tf_ops", "batch"), ("opencv", "batch"), ("albumentations", "element")]
    if accelerator:
        augments.append(("keras_layers", "device"))
    if base.augmentation is None:
        augments = augments[:1]
    elif base.augmentation.crops:
        augments = [(library, place) for library, place in augments if library != "keras_layers"]
    dtypes = ("float32", "uint8") if accelerator else ("float32",)
    decodes = ("full", "scaled") if scales else ("full",)
    storages = ("files", "records", "resized", "raw")
    seen = set()
    for storage, decode, cache, (library, place), dtype, resample in itertools.product(
        storages, decodes, ("none", "memory", "disk"), augments, dtypes, ("separate", "composed")
    ):
        if storage != "files" and cache != "none":
            continue  # cache and copy would keep the same pixels
        if (storage in ("resized", "raw") or cache != "none") and decode != "full":
            continue  # images are decoded once, for the copy or the cache: an epoch after that is as fast either way
        if storage == "raw" and resample == "separate" and base.augmentation is not None:
            continue  # does image by image what "composed" does in batches
        try:
            kind = replace(
                base,
                storage=storage,
                decode=decode,
                cache=cache,
                augment_with=library,
                augment_at=place,
                output_dtype=dtype,
                resample=resample,
            )
        except ConfigError:
            continue
        if (resample == "composed" and not kind.composed) or kind in seen:
            continue
        seen.add(kind)
        yield kind
