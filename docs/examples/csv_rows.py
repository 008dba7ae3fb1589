"""A table in a CSV file, read row by row: a function that does next to nothing is called for each row.

python docs/examples/csv_rows.py
"""

import tempfile
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

COLUMNS = 8
path = Path(tempfile.gettempdir()) / "rows.csv"
np.savetxt(path, np.random.default_rng(0).random((20_000, COLUMNS + 1)), fmt="%.4f", delimiter=",")


def parse(row):
    *inputs, target = tf.io.decode_csv(row, [[0.0]] * (COLUMNS + 1))
    return tf.stack(inputs, axis=-1), target


rows = tf.data.TextLineDataset(str(path)).map(parse).shuffle(1_000, seed=0).batch(32)
model = keras.Sequential([keras.Input((COLUMNS,)), keras.layers.Dense(32, activation="relu"), keras.layers.Dense(1)])
model.compile(optimizer="adam", loss="mean_squared_error")
model.fit(rows, epochs=4, verbose=2)
