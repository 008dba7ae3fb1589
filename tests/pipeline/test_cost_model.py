"""The tuning model: exact numbers for what it predicts, and a space that holds what it should."""

from dataclasses import replace

import pytest

from unstall.pipeline import VARIANTS, Augmentation, PipelineConfig, from_folder
from unstall.pipeline.config import AUTO
from unstall.pipeline.cost_model import Consumer, Prediction, StageCost, candidates, kind_of, needs, predict, stages_of
from unstall.pipeline.prepared.index import bytes_of
from unstall.pipeline.prepared.write import materialize

BASE = PipelineConfig(autotune=False, workers=2, prefetch=2)
FILES_BYTES = 23_000 * 1000
COSTS = {
    ("load", "files", "full"): StageCost(us_per_image=600.0),
    ("load", "files", "scaled"): StageCost(us_per_image=300.0),
    ("augment", "tf_ops", "element"): StageCost(us_per_image=150.0),
    ("augment", "tf_ops", "batch"): StageCost(us_per_image=100.0),
    ("load", "raw"): StageCost(us_per_image=5.0),
    ("augment", "albumentations", "element"): StageCost(us_per_image=200.0, most_calls=1.0),
    ("composed", "files", "scaled"): StageCost(us_per_image=280.0),
    ("cached", "memory"): StageCost(us_per_image=10.0),
    ("batch", "elements", "float32"): StageCost(us_per_image=50.0),
    ("batch", "batches", "float32"): StageCost(us_per_image=20.0),
}
FAST = Consumer(us_per_image=1.0, cpu_us_per_image=0.0)


def predict_of(config: PipelineConfig, consumer: Consumer, cores: float = 4) -> Prediction:
    return predict(config, COSTS, consumer, cores=cores, images=1000, source_bytes=0)


def rate(config: PipelineConfig, consumer: Consumer = FAST, cores: float = 4) -> tuple[float, str]:
    prediction = predict_of(config, consumer, cores)
    return round(1e6 / prediction.images_per_sec, 6), prediction.limit


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        # One thing at a time: everything adds up, and the model's step comes behind it.
        ({"workers": 1, "prefetch": 0, "rewrites": False}, (801.0, "one call")),
        # TensorFlow's rewrites, or a buffer, let the step run beside that.
        ({"workers": 1, "prefetch": 0}, (800.0, "one call")),
        ({"workers": 1, "rewrites": False}, (800.0, "one call")),
        # A stage's calls share its work; the slowest stage sets the rate.
        ({"workers": 2}, (300.0, "load files full")),
        ({"workers": 4}, (200.0, "cores")),
        ({"workers": 2, "decode": "scaled"}, (200.0 * 125 / 125 / 200 * 150, "load files scaled")),
        # A stage that Python's lock keeps to itself has the rate of one call.
        (
            {"workers": 4, "decode": "scaled", "augment_with": "albumentations"},
            (200.0, "augment albumentations element"),
        ),
        # A cache is in the place of what comes before it.
        ({"workers": 2, "cache": "memory"}, (75.0, "augment tf_ops element")),
    ],
)
def test_the_rate_is_that_of_the_slowest_resource(values, expected):
    assert rate(replace(BASE, **values)) == expected


@pytest.mark.parametrize(
    ("values", "ahead"),
    [
        ({}, True),
        ({"rewrites": False}, False),
        ({"prefetch": 2, "rewrites": False}, True),
        # The rewrite needs a function of one image in front of `batch`.
        ({"cache": "memory"}, True),
        ({"cache": "memory", "augmentation": None}, False),
        ({"augmentation": None}, True),
        ({"cache": "memory", "augment_with": "keras_layers", "augment_at": "device"}, False),
        ({"augment_with": "keras_layers", "augment_at": "device"}, True),
        ({"augment_at": "batch"}, False),
        ({"storage": "raw", "augmentation": None}, False),
        ({"decode": "scaled", "resample": "composed", "augment_with": "opencv", "augment_at": "batch"}, False),
    ],
)
def test_one_call_at_a_time_meets_the_consumer_only_where_batches_are_made_ahead(values, ahead):
    config = replace(BASE, **{"workers": 1, "prefetch": 0, **values})
    loader_us = 1e6 / predict_of(config, FAST).loader_images_per_sec
    expected = max(loader_us, 500.0) if ahead else loader_us + 500.0
    assert rate(config, Consumer(us_per_image=500.0, cpu_us_per_image=0.0))[0] == pytest.approx(expected)


@pytest.mark.parametrize(("workers", "expected"), [(16, 60.0 * 1.6), (4, 240 * (1 + 0.6 * 3 / 15))])
def test_hardware_threads_that_share_a_core_are_no_cores_of_their_own(workers, expected):
    """16 calls on 16 threads of 8 cores, where a stage takes 1.6 times the CPU time while all are busy."""
    costs = {
        ("load", "files", "full"): StageCost(us_per_image=960.0, crowded_factor=1.6),
        ("batch", "elements", "float32"): StageCost(us_per_image=0.0),
    }
    config = replace(BASE, workers=workers, augmentation=None)
    prediction = predict(config, costs, FAST, cores=16, images=10, source_bytes=0)
    assert 1e6 / prediction.loader_images_per_sec == pytest.approx(expected)
    assert prediction.loader_us_per_image == 960.0  # one call at a time shares nothing


def test_without_a_buffer_a_fast_consumer_waits_for_the_last_stage():
    config = replace(BASE, workers=4, cache="memory")
    consumer = Consumer(us_per_image=40.0, cpu_us_per_image=0.0)
    assert rate(config, consumer) == (52.5, "cores")
    without = replace(config, prefetch=0, rewrites=False)
    assert rate(without, consumer) == (40.0 + 50.0, "batch elements float32")


def test_a_model_on_the_same_cores_shares_them():
    # (280 + 20 + 500) / 2 cores are more than any one part of it.
    config = replace(BASE, decode="scaled", resample="composed", augment_with="opencv", augment_at="batch")
    consumer = Consumer(us_per_image=260.0, cpu_us_per_image=500.0)
    assert rate(config, consumer, cores=2) == (400.0, "cores")
    assert rate(config, replace(consumer, cpu_us_per_image=0.0), cores=2) == (260.0, "compute")


# Alone 300 us an image; 600 us beside a loader that takes 500 us of CPU time meanwhile, of one core.
CROWDED = Consumer(
    us_per_image=300.0,
    cpu_us_per_image=0.0,
    crowded_us_per_image=600.0,
    crowd_us_per_image=500.0,
    crowd_calls=1,
)


@pytest.mark.parametrize(
    ("loader_us", "expected"), [(0.0, 300.0), (250.0, 450.0), (500.0, 600.0), (900.0, 600.0 + 400.0 / 2)]
)
def test_a_loader_slows_its_consumer_in_proportion_to_its_work(loader_us, expected):
    """Beyond the work of the loader beside which that was measured, all cores are busy: the rest is shared by two."""
    assert CROWDED.beside_us(loader_us, cores=2) == pytest.approx(expected)
    assert FAST.beside_us(loader_us, cores=2) == 1.0


def test_what_slows_a_consumer_limits_the_rate():
    config = replace(BASE, workers=2, cache="memory")  # 10 + 150 + 50 us
    assert rate(config, CROWDED, cores=2) == (300.0 + 300.0 * 210 / 500, "cores")
    assert rate(config, replace(CROWDED, crowded_us_per_image=310.0), cores=2) == (304.2, "compute")


def test_a_loader_of_one_call_waits_for_a_core_while_the_consumer_computes():
    """The other loader had 500 of 600 us of a core, so that one call waits a sixth of the consumer's time."""
    config = replace(BASE, workers=1)
    waiting_us = (600.0 + 300.0 / 2) / 6
    assert rate(config, CROWDED, cores=2) == (pytest.approx(800.0 + waiting_us), "one call")
    assert rate(replace(config, workers=2), CROWDED, cores=2)[0] < 800.0


def test_auto_is_as_many_calls_as_cores():
    auto = replace(BASE, autotune=True, workers=AUTO, prefetch=AUTO)
    assert rate(auto) == rate(replace(BASE, workers=4))


def test_a_stage_without_a_cost_is_an_error_and_not_a_guess():
    with pytest.raises(KeyError, match="resized"):
        rate(replace(BASE, storage="resized"))


def test_a_cache_takes_the_memory_of_its_images():
    without, _ = needs(BASE, 1000, FILES_BYTES)
    with_cache, disk_bytes = needs(replace(BASE, cache="memory", shuffle_buffer=100), 1000, FILES_BYTES)
    assert with_cache - without == (1000 + 100) * 64 * 64 * 3 * 4
    assert disk_bytes == 0


@pytest.mark.parametrize(
    ("values", "bytes_per_image"),
    [
        ({"cache": "disk"}, 64 * 64 * 3 * 4 + 100),
        ({"storage": "raw"}, 64 * 64 * 3 + 100),
        ({"storage": "records"}, 23_000 + 300),  # the files' own bytes, whatever the size of the pixels
        ({"storage": "resized"}, 8192),
        ({"storage": "resized", "image_size": (16, 16)}, 4096),  # more than its pixels: a block of the disk
        ({}, 0),
    ],
)
def test_a_copy_takes_the_disk_that_its_form_does(values, bytes_per_image):
    assert needs(replace(BASE, **values), 1000, FILES_BYTES)[1] == 1000 * bytes_per_image


@pytest.mark.parametrize("form", ["raw", "records", "resized"])
def test_a_copy_takes_no_more_disk_than_was_foreseen(form, photos, tmp_path):
    source = from_folder(photos)
    copy = materialize(source, tmp_path / "copy", form, PipelineConfig(image_size=(64, 64)))
    _, disk_bytes = needs(replace(BASE, storage=form), source.images, bytes_of(source))
    assert disk_bytes / 3 < copy.prepared_bytes <= disk_bytes


def test_buffers_take_the_memory_of_their_batches():
    batch_bytes = 32 * 64 * 64 * 3 * 4
    assert needs(BASE, 1000, FILES_BYTES)[0] == (2 + 2 + 1) * batch_bytes
    assert needs(replace(BASE, output_dtype="uint8"), 1000, FILES_BYTES)[0] == (2 + 2 + 1) * batch_bytes // 4
    # A call of Python makes several batches of prepared pixels.
    raw = VARIANTS["tf-data-raw"]
    assert raw.workers == 2
    assert needs(raw, 100_000, FILES_BYTES)[0] == (2 + 2 + 1) * batch_bytes + 2 * (6 << 20)
    assert needs(replace(raw, workers=1), 100_000, FILES_BYTES)[0] == (1 + 2 + 1) * batch_bytes + (1 << 20)
    # Of a short epoch, an eighth.
    assert needs(raw, 1000, FILES_BYTES)[0] == (2 + 2 + 1) * batch_bytes + 1000 * 64 * 64 * 3 // 8


@pytest.mark.parametrize("accelerator", [False, True])
def test_every_candidate_is_frozen_and_can_be_predicted(accelerator):
    every = list(candidates(PipelineConfig(), cores=4, accelerator=accelerator, scales=True))
    assert len(set(every)) == len(every) > 100
    assert not any(config.autotune or AUTO in (config.workers, config.prefetch) for config in every)
    assert all(config.deterministic for config in every)
    costs = {key: StageCost(us_per_image=1.0) for config in every for key, _ in stages_of(config)}
    for config in every:
        assert predict(config, costs, FAST, cores=4, images=10, source_bytes=0).images_per_sec > 0
    assert {config.workers for config in every} == {1, 2, 4, 5}
    assert {config.output_dtype for config in every} == ({"float32", "uint8"} if accelerator else {"float32"})
    assert ("device" in {config.augment_at for config in every}) is accelerator
    assert all(config.one_iterator is (config.prefetch > 0) for config in every)


def test_a_buffer_on_the_device_is_tried_beside_one_iterator_where_tensorflow_trains_there():
    """On a GPU an epoch lost a quarter of its time to its edges, and no pipeline with one iterator was tried."""
    on_jax, on_tensorflow = (
        list(candidates(PipelineConfig(), cores=4, accelerator=True, scales=True, sends=sends))
        for sends in (False, True)
    )
    on_device = [config for config in on_tensorflow if config.prefetch_to_device]
    assert set(on_jax) == set(on_tensorflow) - set(on_device) and not any(one.prefetch_to_device for one in on_jax)
    on_host = [replace(one, prefetch_to_device=False) for one in on_device]
    assert len(on_device) > 100 and set(on_host) == {config for config in on_jax if config.one_iterator}
    assert {kind_of(one) for one in on_device}.isdisjoint(map(kind_of, on_host))


def test_only_jpeg_files_are_decoded_at_a_fraction():
    every = list(candidates(PipelineConfig(), cores=2, accelerator=False, scales=False))
    assert {config.decode for config in every} == {"full"}


def test_no_cache_of_a_candidate_is_filled_by_decoding_at_a_fraction():
    """It would help the first epoch alone, and change the pixels of all."""
    every = list(candidates(PipelineConfig(), cores=2, accelerator=True, scales=True))
    assert {config.cache for config in every if config.decode == "scaled"} == {"none"}
    assert {config.cache for config in every} == {"none", "memory", "disk"}


def test_no_cache_of_a_candidate_has_anything_random_before_it():
    for config in candidates(PipelineConfig(), cores=2, accelerator=True, scales=True):
        assert config.cache == "none" or not config.composed


def test_without_an_augmentation_there_is_nothing_to_compose():
    every = list(candidates(PipelineConfig(augmentation=None), cores=2, accelerator=True, scales=True))
    assert every and all(config.augmentation is None and config.resample == "separate" for config in every)


def test_keras_layers_are_no_candidate_for_a_crop():
    base = PipelineConfig(augmentation=Augmentation(crop_area=(0.08, 1.0)))
    every = candidates(base, cores=2, accelerator=True, scales=True)
    assert "keras_layers" not in {config.augment_with for config in every}


def test_a_kind_is_what_is_left_without_its_numbers():
    assert kind_of(replace(BASE, workers=4, prefetch=2)) == kind_of(replace(BASE, workers=1, prefetch=0))
    assert kind_of(BASE) != kind_of(replace(BASE, decode="scaled"))
