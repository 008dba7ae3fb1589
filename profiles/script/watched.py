"""The function that takes the place of a model's train or test function while a `fit` is watched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from unstall.profiles.data.tf_iterators import Ready


class Steps(Protocol):
    """What runs and times the calls of a watched function."""

    def step(self, watched: WatchedFunction, arguments: tuple[Any, ...]) -> Any: ...


class WatchedFunction:
    """Takes the place of a model's train or test function until `stop` is called, or until another `fit` begins.

    Only the model holds a reference to this object, so that it is freed with the model.

    Attributes:
      original: the function whose place this object takes.
      iterator: that the last call drew from, where only TensorFlow sees the batches.
    """

    def __init__(self, steps: Steps, model: Any, name: str) -> None:
        self.original = getattr(model, name)
        self.iterator: Any = None
        self._name = name
        self._steps: Steps | None = steps
        self._model = model
        self._history = getattr(model, "history", None)

    @property
    def active(self) -> bool:
        return self._steps is not None

    @property
    def innermost(self) -> Any:
        """The model's own function."""
        return self.original.innermost if isinstance(self.original, WatchedFunction) else self.original

    def __call__(self, *arguments: Any) -> Any:
        if self._steps is not None and getattr(self._model, "history", None) is not self._history:
            self.stop()  # an error between two steps has ended the `fit` that was watched
        if self._steps is None:
            return self.original(*arguments)
        try:
            return self._steps.step(self, arguments)
        except StopIteration:
            raise
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Restores the model's own function. An outer watch that is still active stays in its place."""
        self._steps = None
        function = getattr(self._model, self._name)
        while isinstance(function, WatchedFunction) and not function.active:
            function = function.original
        if function is not getattr(self._model, self._name):
            setattr(self._model, self._name, function)


def can_be_pulled(model: Any, original: Callable[..., Any], iterator: Any) -> bool:
    """Whether a batch can be drawn before the train function runs: from tf.data, or for several devices of one host.

    False for a train function that is not Keras' own, which may do anything with the iterator.
    """
    import tensorflow as tf

    if isinstance(original, WatchedFunction):
        original = original.innermost
    if not (getattr(original, "__module__", None) or "").startswith("keras."):
        return False
    if isinstance(iterator, tf.distribute.DistributedIterator):
        return isinstance(model.distribute_strategy, tf.distribute.MirroredStrategy)
    return isinstance(iterator, (Ready, tf.data.Iterator))
