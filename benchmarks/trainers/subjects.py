"""What is compared: one trainer of each backend, and several trainers of one model in each way that works on one host.

A *trainer* computes the gradients of its own part of each batch: a replica, on a device of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

BY_NOBODY, BY_KERAS, BY_FILES = "nobody", "Keras", "files"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A way to train.

    Attributes:
      backend: Keras' backend.
      several: whether there are several trainers.
      processes: whether each trainer is a process of its own.
      sharded_by: who gives each process its part of the epoch: `BY_NOBODY` where one process feeds all trainers;
        `BY_KERAS`, which drops the batches of other processes; `BY_FILES`, the list of files is divided beforehand.
      baseline: the subject with one trainer that this one is compared with; "" for that subject itself.
      says: what it is, for people.
    """

    backend: str
    several: bool = False
    processes: bool = False
    sharded_by: str = BY_NOBODY
    baseline: str = ""
    says: str


SUBJECTS: Mapping[str, Subject] = {
    "one-tensorflow": Subject(backend="tensorflow", says="one trainer on TensorFlow"),
    "mirrored": Subject(
        backend="tensorflow",
        several=True,
        baseline="one-tensorflow",
        says="tf.distribute.MirroredStrategy: one process, several devices",
    ),
    "one-jax": Subject(backend="jax", says="one trainer on JAX"),
    "jax-devices": Subject(
        backend="jax",
        several=True,
        baseline="one-jax",
        says="keras.distribution.DataParallel: one process, several devices",
    ),
    "jax-processes": Subject(
        backend="jax",
        several=True,
        processes=True,
        sharded_by=BY_KERAS,
        baseline="one-jax",
        says="keras.distribution.DataParallel: several processes, Keras divides the dataset",
    ),
    "jax-processes-sharded": Subject(
        backend="jax",
        several=True,
        processes=True,
        sharded_by=BY_FILES,
        baseline="one-jax",
        says="the same processes, each with its own part of the list of files",
    ),
}
