"""Iterators of tf.data's that Keras' own train function draws from, and train functions of one batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Ready:
    """An iterator over one fetched batch, which a watch passes to a train function that may be a watch as well.

    Attributes:
      entered_ns: when the outermost watch was called.
      wait_ns: how long the outermost watch waited for the batch.
      element_spec: as that of the iterator that gave the batch.
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


def spec_of(iterator: Any) -> Any:
    """Returns what an iterator says of its batches: a structure of `tf.TypeSpec`."""
    return iterator.element_spec


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
