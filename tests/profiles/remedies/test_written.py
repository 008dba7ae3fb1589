"""Each remedy that is written into a script's text: the script with it runs, and trains to the same losses."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.builders import given_to_fit
from tests.planted import planted
from unstall.profiles.remedies import NEEDS, Remedy
from unstall.profiles.remedies.edits import edited
from unstall.profiles.remedies.tf import stage_costs
from unstall.profiles.stages.places import note_places, users_call

BEGINS = """
import keras, numpy as np, tensorflow as tf
keras.utils.set_random_seed(1)
inputs = np.random.default_rng(0).random((160, 8)).astype("float32")
targets = inputs.sum(axis=1)
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4), keras.layers.Dense(1)])
model.compile("sgd", "mse")
def halve(values, target):
    return values / 2, target
def half(index):
    return tf.gather(inputs, index) / 2, tf.gather(targets, index)
"""
FITS = {
    "arrays": "history = model.fit(inputs, targets, batch_size=16, epochs=3, shuffle=False, verbose=0)",
    "a dataset": """
data = tf.data.Dataset.from_tensor_slices((inputs, targets)).map(halve).batch(16)
history = model.fit(data, epochs=3, verbose=0)
""",
    "a dataset of AUTOTUNE": """
data = tf.data.Dataset.range(160)
data = data.map(half, num_parallel_calls=tf.data.AUTOTUNE)
data = data.batch(16).prefetch(tf.data.AUTOTUNE)
history = model.fit(data, epochs=3, verbose=0)
""",
}
WRITTEN = [
    ("own-dataset", "arrays", "from_tensor_slices"),
    ("batches-first", "a dataset", ".batch(16).map(halve)"),
    ("repeat", "a dataset", "steps_per_epoch=10"),
    ("prefetch", "a dataset", ".prefetch("),
    ("parallel", "a dataset", "num_parallel_calls="),
    ("cache", "a dataset", ".cache()"),
    ("any-order", "a dataset of AUTOTUNE", "deterministic = False"),
    ("tuner-off", "a dataset of AUTOTUNE", "autotune.enabled = False"),
    ("repeat", "a dataset of AUTOTUNE", "steps_per_epoch=10"),
]


class Reached(Exception):
    """A script has called `fit`."""


def run(path: Path) -> list[float]:
    """Runs a script in this process. Returns the losses that it leaves in `history`."""
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(path.read_text(), str(path), "exec"), names)
    return list(names["history"].history["loss"])


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Datasets know which call of a script made them."""
    monkeypatch.setattr(tf.data.Dataset, "__init__", tf.data.Dataset.__init__)
    note_places(tf.data.Dataset)


@pytest.mark.long
@planted
@pytest.mark.parametrize(("name", "fits", "holds"), WRITTEN)
@pytest.mark.usefixtures("noted")
def test_a_script_with_a_remedy_in_its_text_trains_to_the_same_losses(
    name: str, fits: str, holds: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text(BEGINS + FITS[fits])
    remedies: list[Remedy] = []

    def fit(model: Any, x: Any = None, y: Any = None, **given: Any) -> None:
        place = users_call(sys._getframe(1))
        data = given_to_fit({"x": x, "y": y, **given}, NEEDS, place=place, epoch_batches=10)
        remedies.extend(remedy for remedy in data.remedies if remedy.name == name)
        raise Reached

    with monkeypatch.context() as stopped:
        stopped.setattr(keras.Model, "fit", fit)
        # On a busy machine a map may look as if it waited, and get another remedy than parallel calls; or as if it took
        # no time beside what stands in front of it, and get none.
        stopped.setattr(stage_costs, "_WAITS_RATIO", 2.0)
        stopped.setattr(stage_costs, "_MATTERS_RATIO", -1.0)
        with pytest.raises(Reached):
            run(tmp_path / "train.py")
    [remedy] = remedies
    (tmp_path / "written.py").write_text(edited((tmp_path / "train.py").read_text(), remedy.edits))
    assert holds in (tmp_path / "written.py").read_text()
    losses = run(tmp_path / "train.py")
    assert len(losses) == 3
    np.testing.assert_allclose(run(tmp_path / "written.py"), losses, rtol=1e-6)
