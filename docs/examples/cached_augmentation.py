"""A tf.data pipeline with its cache behind the augmentation: every epoch sees the same flips.

python cached_augmentation.py photos/train
"""

import sys

import keras
import tensorflow as tf


def load(path, label):
    image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
    return tf.image.resize(image, (64, 64)) / 255.0, label


def augment(image, label):
    image = tf.image.random_flip_left_right(image)
    return tf.image.random_brightness(image, 0.1), label


cats = tf.io.gfile.glob(sys.argv[1] + "/cats/*.jpg")
dogs = tf.io.gfile.glob(sys.argv[1] + "/dogs/*.jpg")
labels = [0.0] * len(cats) + [1.0] * len(dogs)

dataset = tf.data.Dataset.from_tensor_slices((cats + dogs, labels))
dataset = dataset.shuffle(len(labels)).map(load, num_parallel_calls=tf.data.AUTOTUNE)
dataset = dataset.map(augment, num_parallel_calls=tf.data.AUTOTUNE).cache().batch(32).prefetch(tf.data.AUTOTUNE)

model = keras.Sequential(
    [
        keras.Input((64, 64, 3)),
        keras.layers.Conv2D(32, 3, activation="relu"),
        keras.layers.MaxPooling2D(),
        keras.layers.Conv2D(32, 3, activation="relu"),
        keras.layers.MaxPooling2D(),
        keras.layers.Flatten(),
        keras.layers.Dense(128, activation="relu"),
        keras.layers.Dense(1, activation="sigmoid"),
    ]
)
model.compile(optimizer="adam", loss="binary_crossentropy", metrics=["accuracy"])
model.fit(dataset, epochs=5, verbose=2)
