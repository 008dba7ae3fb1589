"""Generates data of the published shapes and sizes from a seed: fast to make, and with classes that can be learnt."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from unstall.pipeline.sources.published import FORMS, WORDS, Form, Splits

# A quarter of an image is its class' pattern, the rest is noise: only all pixels together tell the class.
_NOISE_WEIGHT = 3
# One word in ten is one of the 100 words of the review's class.
_CLASS_WORD_RATIO = 0.1
_CLASS_WORDS = 100
# The tokens below are padding, start and rare words (0 to 3).
_FIRST_WORD = 4
# The fewest words of a review; the median is 120.
_SHORTEST = 20
# Images made at once; drawing their noise takes a tenth of a second.
_CHUNK = 5_000


def generate(name: str, *, train: int, test: int, seed: int) -> Splits:
    """Returns `train` and `test` examples in a data set's form, the same for the same arguments.

    The classes have as equal numbers of examples as possible. The same rule makes both splits.

    Args:
      name: a key of `FORMS`.
      train, test: numbers of examples.
      seed: at least 0.
    """
    form = FORMS[name]
    make = {"u": _images, "i": _reviews, "f": _features}[np.dtype(form.dtype).kind]
    arrays = []
    for split, examples in enumerate((train, test)):
        rule, draw = (np.random.default_rng([seed, *part]) for part in ((0,), (1, split)))
        labels = draw.permutation(np.arange(examples) % len(form.class_names)).astype(np.int64)
        x, y = make(form, labels, rule, draw)
        arrays += [x, y]
    return Splits(x_train=arrays[0], y_train=arrays[1], x_test=arrays[2], y_test=arrays[3])


def _images(form: Form, labels: NDArray[np.int64], rule: Any, draw: Any) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Draws each class's pattern of 4x4 coloured fields, under noise."""
    height, width, channels = form.shape
    fields = rule.integers(0, 256, (len(form.class_names), 4, 4, channels), np.uint16)
    patterns = fields.repeat(height // 4, axis=1).repeat(width // 4, axis=2)
    images = np.empty((len(labels), *form.shape), np.uint8)
    for start in range(0, len(labels), _CHUNK):
        part = slice(start, start + _CHUNK)
        noise = draw.integers(0, 256, images[part].shape, np.uint8)
        images[part] = (noise * np.uint16(_NOISE_WEIGHT) + patterns[labels[part]]) // (_NOISE_WEIGHT + 1)
    return images, labels


def _reviews(form: Form, labels: NDArray[np.int64], rule: Any, draw: Any) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Draws reviews of any length: words by Zipf's law, and some words of the review's class."""
    (length,) = form.shape
    class_words = rule.choice(np.arange(_FIRST_WORD, WORDS), (len(form.class_names), _CLASS_WORDS), replace=False)
    # The logarithm of a word's number is uniform, so the n-th word comes about 1 / n as often as the first.
    count = WORDS - _FIRST_WORD
    words = (_FIRST_WORD - 1 + count ** draw.random((len(labels), length), np.float32)).astype(np.int32)
    of_class = class_words[labels[:, np.newaxis], draw.integers(0, _CLASS_WORDS, words.shape)]
    words = np.where(draw.random(words.shape, np.float32) < _CLASS_WORD_RATIO, of_class, words)
    lengths = draw.integers(_SHORTEST, length + _SHORTEST, len(labels)).clip(max=length)
    padding = np.arange(length) < (length - lengths)[:, np.newaxis]
    return np.where(padding, 0, words).astype(np.int32), labels


def _features(form: Form, labels: NDArray[np.int64], rule: Any, draw: Any) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Draws features uniformly from [0, 1); their class is the side of a plane that they lie on."""
    features = draw.random((len(labels), *form.shape), np.float32)
    plane = rule.standard_normal(form.shape[0]).astype(np.float32)
    return features, ((features - np.float32(0.5)) @ plane > 0).astype(np.int64)
