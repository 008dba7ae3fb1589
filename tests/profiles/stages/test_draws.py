"""Which operations draw, and those upstream of a cache: planted, and pipelines that have none there."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from unstall.profiles.stages.tf_graph import draws, every_node, python_in, random_before_cache, random_in


def images() -> Any:
    return tf.data.Dataset.from_tensor_slices(np.zeros((4, 8, 8, 3), np.float32))


def augment(image: Any) -> Any:
    return tf.image.random_flip_left_right(image)


def stateless(image: Any) -> Any:
    return tf.image.stateless_random_brightness(image, 0.1, seed=(1, 2))


def noise(image: Any, stddev: float) -> Any:
    return image + tf.random.normal(tf.shape(image), stddev=stddev)


def generated(image: Any) -> Any:
    return image + GENERATOR.uniform(tf.shape(image))


def normalise(image: Any) -> Any:
    return image / 255


def in_branches(image: Any) -> Any:
    return tf.cond(tf.reduce_sum(image) > 0, lambda: augment(image), lambda: image)


def in_loops(image: Any) -> Any:
    return tf.while_loop(lambda n, _: n < 2, lambda n, one: (n + 1, stateless(one)), (0, image))[1]


def over_a_batch(batch: Any) -> Any:
    return tf.map_fn(augment, batch)


def in_cases(image: Any) -> Any:
    return tf.switch_case(tf.cast(tf.reduce_sum(image), tf.int32), [lambda: image, lambda: augment(image)])


def in_a_function(image: Any) -> Any:
    return tf.function(augment)(image)


def cached_shard(number: Any) -> Any:
    return images().skip(number).map(augment).cache()


def augmented_shard(number: Any) -> Any:
    return images().skip(number).map(augment)


def plain_shard(number: Any) -> Any:
    return images().skip(number).cache().map(augment)


GENERATOR = tf.random.Generator.from_seed(1)
FLIP = keras.layers.RandomFlip()
MODEL = keras.Sequential([keras.layers.Rescaling(1 / 255), keras.layers.RandomRotation(0.1)])


# Every op of TensorFlow 2.21 that says "random" or a word of that kind in its name, or has a seed: does it draw?
YES_NAMES = """
AllCandidateSampler FixedUnigramCandidateSampler LearnedUnigramCandidateSampler LogUniformCandidateSampler
ThreadUnsafeUnigramCandidateSampler UniformCandidateSampler
ExperimentalRandomDataset RandomDataset RandomDatasetV2 SamplingDataset
FractionalAvgPool FractionalMaxPool KMC2ChainInitialization KmeansPlusPlusInitialization
Multinomial ParameterizedTruncatedNormal TruncatedNormal
RandomCrop RandomGamma RandomPoisson RandomPoissonV2 RandomShuffle RandomStandardNormal RandomUniform RandomUniformInt
SampleDistortedBoundingBox SampleDistortedBoundingBoxV2
StatefulRandomBinomial StatefulStandardNormal StatefulStandardNormalV2 StatefulTruncatedNormal StatefulUniform
StatefulUniformFullInt StatefulUniformInt
StatelessMultinomial StatelessParameterizedTruncatedNormal StatelessRandomBinomial StatelessRandomGammaV2
StatelessRandomGammaV3 StatelessRandomNormal StatelessRandomNormalV2 StatelessRandomPoisson StatelessRandomUniform
StatelessRandomUniformFullInt StatelessRandomUniformFullIntV2 StatelessRandomUniformInt StatelessRandomUniformIntV2
StatelessRandomUniformV2 StatelessSampleDistortedBoundingBox StatelessShuffle StatelessTruncatedNormal
StatelessTruncatedNormalV2
"""
YES = YES_NAMES.split()
MAYBE = ["EagerPyFunc", "PyFunc"]
NO_BECAUSE = {
    "it changes the order of elements": """GlobalShuffleDataset RandomIndexShuffle RandomShuffleQueue
        RandomShuffleQueueV2 ShuffleAndRepeatDataset ShuffleAndRepeatDatasetV2 ShuffleDataset ShuffleDatasetV2
        ShuffleDatasetV3 RecordInput""",
    "it makes, moves or ends a state that others draw from": """AnonymousRandomSeedGenerator AnonymousSeedGenerator
        DeleteRandomSeedGenerator DeleteSeedGenerator DummySeedGenerator RngReadAndSkip RngSkip StatelessRandomGetAlg
        StatelessRandomGetKeyCounter StatelessRandomGetKeyCounterAlg""",
    "its author says that it has no state": "PyFuncStateless",
    "it is a gradient, a sequence that is always the same, or looks at samples": """ComputeAccidentalHits
        RandomGammaGrad SobolSample""",
    "its seed names a folder": "SnapshotDataset",
    "it is a recurrent layer, which drops nothing outside of training": """CudnnRNN CudnnRNNBackprop
        CudnnRNNBackpropV2 CudnnRNNBackpropV3 CudnnRNNCanonicalToParams CudnnRNNCanonicalToParamsV2 CudnnRNNParamsSize
        CudnnRNNParamsToCanonical CudnnRNNParamsToCanonicalV2 CudnnRNNV2 CudnnRNNV3""",
    "it normalises, or quantises uniformly": """BatchNormWithGlobalNormalization
        BatchNormWithGlobalNormalizationGrad LRNGrad QuantizedBatchNormWithGlobalNormalization UniformDequantize
        UniformQuantize UniformQuantizedAdd UniformQuantizedClipByValue UniformQuantizedConvolution
        UniformQuantizedConvolutionHybrid UniformQuantizedDot UniformQuantizedDotHybrid UniformRequantize""",
    "it is about the weights of an optimiser": """LoadTPUEmbeddingStochasticGradientDescentParameters
        RetrieveTPUEmbeddingStochasticGradientDescentParameters""",
}
NO = [op for ops in NO_BECAUSE.values() for op in ops.split()]
SOUNDS_RANDOM = re.compile(
    "random|uniform|normal|multinomial|shuffle|sampl|seed|rng|pyfunc|stochastic|kmeans", re.IGNORECASE
)


def sounds_random(op: str) -> bool:
    seeds = {"seed", "seed2"} & set(inspect.signature(getattr(tf.raw_ops, op)).parameters)
    return bool(seeds or SOUNDS_RANDOM.search(op))


def test_every_op_of_tensorflow_that_sounds_random_is_in_the_table() -> None:
    registered = {op for op in dir(tf.raw_ops) if not op.startswith("_") and sounds_random(op)}
    assert registered - {*YES, *MAYBE, *NO} == set()


@pytest.mark.parametrize(("answer", "ops"), [("yes", YES), ("maybe", MAYBE), ("no", NO)])
def test_an_op_draws_or_may_or_does_not(answer: str, ops: list[str]) -> None:
    assert {op: draws(op) for op in ops} == dict.fromkeys(ops, answer)


def a_queue(_: Any) -> Any:
    return tf.raw_ops.QueueSizeV2(handle=tf.raw_ops.RandomShuffleQueueV2(component_types=[tf.float32]))


def a_gradient(_: Any) -> Any:
    return tf.raw_ops.RandomGammaGrad(alpha=2.0, sample=1.0)


def a_place(_: Any) -> Any:
    return tf.random.experimental.index_shuffle(3, (1, 2), 9)


def rows_mixed(image: Any) -> Any:
    return tf.random.experimental.stateless_shuffle(image, (1, 2))


def python(image: Any) -> Any:
    return tf.numpy_function(np.negative, [image], tf.float32)


def eager_python(image: Any) -> Any:
    return tf.py_function(np.negative, [image], tf.float32)


def python_without_state(image: Any) -> Any:
    return tf.numpy_function(np.negative, [image], tf.float32, stateful=False)


def both(image: Any) -> Any:
    return augment(python(image))


@pytest.mark.parametrize(
    ("op", "function", "random", "python"),
    [
        ("RandomUniform", augment, "random_flip_left_right in augment", None),
        ("StatelessShuffle", rows_mixed, "StatelessShuffle in rows_mixed", None),
        ("RandomGammaGrad", a_gradient, None, None),
        ("RandomIndexShuffle", a_place, None, None),
        ("RandomShuffleQueueV2", a_queue, None, None),
        ("PyFunc", python, None, "python runs Python code (`PyFunc`)"),
        ("EagerPyFunc", eager_python, None, "eager_python runs Python code (`EagerPyFunc`)"),
        ("PyFuncStateless", python_without_state, None, None),
        ("PyFunc", both, "random_flip_left_right in both", "both runs Python code (`PyFunc`)"),
    ],
)
def test_what_a_function_draws_is_apart_from_what_its_python_code_may(
    op: str, function: Callable[[Any], Any], random: str | None, python: str | None
) -> None:
    data = images().map(function)
    (wrapper,) = data._functions()
    assert op in {node.op for node in every_node(wrapper.function.graph.as_graph_def())}
    assert random_in(data) == random_before_cache(data.cache()) == ((random,) if random else ())
    assert python_in(data) == ((python,) if python else ())


def test_python_code_in_branches_and_in_generators_is_found() -> None:
    def by_chance(image: Any) -> Any:
        return tf.cond(tf.reduce_sum(image) > 0, lambda: eager_python(image), lambda: image)

    assert python_in(images().map(by_chance)) == ("by_chance runs Python code (`EagerPyFunc`)",)
    generated = tf.data.Dataset.from_generator(lambda: iter([1]), output_signature=tf.TensorSpec((), tf.int32))
    assert len(python_in(generated)) == 1
    assert python_in(images()) == python_in([1, 2]) == ()


@pytest.mark.parametrize(
    ("build", "names"),
    [
        (lambda: images().map(augment).cache(), ["random_flip_left_right in augment"]),
        (lambda: images().map(augment, num_parallel_calls=2).batch(2).cache().prefetch(1), ["in augment"]),
        (lambda: images().map(stateless).cache(), ["stateless_random_uniform in stateless"]),
        (lambda: images().map(functools.partial(noise, stddev=1.0)).cache(), ["random_normal in noise"]),
        (lambda: images().map(generated).cache(), ["in generated"]),
        (lambda: images().batch(2).map(lambda x: FLIP(x, training=True)).cache(), ["flip in <lambda> test_draws.py:"]),
        (lambda: images().batch(2).map(lambda x: MODEL(x, training=True)).cache(), ["in <lambda> test_draws.py:"]),
        (lambda: images().map(in_branches).cache(), ["in in_branches"]),
        (lambda: images().map(in_loops).cache(), ["in in_loops"]),
        (lambda: images().batch(2).map(over_a_batch).cache(), ["in over_a_batch"]),
        (lambda: images().map(in_cases).cache(), ["in in_cases"]),
        (lambda: images().map(in_a_function).cache(), ["in in_a_function"]),
        (lambda: images().map(augment).map(normalise).shuffle(4).cache().repeat(2), ["in augment"]),
        (lambda: images().map(augment).map(stateless).cache(), ["in stateless", "in augment"]),
        (lambda: tf.data.Dataset.zip(images().map(augment), images()).cache(), ["in augment"]),
        (lambda: tf.data.Dataset.range(2).interleave(augmented_shard).cache(), ["in augmented_shard"]),
        (lambda: tf.data.Dataset.range(2).interleave(cached_shard), ["in cached_shard"]),
        (lambda: images().map(augment).cache().with_options(tf.data.Options()).take(2), ["in augment"]),
        (lambda: tf.data.Dataset.zip(images(), tf.data.Dataset.random(seed=1)).cache(), ["Dataset.random"]),
    ],
)  # fmt: skip
def test_random_operations_before_a_cache_are_named(build: Callable[[], Any], names: list[str]) -> None:
    found = random_before_cache(build())
    assert len(found) == len(names)
    assert [name for name, one in zip(names, found, strict=True) if name not in one] == []


def test_a_snapshot_freezes_as_well(tmp_path: Path) -> None:
    assert random_before_cache(images().map(augment).snapshot(str(tmp_path))) == ("random_flip_left_right in augment",)
    assert random_before_cache(images().snapshot(str(tmp_path)).map(augment)) == ()


@pytest.mark.parametrize(
    "build",
    [
        lambda: images().cache().map(augment),
        lambda: images().map(normalise).cache().map(stateless).batch(2),
        lambda: images().map(augment).batch(2),
        lambda: images().shuffle(4).cache(),
        lambda: images().shuffle(4, seed=1, reshuffle_each_iteration=False).map(normalise).cache(),
        lambda: tf.data.Dataset.range(2).interleave(plain_shard),
        lambda: tf.data.Dataset.sample_from_datasets([images(), images()], seed=1).cache(),
        lambda: images().map(lambda x: tf.numpy_function(np.negative, [x], tf.float32)).cache(),
        lambda: images().batch(2).map(lambda x: FLIP(x, training=False)).cache(),
    ],
    ids=[
        "after",
        "after, stateless",
        "no cache",
        "shuffle",
        "seeded shuffle",
        "after, in interleave",
        "a mixture",
        "python",
        "not training",
    ],
)
def test_a_pipeline_without_them_is_clean(build: Callable[[], Any]) -> None:
    assert random_before_cache(build()) == ()


@pytest.mark.parametrize(
    "data", [[1, 2], np.zeros(3), iter([]), keras.utils.PyDataset()], ids=["list", "array", "iterator", "PyDataset"]
)
def test_what_is_no_dataset_has_none(data: Any) -> None:
    assert random_before_cache(data) == ()


def test_a_dataset_that_cannot_be_serialised_is_searched_all_the_same() -> None:
    table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
    data = images().map(lambda x: (augment(x), table.size())).cache()
    assert len(random_before_cache(data)) == 1


def test_the_pipeline_is_not_run() -> None:
    calls: list[int] = []

    def count(image: Any) -> Any:
        calls.append(1)
        return image

    data = images().map(lambda x: augment(tf.numpy_function(count, [x], tf.float32))).cache()
    assert len(random_before_cache(data)) == 1
    assert calls == []
