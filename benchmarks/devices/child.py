"""Runs in the child process that holds a device, and measures cases there, one after another."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from unstall.benchmarks.devices.experiments import Case
from unstall.benchmarks.devices.feeds import Feed, Feeds, Sources
from unstall.benchmarks.devices.flops import step_bytes, work_per_example
from unstall.benchmarks.devices.peak import Peak, PeakMeter
from unstall.benchmarks.devices.samples import CaseFacts, Epoch, extent_of, train_window_s
from unstall.benchmarks.lab.backend import Refused, open_backend
from unstall.models import MODELS, compiled
from unstall.profiles import Device
from unstall.profiles.measure import WARMUP_LIMIT_S, batch_images, epochs_for, first_batches
from unstall.profiles.samples import Sample

if TYPE_CHECKING:
    from unstall.benchmarks.devices.inference import Inference
    from unstall.profiles.measure.windows import Windows

# The first step compiles; the second is timed.
_TRIAL_STEPS = 2
# An epoch has at least this many batches. Where single steps cannot be timed, the second of two such short epochs gives
# the rate of training: the first epoch includes tracing.
_LEAST_BATCHES, _RATE_EPOCHS = 3, 2


@dataclass(slots=True, kw_only=True)
class _Split:
    """The windows of a case whose single steps can be timed; `step_s` is how long a step of the model alone takes."""

    windows: Windows
    feed: Feed
    batches: list[Any]
    ready_steps: int
    epochs: int
    warmup: Sample
    step_s: float


@dataclass(slots=True, kw_only=True)
class _Opened:
    """The case that is being measured."""

    case: Case
    model: Any
    inputs: Any
    split: _Split | None
    inference: Inference | None = None


class DeviceSession:
    """Answers the parent; each request is a method."""

    def __init__(self, device: Device, sources: Sources) -> None:
        self._device = device
        self._feeds = Feeds(sources)
        self._opened: _Opened | None = None
        self._meter: tuple[str, PeakMeter] | None = None

    def backend(self) -> dict[str, Any]:
        """Describes the backend.

        Raises:
          Refused: if the device is missing.
        """
        return open_backend(self._device)

    def open(self, case: Case) -> CaseFacts:
        """Closes the open case, builds the network and the feed of another case, and runs a first, short epoch.

        Raises:
          Refused: if the case cannot be measured here.
        """
        from unstall.profiles.measure.backends import each

        self.close()
        one_by_one = case.steps_per_execution == 1
        if not one_by_one and self._device.kind == "emulated":
            raise Refused("an emulated device has no executions that could hold several steps")
        with self._feeds.open(case, batches=1) as feed:
            model = self._model(case, feed.classes)
            first = first_batches(feed.data)[0]
        step_s, split = self._split(case, model, first) if one_by_one else (None, None)
        self._opened = _Opened(case=case, model=model, inputs=first[0], split=split)
        work = work_per_example(model, each(lambda part: np.asarray(part)[:1], first[0]))
        if not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)
        return CaseFacts(
            examples=feed.examples,
            batch_size=batch_images(first),
            buffered_batches=feed.buffered_batches,
            parameters=model.count_params(),
            optimizer=MODELS[case.model].training.optimizer,
            loss=str(model.loss),
            jit_compile=bool(model.jit_compile),
            step_s=step_s,
            data=feed.name,
            fingerprint=feed.fingerprint,
            generated=feed.generated,
            validated=feed.validation is not None,
            notes=feed.notes,
            work=work,
            step_bytes=step_bytes(model, work, batch_images(first)),
            warmup=None if split is None else split.warmup,
        )

    def window(self, name: str, round_: int) -> Sample:
        """Measures a window of the open case: resident, replay, loader or train."""
        assert self._opened is not None and self._opened.split is not None
        split = self._opened.split
        if name == "resident":
            return split.windows.resident(split.batches[0], steps=split.ready_steps, round_=round_)
        if name == "replay":
            return split.windows.replay(split.batches, steps=split.ready_steps, round_=round_)
        run = split.windows.loader if name == "loader" else split.windows.train
        return run(split.feed.data, epochs=split.epochs, ramp_steps=split.feed.parallel_batches, round_=round_)

    def peak(self) -> Peak:
        """Measures the peak rates of the device, in the precision of the open case."""
        assert self._opened is not None
        precision = self._opened.case.precision
        if self._meter is None or self._meter[0] != precision:
            self._meter = None  # frees its large arrays before the next meter makes its own
            self._meter = precision, PeakMeter(self._device, precision)
        return self._meter[1].measure()

    def predict(self) -> float:
        """Returns how many examples a second the model predicts, from a batch that lies on the device."""
        from unstall.benchmarks.devices.inference import Inference

        assert self._opened is not None
        if self._opened.inference is None:
            self._opened.inference = Inference(self._opened.model, self._device, self._opened.inputs)
        return self._opened.inference.images_per_sec()

    def train(self, epochs: int, longest_s: float) -> tuple[Epoch, ...]:
        """Trains a new network of the case by the public `fit`, and times the epochs.

        Args:
          longest_s: epochs that would take longer have fewer batches.
        """
        assert self._opened is not None
        batch_size = batch_images((self._opened.inputs,))
        batches = max(_LEAST_BATCHES, int(longest_s * self._examples_per_sec() / batch_size))
        return self._fit(self._opened.case, epochs, batches)

    def close(self) -> None:
        """Closes the open case, and frees its memory on the device."""
        if self._opened is None:
            return

        import keras

        if self._opened.split is not None:
            self._opened.split.feed.close()
        self._opened = None
        keras.utils.clear_session()
        gc.collect()

    def _model(self, case: Case, classes: int) -> Any:
        import keras

        keras.config.set_dtype_policy(case.precision)
        model = compiled(MODELS[case.model], classes)
        model.steps_per_execution = case.steps_per_execution
        return model

    def _split(self, case: Case, model: Any, first: Any) -> tuple[float, _Split]:
        """Opens the windows of a case. Returns the seconds of a step of the model alone, and the windows."""
        from unstall.profiles.measure.measure import shapes
        from unstall.profiles.measure.windows import Windows

        windows = Windows(model, self._device)
        windows.prepare([first])
        trial = windows.resident(first, steps=_TRIAL_STEPS, round_=0)
        step_s = trial.wall_ns / len(trial.step_ns) / 1e9
        extent = extent_of(step_s, batch_images(first))
        feed = self._feeds.open(case, batches=extent.train_batches)
        try:
            batches = first_batches(feed.data)
            feed.forget()
            windows.prepare(shapes(batches))
            warmup = windows.train(
                feed.data,
                epochs=1,
                ramp_steps=feed.parallel_batches,
                round_=0,
                window="warmup",
                limit_s=WARMUP_LIMIT_S,
            )
        except BaseException:
            feed.close()
            raise
        return step_s, _Split(
            windows=windows,
            feed=feed,
            batches=batches,
            ready_steps=extent.ready_steps,
            epochs=epochs_for(warmup, train_window_s(self._device)),
            warmup=warmup,
            step_s=step_s,
        )

    def _examples_per_sec(self) -> float:
        """Returns about how fast the case trains, without the beginning and the end of epochs."""
        assert self._opened is not None
        if self._opened.split is not None:
            split = self._opened.split
            # A GPU may still compute when the warm-up has handed in its steps, so that the warm-up seems too fast.
            return 1 / max(split.warmup.s_per_image, split.step_s / batch_images((self._opened.inputs,)))
        case = self._opened.case
        last = self._fit(case, _RATE_EPOCHS, _LEAST_BATCHES * case.steps_per_execution)[-1]
        return last.examples / last.seconds

    def _fit(self, case: Case, epochs: int, batches: int) -> tuple[Epoch, ...]:
        from unstall.profiles.script.callback import WatchCallback

        watcher = WatchCallback()
        with self._feeds.open(case, batches=batches) as feed:
            logs = (
                self._model(case, feed.classes)
                .fit(feed.data, epochs=epochs, validation_data=feed.validation, callbacks=[watcher], verbose=0)
                .history
            )
        assert watcher.watch is not None
        accuracies = logs.get("val_accuracy") or logs.get("accuracy") or [None] * epochs
        return tuple(
            Epoch(
                examples=record.images or feed.served,
                seconds=record.epoch_ns / 1e9,
                traced_s=record.traced_ns / 1e9,
                accuracy=accuracy,
            )
            for record, accuracy in zip(watcher.watch.records, accuracies, strict=True)
        )
