"""Finds the fastest pipeline for a folder, a model and a device, proves it by measuring, and writes it as plain code.

python -m benchmarks.tune --data photos/train --model cats-dogs-64 --device cpu
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

import models
from benchmarks.lab.command import check_out, exit_code_of, new_folder, progress_bar, read_source, remove_if_empty
from benchmarks.lab.options import DATA, MODEL, UserError, config_from_file, settings
from benchmarks.tune import check
from benchmarks.tune.exactness import CLASSES, Exactness
from benchmarks.tune.own import advise, print_advice, to_dict
from benchmarks.tune.results import AUTOTUNE, HEURISTIC, NAIVE, Candidate, Limits, Say, Tuned
from benchmarks.tune.search import Tuner
from pipeline import ConfigError, ImageSource, PipelineConfig, SourceError
from pipeline.cache import cache_root
from pipeline.commands import ArgumentParser
from pipeline.config import config_from_dict, config_to_dict, config_to_toml
from pipeline.errors import ExportError
from pipeline.export import export
from pipeline.sources import add_skip_list_option
from profiles import Device, provenance
from profiles.devices import parse_device
from profiles.report import to_json, write_atomically
from profiles.statistics import geometric_mean, range_cell, range_text
from profiles.text import Terminal, print_files

BUDGET_S = 60.0
# What a search may take unasked, of what is free.
_FREE_RATIO = 0.5
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kMGT]?)B?")
_UNITS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_BAR_WIDTH = 34
_RESULTS = "tune.json"
# Options that have no meaning beside --check.
_NOT_CHECKED = ("pipeline", "model", "device", "batch_size", "config", "set")
# What a search chose.
_TOML, _SCRIPT = "tuned.toml", "tuned.py"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command.

    Returns:
      0; 2 for bad input; 3 if nothing could be measured; 128 + signal if stopped; and of a check 1 where a choice
      misses its goal, 4 where that could not be shown.
    """
    arguments = _parser().parse_args(argv)
    console, errors = Terminal(), Terminal(stderr=True)
    out = arguments.out or new_folder()
    try:
        return exit_code_of(lambda: _run(arguments, out, console, errors), errors, out)
    finally:
        remove_if_empty(out)


def _parser() -> argparse.ArgumentParser:
    parser = ArgumentParser(prog="python -m benchmarks.tune", description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--data", default=DATA, metavar="DIR|tfds:NAME|generated:N", help=f"images to train on (default: {DATA})")
    add("--pipeline", metavar="MODULE:FUNCTION", help="a function that returns your tf.data.Dataset, to advise on")
    add("--classes", type=int, default=2, metavar="N", help="classes of its labels, for a known model (default: 2)")
    add("--model", metavar="NAME", help=f"a known name, module:function, or FILE.keras (default: {MODEL})")
    add("--device", metavar="DEV", help="cpu, gpu, or emulated:RATE (default: cpu)")
    add("--memory-limit", metavar="SIZE", help="for caches and buffers, such as 2GB (default: half of what is free)")
    add("--disk-limit", metavar="SIZE", help="for caches and prepared copies (default: half of what is free)")
    add("--exactness", default="close", choices=CLASSES, help="how far images may be from full decode (default: close)")
    add("--budget", type=float, default=BUDGET_S, metavar="S", help=f"seconds of measuring (default: {BUDGET_S:g})")
    add("--batch-size", type=int, metavar="N", help="images a batch")
    add("--config", type=Path, metavar="FILE.toml", help="the draws, batch size and seed to keep")
    add("--set", action="append", default=[], metavar="FIELD=VALUE", help="changes one of those")
    add("--check", action="store_true", help="holds the tuner against exhaustive search over a small space")
    add_skip_list_option(parser)
    add("--out", type=Path, metavar="DIR", help="where tuned.toml, tuned.py and tune.json go (default: runs/TIME)")
    return parser


def _run(arguments: argparse.Namespace, out: Path, console: Console, errors: Console) -> int:
    model, device, base, limits = _request(arguments)
    searches = arguments.pipeline is None and not arguments.check
    check_out(out, _RESULTS, *((_TOML, _SCRIPT) if searches else ()))
    if arguments.pipeline is not None:
        return _advise(arguments, model, device, base.batch_size, limits, out, console, errors)
    if arguments.check:
        return _check(arguments, limits, out, console, errors)
    with progress_bar(errors) as progress:
        source = read_source(arguments.data, progress, errors, _RESULTS, arguments.skip_list)
        tuner = Tuner(source, model, device, base, limits, out, _shown_by(progress))
        try:
            tuned = tuner.search()
            tuner.close()
        except BaseException:
            tuner.kill()
            raise
    files = _write(out, tuned, source, model, device, limits)
    _print(console, tuned, source, model, device)
    try:
        files = (*files, _write_script(out, tuned.chosen.config, source))
    except (ExportError, SourceError, OSError) as error:
        console.print(f"no tuned.py: {error}", highlight=False, markup=False, emoji=False, soft_wrap=True)
    print_files(console, "written", *files)
    return 0


def _advise(
    arguments: argparse.Namespace,
    model: str,
    device: Device,
    batch_size: int,
    limits: Limits,
    out: Path,
    console: Console,
    errors: Console,
) -> int:
    with progress_bar(errors) as progress:
        show = _shown_by(progress)
        advice = advise(arguments.pipeline, model, arguments.classes, device, batch_size, limits, out, show)
    document = {"schema_version": 2, "provenance": provenance.machine(), "model": model, **to_dict(advice)}
    write_atomically(out / _RESULTS, to_json(document))
    print_advice(console, advice, arguments.pipeline, model, device)
    print_files(console, "written", out / _RESULTS)
    return 0


def _check(arguments: argparse.Namespace, limits: Limits, out: Path, console: Console, errors: Console) -> int:
    with progress_bar(errors) as progress:
        source = read_source(arguments.data, progress, errors, _RESULTS, arguments.skip_list)
        checks = check.check(source, limits, out, _shown_by(progress))
    document = {"schema_version": 2, "provenance": provenance.machine(), **check.to_dict(checks)}
    write_atomically(out / _RESULTS, to_json(document))
    check.print_checks(console, checks)
    return max(one.exit_code for one in checks)


def _shown_by(progress: Progress) -> Say:
    """Returns what shows, beside the bar, what is going on."""
    task = progress.add_task("starting", total=None)
    return lambda text: progress.update(task, description=text[:60], refresh=True)


def _request(arguments: argparse.Namespace) -> tuple[str, Device, PipelineConfig, Limits]:
    ignored = [f"--{name.replace('_', '-')}" for name in _NOT_CHECKED if getattr(arguments, name)]
    if arguments.check and ignored:
        raise UserError(f"--check measures models and devices of its own. Leave out: {', '.join(ignored)}.")
    model = arguments.model or MODEL
    try:
        models.check_name(model)
        device = parse_device(arguments.device or "cpu")
    except models.ModelError as error:
        raise UserError(f"--model {error}") from error
    except ValueError as error:
        raise UserError(f"--device: {error}") from error
    if arguments.pipeline is not None and not all(arguments.pipeline.partition(":")[::2]):
        raise UserError(f"--pipeline needs module:function. Received: {arguments.pipeline!r}.")
    if arguments.classes < 2:
        raise UserError(f"--classes must be at least 2. Received: {arguments.classes}.")
    if not arguments.budget > 0:
        raise UserError(f"--budget must be above 0 seconds. Received: {arguments.budget}.")
    base = config_from_file(arguments.config) if arguments.config else PipelineConfig()
    changes = settings(arguments.set)
    if arguments.batch_size is not None:
        changes["batch_size"] = arguments.batch_size
    try:
        base = config_from_dict(changes, base)
        # The draw, the batch and the seed are the user's; how they are made is what is searched.
        base = PipelineConfig(
            batch_size=base.batch_size,
            augmentation=base.augmentation,
            shuffle_buffer=base.shuffle_buffer,
            seed=base.seed,
        )
    except ConfigError as error:
        raise UserError(str(error)) from error
    memory_bytes = _FREE_RATIO * psutil.virtual_memory().available
    disk_bytes = _FREE_RATIO * shutil.disk_usage(_existing(cache_root())).free
    limits = Limits(
        memory_bytes=_bytes(arguments.memory_limit, "--memory-limit") if arguments.memory_limit else memory_bytes,
        disk_bytes=_bytes(arguments.disk_limit, "--disk-limit") if arguments.disk_limit else disk_bytes,
        exactness=arguments.exactness,
        budget_s=arguments.budget,
    )
    return model, device, base, limits


def _existing(folder: Path) -> Path:
    return folder if folder.exists() else _existing(folder.parent)


def _bytes(text: str, option: str) -> float:
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise UserError(f"{option} needs a size, such as 500MB or 2GB. Received: {text!r}.")
    return float(match[1]) * _UNITS[match[2]]


def _write(
    out: Path, tuned: Tuned, source: ImageSource, model: str, device: Device, limits: Limits
) -> tuple[Path, ...]:
    toml, results = out / _TOML, out / _RESULTS
    document = {
        "schema_version": 2,
        "provenance": provenance.machine(),
        "dataset": source.to_dict(),
        "model": model,
        "device": {"kind": device.kind, "name": device.name},
        "limits": asdict(limits),
        "chosen": tuned.chosen.name,
        "candidates": [_row(one) for one in tuned.measured],
        "any_order": None if tuned.unordered is None else [_row(one) for one in tuned.unordered],
        "costs": [{"stage": list(key), **asdict(cost)} for key, cost in tuned.costs.items()],
        "consumer": asdict(tuned.consumer),
        "predicted": tuned.predicted,
        "rejected": dict(tuned.rejected),
        "failed": [{"candidate": name, "reason": reason} for name, reason in tuned.failed],
        "prepare_s": tuned.prepare_s,
        "seconds": tuned.seconds,
    }
    write_atomically(results, to_json(document))
    write_atomically(toml, config_to_toml(tuned.chosen.config))
    return results, toml


def _write_script(out: Path, config: PipelineConfig, source: ImageSource) -> Path:
    """Writes the pipeline as a script, and all that the script reads: a copy of the whole source may have no room."""
    script = out / _SCRIPT
    write_atomically(script, export(config, source))
    return script


def _row(one: Candidate) -> dict[str, Any]:
    exactness = one.exactness
    return {
        "name": one.name,
        "config": config_to_dict(one.config),
        "prediction": asdict(one.prediction),
        "exactness": None if exactness is None else {**asdict(exactness), "class": exactness.name},
        "epoch_images_per_sec": list(one.epoch_images_per_sec),
        "again_images_per_sec": list(one.again_images_per_sec),
        "loader_images_per_sec": list(one.loader_images_per_sec),
    }


def _print(console: Console, tuned: Tuned, source: ImageSource, model: str, device: Device) -> None:
    def line(text: str, style: str = "") -> None:
        console.print(text, style=style, highlight=False, markup=False, emoji=False)

    incumbent = tuned.bar(AUTOTUNE) or tuned.measured[0]
    table = Table(
        box=None,
        title=Text(f"{model} on {device.name}, {source.images:,} images", style="bold"),
        title_justify="left",
        pad_edge=False,
    )
    table.add_column("pipeline", max_width=30)
    for column in ("predicted", "img/s", "of AUTOTUNE", "95 %", "pixels"):
        table.add_column(column, justify="right")
    # The rounds that all have, so that the figures of a row agree.
    shared = min(len(one.epoch_images_per_sec) for one in tuned.measured)
    for one in sorted(tuned.measured, key=lambda one: one.rate):
        ratio, interval = replace(one, epoch_images_per_sec=one.epoch_images_per_sec[:shared]).against(incumbent)
        table.add_row(
            one.name + (" *" if one is tuned.chosen else ""),
            f"{one.prediction.images_per_sec:,.0f}",
            f"{geometric_mean(one.epoch_images_per_sec[:shared]):,.0f}",
            f"{ratio:.2f}x",
            range_cell(interval),
            _pixels(one),
            style="bold" if one is tuned.chosen else "",
        )
    console.print(table)
    line("\n(*) chosen.  pixels: class, and mean difference in levels of 255, against full decode")
    line("")
    bars = [(name, bar) for name in (NAIVE, HEURISTIC, AUTOTUNE) if (bar := tuned.bar(name)) is not None]
    rates = [(name, one.rate) for name, one in (*bars, ("tuned", tuned.chosen))]
    for name, rate in rates:
        line(f"{name:<10}{'█' * max(1, round(_BAR_WIDTH * rate / max(rate for _, rate in rates)))} {rate:,.0f} img/s")
    line("")
    for text in _sentences(tuned, incumbent):
        line(text)


def _pixels(one: Candidate) -> str:
    if one.exactness is None:
        return "-"
    return (
        one.exactness.name if one.exactness.psnr_db is None else f"{one.exactness.name} {one.exactness.mean_levels:.1f}"
    )


def _sentences(tuned: Tuned, incumbent: Candidate) -> list[str]:
    chosen = tuned.chosen
    found = []
    if chosen is incumbent:
        again = any(one.again_images_per_sec for one in tuned.measured)
        which = (
            "the fastest was not significantly faster when both were measured again"
            if again
            else ("nothing that was measured is significantly faster")
        )
        found.append(f"{incumbent.name} stays: {which}.")
    else:
        again_against = chosen.again_against(incumbent)
        ratio, interval = again_against or chosen.against(incumbent)
        where = "; measured again, in rounds that did not choose it" if again_against else ""
        found.append(f"{chosen.name} is {ratio:.2f} times as fast as {incumbent.name} ({range_text(interval)}{where}).")
    found.append(_limit(chosen))
    if tuned.prepare_s:
        found.append(f"Before its first epoch it takes {tuned.prepare_s:,.1f} s, once.")
    found.append(_price_of_order(tuned))
    if chosen.exactness is not None and chosen.exactness.psnr_db is not None:
        one: Exactness = chosen.exactness
        found.append(
            f"Its pixels are {one.name}: {one.mean_levels:.1f} levels of 255 off on average, {one.largest_levels:.0f} "
            f"at most, {one.psnr_db:.1f} dB."
        )
    found += [f"could not be measured: {name}: {reason}" for name, reason in tuned.failed]
    rejected = "; ".join(f"{count:,} {reason}" for reason, count in tuned.rejected.most_common())
    found.append(
        f"{tuned.predicted:,} pipelines were predicted in {tuned.seconds:.0f} s in all. Not measured: {rejected}."
    )
    return found


def _price_of_order(tuned: Tuned) -> str:
    if tuned.chosen.config.workers == 1:
        return "One call at a time: `deterministic` costs nothing, and stays on."
    if tuned.unordered is None:
        return "The price of `deterministic`, which stays on, could not be measured."
    any_order, in_order = tuned.unordered
    ratio, interval = any_order.against(in_order)
    return (
        f"The price of `deterministic`, which stays on: {in_order.rate:,.0f} images/sec in a fixed "
        f"order, {any_order.rate:,.0f} in whatever order they are done: {ratio:.2f} times as fast "
        f"({range_text(interval)})."
    )


def _limit(one: Candidate) -> str:
    memory_bytes = one.prediction.memory_bytes
    where = {"compute": "the model itself", "cores": "the cores, which loader and model share"}
    limit = where.get(one.prediction.limit, f"the stage {one.prediction.limit}")
    return f"By the prediction its rate is set by {limit}; it takes {memory_bytes / 1e6:,.0f} MB of memory."


if __name__ == "__main__":
    sys.exit(main())
