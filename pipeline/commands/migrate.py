"""The command that writes Keras' old loaders of a script as tf.data, and compares both on the data.

unstall migrate train.py --write fix.diff
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import tempfile
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from unstall.needs import PHOTOS
from unstall.parser import ArgumentParser
from unstall.pipeline.commands.terminal import Stopped, decoders_unheard, signals, tell
from unstall.pipeline.errors import SourceError, WriteError
from unstall.pipeline.migration.loaders import FLOWS, Loader, Stays, loaders_of
from unstall.pipeline.migration.values import Script
from unstall.pipeline.migration.writing import cached_bytes, diff_text, drawn_text, module_text, script_text

if TYPE_CHECKING:
    from rich.console import Console

    from unstall.pipeline.migration.comparing import Compared

# Decoded images may take this part of the free memory.
_MEMORY_RATIO = 0.25
# Augmentation that moves pixels by so much more or less than Keras' is not the same.
_MOVED_RATIO = 0.15
# What some editors put in front of UTF-8.
_MARK = "\ufeff"
_WIDTH = 80
_LABEL = 13


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command. Returns 0; 1 if data differ; 2 for bad input; 3 if nothing can be written; 128 + signal."""
    arguments = _parser().parse_args(argv)
    # Hide GPUs: TensorFlow would take their memory, and nothing here needs them.
    os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="-1")
    from rich.console import Console

    console, errors = Console(), Console(stderr=True)
    try:
        with signals(), decoders_unheard() as noise:
            code = _run(arguments, console, errors)
    except SourceError as error:
        tell(errors, str(error), style="bold red")
        return 3 if isinstance(error, WriteError) else 2
    except Stopped as stopped:
        tell(errors, "stopped: nothing was written")
        return stopped.exit_code
    if warning := noise.sentence():
        tell(errors, warning, style="yellow")
    return code


def _parser() -> argparse.ArgumentParser:
    parser = ArgumentParser(
        prog="unstall migrate",
        needs=PHOTOS,
        description="Finds ImageDataGenerator, flow_from_directory, flow and image_dataset_from_directory in a script, "
        "which is not run; writes them as tf.data; compares both on the data.",
    )
    parser.add_argument("script", metavar="SCRIPT.py", help="the script; it stays as it is")
    parser.add_argument("--write", metavar="FIX.diff", type=Path, help="a new file: a diff with the new module")
    parser.add_argument("--no-compare", action="store_true", help="read no images: list and write only")
    return parser


def _run(arguments: argparse.Namespace, console: Console, errors: Console) -> int:
    path = Path(arguments.script)
    if arguments.write is not None and arguments.write.exists():
        raise SourceError(f"--write {arguments.write}: the file exists, and is not overwritten. Give another name.")
    script = _read(path)
    loaders, stays = loaders_of(script)
    if not loaders and not stays:
        raise SourceError(
            f"{path} has no ImageDataGenerator, image_dataset_from_directory or Sequence. Measure it: "
            f"unstall profile {shlex.quote(str(path))}"
        )
    module = _module_name(path, script)
    cached: dict[str, int] = {}
    compared: dict[str, Compared | str] = {}
    if not arguments.no_compare:
        for loader in loaders:
            compared[loader.name] = _compare(loader, cached, errors)
    hopeless = [loader for loader in loaders if loader.method not in FLOWS and loader.name not in cached]
    for loader in hopeless:
        reason = "tf.data already, decoding in parallel; what else helps: `unstall` before the script"
        comparison = compared.get(loader.name)
        if isinstance(comparison, str):
            reason = f"{comparison}; {reason}"
        elif comparison is not None:
            reason = f"its decoded images do not fit into {_MEMORY_RATIO:.0%} of the free memory; {reason}"
        stays.append(Stays(line=loader.line, what=loader.method, reason=reason))
    loaders = [loader for loader in loaders if loader not in hopeless]
    lines = list(_lines(path, module, loaders, stays, compared, cached))
    if loaders and arguments.write is not None:
        _write(arguments.write, path, script, module, loaders, cached)
        lines.append(("WRITTEN", f"{arguments.write}: {module}.py, and the calls of it in {path.name}."))
        lines.append(("NEXT", f"patch -p1 < {shlex.quote(str(arguments.write))}"))
    elif loaders:
        lines.append(("NEXT", f"unstall migrate {shlex.quote(str(path))} --write fix.diff"))
    for label, text in lines:
        if label in ("MIGRATED", "STAYS", "NEXT"):
            console.print()
        for number, part in enumerate(_wrapped(text)):
            tell(console, f"{label if number == 0 else '':<{_LABEL}}  {part}")
    return 1 if any(_differs(compared.get(loader.name)) for loader in loaders) else 0


def _read(path: Path) -> Script:
    try:
        return Script(path.read_bytes().decode("utf-8").removeprefix(_MARK))
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror or error}.") from error
    except (SyntaxError, ValueError, RecursionError) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        raise SourceError(f"{path}{line}: this is no Python that can be read: {error}.") from error


def _module_name(path: Path, script: Script) -> str:
    """Returns the name of a module that is not there yet, beside the script, and that nothing in the script has."""
    stem = path.stem if path.stem.isidentifier() else "images"
    names = (f"{stem}_data{number}" for number in ("", *range(2, 1000)))
    words = set(re.findall(r"\w+", script.text))
    return next(name for name in names if name not in words and not path.with_name(f"{name}.py").exists())


def _compare(loader: Loader, cached: dict[str, int], errors: Console) -> Compared | str:
    """Compares one loader, and notes whether its images are kept in memory. Returns why it could not instead."""
    if loader.directory is None:
        what = "its folder is" if loader.method != "flow" else "its arrays are"
        return f"{what} only known when the script runs"
    tell(errors, f"comparing {loader.name} on {loader.directory}")
    import psutil

    from unstall.pipeline.migration.comparing import Failed, compare, count_images

    try:
        size = cached_bytes(loader, count_images(loader, loader.directory))
        if sum(cached.values()) + size <= _MEMORY_RATIO * psutil.virtual_memory().available:
            cached[loader.name] = size
        with tempfile.TemporaryDirectory(prefix="unstall-migrate-") as scratch:
            return compare(loader, cached.get(loader.name), Path(scratch))
    except Failed as error:
        return f"{loader.directory}: {error}"


def _differs(compared: Compared | str | None) -> bool:
    """Whether the equivalent gives other data than the loader as written, as far as that is known."""
    if compared is None or isinstance(compared, str):
        return False
    if compared.unlike or compared.images[0] != compared.images[1]:
        return True
    if compared.moved_levels is None:
        return False
    theirs, ours = compared.moved_levels
    return abs(ours - theirs) > _MOVED_RATIO * theirs


def _lines(
    path: Path,
    module: str,
    loaders: Sequence[Loader],
    stays: Sequence[Stays],
    compared: Mapping[str, Compared | str],
    cached: Mapping[str, int],
) -> Iterator[tuple[str, str]]:
    """Yields what is printed, as (label, sentence)."""
    for loader in loaders:
        height, width = loader.image_size
        kept = f" Decoded images stay in memory ({cached[loader.name] / 1e6:,.0f} MB)." if loader.name in cached else ""
        drawn = f" {drawn_text(loader.draws).capitalize()}." if loader.draws.any else ""
        size = f" {height}x{width}." if loader.method != "flow" else ""
        yield "MIGRATED", f"{path.name}:{loader.line} {loader.method} -> {module}.{loader.name}.{size}{drawn}{kept}"
        comparison = compared.get(loader.name)
        if isinstance(comparison, str):
            yield "NOT COMPARED", f"{comparison}."
        elif comparison is not None:
            yield from _compared_lines(comparison)
    for stay in sorted(stays, key=lambda stay: stay.line):
        yield "STAYS", f"{path.name}:{stay.line} {stay.what}: {stay.reason}."


def _compared_lines(compared: Compared) -> Iterator[tuple[str, str]]:
    theirs, ours = compared.images
    listed = f"{ours:,} files" if theirs == ours else f"{ours:,} files, where Keras lists {theirs:,}"
    same = f"{listed}; {compared.compared - compared.unlike:,} of {compared.compared:,} images are alike, with their"
    text = f"{same} labels ({compared.off_levels:.1f} of 255 levels apart on average)"
    if compared.moved_levels is not None:
        text += (
            f"; augmentation changes a pixel by {compared.moved_levels[1]:.1f} levels, Keras' by "
            f"{compared.moved_levels[0]:.1f}"
        )
    yield "DIFFERENT" if _differs(compared) else "SAME", f"{text}."
    least, middle, most = compared.rates.speed_up
    before, after = compared.rates.medians
    rates = f"{before:,.0f} images/sec, then {after:,.0f}"
    label = "FASTER" if least > 1 else "NOT FASTER" if most <= 1 else "UNCERTAIN"
    rounds = f"{middle:.2f} times ({least:.2f} to {most:.2f} in {len(compared.rates.before)} rounds)"
    yield label, f"{rounds}: {rates}. The first epoch: {compared.first_ratio:.2f} times."


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH - _LABEL - 2, break_long_words=False, break_on_hyphens=False)


def _write(
    to: Path, path: Path, script: Script, module: str, loaders: Sequence[Loader], cached: Mapping[str, int]
) -> None:
    folder = os.path.relpath(path.parent)
    inside = "" if folder == "." else f"{Path(folder).as_posix()}/"
    if inside.startswith(("../", "/")):
        raise SourceError(f"{path} lies outside of this folder, where no diff reaches. Run from its folder.")
    new = diff_text(f"{inside}{module}.py", "", module_text(path.name, loaders, cached))
    mark = _MARK if path.read_bytes().startswith(_MARK.encode()) else ""
    before, after = script.text, script_text(script, loaders, module)
    changed = diff_text(f"{inside}{path.name}", f"{mark}{before}", f"{mark}{after}")
    partial = to.with_name(f"{to.name}.partial")
    try:
        partial.write_bytes((new + changed).encode())
        partial.rename(to)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise WriteError(f"{to} cannot be written: {error.strerror or error}.") from error
