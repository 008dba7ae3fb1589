"""Counts what one training example costs a Keras model: floating-point operations, and bytes between its layers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

# A training step over a forward pass: backward is one product for the gradient of a layer's input and one for that of
# its weights, each as large as the forward one. Source: Kaplan et al., "Scaling Laws for Neural Language Models",
# 2020, section 2.1; Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters", 2021, appendix.
TRAINING_RATIO = 3
# Multiply and add. Source: the same.
_MULTIPLY_ADD = 2
# Gates of a recurrent cell, each a product with the input and one with the state.
_GATES = {"LSTM": 4, "GRU": 3, "SimpleRNN": 1}
# Hold weights and multiply no matrices: an element each time, or a look-up.
_NO_PRODUCTS = frozenset(
    {"BatchNormalization", "Embedding", "GroupNormalization", "LayerNormalization", "Normalization", "PReLU"}
)
# Multiply matrices without weights of their own, or may.
_PRODUCTS_WITHOUT_WEIGHTS = frozenset({"AdditiveAttention", "Attention", "Dot", "Lambda"})
# Move nothing.
_VIEWS = frozenset({"Flatten", "Reshape"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What one example costs a model.

    Attributes:
      forward_flops: multiplications and additions of the matrix products and convolutions of one forward pass, as is
        usual: what is done to each element (biases, activations, pooling, normalisation) is not counted, nor what a
        layer without weights does that is not Keras' own. None where a layer is not known.
      reason: why not.
      activation_bytes: of the outputs of all layers that were called, in the type in which they are computed; not of
        those that only see the same numbers in another shape.
      input_bytes: of the example itself.
    """

    forward_flops: int | None
    reason: str | None
    activation_bytes: int
    input_bytes: int

    @property
    def training_flops(self) -> int | None:
        """Forward and backward."""
        return None if self.forward_flops is None else TRAINING_RATIO * self.forward_flops


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """One call of a layer with one example."""

    layer: Any
    input_shape: tuple[int, ...]
    output_shape: tuple[int, ...]
    output_bytes: int


def work_per_example(model: Any, example: Any) -> Work:
    """Counts what the layers of a model do with one example: those that are called, as often as they are.

    The model is run once on it, so that shared, nested and hand-written layers are seen as they are used.

    Args:
      model: built.
      example: a batch of one, as the model takes it.
    """
    import keras
    import numpy as np

    calls: list[_Call] = []
    inside: list[Any] = []
    reasons = [f"{type(one).__name__} is an operation without a layer" for one in _bare_products(model)]
    with _recorded(_watched(model), calls, inside):
        model(example, training=False)
    flops = 0
    for call in calls:
        counted = _forward_flops(call)
        if isinstance(counted, str):
            reasons.append(counted)
        else:
            flops += counted
    return Work(
        forward_flops=None if reasons else flops,
        reason=reasons[0] if reasons else None,
        activation_bytes=sum(call.output_bytes for call in calls if type(call.layer).__name__ not in _VIEWS),
        input_bytes=sum(np.asarray(part).nbytes for part in keras.tree.flatten(example)),
    )


def step_bytes(model: Any, work: Work, batch_size: int) -> int:
    """Returns the bytes that a training step moves at least, each tensor passed on once between kernels.

    Weights are read forward, read backward, read and written by the update; gradients are written once and read once;
    what the optimizer keeps is read and written; what a layer gives is written forward and read backward; the batch is
    read once. A small tensor may never leave a cache, and what an update or a fusion saves is not known, so that a
    share of the memory's bandwidth is an estimate.

    Args:
      model: compiled and built.
    """
    weights = sum(_variable_bytes(one) for one in model.trainable_variables)
    kept = sum(_variable_bytes(one) for one in model.optimizer.variables if len(one.shape))  # without its counters
    return 4 * weights + 2 * weights + 2 * kept + batch_size * (2 * work.activation_bytes + work.input_bytes)


def _variable_bytes(variable: Any) -> int:
    import keras

    return int(math.prod(variable.shape)) * _item_bytes(keras.backend.standardize_dtype(variable.dtype))


def _item_bytes(dtype: str) -> int:
    import numpy as np

    return 2 if dtype == "bfloat16" else 1 if dtype == "bool" else np.dtype(dtype).itemsize


def _watched(model: Any) -> list[Any]:
    """Returns the layers whose calls say what is computed: the innermost, but for recurrent ones, cells and all."""
    found: list[Any] = []

    def visit(layer: Any) -> None:
        if any(layer is one for one in found):
            return
        below = _sublayers(layer)
        if type(layer).__name__ in _GATES or not below or _own_weights(layer, below):
            found.append(layer)
        else:
            for one in below:
                visit(one)

    visit(model)
    return found


def _sublayers(layer: Any) -> list[Any]:
    """Returns the layers directly inside one."""
    return list(getattr(layer, "layers", None) or layer._layers)  # of what is no model there is no public list


def _own_weights(layer: Any, below: list[Any]) -> bool:
    """Whether a layer holds weights that none of the layers inside it holds."""
    inner = {id(weight) for one in below for weight in one.weights}
    return any(id(weight) not in inner for weight in layer.weights if len(weight.shape) and "seed" not in weight.name)


def _bare_products(model: Any) -> Iterator[Any]:
    """Yields operations of a functional model that multiply matrices outside of any layer."""
    import keras

    for operation in getattr(model, "operations", []):
        if not isinstance(operation, keras.layers.Layer) and type(operation).__name__ in (
            "Conv",
            "ConvTranspose",
            "DepthwiseConv",
            "Dot",
            "Einsum",
            "Inner",
            "Matmul",
            "SeparableConv",
            "Tensordot",
        ):
            yield operation


@contextmanager
def _recorded(layers: list[Any], calls: list[_Call], inside: list[Any]) -> Iterator[None]:
    """Notes every call of these layers until the block ends; not those that one of them makes of another."""

    def recorder(layer: Any, call: Callable[..., Any]) -> Callable[..., Any]:
        def recorded(*arguments: Any, **settings: Any) -> Any:
            inside.append(layer)
            try:
                outputs = call(*arguments, **settings)
            finally:
                inside.pop()
            if not inside:
                given = arguments[0] if arguments else next(iter(settings.values()), None)
                calls.append(_call(layer, given, outputs))
            return outputs

        return recorded

    for layer in layers:
        layer.call = recorder(layer, layer.call)
    try:
        yield
    finally:
        for layer in layers:
            del layer.call  # the class' own is back


def _call(layer: Any, given: Any, outputs: Any) -> _Call:
    import keras

    tensors = [one for one in keras.tree.flatten(outputs) if hasattr(one, "shape")]
    arrived = [one for one in keras.tree.flatten(given) if hasattr(one, "shape")]
    return _Call(
        layer=layer,
        input_shape=tuple(arrived[0].shape) if arrived else (),
        output_shape=tuple(tensors[0].shape) if tensors else (),
        output_bytes=sum(
            math.prod(one.shape) * _item_bytes(keras.backend.standardize_dtype(one.dtype)) for one in tensors
        ),
    )


def _forward_flops(call: _Call) -> int | str:
    """Counts one call's products, or says why it cannot."""
    name = type(call.layer).__name__
    if type(call.layer).__module__.split(".")[0] != "keras":
        return f"{name} is not a layer of Keras, and has weights" if call.layer.weights else 0
    if name in _COUNTED:
        return _MULTIPLY_ADD * _COUNTED[name](call)
    if name in _GATES:
        return _MULTIPLY_ADD * _recurrent(call)
    if name in _PRODUCTS_WITHOUT_WEIGHTS or (call.layer.trainable_weights and name not in _NO_PRODUCTS):
        return f"how much {name} multiplies is not known here"
    return 0


def _dense(call: _Call) -> int:
    return math.prod(call.output_shape) * call.input_shape[-1]


def _convolution(call: _Call) -> int:
    """Every output element sums over a window of the kernel, and over the channels of its group."""
    *window, channels, _ = call.layer.kernel.shape
    return math.prod(call.output_shape) * math.prod(window) * channels


def _transposed(call: _Call) -> int:
    """Every input element is spread over a window of the kernel, once for each filter."""
    *window, filters, _ = call.layer.kernel.shape
    return math.prod(call.input_shape) * math.prod(window) * filters


def _depthwise(call: _Call) -> int:
    *window, _, _ = call.layer.kernel.shape
    return math.prod(call.output_shape) * math.prod(window)


def _separable(call: _Call) -> int:
    """A depthwise convolution, then one over channels only."""
    *window, channels, multiplier = call.layer.depthwise_kernel.shape
    *places, filters = _channels_last(call)
    return math.prod(places) * channels * multiplier * (math.prod(window) + filters)


def _channels_last(call: _Call) -> tuple[int, ...]:
    if call.layer.data_format == "channels_last":
        return call.output_shape
    batch, channels, *sides = call.output_shape
    return (batch, *sides, channels)


def _recurrent(call: _Call) -> int:
    layer = call.layer
    batch, steps, features = call.input_shape
    return batch * steps * _GATES[type(layer).__name__] * layer.units * (features + layer.units)


# Multiply-adds of one call, by the layer's name; each was checked by hand and against TensorFlow's own count.
_COUNTED: dict[str, Callable[[_Call], int]] = {
    "Dense": _dense,
    "Conv1D": _convolution,
    "Conv2D": _convolution,
    "Conv3D": _convolution,
    "Conv1DTranspose": _transposed,
    "Conv2DTranspose": _transposed,
    "Conv3DTranspose": _transposed,
    "DepthwiseConv1D": _depthwise,
    "DepthwiseConv2D": _depthwise,
    "SeparableConv1D": _separable,
    "SeparableConv2D": _separable,
}
