"""The command line of `unstall accuracy`."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from unstall.benchmarks.lab.options import add_result_options
from unstall.models import MODELS
from unstall.needs import PHOTOS
from unstall.parser import ArgumentParser
from unstall.pipeline.commands import add_skip_list_option

_TUNED = "tf-data-composed"
# The tutorial trains for 25 "epochs". Readers take an epoch for one pass over the photos, and so does the default.
_PASSES = 25
# Fewer than three seeds have no interval.
_SEEDS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """A step of the published ladder.

    Attributes:
      model: a name in `MODELS`.
      text: what the rung changes, in words.
      augmented: whether the photos to train on are sheared, zoomed and flipped.
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


def parser() -> argparse.ArgumentParser:
    arguments = ArgumentParser(
        prog="unstall accuracy",
        needs=PHOTOS,
        description="The published cat/dog accuracy ladder, and whether a fast pipeline costs accuracy.",
        epilog="Every rung is trained with Keras' generator and with a tuned pipeline, from the same weights, in a "
        "process of its own. What has ended is written after each run. Exit codes: 0 the tuned pipeline costs no more "
        "than 2 points, 1 it costs accuracy, 4 neither was shown.",
    )
    add = arguments.add_argument
    add(
        "--data",
        required=True,
        metavar="DIR|tfds:NAME|generated:N",
        help="photos of two classes, split as by unstall train",
    )
    add_skip_list_option(arguments)
    add("--rungs", metavar="NAME,...", help=f"any of {', '.join(RUNGS)} (default: all)")
    add(
        "--seeds",
        type=int,
        default=_SEEDS,
        metavar="N",
        help=f"runs of each rung and pipeline (default: {_SEEDS}; fewer give no interval, and so no verdict)",
    )
    add("--images-seen", type=int, metavar="N", help=f"by each run; published: 6400000 (default: {_PASSES} passes)")
    add("--config", type=Path, metavar="FILE.toml", help=f"of benchmarks.tune (default: the variant {_TUNED})")
    add("--device", metavar="DEV", help="cpu or gpu (default: gpu where Keras can use one)")
    add_result_options(arguments)
    return arguments
