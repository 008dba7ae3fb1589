"""Where a TensorFlow or a Keras lacks a private name that we use, reports name it and keep all other figures."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.data.ops import structured_function
from tensorflow.python.framework import op_def_registry
from tensorflow.python.ops import script_ops

from tests.checks import details_of
from tests.planted import IMAGES, a_batch, a_model, emulated, tensorflow_only
from unstall import profiles
from unstall.benchmarks.lab.backend import Refused
from unstall.benchmarks.tune.own.child import UserPipeline
from unstall.models import ModelError
from unstall.models.saved import foreign_layers
from unstall.profiles.data.tf_data import TfDatasets
from unstall.profiles.gate import unread_stages
from unstall.profiles.gate.feed import Feed
from unstall.profiles.gate.inspection import inspect
from unstall.profiles.measure import schedule
from unstall.profiles.measure.sums import IteratorCount
from unstall.profiles.measure.windows import Windows
from unstall.profiles.remedies.room import Room
from unstall.profiles.report.measurements import derive
from unstall.profiles.script.callback import WatchCallback
from unstall.profiles.script.profiler import Profiler
from unstall.profiles.script.report import report_on
from unstall.profiles.stages import CutError, lines, random_before_cache, tf_stages
from unstall.profiles.stages.tf_graph import functions_of, upstream
from unstall.profiles.trial import ceilings
from unstall.profiles.trial.ceilings import NotPossible, measure_ceilings, put_back
from unstall.profiles.trial.rereading import with_stages
from unstall.profiles.unit import IMAGE

pytestmark = tensorflow_only

TENSORFLOW, KERAS = f"which TensorFlow {tf.__version__} does not have", f"which Keras {keras.__version__} does not have"
Remove = Callable[[pytest.MonkeyPatch, Any], None]


def halve(image: Any, label: Any) -> Any:
    return image / 2, label


def in_python(image: Any, label: Any) -> Any:
    return tf.ensure_shape(tf.numpy_function(lambda part: part + 1, [image], tf.float32), (2, 2, 3)), label


def a_pipeline(function: Any = halve) -> Any:
    """Returns a pipeline with every kind of stage that is built again by means of private names."""
    images = tf.data.Dataset.from_tensor_slices(np.zeros((64, 2, 2, 3), np.float32))
    zipped = tf.data.Dataset.zip((images, tf.data.Dataset.from_tensor_slices(np.zeros(64, np.float32))))
    read = zipped.shuffle(8).interleave(lambda *parts: tf.data.Dataset.from_tensors(parts), num_parallel_calls=2)
    return read.map(function, num_parallel_calls=2).batch(IMAGES).prefetch(2)


def of_class(name: str) -> Remove:
    return lambda patch, _: patch.delattr(tf.data.Dataset, name)


def of_wrapper(name: str) -> Remove:
    def remove(patch: pytest.MonkeyPatch, dataset: Any) -> None:
        if name == "function":
            patch.delattr(structured_function.StructuredFunctionWrapper, name)
            return
        for stage in upstream(dataset):
            for wrapper in functions_of(stage):
                patch.delattr(wrapper, name)

    return remove


def of_stage(kind: str, name: str) -> Remove:
    def remove(patch: pytest.MonkeyPatch, dataset: Any) -> None:
        [stage] = [stage for stage in upstream(dataset) if type(stage).__name__ == kind]
        patch.delattr(stage, name)

    return remove


def the_wrapper(patch: pytest.MonkeyPatch, _: Any) -> None:
    patch.delattr(structured_function, "StructuredFunctionWrapper")


READ: dict[str, Remove] = {
    "Dataset._inputs": of_class("_inputs"),
    "Dataset._functions": of_class("_functions"),
    "StructuredFunctionWrapper._func": of_wrapper("_func"),
    "StructuredFunctionWrapper.function": of_wrapper("function"),
}
REBUILT: dict[str, Remove] = {
    "StructuredFunctionWrapper": the_wrapper,
    **{
        f"{kind}.{name}": of_stage(kind, name)
        for kind, names in {
            "_ParallelMapDataset": ["_map_func"],
            "_BatchDataset": ["_batch_size", "_drop_remainder"],
            "_ParallelInterleaveDataset": ["_map_func", "_cycle_length", "_block_length"],
            "_ShuffleDataset": ["_buffer_size"],
            "_ZipDataset": ["_datasets"],
        }.items()
        for name in names
    },
}
ALL = READ | REBUILT


@pytest.fixture(autouse=True)
def short_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes all measurements short: no figure is asserted here."""
    for module, name, short in (
        (tf_stages, "ROUNDS", 1),
        (tf_stages, "RUN_S", 0.02),
        (lines, "SEARCH_S", 0.05),
        (lines, "LINES_S", 0.05),
        (schedule, "READY_WINDOW_S", 0.02),
        (ceilings, "READY_WINDOW_S", 0.02),
        (ceilings, "_MOST_ROUNDS", 3),  # beside other tests no round is quiet
        (ceilings, "_LONGEST_STEP_TOGETHER_S", 0.0),
    ):
        monkeypatch.setattr(module, name, short)


@pytest.fixture(scope="module")
def windows() -> Windows:
    windows = Windows(a_model(), emulated(2))
    windows.prepare([a_batch()])
    return windows


def test_the_pipeline_of_these_tests_can_be_taken_apart(windows: Windows) -> None:
    table, _ = TfDatasets().stages_and_lines(a_pipeline(), lambda: windows, lines=False)
    assert table.reason is None and "halve" in {stage.name for stage in table.stages}


@pytest.mark.parametrize("name", ALL)
def test_stage_costs_say_which_name_they_lack_before_any_work(
    name: str, windows: Windows, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = a_pipeline()
    ALL[name](monkeypatch, dataset)
    monkeypatch.setattr(Windows, "watch", lambda *_, **__: pytest.fail("the model trains on it"))
    table, _ = TfDatasets().stages_and_lines(dataset, lambda: windows, lines=False)
    assert table.stages == ()
    assert table.reason == f"stage costs need tf.data's private {name}, {TENSORFLOW}"


@pytest.mark.parametrize("name", READ)
def test_whether_a_cache_freezes_draws_is_said_to_be_unknown(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = a_pipeline()
    READ[name](monkeypatch, dataset)
    with pytest.raises(CutError, match=f"before a cache needs tf.data's private {name}, {TENSORFLOW}"):
        random_before_cache(dataset)


def test_what_is_no_dataset_needs_no_name_of_tensorflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(tf.data.Dataset, "_inputs")
    assert random_before_cache([a_batch()]) == ()


def test_a_profile_without_stages_has_all_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = a_pipeline()
    of_wrapper("_func")(monkeypatch, dataset)
    profile = profiles.profile(dataset, a_model(), device="emulated:2000", rounds=1, lines=True, budget_s=0)
    text = " ".join(details_of(profile).split())
    assert f"no stages: stage costs need tf.data's private StructuredFunctionWrapper._func, {TENSORFLOW}" in text
    assert "looking for random operations before a cache needs tf.data's private Str" in text
    assert "telling how far a pipeline works ahead needs tf.data's private Str" in text
    assert profile.result.images_per_sec > 0 and profile.result.attribution.loading_ratio is not None
    assert profile.verdict.text()


def test_lines_that_cannot_be_timed_leave_the_stages(windows: Windows, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = a_pipeline(in_python)
    monkeypatch.delattr(script_ops, "_py_funcs")
    table, lines = TfDatasets().stages_and_lines(dataset, lambda: windows, lines=False)
    assert (table.unavailable, lines) == ((), ())
    # TensorFlow itself runs Python functions by that name: the stages are those of a pipeline that has none.
    table, lines = TfDatasets().stages_and_lines(a_pipeline(), lambda: windows, lines=True)
    assert "halve" in {stage.name for stage in table.stages} and lines == ()
    reason = f"timing the lines of Python functions needs TensorFlow's private script_ops._py_funcs, {TENSORFLOW}"
    assert table.unavailable == (reason,)
    assert reason in table.to_dict(IMAGE)["flags"]


def test_a_pipeline_of_the_users_is_refused_by_name(windows: Windows, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = a_pipeline()
    the_wrapper(monkeypatch, dataset)
    match = f"taken apart: trying remedies needs tf.data's private StructuredFunctionWrapper, {TENSORFLOW}"
    with pytest.raises(Refused, match=match):
        UserPipeline(dataset, windows, Room(calls=2, memory_bytes=1e9, disk_bytes=1e9), 1.0)


def test_the_gate_goes_on_without_the_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    feed = Feed(a_pipeline())
    before = inspect(feed)
    assert before.stages and unread_stages(before) == ()
    of_wrapper("_func")(monkeypatch, feed.data)
    after = inspect(feed)
    assert (after.images, after.batch, after.bytes_per_image) == (before.images, before.batch, before.bytes_per_image)
    assert after.decodes_per_image is None
    name = "StructuredFunctionWrapper._func"
    reason = f"the stages, decoders and frozen draws of a pipeline need tf.data's private {name}, {TENSORFLOW}"
    assert unread_stages(after, after) == (reason,)


# Keras


def trained(**options: Any) -> tuple[Any, Any]:
    model = keras.Sequential([keras.Input((2, 2, 3)), keras.layers.Flatten(), keras.layers.Dense(1)])
    model.compile("sgd", "mse", **options)
    callback = WatchCallback(keep_batches=4)
    images, labels = a_batch(64)
    model.fit(images, labels, batch_size=4, epochs=2, verbose=0, callbacks=[callback])
    return model, callback.watch


def test_the_models_own_rate_is_said_to_be_unknown_without_a_name_of_keras(monkeypatch: pytest.MonkeyPatch) -> None:
    model, watch = trained()
    assert measure_ceilings(model, watch, first_round=2).reason is None
    with monkeypatch.context() as patch:
        patch.delattr(keras.layers.Layer, "_flatten_layers")
        reason = measure_ceilings(model, watch, first_round=2).reason
        assert reason == f"putting a model back needs Keras' private Model._flatten_layers, {KERAS}"
    with monkeypatch.context() as patch:
        patch.delattr(model.variables[0], "_value")
        reason = measure_ceilings(model, watch, first_round=2).reason
        assert reason == f"putting a model back needs Keras' private Variable._value, {KERAS}"
        with pytest.raises(NotPossible, match="Variable._value"), put_back(model):
            pytest.fail("nothing may be run that cannot be put back")


def test_the_models_own_rate_is_said_to_be_unknown_without_the_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    model, watch = trained()
    monkeypatch.delattr(op_def_registry, "get")
    reason = measure_ceilings(model, watch, first_round=2).reason
    assert reason == f"looking for effects of a training step needs TensorFlow's private op_def_registry, {TENSORFLOW}"


def test_a_script_keeps_its_report_and_stages_without_a_name_of_keras(monkeypatch: pytest.MonkeyPatch) -> None:
    reason = f"putting a model back needs Keras' private Model._flatten_layers, {KERAS}"
    monkeypatch.setattr("unstall.profiles.trial.ceilings.missing_to_put_back", lambda model: reason)
    profiler = Profiler(ceilings=ceilings.measure_ceilings, max_steps=None)
    profiler.attach()
    try:
        a_model().fit(a_pipeline().repeat(6), epochs=2, verbose=0)
    finally:
        profiler.detach()
    assert profiler.fits[0].ceilings.reason == reason
    document, blocked = with_stages(report_on([profiler], script="train.py"), [profiler], lines=False)
    assert not blocked and document.left_out == ()
    [verdict] = derive(document)
    assert verdict.result.stages is not None and verdict.result.stages.stages
    assert verdict.result.images_per_sec > 0


def test_images_that_nobody_counts_are_said_to_need_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "unstall.profiles.script.stepper.iterator_count", lambda *_: IteratorCount(steps=4, images=None)
    )
    model, watch = trained(steps_per_execution=4)
    assert "private" not in watch.why_unknown
    monkeypatch.delattr(model, "_loss_tracker")  # Keras' own `fit` needs it as well
    read: list[IteratorCount] = []
    watch._training._read(SimpleNamespace(steps=4, read=read.append), None)
    assert read == [IteratorCount(steps=4, images=None)]
    missing = f"counting what a batch holds needs Keras' private Model._loss_tracker, {KERAS}"
    assert watch.why_unknown.endswith(f"; {missing}")


def test_a_model_is_kept_though_its_layers_cannot_be_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    model = a_model()
    monkeypatch.delattr(keras.layers.Layer, "_flatten_layers")
    with pytest.raises(ModelError, match=f"needs Keras' private Model._flatten_layers, {KERAS}"):
        foreign_layers(model)
