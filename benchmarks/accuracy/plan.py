"""Lists the rungs of the published ladder, and plans the runs that compare two pipelines on these rungs."""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass, replace
from pathlib import Path

from unstall.benchmarks.accuracy.parser import _PASSES, _TUNED, RUNGS
from unstall.benchmarks.lab.options import UserError, check_least, config_from_file, known_names
from unstall.models import MODELS
from unstall.pipeline import BASELINE, VARIANTS, PipelineConfig
from unstall.profiles import Device
from unstall.profiles.devices import parse_device
from unstall.profiles.provenance import without_folder

# Every rung is trained with every seed by both pipelines: two runs of a rung and seed differ in the pipeline alone.
PIPELINES = ("generator", "tuned")
# The numbers of photos with which the published networks were trained and tested.
PUBLISHED_TRAIN_PHOTOS, PUBLISHED_TEST_PHOTOS = 8_000, 2_000


def published_images_seen(model: str) -> int:
    """Returns how many images the published training of a network saw: epochs x steps x batch."""
    images_seen = MODELS[model].training.images_seen
    assert images_seen is not None
    return images_seen


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One training: a rung, fed by one of `PIPELINES`, with one seed."""

    rung: str
    pipeline: str
    seed: int

    @property
    def label(self) -> str:
        return f"{self.rung}, {self.pipeline}, seed {self.seed}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is trained. The document of a ladder keeps all of it.

    Attributes:
      rungs: names in `RUNGS`.
      seeds: the number of seeds, which are 0, 1 and so on.
      images_seen: how many images each run sees, rounded up to whole passes over the photos; None for 25 passes.
      tuned: the pipeline that is compared with the generator.
      tuned_name: the name of the tuned pipeline's variant or file.
      data: the name of the photos, without folders.
    """

    rungs: tuple[str, ...]
    seeds: int
    images_seen: int | None
    tuned: PipelineConfig
    tuned_name: str
    data: str

    @property
    def runs(self) -> tuple[Run, ...]:
        """All runs, in the order in which they are trained.

        The two runs of a rung and seed follow each other, so that a command that is stopped leaves whole pairs. Pairs
        alternate (generator, tuned; tuned, generator), so that a machine that slows down slows both pipelines alike.
        """
        runs: list[Run] = []
        for seed in range(self.seeds):
            for rung in self.rungs:
                order = PIPELINES if len(runs) // 2 % 2 == 0 else PIPELINES[::-1]
                runs += [Run(rung=rung, pipeline=pipeline, seed=seed) for pipeline in order]
        return tuple(runs)

    def passes(self, photos: int) -> int:
        """Returns how often a run sees every photo."""
        return _PASSES if self.images_seen is None else math.ceil(self.images_seen / photos)

    def config(self, run: Run) -> PipelineConfig:
        """Returns the pipeline of a run; the network sets its image size later."""
        rung = RUNGS[run.rung]
        batch_size = MODELS[rung.model].training.batch_size
        assert batch_size is not None
        config = BASELINE if run.pipeline == "generator" else self.tuned
        config = replace(config, batch_size=batch_size, seed=run.seed)
        return config if rung.augmented else replace(config, augmentation=None)

    def as_published(self, rung: str, *, train_photos: int, test_photos: int) -> bool:
        """Whether a rung is trained and tested with as many images as published, so that accuracies can be compared."""
        enough = train_photos >= PUBLISHED_TRAIN_PHOTOS and test_photos >= PUBLISHED_TEST_PHOTOS
        return enough and self.passes(train_photos) * train_photos >= published_images_seen(RUNGS[rung].model)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A ladder: what is trained, on which photos and device, and where its files go.

    Attributes:
      device: None to take a GPU if Keras can use one, else the CPU.
    """

    asked: Asked
    data: str
    device: Device | None
    out: Path
    skip_list: Path | None = None


def read_plan(arguments: argparse.Namespace, out: Path) -> Plan:
    """Checks all options that can be checked before anything is opened.

    Raises:
      UserError: if an option is wrong; the message has one line.
    """
    check_least(1, seeds=arguments.seeds, images_seen=arguments.images_seen)
    tuned = VARIANTS[_TUNED]
    if arguments.config is not None:
        tuned = config_from_file(arguments.config)
        _check_same_work(tuned, arguments.config)
    asked = Asked(
        rungs=tuple(RUNGS) if arguments.rungs is None else known_names(arguments.rungs, "--rungs", RUNGS),
        seeds=arguments.seeds,
        images_seen=arguments.images_seen,
        tuned=tuned,
        tuned_name=_TUNED if arguments.config is None else arguments.config.name,
        data=without_folder(arguments.data),
    )
    return Plan(
        asked=asked,
        data=arguments.data,
        device=None if arguments.device is None else _device(arguments.device),
        out=out,
        skip_list=arguments.skip_list,
    )


def _check_same_work(tuned: PipelineConfig, path: Path) -> None:
    """Refuses a pipeline with another batch size or other draws: those would cost or gain accuracy by themselves."""
    for name in ("batch_size", "augmentation"):
        expected, received = getattr(BASELINE, name), getattr(tuned, name)
        if received != expected:
            raise UserError(f"--config {path}: `{name}` must be the generator's, {expected}. Received: {received}.")


def _device(name: str) -> Device:
    if name not in ("cpu", "gpu"):
        raise UserError(f"--device must be cpu or gpu: an emulated one learns nothing. Received: {name!r}.")
    return parse_device(name)
