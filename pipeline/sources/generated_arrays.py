"""Data of the published shapes and sizes, drawn from a seed: fast to make, and with classes that can be learnt."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.sources.published import FORMS, WORDS, Form, Splits

# A quarter of an image is its class' pattern, the rest noise: no single pixel tells the class, all of them do.
_NOISE_WEIGHT = 3
# One word in ten is of the review's class.
_CLASS_WORD_RATIO = 0.1
_CLASS_WORDS = 100
# The words that are not of a class begin behind padding, start and rare (0 to 3).
_FIRST_WORD = 4
# Reviews have 20 words at least; as many have fewer than 120 as have more.
_SHORTEST = 20
# Images made at once: their noise has a tenth of a second's worth of bytes.
_CHUNK = 5_000


def generate(name: str, *, train: int, test: int, seed: int) -> Splits:
    """Returns `train` and `test` examples of a data set's form, the same for the same arguments.

    Labels come in turn, so that classes are as even as can be. Two splits are drawn from one rule.
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
    """Gives each class a pattern of 4x4 fields of colour, under noise."""
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
    """Draws words as often as Zipf's law has it, some of them from the class' own, in reviews of any length."""
    (length,) = form.shape
    own = rule.choice(np.arange(_FIRST_WORD, WORDS), (len(form.class_names), _CLASS_WORDS), replace=False)
    # A word's logarithm is even: the n-th word then comes about 1 / n as often as the first.
    count = WORDS - _FIRST_WORD
    words = (_FIRST_WORD - 1 + count ** draw.random((len(labels), length), np.float32)).astype(np.int32)
    chosen = own[labels[:, np.newaxis], draw.integers(0, _CLASS_WORDS, words.shape)]
    words = np.where(draw.random(words.shape, np.float32) < _CLASS_WORD_RATIO, chosen, words)
    lengths = draw.integers(_SHORTEST, length + _SHORTEST, len(labels)).clip(max=length)
    padding = np.arange(length) < (length - lengths)[:, np.newaxis]
    return np.where(padding, 0, words).astype(np.int32), labels


def _features(form: Form, labels: NDArray[np.int64], rule: Any, draw: Any) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Draws features evenly from [0, 1); the side of a plane that they lie on is their class."""
    features = draw.random((len(labels), *form.shape), np.float32)
    plane = rule.standard_normal(form.shape[0]).astype(np.float32)
    return features, ((features - np.float32(0.5)) @ plane > 0).astype(np.int64)
