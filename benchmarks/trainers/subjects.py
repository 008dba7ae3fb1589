"""What is compared: one trainer on each backend, and several trainers of one model in each way that works on one host.

A *trainer* computes the gradients of its own part of each batch: a replica, on a device of its own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

BY_NOBODY, BY_KERAS, BY_FILES = "nobody", "Keras", "files"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A way to train.

    Attributes:
      backend: Keras' backend.
      several: whether there are several trainers.
      sharded_by: who gives each process its part of the epoch: `BY_NOBODY` where one process feeds all trainers;
        `BY_KERAS`, which drops the batches of other processes; `BY_FILES`, the list of files is divided beforehand.
    """

    backend: str
    several: bool = False
    sharded_by: str = BY_NOBODY

    @property
    def processes(self) -> bool:
        """Whether each trainer is a process of its own."""
        return self.sharded_by != BY_NOBODY

    @property
    def baseline(self) -> str:
        """The subject with one trainer that this one is compared with; "" for that subject itself."""
        return f"one-{self.backend}" if self.several else ""

    def environment(self, trainers: int) -> dict[str, str]:
        """Returns the environment variables of the subject's processes.

        TF_CONFIG is emptied: TensorFlow would look for the user's other hosts.
        """
        variables = {"KERAS_BACKEND": self.backend, "TF_CONFIG": "{}"}
        if self.backend == "jax":
            devices = trainers if self.several and not self.processes else 1
            flags = os.environ.get("XLA_FLAGS", "")
            variables["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count={devices}".strip()
        return variables


SUBJECTS: Mapping[str, Subject] = {
    "one-tensorflow": Subject(backend="tensorflow"),
    "mirrored": Subject(backend="tensorflow", several=True),
    "one-jax": Subject(backend="jax"),
    "jax-devices": Subject(backend="jax", several=True),
    "jax-processes": Subject(backend="jax", several=True, sharded_by=BY_KERAS),
    "jax-processes-sharded": Subject(backend="jax", several=True, sharded_by=BY_FILES),
}
