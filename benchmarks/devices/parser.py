"""The command line of `unstall devices`."""

from __future__ import annotations

import argparse

from unstall.benchmarks.devices.experiments import FLOAT32, PRECISIONS
from unstall.benchmarks.lab.options import DATA, add_result_options
from unstall.needs import PHOTOS
from unstall.parser import ArgumentParser
from unstall.pipeline.commands import add_skip_list_option

# The shortest of the published experiments.
_EXPERIMENT = "mnist"
# The first epoch traces the network and fills buffers; the second takes as long as all later epochs.
_EPOCHS = 2
# Fewer than three rounds have no interval.
_ROUNDS = 3
_LONGEST_EPOCH_S = 60.0


def parser() -> argparse.ArgumentParser:
    arguments = ArgumentParser(
        prog="unstall devices",
        needs=PHOTOS,
        description="Reproduces the published comparisons of CPU and GPU, and says how much of a GPU's advantage "
        "loading takes.",
        epilog="With KERAS_BACKEND=jax, JAX trains and TensorFlow only loads.",
        allow_abbrev=False,  # a shortened --inference would run the experiments
    )
    add = arguments.add_argument
    add("--experiment", default=_EXPERIMENT, metavar="NAME,...", help=f"names, or all (default: {_EXPERIMENT})")
    add("--epochs", type=int, default=_EPOCHS, metavar="N", help=f"epochs of each case (default: {_EPOCHS})")
    add("--precision", default=FLOAT32, metavar="NAME", help=f"{', '.join(PRECISIONS)} (default: {FLOAT32})")
    add("--emulate", metavar="RATE", help="emulates an accelerator beside the devices here: images/sec, or a name")
    add("--price", metavar="DEV=X,...", help="per hour of a device, in any currency: cpu=0.10,gpu=0.90")
    add("--target-accuracy", type=float, metavar="X", help="prints the time to this accuracy, 0 to 1")
    add("--data", default=DATA, metavar="DIR|tfds:NAME|generated:N", help=f"photos (default: {DATA})")
    add_skip_list_option(arguments)
    add("--arrays", metavar="NAME=PATH,...", help=".npz files of the published data: mnist, cifar10, text, features")
    add("--download", action="store_true", help="lets keras.datasets download the published data that are not here")
    add("--rounds", type=int, default=_ROUNDS, metavar="N", help=f"windows of each kind (default: {_ROUNDS})")
    add(
        "--longest-epoch",
        type=float,
        default=_LONGEST_EPOCH_S,
        metavar="S",
        help=f"seconds; a longer epoch is cut short and extrapolated (default: {_LONGEST_EPOCH_S:.0f})",
    )
    add("--details", action="store_true", help="prints all tables and sentences, and the published figures")
    add("--list", action="store_true", help="lists the experiments and what was published, and ends")
    add(
        "--inference",
        action="store_true",
        help="predicts in float32, bfloat16 and int8 instead; --inference --help lists its options",
    )
    add("--check", action="store_true", help="lists the devices that can compute, tries each, and ends")
    add_result_options(arguments)
    return arguments
