"""The command that writes a copy of a source that is faster to read, and says what that cost and when it pays.

unstall materialize --data photos/train --out prepared/train --as raw --image-size 64
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from unstall.needs import PHOTOS
from unstall.parser import ArgumentParser
from unstall.pipeline import clock
from unstall.pipeline.commands.options import add_skip_list_option
from unstall.pipeline.commands.terminal import Stopped, decoders_unheard, signals, tell
from unstall.pipeline.config import AUTO, CHOICES, PipelineConfig
from unstall.pipeline.errors import SourceError, UnavailableError, WriteError, first_line
from unstall.pipeline.rates import Rates
from unstall.text import printable

if TYPE_CHECKING:
    from rich.console import Console

    from unstall.pipeline.prepared.write import Prepared
    from unstall.pipeline.sources.source import ImageSource, Progress

_ROUNDS = 3
# Rates of the source and of its copy are measured on at most this many images.
_MEASURED_IMAGES = 2000


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command.

    Returns 0; 2 for bad input, 3 if the copy cannot be written, or its rate not be measured, 128 + signal if stopped.
    """
    arguments = _parser().parse_args(argv)
    # Hide GPUs: TensorFlow would take their memory, and nothing here needs them.
    os.environ.update(TF_CPP_MIN_LOG_LEVEL="2", CUDA_VISIBLE_DEVICES="-1")
    from rich.console import Console

    errors = Console(stderr=True)
    try:
        with signals(), decoders_unheard() as noise:
            prepared, rates = _run(arguments, errors)
    except SourceError as error:
        tell(errors, str(error), style="bold red")
        return 3 if isinstance(error, WriteError) else 2
    except _Unmeasured as unmeasured:
        text = f"{unmeasured.prepared.form} copy: {unmeasured.prepared.folder}. {unmeasured}"
        tell(errors, text, style="bold red")
        return unmeasured.exit_code
    except Stopped as stopped:
        tell(errors, "stopped: nothing was left behind")
        return stopped.exit_code
    if warning := noise.sentence():
        tell(errors, warning, style="yellow")
    Console().print(describe(prepared, rates), highlight=False, markup=False, emoji=False, soft_wrap=True)
    return 0


class _Unmeasured(Exception):
    """The copy is complete, and how fast it is read is not known."""

    def __init__(self, prepared: Prepared, why: str, *, exit_code: int) -> None:
        super().__init__(f"It is complete. How fast it is read was not measured: {why}.")
        self.prepared, self.exit_code = prepared, exit_code


def _parser() -> argparse.ArgumentParser:
    parser = ArgumentParser(
        prog="unstall materialize",
        needs=PHOTOS,
        description="Writes a copy of a source that is faster to read, and says what that cost and when it pays.",
    )
    add = parser.add_argument
    add("--data", required=True, metavar="DIR|tfds:NAME|generated:N", help="the images to copy")
    add("--out", required=True, metavar="DIR", help="a folder that is not there yet, to be given as --data later")
    add(
        "--as",
        dest="form",
        required=True,
        choices=CHOICES["storage"][1:],
        help="resized: JPEG files at one size; records: TFRecord of the files' bytes; raw: pixels in one mapped file",
    )
    add_skip_list_option(parser)
    add("--image-size", type=_size, default=(64, 64), metavar="N|HxW", help="pixels of raw and resized (default: 64)")
    add("--decode", choices=CHOICES["decode"], default="full", help="scaled: JPEGs at a fraction of their size")
    return parser


def _size(text: str) -> tuple[int, int]:
    sides = re.fullmatch(r"([1-9]\d{0,4})(?:x([1-9]\d{0,4}))?", text)
    if not sides:
        raise argparse.ArgumentTypeError(f"must be a number of pixels, or HEIGHTxWIDTH. Received: {text}")
    return int(sides[1]), int(sides[2] or sides[1])


def _run(arguments: argparse.Namespace, errors: Console) -> tuple[Prepared, Rates]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from unstall.pipeline.opening import open_source
    from unstall.pipeline.sources.skip_list import read_skip_list

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    progress = Progress(*columns, console=errors, auto_refresh=False, transient=True, disable=not errors.is_terminal)
    # Without a terminal rich 13 shows no bar, but still prints the empty line at its end.
    with progress if errors.is_terminal else contextlib.nullcontext():
        task = progress.add_task("reading", total=None)

        def report(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total, refresh=done % 32 == 0 or done == total)

        source = open_source(arguments.data, skip_list=read_skip_list(arguments.skip_list), progress=report)
        for sentence in source.left_out("unstall doctor names all"):
            tell(errors, sentence, style="yellow")
        progress.reset(task, description=f"writing {arguments.form}")
        materialize = _materialize()

        config = PipelineConfig(
            image_size=arguments.image_size, decode=arguments.decode, augmentation=None, workers=AUTO, prefetch=AUTO
        )
        prepared = materialize(source, arguments.out, arguments.form, config, progress=report)
        progress.reset(task, description="measuring")
        import tensorflow as tf

        refusals = (tf.errors.OpError, SourceError, UnavailableError)  # of a damaged file, which records keep as it is
        try:
            return prepared, measure(source, open_source(arguments.out), config, report)
        except refusals as error:
            raise _Unmeasured(prepared, first_line(error), exit_code=3) from error
        except Stopped as stopped:
            raise _Unmeasured(prepared, "stopped", exit_code=stopped.exit_code) from stopped


def _materialize() -> Callable[..., Prepared]:
    """Imports TensorFlow, so that what it writes to stderr comes before the copy; returns `materialize`."""
    import tensorflow as tf

    from unstall.pipeline.prepared.write import materialize

    tf.config.list_physical_devices()  # looks for GPUs, and writes about them, now
    return materialize


def measure(source: ImageSource, copy: ImageSource, config: PipelineConfig, report: Progress | None = None) -> Rates:
    """Times reading the source and its copy, in turn; the first round is not counted.

    Args:
      source: the images that were copied.
      copy: what `materialize` wrote.
      config: the pipeline that reads the source; the copy is always decoded in full.
      report: called with (rounds done, rounds in all).
    """
    from unstall.pipeline.building import build

    rates: tuple[list[float], list[float]] = ([], [])
    batches = math.ceil(_MEASURED_IMAGES / config.batch_size)
    with (
        build(config, _measured(source)) as before,
        build(replace(config, decode="full"), _measured(copy)) as after,
    ):
        for round_ in range(_ROUNDS + 1):
            for loader, loader_rates in zip((before, after), rates, strict=True):
                begin_ns = clock.now_ns()
                images = sum(len(labels) for _, labels in loader.data.take(batches))
                if round_:
                    loader_rates.append(images / ((clock.now_ns() - begin_ns) / 1e9))
            if report:
                report(round_ + 1, _ROUNDS + 1)
    return Rates(before=tuple(rates[0]), after=tuple(rates[1]))


def _measured(source: ImageSource) -> ImageSource:
    """Returns some of the files of a folder. A copy in few large files stays whole: another reader serves its parts."""
    return source.take(_MEASURED_IMAGES) if source.root is not None else source


def describe(prepared: Prepared, rates: Rates) -> str:
    """Returns the text that the command prints."""
    before, after = rates.medians
    least, middle, most = rates.speed_up
    share = prepared.prepared_bytes / prepared.source_bytes
    return "\n".join(
        [
            f"{prepared.form} copy: {printable(prepared.folder)}",
            f"images       {prepared.images:,}",
            f"size         {prepared.source_bytes / 1e6:,.1f} MB before, {prepared.prepared_bytes / 1e6:,.1f} MB after "
            f"({share:.0%})",
            f"one-off      {prepared.seconds:.1f} s",
            f"reading      {before:,.0f} images/sec before, {after:,.0f} after: {middle:.2f} times as fast "
            f"({least:.2f} to {most:.2f} in {len(rates.before)} rounds)",
            f"pays after   {_payoff(prepared, rates)}",
        ]
    )


def _payoff(prepared: Prepared, rates: Rates) -> str:
    """Returns after how many epochs the copy pays: its one-off seconds over the seconds that an epoch gets shorter."""
    before, after = rates.medians
    saved_s = prepared.images / before - prepared.images / after
    least, _, most = rates.speed_up
    if most <= 1 or saved_s <= 0:
        return "never: reading the copy is no faster than reading the source"
    if least <= 1:
        return "not shown: reading the copy was not faster in every round"
    return f"{prepared.seconds / saved_s:.1f} epochs, if training waits for reading: {saved_s:.2f} s an epoch are saved"
