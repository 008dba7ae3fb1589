"""LiteRT: converts a network to its file in float32 or int8, predicts from the file, and counts what is in int8.

LiteRT has no bfloat16 on the CPU: its converter takes `supported_types=[tf.bfloat16]` and writes float32.
"""

from __future__ import annotations

import math
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter
from numpy.typing import NDArray

Predict = Callable[[NDArray[Any]], NDArray[Any]]

# Name -> whether weights become int8, and whether activations do, too. Where only weights are in int8 ("dynamic
# range"), the runtime rounds the other factor for every call.
FORMATS: Mapping[str, tuple[bool, bool]] = MappingProxyType(
    {"float32": (False, False), "int8 weights": (True, False), "int8": (True, True)}
)


class NotCountedError(Exception):
    """An operator's multiply-adds cannot be counted; the message names the operator."""


def converted(network: Any, form: str, batch_size: int, calibration: Sequence[NDArray[np.float32]]) -> bytes:
    """Returns the network's file in one of `FORMATS`. All take and give float32.

    Args:
      batch_size: of every call. With an open batch size, LiteRT's fast kernels leave out what follows a `Flatten`.
      calibration: batches of this size, whose activations give the ranges of int8.
    """
    with tempfile.TemporaryDirectory() as folder:
        spec = keras.InputSpec(shape=(batch_size, *network.input_shape[1:]), dtype=network.inputs[0].dtype)
        network.export(folder, verbose=False, input_signature=[spec])
        converter = tf.lite.TFLiteConverter.from_saved_model(folder)
        weights, activations = FORMATS[form]
        if weights:
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        if activations:
            # Operators that have no int8 stay in float32, which `multiply_adds` shows.
            converter.representative_dataset = lambda: ([batch] for batch in calibration)
        return bytes(converter.convert())


def predictor(content: bytes, threads: int) -> Predict:
    """Returns a function that predicts from a file; it takes batches of the file's own size."""
    interpreter = Interpreter(model_content=content, num_threads=threads)
    interpreter.allocate_tensors()
    (inputs,), (outputs,) = interpreter.get_input_details(), interpreter.get_output_details()

    def predict(images: NDArray[Any]) -> NDArray[Any]:
        interpreter.set_tensor(inputs["index"], images)
        interpreter.invoke()
        return np.asarray(interpreter.get_tensor(outputs["index"]))

    return predict


def _conv_2d(operator: Any, inputs: Sequence[int], weights: Sequence[int], output: Sequence[int]) -> int:
    return math.prod(output) * math.prod(weights[1:])  # weights: output channel, height, width, input channel


def _depthwise_conv_2d(operator: Any, inputs: Sequence[int], weights: Sequence[int], output: Sequence[int]) -> int:
    return math.prod(output) * math.prod(weights[1:3])  # weights: 1, height, width, output channel


def _fully_connected(operator: Any, inputs: Sequence[int], weights: Sequence[int], output: Sequence[int]) -> int:
    return math.prod(output) * weights[-1]  # weights: output, input


def _batch_matmul(operator: Any, inputs: Sequence[int], weights: Sequence[int], output: Sequence[int]) -> int:
    return math.prod(output) * inputs[-2 if operator.builtinOptions.adjX else -1]


_OPERATOR = schema.BuiltinOperator
# Source: TensorFlow's compiler/mlir/lite/schema/schema.fbs, and the operators' shapes in tfl_ops.td.
_PRODUCTS: Mapping[int, Callable[[Any, Sequence[int], Sequence[int], Sequence[int]], int]] = MappingProxyType(
    {
        _OPERATOR.CONV_2D: _conv_2d,
        _OPERATOR.DEPTHWISE_CONV_2D: _depthwise_conv_2d,
        _OPERATOR.FULLY_CONNECTED: _fully_connected,
        _OPERATOR.BATCH_MATMUL: _batch_matmul,
    }
)
# Operators that multiply as well, or that may hold others that do.
_UNCOUNTED = frozenset(
    {
        *("BIDIRECTIONAL_SEQUENCE_LSTM", "BIDIRECTIONAL_SEQUENCE_RNN", "CALL", "CONV_3D", "CONV_3D_TRANSPOSE"),
        *("CUSTOM", "IF", "LSTM", "RNN", "STABLEHLO_CONVOLUTION", "STABLEHLO_DOT_GENERAL", "SVDF", "TRANSPOSE_CONV"),
        *("UNIDIRECTIONAL_SEQUENCE_LSTM", "UNIDIRECTIONAL_SEQUENCE_RNN", "WHILE"),
    }
)


def multiply_adds(content: bytes) -> Counter[str]:
    """Counts a file's multiply-adds by the types of their factors, inputs and weights.

    "INT8 x INT8" is computed in int8. Of "FLOAT32 x INT8" the file does not say in what it is computed: the runtime
    rounds the inputs for every call, if its kernel can.

    Raises:
      NotCountedError: if the network has an operator that multiplies and is not listed here.
    """
    network = schema.ModelT.InitFromPackedBuf(content, 0)
    operators, types = _names(_OPERATOR), _names(schema.TensorType)
    counted: Counter[str] = Counter()
    for graph in network.subgraphs:
        for operator in graph.operators:
            code = network.operatorCodes[operator.opcodeIndex]
            number = max(code.builtinCode, code.deprecatedBuiltinCode)  # old files have the number in the latter only
            if operators[number] in _UNCOUNTED:
                raise NotCountedError(f"the multiply-adds of {operators[number]} cannot be counted")
            if number not in _PRODUCTS:
                continue
            factors = [graph.tensors[index] for index in operator.inputs[:2]]
            shapes = [tensor.shape.tolist() for tensor in (*factors, graph.tensors[operator.outputs[0]])]
            name = f"{types[factors[0].type]} x {types[factors[1].type]}"
            counted[name] += _PRODUCTS[number](operator, *shapes)
    return counted


def _names(numbers: type) -> dict[int, str]:
    return {number: name for name, number in vars(numbers).items() if isinstance(number, int)}
