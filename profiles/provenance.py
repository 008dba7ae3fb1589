"""Where and with what a measurement was made; no names of hosts, users or folders."""

from __future__ import annotations

import math
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from profiles.throttling import control_groups, quota_cores

_PACKAGES = ("unstall", "tensorflow", "keras", "jax", "numpy", "pillow", "opencv-python-headless", "albumentations")


def usable_cores(groups: Sequence[Path] | None = None) -> float:
    """Returns the cores this process may use: of its affinity, and of its control groups' quotas where those are less.

    Thread pools sized to the host and not to the container are a known cause of slowness (oneTBB issues 190, 1760).

    Args:
      groups: folders of its control groups; those it is in unless given.
    """
    cores = float(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    quotas = (quota_cores(group) for group in (control_groups() if groups is None else groups))
    return min([cores, *(quota for quota in quotas if quota is not None)])


def machine() -> dict[str, Any]:
    """Describes the machine, without importing TensorFlow."""
    return {
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "packages": {name: _version(name) for name in _PACKAGES},
        "cpu": _cpu_model(),
        "usable_cores": usable_cores(),
        "memory_bytes": psutil.virtual_memory().total,
        "git_commit": _git_commit(),
        "command": [Path(sys.argv[0]).name, *(without_folder(word) for word in sys.argv[1:])],
    }


def backend() -> dict[str, Any]:
    """Describes Keras and its backend; imports both."""
    import keras

    from profiles.backends import BACKENDS

    name = keras.backend.backend()
    described: dict[str, Any] = {
        "keras_backend": name,
        "precision": keras.config.dtype_policy().name,
        "threads": "unknown",
        "gpus": [],
    }
    if name in BACKENDS:
        described["gpus"] = BACKENDS[name].gpus()
    if name == "tensorflow":
        import tensorflow as tf

        described["threads"] = {
            "inter_op": tf.config.threading.get_inter_op_parallelism_threads() or usable_threads(),
            "intra_op": tf.config.threading.get_intra_op_parallelism_threads() or usable_threads(),
        }
    return described


def usable_threads() -> int:
    """Returns the threads that a pool sized to the usable cores has."""
    return max(1, math.ceil(usable_cores()))


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "unknown"


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"


def _git_commit() -> str:
    try:
        done = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return done.stdout.strip()


def without_folder(word: str) -> str:
    """Drops the folders of a path, and its name, too, where it is a home folder and so a user's name."""
    if os.sep not in word:
        return word
    path = Path(word)
    return "~" if path == Path.home() or path.parent == Path.home().parent else path.name
