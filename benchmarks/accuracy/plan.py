"""The rungs of the published ladder, and which runs a comparison of two pipelines on them is made of."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from models import MODELS
from pipeline import BASELINE, PipelineConfig

# Both train every rung with every seed: what differs between two runs is the pipeline alone.
PIPELINES = ("generator", "tuned")
# What the write-up trained and tested with.
PUBLISHED_TRAIN_PHOTOS, PUBLISHED_TEST_PHOTOS = 8_000, 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """A step of the published ladder.

    Attributes:
      model: a name in `MODELS`.
      text: what it changes.
      augmented: whether its photos are sheared, zoomed and flipped.
    """

    model: str
    text: str
    augmented: bool = True

    @property
    def published(self) -> float:
        """The accuracy that was published, 0 to 1."""
        return next(
            figure.low
            for figure in MODELS[self.model].published
            if figure.quantity == "accuracy" and ("without" in figure.when) != self.augmented
        )


RUNGS: dict[str, Rung] = {
    "tutorial": Rung(model="cats-dogs-64", text="two pairs of convolution and pooling"),
    "deeper": Rung(model="cats-dogs-64-deeper", text="a third pair, of 64 filters"),
    "dropout": Rung(model="cats-dogs-64-dropout", text="three pairs, and dropout"),
    "no-augment": Rung(model="cats-dogs-64-dropout", text="the same, but no shear, zoom and flip", augmented=False),
    "128px": Rung(model="cats-dogs-128", text="four pairs, dropout, 128 px"),
}


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
class Plan:
    """What is to be trained.

    Attributes:
      rungs: names in `RUNGS`.
      seeds: how many, from 0.
      images_seen: that each run is to see; whole passes, so that it may see some more.
      tuned: the pipeline that is held against the generator.
      tuned_name: its variant, or the file that it came from.
    """

    rungs: tuple[str, ...]
    seeds: int
    images_seen: int
    tuned: PipelineConfig
    tuned_name: str

    @property
    def runs(self) -> tuple[Run, ...]:
        """All runs, in the order of their making.

        Seed by seed and rung by rung, so that a run that is stopped leaves pairs; generator, tuned, tuned, generator,
        so that a drift of the machine meets both alike.
        """
        runs: list[Run] = []
        for seed in range(self.seeds):
            for rung in self.rungs:
                order = PIPELINES if len(runs) // 2 % 2 == 0 else PIPELINES[::-1]
                runs += [Run(rung=rung, pipeline=pipeline, seed=seed) for pipeline in order]
        return tuple(runs)

    def passes(self, photos: int) -> int:
        """Returns how often a run sees every photo."""
        return math.ceil(self.images_seen / photos)

    def config(self, run: Run) -> PipelineConfig:
        """Returns the pipeline of a run; its image size is the network's to set."""
        rung = RUNGS[run.rung]
        batch_size = MODELS[rung.model].training.batch_size
        assert batch_size is not None
        config = BASELINE if run.pipeline == "generator" else self.tuned
        config = replace(config, batch_size=batch_size, seed=run.seed)
        return config if rung.augmented else replace(config, augmentation=None)

    def as_published(self, rung: str, *, train_photos: int, test_photos: int) -> bool:
        """Whether a rung is trained and tested with as much as was published, so that its figure can be compared."""
        enough = train_photos >= PUBLISHED_TRAIN_PHOTOS and test_photos >= PUBLISHED_TEST_PHOTOS
        return enough and self.passes(train_photos) * train_photos >= published_images_seen(RUNGS[rung].model)
