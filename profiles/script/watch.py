"""Watches a running `fit`: times how long each step waits for its batch, without changing what `fit` computes."""

from __future__ import annotations

import random
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import keras

from profiles import clock
from profiles.measure.backends import BACKENDS, check_backend, device_here
from profiles.measure.batches import REPLAY_BYTES, unit_in
from profiles.script.counting import images_in, iterator_count, size_bytes
from profiles.script.epochs import KEPT_EPOCHS, EpochRecord, Tally
from profiles.script.keras_private import images_weighed, missing_to_count
from profiles.unit import Unit

# How many first steps of an epoch are not steady, because buffers fill and workers start.
RAMP_STEPS = 2
# The step of a new batch size is taken for one that traces, for so many sizes: beyond, every batch has its own size.
_TRACED_SIZES = 8


class _Ready:
    """An iterator over one fetched batch, which a watch passes to a train function that may be a watch as well.

    Attributes:
      entered_ns: when the outermost watch was called.
      wait_ns: how long the outermost watch waited for the batch.
    """

    def __init__(self, batch: Any, entered_ns: int, wait_ns: int, element_spec: Any) -> None:
        self.entered_ns = entered_ns
        self.wait_ns = wait_ns
        self.element_spec = element_spec
        self._batches = [batch]

    def __iter__(self) -> _Ready:
        return self

    def __next__(self) -> Any:
        if not self._batches:
            raise StopIteration
        return self._batches.pop()


class _Watched:
    """Takes the place of a model's train function until `stop` is called, or until another `fit` begins.

    Only the model holds a reference to this object, so that it is freed with the model.

    Attributes:
      last_result: of the last step, which an asynchronous device may still be computing.
      iterator: that the last call drew from, where only TensorFlow sees the batches.
    """

    def __init__(self, watch: Watch, model: Any) -> None:
        self.original = model.train_function
        self.last_result: Any = None
        self.iterator: Any = None
        self._watch: Watch | None = watch
        self._model = model
        self._history = getattr(model, "history", None)

    @property
    def active(self) -> bool:
        return self._watch is not None

    @property
    def innermost(self) -> Any:
        """The model's own train function."""
        return self.original.innermost if isinstance(self.original, _Watched) else self.original

    def __call__(self, *arguments: Any) -> Any:
        if self._watch is not None and getattr(self._model, "history", None) is not self._history:
            self.stop()  # an error between two steps has ended the `fit` that was watched
        if self._watch is None:
            return self.original(*arguments)
        try:
            return self._watch.step(self, arguments)
        except StopIteration:
            raise
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Restores the model's train function. An outer watch that is still active stays in its place."""
        self._watch = None
        function = self._model.train_function
        while isinstance(function, _Watched) and not function.active:
            function = function.original
        if function is not self._model.train_function:
            self._model.train_function = function


class Watch:
    """Times the steps of one `fit` of one model, and sums them up by epoch.

    The original train function runs on the same batches, in the same trace, so that results stay the same bit for bit.
    A watch holds no reference to the model or its data, except to the batches in `kept`.

    Args:
      model: about to be trained.
      ramp_steps: number of first steps of an epoch that are not steady.
      keep_batches: how many batches to keep; batches of different sizes are preferred.
      on_steps: called with the number of steps that were just made. An error that it raises ends `fit`.

    Attributes:
      records: of the last epochs.
      epochs: number of all epochs so far.
      kept: batches; the caller empties the list when it has used them.
      element_spec: of the tf.data iterator of the batches.
      unit: what the batches hold; None before the first.
      why_unknown: why the waiting, or everything, is unknown; None if known.
    """

    def __init__(
        self,
        model: Any,
        *,
        ramp_steps: int = RAMP_STEPS,
        keep_batches: int = 0,
        on_steps: Callable[[int], None] | None = None,
    ) -> None:
        self.records: deque[EpochRecord] = deque(maxlen=KEPT_EPOCHS)
        self.epochs = 0
        self.kept: list[Any] = []
        self.element_spec: Any = None
        self.unit: Unit | None = None
        self.why_unknown: str | None = None
        self._model_ref = weakref.ref(model)
        self._ramp_steps = ramp_steps
        self._keep_batches = keep_batches
        self._on_steps = on_steps
        self._watched: Callable[[], _Watched | None] = _nothing
        self._tally: Tally | None = None
        self._end: BaseException | None = None
        self._sizes: set[int | None] = set()
        self._random = random.Random(0)  # not the global random state, which is the user's
        self._synchronise: Callable[[Any], None] | None = None
        try:
            backend = check_backend()
        except ValueError:
            self.why_unknown = f"the steps of Keras' {keras.backend.backend()} backend cannot be watched"
            return
        self._jax = backend == "jax"
        device = device_here()
        if device.asynchronous or self._jax:
            self._synchronise = BACKENDS[backend](device).synchronise

    @property
    def _model(self) -> Any:
        return self._model_ref()

    def begin_epoch(self, epoch: int, steps: int | None) -> None:
        """Begins to watch epoch number `epoch`.

        Args:
          steps: of an epoch; None where Keras does not know it.
        """
        self.close()
        if keras.backend.backend() not in BACKENDS:
            return
        self._tally = Tally(epoch=epoch, expected_steps=steps, ramp_steps=self._ramp_steps, random_=self._random)
        watched = _Watched(self, self._model)
        self._model.train_function = watched
        self._watched = weakref.ref(watched)

    def end_steps(self, *, whole: bool = True) -> None:
        """Notes that the steps of the epoch have ended. What follows is validation.

        Args:
          whole: whether all steps were made.
        """
        watched, self._watched = self._watched(), _nothing
        if watched is not None:
            watched.stop()
        tally = self._tally
        if tally is None or tally.ended or not tally.steps:
            return
        if self._synchronise is not None:
            self._synchronise(None if watched is None else watched.last_result)
            tally.rest()
        if tally.unread_steps:
            self._read(tally, None if watched is None else watched.iterator)
        tally.end_steps(whole=whole)

    def close(self, *, whole: bool = False) -> None:
        """Ends the epoch and restores the model's train function.

        Args:
          whole: whether all steps were made; ignored after a call of `end_steps`.
        """
        self.end_steps(whole=whole)
        tally, self._tally = self._tally, None
        if tally is not None and tally.steps:
            self.records.append(tally.record(asynchronous=self._synchronise is not None))
            self.epochs += 1

    def add_hook(self, before_ns: int, done_ns: int) -> None:
        """Adds the time of one of Keras' batch hooks."""
        if self._tally is not None and not self._tally.ended:
            self._tally.add_hook(before_ns, done_ns)

    def step(self, watched: _Watched, arguments: tuple[Any, ...]) -> Any:
        """Runs the original train function once and times it."""
        self.end_if_due()
        tally, original = self._tally, watched.original
        assert tally is not None
        entered_ns = clock.now_ns()
        *state, iterator = arguments
        if isinstance(iterator, _Ready):  # an outer watch has drawn the batch already
            entered_ns = iterator.entered_ns
        steps_before = tally.steps
        pulls: list[tuple[int, int | None]] = []
        if self._jax:
            before_ns = clock.now_ns()
            result = original(*state, self._timed(iterator, pulls))
        elif self._model.steps_per_execution == 1 and _can_be_pulled(self._model, original, iterator):
            result = self._pull_and_run(tally, original, iterator, entered_ns)
        else:
            result = self._run_whole(tally, original, iterator)
            watched.iterator = iterator
        try:
            if self._jax:
                self._add_pulls(tally, before_ns, pulls)
            if self._synchronise is not None:
                # Wait for an asynchronous device only where the steady steps begin and end, since waiting slows steps
                # down.
                watched.last_result = result
                if tally.calls == self._ramp_steps:
                    self._synchronise(result)
                    tally.last_ns = clock.now_ns()
            tally.add_whole_call(entered_ns, clock.now_ns())
            if self._on_steps is not None:
                self._on_steps(tally.steps - steps_before)
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

    def _pull_and_run(self, tally: Tally, original: Callable[..., Any], iterator: Any, entered_ns: int) -> Any:
        before_ns = clock.now_ns()
        try:
            batch = next(iterator)
        except StopIteration:
            if not self._sizes:
                return original(iterator)  # without any batch, Keras builds the model's state in this call
            raise
        fetched_ns = clock.now_ns()
        if isinstance(iterator, _Ready):  # an outer watch has drawn the batch already
            before_ns -= iterator.wait_ns
        images = images_in(batch, self._model)
        self._keep(batch, images, iterator.element_spec)
        if self._model.run_eagerly or isinstance(original, _Watched):
            result = original(_Ready(batch, entered_ns, fetched_ns - before_ns, iterator.element_spec))
        else:
            result = traced_as(original, iterator.element_spec)(batch)
        self._add(tally, before_ns, fetched_ns, images)
        return result

    def _timed(self, iterator: Any, pulls: list[tuple[int, int | None]]) -> Iterator[Any]:
        """Yields the batches of a step on JAX, where the iterator is plain Python, and times each when it is drawn.

        Args:
          pulls: gets (waiting in nanoseconds, images or None if unknown) of each batch.
        """
        while True:
            asked_ns = clock.now_ns()
            try:
                batch = next(iterator)
            except StopIteration:
                return
            pulls.append((clock.now_ns() - asked_ns, images_in(batch, self._model)))
            self._keep(batch, pulls[-1][1], None)
            yield batch

    def _add_pulls(self, tally: Tally, before_ns: int, pulls: list[tuple[int, int | None]]) -> None:
        images = [number for _, number in pulls if number is not None]
        total = sum(images) if len(images) == len(pulls) else None
        self._add(tally, before_ns, before_ns + sum(wait for wait, _ in pulls), total, steps=len(pulls))

    def _run_whole(self, tally: Tally, original: Callable[..., Any], iterator: Any) -> Any:
        """Runs several steps in one call: only TensorFlow sees their batches, but tf.data counts them.

        tf.data also knows the pauses between batches. They do not say how long steps wait, since TensorFlow draws the
        next batch while it computes.
        """
        before_ns = clock.now_ns()
        result = original(iterator)
        steps, first = self._model.steps_per_execution, not tally.steps
        tally.add_call(before_ns, clock.now_ns(), steps, traced=not self._sizes)
        self._sizes.add(None)
        if first:
            self.unit = unit_in(iterator.element_spec)
            self._read(tally, iterator)
        return result

    def _read(self, tally: Tally, iterator: Any) -> None:
        self.why_unknown = "batches are drawn where only TensorFlow sees it, several in a call or for several devices"
        counted = iterator_count(iterator, tally.steps, tally.expected_steps)
        missing = missing_to_count(self._model) if counted.images is None else None
        if missing is not None:
            self.why_unknown += f"; {missing}"
        tally.read(counted if counted.images is not None else replace(counted, images=images_weighed(self._model)))

    def _add(self, tally: Tally, before_ns: int, fetched_ns: int, images: int | None, steps: int = 1) -> None:
        traced = images not in self._sizes and len(self._sizes) < _TRACED_SIZES
        self._sizes.add(images)
        tally.add(before_ns, fetched_ns, clock.now_ns(), images, steps, traced=traced)

    def _keep(self, batch: Any, images: int | None, element_spec: Any) -> None:
        self.element_spec = element_spec
        self.unit = self.unit or unit_in(batch)
        if len(self.kept) >= self._keep_batches or images is None:
            return
        if images not in self._sizes or len(self.kept) < self._keep_batches - 1:  # the last place is for another size
            weight = sum(size_bytes(part) for part in keras.tree.flatten(batch))
            if not self.kept or weight * (len(self.kept) + 1) <= REPLAY_BYTES:
                self.kept.append(batch)


def _nothing() -> None:
    """Takes the place of a weak reference where there is no object to refer to."""


def traced_as(original: Callable[..., Any], element_spec: Any) -> Any:
    """Returns a train function of one batch, traced for the iterator's `element_spec` as `fit` would trace it.

    Traced for the shapes of one batch, it would sum in another order, and be traced again for a short last batch. The
    function is kept in an attribute of the original, so that it is traced once.
    """
    import tensorflow as tf

    traced = vars(original).setdefault("_unstall_traced", [])
    for spec, function in traced:
        if spec == element_spec:
            return function
    function = tf.function(lambda batch: original(iter((batch,))), input_signature=[element_spec], autograph=False)
    traced.append((element_spec, function))
    return function


def _can_be_pulled(model: Any, original: Callable[..., Any], iterator: Any) -> bool:
    """Whether a batch can be drawn before the train function runs: from tf.data, or for several devices of one host.

    False for a train function that is not Keras' own, which may do anything with the iterator.
    """
    import tensorflow as tf

    if isinstance(original, _Watched):
        original = original.innermost
    if not (getattr(original, "__module__", None) or "").startswith("keras."):
        return False
    if isinstance(iterator, tf.distribute.DistributedIterator):
        return isinstance(model.distribute_strategy, tf.distribute.MirroredStrategy)
    return isinstance(iterator, (_Ready, tf.data.Iterator))
