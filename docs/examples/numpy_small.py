"""Small images that lie in memory: nothing to load.

python numpy_small.py
"""

import keras
import numpy as np

random = np.random.default_rng(0)
images = random.random((25000, 32, 32, 3)).astype("float32")
labels = random.integers(0, 10, 25000)

model = keras.Sequential(
    [
        keras.Input((32, 32, 3)),
        keras.layers.Conv2D(64, 3, activation="relu"),
        keras.layers.MaxPooling2D(),
        keras.layers.Conv2D(128, 3, activation="relu"),
        keras.layers.MaxPooling2D(),
        keras.layers.Flatten(),
        keras.layers.Dense(10, activation="softmax"),
    ]
)
model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
model.fit(images, labels, batch_size=64, epochs=3, verbose=2)
