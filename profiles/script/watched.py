"""The function that takes the place of a model's train or test function while a `fit` is watched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class Ready:
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

    def __iter__(self) -> Ready:
        return self

    def __next__(self) -> Any:
        if not self._batches:
            raise StopIteration
        return self._batches.pop()


class Steps(Protocol):
    """What runs and times the calls of a watched function."""

    def step(self, watched: Watched, arguments: tuple[Any, ...]) -> Any: ...


class Watched:
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
        return self.original.innermost if isinstance(self.original, Watched) else self.original

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
        while isinstance(function, Watched) and not function.active:
            function = function.original
        if function is not getattr(self._model, self._name):
            setattr(self._model, self._name, function)


def traced_as(original: Callable[..., Any], element_spec: Any) -> Any:
    """Returns a train or test function of one batch, traced for the iterator's `element_spec` as `fit` would trace it.

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


def can_be_pulled(model: Any, original: Callable[..., Any], iterator: Any) -> bool:
    """Whether a batch can be drawn before the train function runs: from tf.data, or for several devices of one host.

    False for a train function that is not Keras' own, which may do anything with the iterator.
    """
    import tensorflow as tf

    if isinstance(original, Watched):
        original = original.innermost
    if not (getattr(original, "__module__", None) or "").startswith("keras."):
        return False
    if isinstance(iterator, tf.distribute.DistributedIterator):
        return isinstance(model.distribute_strategy, tf.distribute.MirroredStrategy)
    return isinstance(iterator, (Ready, tf.data.Iterator))
