"""Reads TF_CONFIG, which names the hosts of a training on TensorFlow, and says whether Keras 3 works with them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from unstall.profiles.text import printable

# Tasks that train; others (`ps`, `evaluator`) hold variables or evaluate.
_TRAINING = ("chief", "master", "worker")
_SHOWN = 80


class TfConfigError(ValueError):
    """TF_CONFIG cannot be read; the message has one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The hosts of a training.

    Attributes:
      workers: how many tasks train.
      parameter_servers: how many tasks hold variables for them.
    """

    workers: int
    parameter_servers: int = 0


def read_tf_config(environment: Mapping[str, str]) -> Cluster | None:
    """Returns the cluster that TF_CONFIG describes; None if there is none, or the variable names no cluster.

    Raises:
      TfConfigError: if TF_CONFIG is not what TensorFlow's documentation says.
    Source: https://www.tensorflow.org/api_docs/python/tf/distribute/cluster_resolver/TFConfigClusterResolver
    """
    text = environment.get("TF_CONFIG", "")
    if not text.strip():
        return None
    try:
        read: Any = json.loads(text)
    except (ValueError, RecursionError):
        raise _error("must be JSON", text) from None
    if not isinstance(read, dict):
        raise _error("must be a JSON object", text)
    tasks = read.get("cluster", {})
    if not isinstance(tasks, dict) or not all(_is_addresses(addresses) for addresses in tasks.values()):
        raise _error('must hold "cluster": {"worker": ["HOST:PORT", ...]}', text)
    if not tasks:
        return None
    return Cluster(
        workers=sum(len(tasks[kind]) for kind in _TRAINING if kind in tasks),
        parameter_servers=len(tasks.get("ps", ())),
    )


def _is_addresses(value: Any) -> bool:
    """Whether a value lists addresses; TensorFlow also takes a dictionary of them by the tasks' numbers."""
    addresses = list(value.values()) if isinstance(value, dict) else value
    return isinstance(addresses, list) and all(isinstance(address, str) for address in addresses)


def _error(rule: str, text: str) -> TfConfigError:
    line = " ".join(text.split())
    cut = line if len(line) <= _SHOWN else f"{line[:_SHOWN]}..."
    return TfConfigError(f"TF_CONFIG {rule}. Received: TF_CONFIG={printable(cut)}")


def warning_for(keras: Any, environment: Mapping[str, str]) -> str | None:
    """Returns what to say of TF_CONFIG where a script has imported Keras; None where there is nothing to say.

    Keras 2 trains on several hosts by TensorFlow's strategies, and other backends do not read TF_CONFIG.
    """
    if str(getattr(keras, "__version__", "")).startswith("2.") or keras.config.backend() != "tensorflow":
        return None
    try:
        cluster = read_tf_config(environment)
    except TfConfigError as error:
        return str(error)
    return None if cluster is None else unsupported(cluster)


def unsupported(cluster: Cluster) -> str | None:
    """Returns why Keras 3 on TensorFlow does not train on a cluster, and what does; None for a single worker.

    Source: answers of Keras' maintainers in keras-team/keras issues 20585 (2024) and 18624 (2023).
    """
    if cluster.parameter_servers:
        plural = "s" if cluster.parameter_servers > 1 else ""
        return (
            f"TF_CONFIG names {cluster.parameter_servers} parameter server{plural}: Keras 3 does not support them "
            f"(keras-team/keras issue 18624). {_WORKS}"
        )
    if cluster.workers <= 1:
        return None
    return (
        f"TF_CONFIG names {cluster.workers} workers: Keras 3 does not work with "
        f"tf.distribute.MultiWorkerMirroredStrategy (keras-team/keras issue 20585). {_WORKS}"
    )


_WORKS = "What works: Keras 3 on JAX with keras.distribution (docs/trainers.md), or Keras 2, as tf_keras."
