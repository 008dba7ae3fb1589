"""Counts what a training example costs a Keras model: the framework's count of operations, and bytes between layers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

# TensorFlow's operations that multiply matrices or convolve, as patterns for its profiler, which counts others as well.
_PRODUCTS = ["MatMul", "BatchMatMul.*", "Conv.*", "DepthwiseConv.*"]
# TensorFlow's operations that may multiply matrices, and that its profiler counts as nothing.
_UNCOUNTED = {"Einsum", "While", "StatelessWhile", "PartitionedCall", "StatefulPartitionedCall"}


class NotCounted(Exception):
    """The framework does not say how many operations a layer takes; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What an example costs a model.

    Attributes:
      forward_flops: of a forward pass. By TensorFlow's profiler: multiplications and additions of its matrix products
        and convolutions. By JAX's `cost_analysis`: those without the ones that multiply by a convolution's padding, and
        what is done to each element (biases, activations, pooling) as well. None where the framework does not count.
      training_flops: of a forward and a backward pass, derived from each layer's forward pass: as much again for the
        gradient of its weights, if the layer has trained weights, and as much again for the gradient of its input, if a
        layer before has trained weights (Kaplan et al., "Scaling Laws for Neural Language Models", 2020, section 2.1).
      reason: why the framework does not count.
      activation_bytes: of the outputs of all layers, in the type in which they are computed, without layers that only
        change the shape.
      input_bytes: of the example.
    """

    forward_flops: int | None
    training_flops: int | None
    reason: str | None
    activation_bytes: int
    input_bytes: int


def work_per_example(model: Any, example: Any) -> Work:
    """Lets the framework count the operations of each layer's forward pass, and derives those of training.

    TensorFlow's profiler is not asked for the training step itself. It counts a gradient of an unpadded convolution
    over the whole input, and the gradient of the first layer's input, which is never computed: docs/experiments.md.

    Args:
      model: a built `keras.Sequential`, as all networks of the catalogue are.
      example: a batch of a single example.
    """
    import keras

    forward, training = 0, 0
    reason = None
    trained_before = False
    try:
        for layer in model.layers:
            flops = _COUNTERS[keras.backend.backend()](layer)
            trained = bool(layer.trainable_weights)
            forward += flops
            training += flops * (1 + trained + trained_before)
            trained_before |= trained
    except NotCounted as error:
        reason = str(error)
    return Work(
        forward_flops=None if reason else forward,
        training_flops=None if reason else training,
        reason=reason,
        activation_bytes=sum(
            math.prod(layer.output.shape[1:]) * _item_bytes(layer.output)
            for layer in model.layers
            if not isinstance(layer, keras.layers.Flatten | keras.layers.Reshape)
        ),
        input_bytes=np.asarray(example).nbytes,
    )


def _by_tensorflow(layer: Any) -> int:
    import tensorflow as tf

    example = tf.TensorSpec((1, *layer.input.shape[1:]), layer.input.dtype)
    graph = tf.function(lambda inputs: layer(inputs, training=False)).get_concrete_function(example).graph
    uncounted = _UNCOUNTED & {operation.type for operation in graph.get_operations()}
    if uncounted:
        kinds = ", ".join(sorted(uncounted))
        raise NotCounted(f"TensorFlow's profiler does not count the {kinds} of {type(layer).__name__}")
    builder = tf.compat.v1.profiler.ProfileOptionBuilder
    options = builder(builder.float_operation()).with_accounted_types(_PRODUCTS).with_empty_output().build()
    return int(tf.compat.v1.profiler.profile(graph, options=options).total_float_ops)


def _by_jax(layer: Any) -> int:
    import jax

    variables = [
        [jax.ShapeDtypeStruct(tuple(variable.shape), variable.dtype) for variable in group]
        for group in (layer.trainable_variables, layer.non_trainable_variables)
    ]
    example = jax.ShapeDtypeStruct((1, *layer.input.shape[1:]), layer.input.dtype)
    # Compile for the CPU, whichever device trains: for a GPU, JAX gives None (github.com/jax-ml/jax/issues/22713).
    try:
        cpu = jax.local_devices(backend="cpu")[0]
    except RuntimeError as error:
        raise NotCounted("JAX's cost_analysis needs a CPU, which JAX_PLATFORMS leaves out") from error
    with jax.default_device(cpu):
        cost = jax.jit(layer.stateless_call).lower(*variables, example).cost_analysis()
    if not cost:
        raise NotCounted(f"JAX's cost_analysis gives nothing for {type(layer).__name__}")
    return round(cost.get("flops", 0))


_COUNTERS = {"tensorflow": _by_tensorflow, "jax": _by_jax}


def step_bytes(model: Any, work: Work, batch_size: int) -> int:
    """Returns the bytes that a training step moves at least, if each tensor is passed once between kernels.

    Weights are read in the forward pass, read in the backward pass, and read and written by the update; gradients are
    written once and read once; the optimizer's variables are read and written; the output of a layer is written forward
    and read backward; the batch is read once. A small tensor may never leave a cache, and updates and fusions may save
    more, so that a share of the memory's bandwidth is an estimate.

    Args:
      model: compiled and built.
    """
    weights = sum(_variable_bytes(variable) for variable in model.trainable_variables)
    # Without the optimizer's counters, which are scalars.
    kept = sum(_variable_bytes(variable) for variable in model.optimizer.variables if len(variable.shape))
    return 4 * weights + 2 * weights + 2 * kept + batch_size * (2 * work.activation_bytes + work.input_bytes)


def _variable_bytes(variable: Any) -> int:
    return int(math.prod(variable.shape)) * _item_bytes(variable)


def _item_bytes(tensor: Any) -> int:
    import keras

    return np.dtype(keras.backend.standardize_dtype(tensor.dtype)).itemsize  # Keras teaches NumPy bfloat16
