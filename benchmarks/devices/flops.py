"""Counts what one training example costs a Keras model: floating-point operations, and bytes between its layers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

# Multiply and add.
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
      training_flops: of a forward and a backward pass. Backward is one product for the gradient of a layer's weights
        and one for that of its input, each as large as the forward one (Kaplan et al., "Scaling Laws for Neural
        Language Models", 2020, section 2.1): three times forward, less what nobody needs and nothing computes, which
        is the gradient of the pictures, of frozen weights, and of what comes before all trained ones. At most: what an
        operation that is no layer gives counts as coming behind the trained layers that were called before it.
      reason: why they are not known.
      activation_bytes: of the outputs of all layers that were called, in the type in which they are computed; not of
        those that only see the same numbers in another shape.
      input_bytes: of the example itself.
    """

    forward_flops: int | None
    training_flops: int | None
    reason: str | None
    activation_bytes: int
    input_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """One call of a layer with one example."""

    layer: Any
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]

    @property
    def input_shape(self) -> tuple[int, ...]:
        return tuple(self.inputs[0].shape) if self.inputs else ()

    @property
    def output_shape(self) -> tuple[int, ...]:
        return tuple(self.outputs[0].shape) if self.outputs else ()

    @property
    def output_bytes(self) -> int:
        import keras

        return sum(
            math.prod(one.shape) * _item_bytes(keras.backend.standardize_dtype(one.dtype)) for one in self.outputs
        )


def work_per_example(model: Any, example: Any) -> Work:
    """Counts what the layers of a model do with one example: those that are called, as often as they are.

    The model is run once on it, so that shared, nested and hand-written layers are seen as they are used.

    Args:
      model: built.
      example: a batch of one, as the model takes it.
    """
    import keras

    calls: list[_Call] = []
    inside: list[Any] = []
    reasons = [*_missing(model)]
    reasons += [f"{type(one).__name__} is an operation without a layer" for one in _bare_products(model)]
    given = keras.tree.map_structure(keras.ops.convert_to_tensor, example)
    with _recorded(_watched(model), calls, inside):
        model(given, training=False)
    forward = training = 0
    for call, behind in zip(calls, _behind_weights(calls, keras.tree.flatten(given)), strict=True):
        trained = bool(call.layer.trainable_weights)
        counted = _forward_flops(call)
        if isinstance(counted, str):
            reasons.append(counted)
        else:
            forward += counted
            # Products behind others of the same layer have weights before them where it is trained.
            first_of = _FIRST.get(type(call.layer).__name__)
            first = counted if first_of is None else _MULTIPLY_ADD * first_of(call)
            training += counted * (1 + trained) + first * behind + (counted - first) * (behind or trained)
    return Work(
        forward_flops=None if reasons else forward,
        training_flops=None if reasons else training,
        reason=reasons[0] if reasons else None,
        activation_bytes=sum(call.output_bytes for call in calls if type(call.layer).__name__ not in _VIEWS),
        input_bytes=sum(np.asarray(part).nbytes for part in keras.tree.flatten(example)),
    )


def _behind_weights(calls: Sequence[_Call], given: Sequence[Any]) -> Iterator[bool]:
    """Yields of each call whether a gradient goes through it to trained weights before it."""
    before, behind = {id(one) for one in given}, set[int]()
    trained = False
    for call in calls:
        found = any(id(one) in behind or (trained and id(one) not in before) for one in call.inputs)
        yield found
        if not found:
            before |= {id(one) for one in call.inputs}
        trained |= bool(call.layer.trainable_weights)
        (behind if found or call.layer.trainable_weights else before).update(id(one) for one in call.outputs)


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
    # Of what is no model there is no public list; without the private one a layer counts as having none inside.
    inside: Any = getattr(layer, "layers", None) or getattr(layer, "_layers", ())
    return list(inside)


def _missing(model: Any) -> Iterator[str]:
    """Says that Keras has no list of the layers inside a layer, so that products may be overlooked."""
    import keras

    if not hasattr(model, "_layers"):
        yield f"counting them needs Keras' private Layer._layers, which Keras {keras.__version__} does not have"


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

    def tensors(nested: Any) -> tuple[Any, ...]:
        return tuple(one for one in keras.tree.flatten(nested) if hasattr(one, "shape"))

    return _Call(layer=layer, inputs=tensors(given), outputs=tensors(outputs))


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
    *_, channels, multiplier = call.layer.depthwise_kernel.shape
    *places, filters = _channels_last(call)
    return _separable_depthwise(call) + math.prod(places) * channels * multiplier * filters


def _separable_depthwise(call: _Call) -> int:
    *window, channels, multiplier = call.layer.depthwise_kernel.shape
    *places, _ = _channels_last(call)
    return math.prod(places) * channels * multiplier * math.prod(window)


def _channels_last(call: _Call) -> tuple[int, ...]:
    if call.layer.data_format == "channels_last":
        return call.output_shape
    batch, channels, *sides = call.output_shape
    return (batch, *sides, channels)


def _recurrent(call: _Call) -> int:
    batch, steps, _ = call.input_shape
    return _recurrent_input(call) + batch * steps * _GATES[type(call.layer).__name__] * call.layer.units**2


def _recurrent_input(call: _Call) -> int:
    """The product with the input; the one with the state comes behind it."""
    batch, steps, features = call.input_shape
    return batch * steps * _GATES[type(call.layer).__name__] * call.layer.units * features


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
# Those of a layer's first product, where it has several.
_FIRST: dict[str, Callable[[_Call], int]] = {
    **dict.fromkeys(_GATES, _recurrent_input),
    "SeparableConv1D": _separable_depthwise,
    "SeparableConv2D": _separable_depthwise,
}
