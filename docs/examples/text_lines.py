"""Sentences in a text file, one in a line, turned into numbers of words by Keras' TextVectorization.

python docs/examples/text_lines.py
"""

import random
import tempfile
from pathlib import Path

import keras
import tensorflow as tf

WORDS = [f"word{number}" for number in range(500)]
draws = random.Random(0)
path = Path(tempfile.gettempdir()) / "sentences.txt"
path.write_text("".join(f"{draws.choice('01')}\t{' '.join(draws.choices(WORDS, k=40))}\n" for _ in range(8_000)))

vectorize = keras.layers.TextVectorization(max_tokens=600, output_sequence_length=40)
vectorize.adapt(WORDS)


def numbers(line):
    label, sentence = tf.unstack(tf.strings.split(line, "\t"), 2)
    return vectorize(sentence), tf.strings.to_number(label)


sentences = tf.data.TextLineDataset(str(path)).map(numbers).shuffle(1_000, seed=0).batch(32)
model = keras.Sequential(
    [
        keras.Input((40,), dtype="int64"),
        keras.layers.Embedding(600, 16),
        keras.layers.GlobalAveragePooling1D(),
        keras.layers.Dense(1, activation="sigmoid"),
    ]
)
model.compile(optimizer="adam", loss="binary_crossentropy", metrics=["accuracy"])
model.fit(sentences, epochs=4, verbose=2)
