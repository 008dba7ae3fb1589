"""Profiles data that feeds a model, in a script or a notebook: measurement, stages, verdict and report in one call."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any

from rich import get_console

from unstall import forks
from unstall.profiles import provenance
from unstall.profiles.data import Use, adapter
from unstall.profiles.devices import Device
from unstall.profiles.measure import backends
from unstall.profiles.measure.ahead import Ahead
from unstall.profiles.measure.batches import FitData
from unstall.profiles.measure.measure import measure_samples
from unstall.profiles.measure.schedule import ROUNDS
from unstall.profiles.measure.windows import Windows
from unstall.profiles.random_states import random_states_put_back
from unstall.profiles.remedies import Need, Trial, gains_of
from unstall.profiles.remedies.data import Data
from unstall.profiles.remedies.edits import variable_given
from unstall.profiles.remedies.turns import Measure
from unstall.profiles.report.document import Document, now
from unstall.profiles.report.measurements import (
    CALL,
    Measurement,
    MeasurementDocument,
    Measurements,
    Plan,
    derive,
    unlisted_dataset,
)
from unstall.profiles.report.notebook import Shown
from unstall.profiles.results.flags import Flag, FlagKind
from unstall.profiles.results.result import Result
from unstall.profiles.results.verdict import Verdict
from unstall.profiles.script import BUDGET_S
from unstall.profiles.script.report import with_facts_of
from unstall.profiles.stages.places import users_call
from unstall.profiles.stages.tf_graph import CutError
from unstall.profiles.statistics import Interval
from unstall.profiles.text import Terminal
from unstall.profiles.trial.held_fit import measure_with
from unstall.profiles.trial.progress import Progress, TrialProgress
from unstall.profiles.trial.trying import with_trial


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedied:
    """Data with remedies that made training faster.

    Attributes:
      name: of the remedies, joined by " + ".
      ratio: how many times as fast whole epochs are.
      ci95: its 95 % interval.
      effect: what the remedies do to the batches: "identical", "other order", "close" or "other draws".
      code: how the code reads with them.
      fit_arguments: the data, as `fit(**fit_arguments)` takes them: `x`, and for a repeated one `steps_per_epoch`.
    """

    name: str
    ratio: float
    ci95: Interval | None
    effect: str
    code: str
    fit_arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Profile(Shown):
    """What `profile` measured. Print it, or let a notebook show it.

    Attributes:
      data: as it was given.
      remedies: data with the remedies that helped: the best first, where one is chosen, and then the fastest first.
    """

    document: MeasurementDocument
    data: Any
    remedies: tuple[Remedied, ...] = ()

    @property
    def fit_arguments(self) -> Mapping[str, Any]:
        """The data with the best remedies, as `fit(**fit_arguments)` takes them; as it was given where none helped.

        Data that `fit` does not take, such as a function that returns batches, are as they were given, too.
        """
        return self.remedies[0].fit_arguments if self.remedies else {"x": self.data}

    @property
    def verdict(self) -> Verdict:
        """What limits the speed of training."""
        (verdict,) = derive(self.document)
        return verdict

    @property
    def result(self) -> Result:
        """The rates, the shares of an epoch, and the stages."""
        return self.verdict.result

    def _shown(self) -> MeasurementDocument:
        return self.document


def profile(
    data: Any,
    model: Any,
    *,
    device: str | Device = "auto",
    rounds: int = ROUNDS,
    name: str | None = None,
    lines: bool = False,
    class_weight: Mapping[int, float] | None = None,
    files_per_sample: int = 1,
    budget_s: float = BUDGET_S,
) -> Profile:
    """Measures how much of training `model` on `data` is loading and how much compute, and what each stage costs.

    Then tries remedies on the data and the model, if loading costs training time: `remedies` of what is returned.

    Trains the model for some epochs of the data, which changes weights, optimizer and metrics. To keep a model, profile
    a copy (`keras.models.clone_model`).

    Args:
      data: finite batches of what the model's train step takes, such as `(images, labels)`: a tf.data.Dataset, a
        keras.utils.PyDataset, any other iterable that can be read again, or a function that returns an iterable. The
        last two get no stage table.
      model: compiled, `steps_per_execution` 1.
      device: what the model runs on: "auto", "cpu", "gpu", or "emulated:RATE", which sleeps in place of the model's
        step.
      rounds: of training and of the model alone, at least 1. The loader alone is measured in the first 3 of them.
      name: of the data, in the report; that of the variable in the call unless given.
      lines: also time the lines of the slowest Python functions of the data.
      class_weight: of `fit`, for a tf.data.Dataset or a PyDataset.
      files_per_sample: from how many files the data makes a sample, such as 2 for a photo and its mask.
      budget_s: how long trying remedies may take; 0 for none. A trial that crashes or hangs does so in this process.
    Raises:
      ValueError: if the data or the model cannot be measured.
    """
    if callable(getattr(data, "fit", None)) and not callable(getattr(model, "fit", None)):
        raise ValueError(f"The data come first: profiles.profile(data, model). Received: data={type(data).__name__}.")
    if files_per_sample < 1:
        raise ValueError(f"`files_per_sample` must be at least 1. Received: files_per_sample={files_per_sample}.")
    console = Terminal(stderr=True)
    is_seen = console.is_terminal or get_console().is_jupyter
    variable = _variable(sys._getframe(1))
    name = name or variable or "data"
    # Workers that Keras forks here would otherwise collect the iterators that these measurements leave.
    with forks.not_collecting() if hasattr(data, "use_multiprocessing") else nullcontext():
        created = now()
        ahead: Ahead | None = None
        unread: tuple[Flag, ...] = ()
        try:
            ahead = adapter(data).ahead(data)
        except CutError as error:
            ahead, unread = Ahead(), (Flag(kind=FlagKind.UNREAD, text=str(error)),)
        line = f"measuring how long {name} and {model.name} take, alone and together, and the stages of {name}"
        with _told(is_seen, Progress(console, line, what="measuring")) as say:
            subject, samples, windows = measure_samples(
                data, model, device=device, rounds=rounds, name=name, ahead=ahead, class_weight=class_weight, begins=say
            )
            subject = replace(subject, doubts=(*subject.doubts, *unread), unit=subject.unit.of_files(files_per_sample))
            say("the stages")
            stages, annotated = adapter(data).stages_and_lines(
                data,
                lambda: windows,
                lines=lines,
                files=files_per_sample,
                note=lambda done, total: say(f"the stages, {done} of {total}"),
            )
        measurement = Measurement(subject=with_facts_of(subject, data), windows=(name,), stages=stages, lines=annotated)
        document = Document(
            command=CALL,
            created=created,
            complete=True,
            provenance={**provenance.machine(), **backends.backend()},
            plan=Plan(rounds=rounds, data=name),
            dataset=unlisted_dataset("given", name, subject.images),
            samples=Measurements(subjects=(measurement,), windows={name: tuple(samples)}),
        )
        if not budget_s:
            return Profile(document=document, data=data)
        held = _HeldData(name=name, arguments={"x": data}, windows=windows, variable=variable)
        progress = TrialProgress(console, name, budget_s, "budget_s; Ctrl-C ends it") if is_seen else None
        *_, last = document, *with_trial(document, held, budget_s=budget_s, progress=progress)
        return Profile(document=last, data=data, remedies=held.remedied(last.samples.trials.get(name, Trial())))


@contextmanager
def _told(is_seen: bool, progress: Progress) -> Iterator[Callable[[str], None]]:
    """Yields what says how far the measurement is; to nobody where nobody sees it."""
    with progress if is_seen else nullcontext():
        yield progress.say if is_seen else lambda what: None


def _variable(frame: FrameType) -> str | None:
    """Returns the variable that a call of `profile` gets as its data, in a script or in a notebook's cell."""
    place = users_call(frame)
    return variable_given("".join(linecache.getlines(place.file)), place, "data") if place is not None else None


@dataclass(slots=True, kw_only=True)
class _HeldData:
    """The data of `profile`, as `profiles.trial.trying.Held`."""

    name: str
    arguments: Mapping[str, Any]
    windows: Windows
    variable: str | None
    epochs: int | None = None
    data: Any = None

    @contextmanager
    def opened(self, needs: Sequence[Need]) -> Iterator[tuple[Data, Measure]]:
        with random_states_put_back():
            data = self.arguments["x"]
            steps = self.windows.steps_of(data) or None
            use = Use(arguments=self.arguments, epoch_batches=steps, name=self.variable)
            self.data = adapter(data).rebuilt(data, use, needs)
            yield self.data, measure_with(self.windows)

    def remedied(self, trial: Trial) -> tuple[Remedied, ...]:
        """Returns the data with each of the remedies that helped."""
        gains = gains_of(trial)
        helped = sorted(gains.helped(), key=lambda gain: gain is not gains.chosen)
        return tuple(
            Remedied(
                name=gain.name,
                ratio=gain.best[0],
                ci95=gain.best[1],
                effect=gain.effect,
                code=gain.contender.code or "\n".join(trial.remedy(name).code for name in gain.contender.remedies),
                fit_arguments=_fit_arguments(self.data.whole(gain.contender.remedies)),
            )
            for gain in helped
        )


def _fit_arguments(data: Any) -> Mapping[str, Any]:
    return data.arguments if isinstance(data, FitData) else {"x": data}
