"""Trains the network of a plan, tests the network after each pass, and saves it in a file."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf
from rich.console import Console
from rich.progress import Progress

from unstall import models
from unstall.benchmarks.lab.backend import named_backend
from unstall.benchmarks.lab.command import say_noise
from unstall.benchmarks.lab.options import UserError
from unstall.benchmarks.lab.photos import Splits
from unstall.benchmarks.lab.serve import one_line
from unstall.benchmarks.lab.training import DivergedError, Evaluation, Pass, antialiases, train
from unstall.benchmarks.train.plan import Plan
from unstall.models.saved import check_classes, finish, foreign_layers, save
from unstall.pipeline import PipelineConfig
from unstall.pipeline.commands import decoders_unheard
from unstall.pipeline.errors import UnavailableError
from unstall.profiles.measure.backends import backend
from unstall.profiles.statistics import share_interval


def train_and_keep(plan: Plan, splits: Splits, progress: Progress, console: Console, errors: Console) -> int:
    """Trains the network of a plan and writes its file. Returns 0.

    Raises:
      UserError: if the network does not fit the photos, or (exit code 3) cannot be trained.
    """
    network = _open(plan, splits)
    config = replace(plan.config, image_size=models.image_size(network, plan.model))
    console.print(
        f"{plan.model}: {network.count_params():,} parameters; {splits.train.images:,} photos of "
        f"{len(splits.train.class_names)} classes to train on, {splits.test.images:,} to test with "
        f"({splits.how})"
    )
    console.print(f"trained by {named_backend(backend())}")
    with decoders_unheard() as noise:
        correct = _train(network, splits, config, plan, progress, console)
    say_noise(errors, noise)
    out = _keep(network, splits, config, plan, errors)
    console.print(f"{out}: {accuracy_text(correct, splits.test.images)}")
    return 0


def _open(plan: Plan, splits: Splits) -> Any:
    keras.utils.set_random_seed(plan.config.seed)
    try:
        network = models.open_model(plan.model, classes=len(splits.train.class_names))
        check_classes(network, splits.train.class_names)
    except models.ModelError as error:
        raise UserError(str(error)) from error
    return network


def _train(
    network: Any, splits: Splits, config: PipelineConfig, plan: Plan, progress: Progress, console: Console
) -> int:
    """Trains the network; returns how many test photos it gets right in the end."""
    images = splits.train.images
    task = progress.add_task("training", total=plan.epochs * images)
    drawn_images = 0
    correct = 0

    def on_images(seen: int) -> None:
        nonlocal drawn_images
        refresh = seen - drawn_images >= images / 100
        drawn_images = seen if refresh else drawn_images
        progress.update(task, completed=seen, refresh=refresh)

    try:
        evaluation = Evaluation(network, splits.test, config)
        try:

            def on_pass(trained: Pass) -> None:
                nonlocal correct
                correct = int(evaluation.correct().sum())
                print_pass(console, trained, plan.epochs, correct / splits.test.images)

            train(network, splits.train, config, passes=plan.epochs, on_images=on_images, on_pass=on_pass)
        finally:
            evaluation.close()
    except DivergedError as error:
        raise UserError(f"{error} {plan.out} was not written.", exit_code=3) from error
    except UnavailableError as error:
        raise UserError(f"The pipeline cannot serve these photos: {error}.") from error
    except models.ModelError as error:  # layers of the pipeline cannot stand in front of it
        raise UserError(str(error)) from error
    except (tf.errors.OpError, OSError) as error:  # a photo that was removed or cannot be decoded
        raise UserError(
            f"Training failed: {one_line(error).rstrip('.')}. {plan.out} was not written.", exit_code=3
        ) from error
    finally:
        progress.remove_task(task)
    return correct


def print_pass(console: Console, trained: Pass, passes: int, accuracy: float) -> None:
    """Prints the loss of a pass, and the accuracy after the pass."""
    rate = "" if trained.images_per_sec is None else f"  {trained.images_per_sec:,.0f} images/sec"
    console.print(
        f"pass {trained.number:>{len(str(passes))}} of {passes}  loss {trained.loss:.4f}  test {accuracy:.1%}{rate}"
    )


def _keep(network: Any, splits: Splits, config: PipelineConfig, plan: Plan, errors: Console) -> Path:
    """Writes the model. Returns the path of its file."""
    finished = finish(
        network,
        splits.train.class_names,
        interpolation=config.interpolation,
        antialias=antialiases(config, splits.train),
    )
    out = plan.out
    try:
        save(finished, out, overwrite=plan.overwrite)
    except FileExistsError:  # a file of this name was created since training began
        taken, out = out, free_name(out)
        save(finished, out, overwrite=False)
        errors.print(f"{taken} has appeared meanwhile and was left as it is.", style="yellow")
    try:
        foreign = foreign_layers(finished)
    except models.ModelError as error:
        errors.print(f"{out} was written; {error}.", style="yellow")
        return out
    if foreign:
        errors.print(
            f"{out} holds layers that Keras has not ({', '.join(foreign)}): a script must import them before it opens "
            "the file.",
            style="yellow",
        )
    return out


def free_name(out: Path) -> Path:
    """Returns the first of FILE-2.keras, FILE-3.keras and so on that does not exist."""
    return next(name for number in itertools.count(2) if not (name := out.with_stem(f"{out.stem}-{number}")).exists())


def accuracy_text(correct: int, images: int) -> str:
    """Returns in words how many test photos were right, and the 95 % interval for this number of photos."""
    low, high = share_interval(correct, images)
    return (
        f"{correct:,} of {images:,} test photos right, {correct / images:.1%} "
        f"(95 % interval of so many photos: {low:.1%} to {high:.1%})"
    )
