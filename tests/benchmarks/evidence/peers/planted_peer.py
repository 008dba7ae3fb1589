"""A library that needs NumPy alone, and the ways in which it can go wrong; each class is a loader of that name."""

from __future__ import annotations

import os
import threading
import time

import numpy as np

from unstall.benchmarks.evidence.peers.loaders.work import AllEpochs


class Planted:
    def __init__(self, job):
        self.job, self.array = job, np.load(job.array)
        self.labels = np.array(job.labels)
        self.random = np.random.default_rng(0)

    def order(self):
        return self.random.permutation(self.job.images)

    def moved(self, index):
        top = int(self.random.integers(0, 6))
        return self.array[index][np.clip(np.arange(64) - top, 0, 63)]

    def image(self, index):
        moved = self.moved(index)
        return moved[:, ::-1] if self.random.random() < 0.5 else moved

    def out(self, images):
        return images.astype(np.float32) / np.float32(255)

    def label(self, rows):
        return self.labels[rows]

    def starts(self):
        return range(0, self.job.images, 32)

    def __call__(self, epochs):
        for _ in range(epochs):
            order = self.order()
            for start in self.starts():
                rows = order[start : start + 32]
                yield self.out(np.stack([self.image(row) for row in rows])), self.label(rows)


class ForgetsRescale(Planted):
    def out(self, images):
        return images.astype(np.float32)


class RescalesTwice(Planted):
    def out(self, images):
        return images.astype(np.float32) / np.float32(255 * 255)


class DropsTheLastBatch(Planted):
    def starts(self):
        return range(0, self.job.images - 31, 32)


class MixesLabels(Planted):
    def label(self, rows):
        return np.roll(self.labels[rows], 1)


class SwapsClasses(Planted):
    def label(self, rows):
        return self.labels.max() - self.labels[rows]


class DoesNotShuffle(Planted):
    def order(self):
        return np.arange(self.job.images)


class DoesNotAugment(Planted):
    def image(self, index):
        return self.array[index]


class NeverFlips(Planted):
    def image(self, index):
        return self.moved(index)


class TakesTheNearestPixel(Planted):
    def moved(self, index):
        top = self.random.uniform(0, 6)
        return self.array[index][(top + np.arange(64) * 0.9).astype(int)]


class Smooths(Planted):
    def moved(self, index):
        moved = super().moved(index).astype(np.uint16)
        return ((moved + np.roll(moved, 1, 1) + np.roll(moved, 2, 1)) // 3).astype(np.uint8)


class DrawsWithReplacement(Planted):
    def order(self):
        return self.random.integers(0, self.job.images, self.job.images)


class Darkens(Planted):
    def out(self, images):
        return super().out(images) * np.float32(0.9)


class Halves(Planted):
    def out(self, images):
        return super().out(images)[:, ::2, ::2]


class Uint8(Planted):
    def out(self, images):
        return images


class FewWorkersOnly(Planted):
    def __init__(self, job):
        super().__init__(job)
        if job.workers > 1:
            raise ValueError("one worker is all there is\nand more")


class NeverRests(Planted):
    def __init__(self, job):
        super().__init__(job)
        threading.Thread(target=self.burn, daemon=True).start()

    def burn(self):
        while True:
            pass


class DiesLater(Planted):
    def __call__(self, epochs):
        if os.path.exists(os.environ["PLANTED_TROUBLE"]):
            print("planted: out of luck", flush=True)
            os._exit(7)
        return super().__call__(epochs)


class HangsLater(Planted):
    def __call__(self, epochs):
        if os.path.exists(os.environ["PLANTED_TROUBLE"]):
            if os.fork() == 0:  # a worker, which outlives whoever does not end it
                time.sleep(600)
            time.sleep(600)
        return super().__call__(epochs)


def __getattr__(name):
    kind = globals()["".join(word.capitalize() for word in name.split("_"))]
    return lambda job: AllEpochs(kind(job))
