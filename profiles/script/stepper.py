"""Times the calls of a model's train or test function, and how long each of them waits for its batch."""

from __future__ import annotations

import inspect
import random
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import keras

from unstall.profiles import clock
from unstall.profiles.data.numbers import reference_to
from unstall.profiles.data.tf_iterators import Ready, spec_of, traced_as
from unstall.profiles.measure.ahead import Ahead
from unstall.profiles.measure.backends import BACKENDS, device_here, synchronise_torch
from unstall.profiles.measure.batches import REPLAY_BYTES, unit_in
from unstall.profiles.measure.completion import Completion
from unstall.profiles.measure.epochs import EpochRecord
from unstall.profiles.measure.steps import Epoch, Step, steady_part
from unstall.profiles.measure.sums import NOTHING_DRAWN
from unstall.profiles.script.counting import images_in, iterator_count, size_bytes
from unstall.profiles.script.keras_private import images_weighed, missing_to_count
from unstall.profiles.script.watched import WatchedFunction, can_be_pulled
from unstall.profiles.unit import Unit

# The step of a new batch size is taken for one that traces, for so many sizes: beyond, every batch has its own size.
_TRACED_SIZES = 8


class Stepper:
    """Times the steps of the epochs of one `fit`, or of its validations, and sums them up.

    The original function runs on the same batches, in the same trace, so that results stay the same bit for bit.
    A stepper holds no reference to the model or its data, except to the batches in `kept`.

    Keras on TensorFlow converts the logs of every step to numbers and so waits for the device: a stepper waits, too. On
    JAX the device computes behind the host; a thread notes when each step is done, and no step waits for it.

    Args:
      model: about to be trained.
      name: of the attribute that holds the function: "train_function", "test_function" or "predict_function".
      workers: how many make batches at the same time, as far as that is known.
      keep_batches: how many batches to keep; batches of different sizes are preferred.
      on_steps: called with the number of steps that were just made. An error that it raises ends `fit`.

    Attributes:
      kept: batches; the caller empties the list when it has used them.
      batch_spec: of the tf.data iterator of the batches.
      unit: what the batches hold; None before the first.
      why_unknown: why the waiting, or everything, is unknown; None if known.
      traces: number of steps that traced or compiled, by the cause.
    """

    def __init__(
        self,
        model: Any,
        name: str,
        *,
        workers: int = 1,
        keep_batches: int = 0,
        on_steps: Callable[[int], None] | None = None,
    ) -> None:
        self.kept: list[Any] = []
        self.batch_spec: Any = None
        self.unit: Unit | None = None
        self.why_unknown: str | None = None
        self.traces: dict[str, int] = {}
        self._name = name
        self._model_ref = weakref.ref(model)
        self._steady = steady_part(Ahead(parallel_batches=workers))
        self._keep_batches = keep_batches
        self._on_steps = on_steps
        self._watched: Callable[[], WatchedFunction | None] = _nothing
        self._epoch: Epoch | None = None
        self._expected_steps: int | None = None
        # The iterator that tf.data has counted for, which may serve several epochs; what was drawn from it before this
        # epoch, and until the last look.
        self._iterator: Callable[[], Any] = _nothing
        self._drawn_before = self._drawn = NOTHING_DRAWN
        self._end: BaseException | None = None
        self._sizes: set[int | None] = set()
        self._random = random.Random(0)  # not the global random state, which is the user's
        self._synchronise: Callable[[Any], None] | None = None
        # What waits for steps that the device may not have finished; None where the host waits for each step.
        self._completion: Completion | None = None
        backend = keras.backend.backend()
        self._supported = backend in (*BACKENDS, "torch")
        self._jax, self._torch = backend == "jax", backend == "torch"
        self._predicts = name == "predict_function"
        if not self._supported:
            self.why_unknown = f"the steps of Keras' {backend} backend cannot be watched"
            return
        if self._torch:
            self._synchronise = synchronise_torch()
            return
        device = device_here()
        if device.asynchronous or self._jax:
            self._synchronise = BACKENDS[backend](device).synchronise
        if self._jax:
            self._completion = Completion(BACKENDS[backend](device).synchronise, BACKENDS[backend].is_ready)

    @property
    def _model(self) -> Any:
        return self._model_ref()

    @property
    def runs(self) -> bool:
        """Whether an epoch was begun and not closed."""
        return self._epoch is not None

    @property
    def steps_per_execution(self) -> int:
        """How many steps Keras makes in a call of the function."""
        return int(getattr(self._model, "steps_per_execution", 1))

    @property
    def steps(self) -> int:
        """Steps of the epoch so far."""
        return 0 if self._epoch is None else self._epoch.begun_steps

    def begin(self, epoch: int, steps: int | None) -> None:
        """Begins to time an epoch; the function of the model is replaced by `replace_function`.

        Args:
          epoch: number of the epoch, or of the validation.
          steps: of it; None where Keras does not know their number.
        """
        self._drawn_before = self._drawn
        if self._supported:
            self._epoch = Epoch(number=epoch, steady=self._steady, random_=self._random)
            self._expected_steps = steps

    def replace_function(self) -> None:
        """Takes the place of the model's function, until `end_steps` or an error."""
        if self._epoch is not None:
            watched = WatchedFunction(self, self._model, self._name)
            setattr(self._model, self._name, watched)
            self._watched = weakref.ref(watched)

    def end_steps(self, *, whole: bool) -> None:
        """Notes that the steps have ended, and restores the model's function.

        Args:
          whole: whether all steps were made.
        """
        watched, self._watched = self._watched(), _nothing
        if watched is not None:
            watched.stop()
        epoch = self._epoch
        if epoch is None or epoch.ended:
            return
        if self._completion is not None:
            epoch.settle(self._completion.take_all())
        if not epoch.steps:
            return
        if epoch.unread_steps:
            self._read(epoch, None if watched is None else watched.iterator)
        epoch.end_steps(whole=whole)

    def close(self, *, whole: bool) -> EpochRecord | None:
        """Ends the epoch, and returns its record; None if it made no step.

        Args:
          whole: as for `end_steps`; ignored after a call of `end_steps`.
        """
        self.end_steps(whole=whole)
        epoch, self._epoch = self._epoch, None
        return epoch.record() if epoch is not None and epoch.steps else None

    def add_hook(self, before_ns: int, done_ns: int) -> None:
        """Adds the time of one of Keras' batch hooks."""
        if self._epoch is not None and not self._epoch.ended:
            self._epoch.add_hook(before_ns, done_ns)

    def leave_out(self, before_ns: int, done_ns: int) -> None:
        """Leaves out a hook of callbacks before the first step or after the last."""
        if self._epoch is not None:
            self._epoch.leave_out(before_ns, done_ns)

    def step(self, watched: WatchedFunction, arguments: tuple[Any, ...]) -> Any:
        """Runs the original function once and times it."""
        self.end_if_due()
        epoch, original = self._epoch, watched.original
        assert epoch is not None
        entered_ns = clock.now_ns()
        *state, iterator = arguments
        if isinstance(iterator, Ready):  # an outer watch has drawn the batch already
            entered_ns = iterator.entered_ns
        steps_before = self.steps
        if self._jax:
            result = self._run_on_jax(epoch, original, state, iterator)
        elif self._torch or self._predicts:
            result = self._run_on_list(epoch, original, iterator, entered_ns)
        elif self._model.steps_per_execution == 1 and can_be_pulled(self._model, original, iterator):
            result = self._pull_and_run(epoch, original, iterator, entered_ns)
        else:
            result = self._run_whole(epoch, original, iterator)
            watched.iterator = iterator
        epoch.add_whole_call(entered_ns, clock.now_ns())
        try:
            if self._on_steps is not None:
                self._on_steps(self.steps - steps_before)
        except (KeyboardInterrupt, SystemExit) as end:
            if not self._jax:
                raise
            # On JAX the step has deleted the arrays of the model's variables, and Keras assigns the new ones, which
            # `result` holds, only if the call returns.
            self._end = end
        return result

    def end_if_due(self) -> None:
        """Ends `fit` if it was to end behind a step on JAX, whose result Keras had to get first."""
        end, self._end = self._end, None
        if end is not None:
            raise end

    def _pull_and_run(self, epoch: Epoch, original: Callable[..., Any], iterator: Any, entered_ns: int) -> Any:
        before_ns = clock.now_ns()
        try:
            batch = next(iterator)
        except StopIteration:
            return self._run_without_batch(epoch, original, iterator)
        fetched_ns = clock.now_ns()
        if isinstance(iterator, Ready):  # an outer watch has drawn the batch already
            before_ns -= iterator.wait_ns
        images = images_in(batch, self._model)
        self._keep(batch, images, spec_of(iterator))
        is_new = self._is_new_size(images)
        if self._model.run_eagerly or isinstance(original, WatchedFunction):
            result, traced = original(Ready(batch, entered_ns, fetched_ns - before_ns, spec_of(iterator))), is_new
        else:
            function = traced_as(original, spec_of(iterator))
            traces = function.experimental_get_tracing_count()
            result = function(batch)
            # XLA compiles for each size of a batch, in one trace for all sizes.
            traced = function.experimental_get_tracing_count() > traces or (is_new and bool(self._model.jit_compile))
        if self._synchronise is not None:
            self._synchronise(result)
        self._note_size(images, traced=traced)
        hooks = epoch.take_hooks()
        epoch.add(
            Step(
                asked_ns=before_ns,
                fetched_ns=fetched_ns,
                done_ns=clock.now_ns(),
                images=images,
                traced=traced,
                hooks=hooks,
            )
        )
        return result

    def _run_without_batch(self, epoch: Epoch, original: Callable[..., Any], iterator: Any) -> Any:
        """Runs a step after the last batch, as `fit` does where it does not know the number of batches.

        TensorFlow runs what of the step needs no batch before the step fails: it counts the step and its samples in the
        metrics and the optimizer, and draws. Without any batch at all, Keras builds the model's state in this call.

        Raises:
          StopIteration: as `fit` expects it.
        """
        began_ns = clock.now_ns()
        try:
            return original(iterator)
        except Exception as error:
            if type(error).__name__ == "OutOfRangeError":
                raise StopIteration from error
            raise
        finally:
            # Most of this time is tracing, which the script's own step has done already.
            epoch.add_watch(clock.now_ns() - began_ns)

    def _run_on_jax(self, epoch: Epoch, original: Callable[..., Any], state: list[Any], iterator: Any) -> Any:
        assert self._completion is not None
        pulls: list[tuple[int, int | None]] = []
        asked_ns = clock.now_ns()
        self._completion.look(asked_ns)
        result = original(*state, self._timed(iterator, pulls))
        images = [number for _, number in pulls if number is not None]
        total = sum(images) if len(images) == len(pulls) else None
        traced = self._is_new_size(total)
        self._note_size(total, traced=traced)
        epoch.hand_over(
            Step(
                asked_ns=asked_ns,
                fetched_ns=asked_ns + sum(wait for wait, _ in pulls),
                done_ns=clock.now_ns(),
                images=total,
                steps=len(pulls),
                traced=traced,
                hooks=epoch.take_hooks(),
            )
        )
        if self._synchronise is not None and (self._model.run_eagerly or not self._model.jit_compile):
            self._synchronise(result)  # the step is many computations, and its logs are not the last of them
        # The logs, and not the state, whose arrays the next step deletes.
        self._completion.add(result[0])
        epoch.settle(self._completion.take())
        return result

    def _run_on_list(self, epoch: Epoch, original: Callable[..., Any], data: Any, entered_ns: int) -> Any:
        """Runs a step on batches that Keras has fetched: of `predict`, and of all functions on PyTorch.

        On PyTorch the batch is fetched between the batch hooks of two steps, and else behind the hooks.

        Args:
          data: a list of batches.
        """
        hooks = epoch.take_hooks()
        if self._torch:
            # Before the first step there is no hook of an earlier one: its batch is a part of the epoch's edge.
            fetched_ns = hooks[-1][0] if hooks else entered_ns
            asked_ns, inside = (hooks[0][1] if len(hooks) > 1 else fetched_ns), hooks[:-1]
        else:
            asked_ns, fetched_ns, inside = (hooks[-1][1] if hooks else entered_ns), entered_ns, hooks
        numbers = [images_in(batch, self._model) for batch in data]
        images = None if None in numbers else sum(number or 0 for number in numbers)
        traced = not self._torch and self._is_new_size(images)
        self._keep(data[0], images, None)
        result = original(data)
        if self._synchronise is not None:
            self._synchronise(result)
        self._note_size(images, traced=traced)
        epoch.add(
            Step(
                asked_ns=asked_ns,
                fetched_ns=fetched_ns,
                done_ns=clock.now_ns(),
                images=images,
                steps=len(data),
                traced=traced,
                hooks=inside,
            )
        )
        if self._torch:
            epoch.add_fetch(fetched_ns - asked_ns)
        return result

    def _timed(self, iterator: Any, pulls: list[tuple[int, int | None]]) -> Iterator[Any]:
        """Yields the batches of a step on JAX, where the iterator is plain Python, and times each when it is drawn.

        Args:
          pulls: gets (waiting in nanoseconds, images or None if unknown) of each batch.
        """
        assert self._completion is not None
        while True:
            asked_ns = clock.now_ns()
            try:
                batch = next(iterator)
            except StopIteration:
                return
            came_ns = clock.now_ns()
            self._completion.look(came_ns)
            pulls.append((came_ns - asked_ns, images_in(batch, self._model)))
            self._keep(batch, pulls[-1][1], None)
            yield batch

    def _run_whole(self, epoch: Epoch, original: Callable[..., Any], iterator: Any) -> Any:
        """Runs several steps in one call: only TensorFlow sees their batches, but tf.data counts them.

        tf.data also knows the pauses between batches. They do not say how long steps wait, since TensorFlow draws the
        next batch while it computes.
        """
        if inspect.isgenerator(iterator):  # of `train_on_batch` in a callback
            return original(iterator)
        before_ns = clock.now_ns()
        result = original(iterator)
        if self._synchronise is not None:
            self._synchronise(result)
        done_ns, traced = clock.now_ns(), self._is_new_size(None)
        self._note_size(None, traced=traced)
        first = not epoch.steps
        epoch.add(
            Step(
                asked_ns=before_ns,
                fetched_ns=None,
                done_ns=done_ns,
                images=None,
                steps=self._model.steps_per_execution,
                traced=traced,
                hooks=epoch.take_hooks(),
            )
        )
        if first:
            self.unit = unit_in(spec_of(iterator))
            self._read(epoch, iterator)
        return result

    def _read(self, epoch: Epoch, iterator: Any) -> None:
        self.why_unknown = "batches are drawn where only TensorFlow sees it, several in a call or for several devices"
        if self._iterator() is not iterator:
            self._iterator, self._drawn_before = reference_to(iterator) or _nothing, NOTHING_DRAWN
        counted = iterator_count(iterator, epoch.steps, self._expected_steps, self._drawn_before)
        self._drawn = self._drawn_before + counted
        missing = missing_to_count(self._model) if counted.images is None else None
        if missing is not None:
            self.why_unknown += f"; {missing}"
        epoch.read(counted if counted.images is not None else replace(counted, images=images_weighed(self._model)))

    def _is_new_size(self, images: int | None) -> bool:
        """Whether no batch had this size before. JAX traces a step anew for each size."""
        return images not in self._sizes and len(self._sizes) < _TRACED_SIZES

    def _note_size(self, images: int | None, *, traced: bool) -> None:
        """Notes the size of a batch, and why its step traced or compiled if it did."""
        if traced:
            largest = max((size for size in self._sizes if size), default=0)
            if not self._sizes:
                cause = "the first step"
            elif images in self._sizes:
                cause = "a size that was seen before"
            else:
                cause = "a smaller batch" if (images or 0) < largest else "a larger batch"
            self.traces[cause] = self.traces.get(cause, 0) + 1
        self._sizes.add(images)

    def _keep(self, batch: Any, images: int | None, batch_spec: Any) -> None:
        self.batch_spec = batch_spec
        self.unit = self.unit or unit_in(batch)
        if len(self.kept) >= self._keep_batches or images is None:
            return
        if images not in self._sizes or len(self.kept) < self._keep_batches - 1:  # the last place is for another size
            weight = sum(size_bytes(part) for part in keras.tree.flatten(batch))
            if not self.kept or weight * (len(self.kept) + 1) <= REPLAY_BYTES:
                self.kept.append(batch)


def _nothing() -> None:
    """Takes the place of a weak reference where there is no object to refer to."""
