"""Photos from folders by Keras' image_dataset_from_directory, as its documentation shows it: no cache, no prefetch.

python docs/examples/directory.py photos/train
"""

import sys

import keras

photos = keras.utils.image_dataset_from_directory(sys.argv[1], label_mode="binary", image_size=(64, 64), seed=0)
model = keras.Sequential(
    [
        keras.Input((64, 64, 3)),
        keras.layers.Rescaling(1 / 255),
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
model.fit(photos, epochs=5)
