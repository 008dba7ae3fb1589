"""The callback for long runs."""

from __future__ import annotations

import csv

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.planted import sequential, sleepy_model
from unstall import profiles

IMAGES = np.random.default_rng(0).random((64, 4, 4, 3)).astype(np.float32)
KEYS = {"images_per_sec", "loading_ratio", "wait_ms_per_step"}


def fitted(monitor, *behind, data=None, steps_per_execution=1, epochs=2, **fit_arguments):
    model = keras.Sequential([keras.Input((4, 4, 3)), keras.layers.Flatten(), keras.layers.Dense(1)])
    model.compile("sgd", "mse", steps_per_execution=steps_per_execution)
    data = batches() if data is None else data
    return model.fit(data, epochs=epochs, verbose=0, callbacks=[monitor, *behind], **fit_arguments).history


def batches():
    return tf.data.Dataset.from_tensor_slices((IMAGES, IMAGES.mean((1, 2, 3)))).batch(8)


def test_each_epoch_has_its_figures_in_keras_logs():
    history = fitted(profiles.StallMonitor(), validation_data=batches())
    assert set(history) == {"loss", "val_loss", *KEYS}
    assert [len(history[key]) for key in sorted(KEYS)] == [2, 2, 2]
    assert all(0 <= ratio <= 1 for ratio in history["loading_ratio"])


def test_callbacks_behind_it_see_the_figures(tmp_path):
    fitted(profiles.StallMonitor(), keras.callbacks.CSVLogger(str(tmp_path / "log.csv")))
    with open(tmp_path / "log.csv") as file:
        rows = list(csv.DictReader(file))
    assert set(rows[0]) >= {"epoch", "loss", *KEYS}
    assert float(rows[1]["images_per_sec"]) > 0


def test_a_loader_that_sleeps_is_seen(fake_clock):
    """A batch of ten images takes 10 ms, a step 30 ms."""
    monitor = profiles.StallMonitor()
    data = sequential(lambda: fake_clock.sleep(0.01))
    sleepy_model(lambda: fake_clock.sleep(0.03)).fit(data, epochs=2, verbose=0, callbacks=[monitor])
    expected = {"images_per_sec": 250, "loading_ratio": 0.25, "wait_ms_per_step": 10}
    assert monitor.summary() == pytest.approx(expected)


@pytest.mark.parametrize("autotune", [True, False])
def test_of_several_steps_a_call_the_rate_is_logged_and_the_wait_is_unknown(autotune):
    options = tf.data.Options()
    options.autotune.enabled = autotune
    monitor = profiles.StallMonitor()
    history = fitted(monitor, data=batches().with_options(options), steps_per_execution=4)
    assert set(history) == {"loss", "images_per_sec"}
    assert len(history["images_per_sec"]) == 2
    summary = monitor.summary()
    assert summary.pop("images_per_sec") > 0
    assert summary == {
        "loading_ratio": "unknown",
        "wait_ms_per_step": "unknown",
        "why": "batches are drawn where only TensorFlow sees it, several in a call or for several devices",
    }


def test_before_an_epoch_has_ended_all_is_unknown():
    summary = profiles.StallMonitor().summary()
    assert (summary["images_per_sec"], summary["why"]) == ("unknown", "no epoch has ended")


def test_it_has_no_batch_hook_that_would_make_keras_wait_for_each_step():
    for name in ("on_batch_end", "on_train_batch_end", "on_test_batch_end"):
        assert getattr(profiles.StallMonitor, name) is getattr(keras.callbacks.Callback, name)


def test_a_name_that_the_package_has_not_is_refused():
    with pytest.raises(AttributeError, match="module 'unstall.profiles' has no attribute 'StalMonitor'"):
        profiles.StalMonitor  # noqa: B018


def test_each_epoch_has_a_line_where_one_is_asked_for(capsys):
    fitted(profiles.StallMonitor(live=True))
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(":")[0] for line in lines] == ["epoch 1", "epoch 2"]
    assert (
        " images/sec, " in lines[1]
        and "% of the epoch waiting for data, " in lines[1]
        and lines[1].endswith(" ms a step")
    )


def test_prometheus_reads_the_values_of_the_last_epoch(tmp_path):
    history = fitted(profiles.StallMonitor(prometheus=tmp_path / "training.prom"))
    text = (tmp_path / "training.prom").read_text()
    values = dict(line.split() for line in text.splitlines() if not line.startswith("#"))
    assert values == {"unstall_epoch": "1"} | {f"unstall_{key}": repr(history[key][-1]) for key in KEYS}
    types = [line.split() for line in text.splitlines() if line.startswith("# TYPE")]
    assert [words[2:] for words in types] == [[name, "gauge"] for name in values]
    assert [path.name for path in tmp_path.iterdir()] == ["training.prom"]


def test_a_file_that_cannot_be_written_ends_with_a_warning_and_not_the_training(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.warns(UserWarning, match="cannot be written") as caught:
        history = fitted(profiles.StallMonitor(prometheus=tmp_path / "file" / "training.prom"))
    assert len(history["loss"]) == 2
    assert sum("cannot be written" in str(warning.message) for warning in caught) == 1
