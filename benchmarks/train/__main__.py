"""Trains a model on a folder of photos and keeps it in one file, with all that predicting needs.

python -m benchmarks.train --model cats-dogs-64 --data photos --out cats-dogs.keras
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import Progress

import models
from benchmarks.lab.backend import named_backend
from benchmarks.lab.command import exit_code_of, progress_bar, say_noise
from benchmarks.lab.options import MODEL, UserError, config_from_file
from benchmarks.lab.photos import Splits, open_splits
from models.predict import import_keras
from pipeline import VARIANTS, PipelineConfig
from pipeline.commands import ArgumentParser, decoders_unheard
from pipeline.sources import add_skip_list_option
from profiles.text import Terminal

if TYPE_CHECKING:
    from benchmarks.lab.training import Evaluation, Pass

# The fastest that needs nothing prepared, and its draws are the tutorial's.
_VARIANT = "tf-data-composed"
# The published epochs were 8,000 steps each, of 32: 800 passes over the 8,000 photos.
_EPOCHS_HELP = "passes over the photos (default: 25 passes, or the network's own; published: 800 passes' worth)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What was asked for, checked."""

    model: str
    data: str
    config: PipelineConfig
    epochs: int
    out: Path
    overwrite: bool
    skip_list: Path | None = None


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command.

    Returns:
      0; 2 for bad input; 3 if the loss is no number any more, or the file could not be written; 128 + signal if
      stopped.
    """
    arguments = _parser().parse_args(argv)
    console, errors = Terminal(), Terminal(stderr=True)
    os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"

    def run() -> int:
        with progress_bar(errors) as progress:
            return _run(read_plan(arguments), progress, console, errors)

    return exit_code_of(run, errors, arguments.out, f"stopped: {arguments.out} was not written")


def _parser() -> argparse.ArgumentParser:
    parser = ArgumentParser(
        prog="python -m benchmarks.train",
        description="Trains a model on photos and writes it to a file with its preprocessing and its classes, for "
        "python -m models predict.",
        epilog="Tested with: the folder test beside train, where DIR is or holds train; else a fifth of each class, "
        "drawn by the seed and not trained on.",
    )
    add = parser.add_argument
    add("--model", default=MODEL, metavar="NAME", help=f"a name, module:function or .keras file (default: {MODEL})")
    add("--data", required=True, metavar="DIR|tfds:NAME|generated:N", help="a folder with a folder of photos a class")
    add_skip_list_option(parser)
    add("--out", required=True, type=Path, metavar="FILE.keras", help="where the model goes")
    add("--pipeline", type=Path, metavar="FILE.toml", help=f"of benchmarks.tune, or your own (default: {_VARIANT})")
    add("--epochs", type=int, metavar="N", help=_EPOCHS_HELP)
    add("--batch-size", type=int, metavar="N", help="photos a step (default: as published, or the pipeline's)")
    add("--seed", type=int, default=0, metavar="N", help="of weights, order, draws and held-out photos (default: 0)")
    add("--overwrite", action="store_true", help="replaces FILE.keras, when training has ended")
    return parser


def read_plan(arguments: argparse.Namespace) -> Plan:
    """Checks what can be checked before anything is opened.

    Raises:
      UserError: in one line.
    """
    try:
        models.check_name(arguments.model)
    except models.ModelError as error:
        raise UserError(f"--model {error}") from error
    published = models.MODELS.get(arguments.model, models.MODELS[MODEL]).training
    config = VARIANTS[_VARIANT] if arguments.pipeline is None else config_from_file(arguments.pipeline, "--pipeline")
    batch_size = arguments.batch_size
    if batch_size is None:
        batch_size = config.batch_size if arguments.pipeline or published.batch_size is None else published.batch_size
    epochs = published.epochs if arguments.epochs is None else arguments.epochs
    for name, value, least in (("epochs", epochs, 1), ("batch-size", batch_size, 1), ("seed", arguments.seed, 0)):
        if value < least:
            raise UserError(f"--{name} must be at least {least}. Received: {value}.")
    _check_file(arguments.out, overwrite=arguments.overwrite)
    return Plan(
        model=arguments.model,
        data=arguments.data,
        config=replace(config, batch_size=batch_size, seed=arguments.seed),
        epochs=epochs,
        out=arguments.out,
        overwrite=arguments.overwrite,
        skip_list=arguments.skip_list,
    )


def _check_file(out: Path, *, overwrite: bool) -> None:
    """Finds out before training that the file can be written."""
    if out.suffix != ".keras":
        raise UserError(f"--out {out} must end in .keras.")
    if out.is_dir() or (out.exists() and not overwrite):
        raise UserError(f"--out {out} exists already. Choose another name, or give --overwrite.")
    if not out.parent.is_dir():
        raise UserError(f"--out {out}: there is no folder {out.parent}. Make it first.")
    if not os.access(out.parent, os.W_OK | os.X_OK):
        raise UserError(f"--out {out}: the folder {out.parent} cannot be written to.")


def _run(plan: Plan, progress: Progress, console: Console, errors: Console) -> int:
    seed = plan.config.seed
    splits = open_splits(plan.data, seed=seed, progress=progress, errors=errors, skip_list=plan.skip_list)
    import_keras()
    network = _open(plan.model, splits, seed)
    config = replace(plan.config, image_size=models.image_size(network, plan.model))
    console.print(
        f"{plan.model}: {network.count_params():,} parameters; {splits.train.images:,} photos of "
        f"{len(splits.train.class_names)} classes to train on, {splits.test.images:,} to test with "
        f"({splits.how})",
        highlight=False,
        markup=False,
    )
    from profiles.measure.backends import backend  # Keras

    console.print(f"trained by {named_backend(backend())}", highlight=False, markup=False)
    with decoders_unheard() as noise:
        correct = _train(network, splits, config, plan, progress, console)
    say_noise(errors, noise)
    out = _keep(network, splits, config, plan, errors)
    console.print(f"{out}: {accuracy_text(correct, splits.test.images)}", highlight=False, markup=False)
    return 0


def _open(name: str, splits: Splits, seed: int) -> Any:
    import keras

    from models.saved import check_classes

    keras.utils.set_random_seed(seed)
    try:
        network = models.open_model(name, classes=len(splits.train.class_names))
        check_classes(network, splits.train.class_names)
    except models.ModelError as error:
        raise UserError(str(error)) from error
    return network


def _train(
    network: Any, splits: Splits, config: PipelineConfig, plan: Plan, progress: Progress, console: Console
) -> int:
    """Trains the network; returns how many test photos it gets right in the end."""
    import tensorflow as tf

    from benchmarks.lab.serve import one_line
    from benchmarks.lab.training import DivergedError, Evaluation, train
    from pipeline.errors import UnavailableError

    images = splits.train.images
    task = progress.add_task("training", total=plan.epochs * images)
    shown_images = 0
    correct = 0

    def on_images(seen: int) -> None:
        nonlocal shown_images
        refresh = seen - shown_images >= images / 100
        shown_images = seen if refresh else shown_images
        progress.update(task, completed=seen, refresh=refresh)

    try:
        evaluation = Evaluation(network, splits.test, config)
        try:

            def on_pass(one: Pass) -> None:
                nonlocal correct
                correct = _tell(one, evaluation, splits.test.images, plan.epochs, console)

            train(network, splits.train, config, passes=plan.epochs, on_images=on_images, on_pass=on_pass)
        finally:
            evaluation.close()
    except DivergedError as error:
        raise UserError(f"{error} {plan.out} was not written.", exit_code=3) from error
    except UnavailableError as error:
        raise UserError(f"The pipeline cannot serve these photos: {error}.") from error
    except (tf.errors.OpError, OSError) as error:  # a photo that was removed or cannot be decoded
        raise UserError(
            f"Training failed: {one_line(error).rstrip('.')}. {plan.out} was not written.", exit_code=3
        ) from error
    finally:
        progress.remove_task(task)
    return correct


def _tell(one: Pass, evaluation: Evaluation, test_images: int, passes: int, console: Console) -> int:
    correct = int(evaluation.correct().sum())
    rate = "" if one.images_per_sec is None else f"  {one.images_per_sec:,.0f} images/sec"
    console.print(
        f"pass {one.number:>{len(str(passes))}} of {passes}  loss {one.loss:.4f}  "
        f"test {correct / test_images:.1%}{rate}",
        highlight=False,
    )
    return correct


def _keep(network: Any, splits: Splits, config: PipelineConfig, plan: Plan, errors: Console) -> Path:
    """Writes the model; returns where it is."""
    from benchmarks.lab.training import antialiases
    from models.saved import finish, foreign_layers, save

    finished = finish(
        network,
        splits.train.class_names,
        interpolation=config.interpolation,
        antialias=antialiases(config, splits.train),
    )
    out = plan.out
    try:
        save(finished, out, overwrite=plan.overwrite)
    except FileExistsError:  # it has appeared since training began
        taken, out = out, free_name(out)
        save(finished, out, overwrite=False)
        errors.print(f"{taken} has appeared meanwhile and was left as it is.", style="yellow", markup=False)
    try:
        foreign = foreign_layers(finished)
    except models.ModelError as error:
        errors.print(f"{out} was written; {error}.", style="yellow", markup=False, highlight=False)
        return out
    if foreign:
        errors.print(
            f"{out} holds layers that Keras has not ({', '.join(foreign)}): a script must import them before it opens "
            "the file.",
            style="yellow",
            markup=False,
            highlight=False,
        )
    return out


def free_name(out: Path) -> Path:
    """Returns the first of FILE-2.keras, FILE-3.keras ... that is not there."""
    return next(name for number in itertools.count(2) if not (name := out.with_stem(f"{out.stem}-{number}")).exists())


def accuracy_text(correct: int, images: int) -> str:
    """Returns how many test photos were right, with the interval that so many of them allow."""
    from profiles.statistics import share_interval

    low, high = share_interval(correct, images)
    return (
        f"{correct:,} of {images:,} test photos right, {correct / images:.1%} "
        f"(95 % interval of so many photos: {low:.1%} to {high:.1%})"
    )


if __name__ == "__main__":
    sys.exit(main())
