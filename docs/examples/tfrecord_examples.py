"""Examples in a TFRecord file, parsed one by one, as the documentation of TensorFlow shows it.

python docs/examples/tfrecord_examples.py
"""

import tempfile
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

FEATURES = {"inputs": tf.io.FixedLenFeature([16], tf.float32), "target": tf.io.FixedLenFeature([], tf.float32)}
path = Path(tempfile.gettempdir()) / "examples.tfrecord"
with tf.io.TFRecordWriter(str(path)) as file:
    for values in np.random.default_rng(0).random((20_000, 17)):
        inputs, target = (
            tf.train.Feature(float_list=tf.train.FloatList(value=part)) for part in (values[:-1], values[-1:])
        )
        features = tf.train.Features(feature={"inputs": inputs, "target": target})
        file.write(tf.train.Example(features=features).SerializeToString())


def parse(record):
    example = tf.io.parse_single_example(record, FEATURES)
    return example["inputs"], example["target"]


examples = tf.data.TFRecordDataset(str(path)).shuffle(1_000, seed=0).map(parse, num_parallel_calls=tf.data.AUTOTUNE)
model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(32, activation="relu"), keras.layers.Dense(1)])
model.compile(optimizer="adam", loss="mean_squared_error")
model.fit(examples.batch(32).prefetch(tf.data.AUTOTUNE), epochs=4, verbose=2)
