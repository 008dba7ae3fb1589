"""The command line of `unstall tune`."""

from __future__ import annotations

import argparse
from pathlib import Path

from unstall.benchmarks.lab.options import (
    DATA,
    MODEL,
    add_result_options,
)
from unstall.needs import PHOTOS
from unstall.parser import ArgumentParser
from unstall.pipeline.commands import add_skip_list_option

# Seconds of measuring, and with --thorough.
# How far the images of a pipeline may be from full decoding, from the narrowest to the widest: see `exactness`.
CLASSES = ("identical", "close", "distribution")
BUDGET_S, THOROUGH_BUDGET_S = 35.0, 60.0


def parser() -> argparse.ArgumentParser:
    arguments = ArgumentParser(
        prog="unstall tune",
        needs=PHOTOS,
        description="Finds the fastest pipeline for a folder, a model and a device, proves it by measuring, and writes "
        "it as plain code: tuned.py, into the folder of --out, or else the current one.",
    )
    add = arguments.add_argument
    add("--data", default=DATA, metavar="DIR|tfds:NAME|generated:N", help=f"images to train on (default: {DATA})")
    add("--pipeline", metavar="MODULE:FUNCTION", help="a function that returns your tf.data.Dataset, to advise on")
    add("--classes", type=int, default=2, metavar="N", help="classes of the labels of --pipeline (default: 2)")
    add("--model", metavar="NAME", help=f"a known name, module:function, or FILE.keras (default: {MODEL})")
    add("--device", metavar="DEV", help="cpu, gpu, or emulated:RATE (default: cpu)")
    add("--memory-limit", metavar="SIZE", help="for caches and buffers, such as 2GB (default: half of what is free)")
    add("--disk-limit", metavar="SIZE", help="for caches and prepared copies (default: half of what is free)")
    add("--exactness", default="close", choices=CLASSES, help="how far images may be from full decode (default: close)")
    add(
        "--budget",
        type=float,
        metavar="S",
        help=f"seconds of measuring (default: {BUDGET_S:g}; with --thorough or --pipeline {THOROUGH_BUDGET_S:g})",
    )
    add("--thorough", action="store_true", help="measures more pipelines, in more rounds")
    add("--batch-size", type=int, metavar="N", help="images a batch")
    add("--config", type=Path, metavar="FILE.toml", help="augmentation, batch size, shuffle buffer and seed to keep")
    add("--set", action="append", default=[], metavar="FIELD=VALUE", help="changes one of those")
    add("--details", action="store_true", help="prints all tables and sentences")
    add_skip_list_option(arguments)
    add_result_options(arguments)
    return arguments
