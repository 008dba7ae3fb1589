"""Where a trainer runs: its number, the environment that its frameworks read, and how it meets the other trainers."""

from __future__ import annotations

import os
from dataclasses import dataclass

from unstall.benchmarks.trainers.subjects import SUBJECTS
from unstall.pipeline.service import LOOPBACK_HOST


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The place of one process among those of a subject.

    Attributes:
      subject: a name of `SUBJECTS`.
      process: its number, from 0.
      host, port: where process 0 waits for the others.
    """

    subject: str
    process: int = 0
    host: str = LOOPBACK_HOST
    port: int = 0


def environment_of(name: str, trainers: int) -> dict[str, str]:
    """Returns the environment variables of the processes of a subject.

    TF_CONFIG is emptied: TensorFlow would look for the user's other hosts.
    """
    subject = SUBJECTS[name]
    variables = {"KERAS_BACKEND": subject.backend, "TF_CONFIG": "{}"}
    if subject.backend == "jax":
        devices = trainers if subject.several and not subject.processes else 1
        flags = os.environ.get("XLA_FLAGS", "")
        variables["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count={devices}".strip()
    return variables
