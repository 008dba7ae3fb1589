"""The cat/dog tutorial as people write it: ImageDataGenerator and a small CNN.

python tutorial_generator.py photos/train
"""

import sys

import keras
from tensorflow.keras.preprocessing.image import ImageDataGenerator

model = keras.Sequential(
    [
        keras.Input((64, 64, 3)),
        keras.layers.Conv2D(32, (3, 3), activation="relu"),
        keras.layers.MaxPooling2D((2, 2)),
        keras.layers.Conv2D(32, (3, 3), activation="relu"),
        keras.layers.MaxPooling2D((2, 2)),
        keras.layers.Flatten(),
        keras.layers.Dense(128, activation="relu"),
        keras.layers.Dense(1, activation="sigmoid"),
    ]
)
model.compile(optimizer="adam", loss="binary_crossentropy", metrics=["accuracy"])

train_datagen = ImageDataGenerator(rescale=1.0 / 255, shear_range=0.2, zoom_range=0.2, horizontal_flip=True)
training_set = train_datagen.flow_from_directory(sys.argv[1], target_size=(64, 64), batch_size=32, class_mode="binary")

model.fit(training_set, epochs=4, verbose=2)
