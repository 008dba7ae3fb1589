"""What is read of TF_CONFIG, and what is said where it names hosts that Keras 3 cannot train on."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace

import pytest

from unstall.profiles.cluster import Cluster, TfConfigError, read_tf_config, unsupported, warning_for

TWO = json.dumps({"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}})


def a_keras(backend: str = "tensorflow", version: str = "3.15.1"):
    return SimpleNamespace(__version__=version, config=SimpleNamespace(backend=lambda: backend))


@pytest.mark.parametrize("text", [None, "", " ", "{}", '{"cluster": {}}', '{"task": {"index": 0}}'])
def test_without_hosts_there_is_no_cluster(text):
    assert read_tf_config({} if text is None else {"TF_CONFIG": text}) is None


@pytest.mark.parametrize(
    ("tasks", "cluster"),
    [
        ({"worker": ["a:1"]}, Cluster(workers=1)),
        ({"chief": ["c:1"], "worker": ["a:1", "b:1"]}, Cluster(workers=3)),
        ({"worker": {"0": "a:1", "3": "b:1"}}, Cluster(workers=2)),
        ({"worker": ["a:1"], "ps": ["p:1", "q:1"], "evaluator": ["e:1"]}, Cluster(workers=1, parameter_servers=2)),
    ],
)
def test_tasks_that_train_are_counted(tasks, cluster):
    assert read_tf_config({"TF_CONFIG": json.dumps({"cluster": tasks})}) == cluster


MALFORMED = {
    "{x": "TF_CONFIG must be JSON. Received: TF_CONFIG={x",
    "[" * 100_000: "TF_CONFIG must be JSON. Received: TF_CONFIG=[[[",
    "[1]": "TF_CONFIG must be a JSON object. Received: TF_CONFIG=[1]",
    '{"cluster": []}': 'TF_CONFIG must hold "cluster": {"worker": ["HOST:PORT", ...]}. Received: ',
    '{"cluster": {"worker": "a:1"}}': 'TF_CONFIG must hold "cluster"',
    '{"cluster": {"worker": [1]}}': 'TF_CONFIG must hold "cluster"',
    "\n\x1b[31m{": "TF_CONFIG must be JSON. Received: TF_CONFIG=\\x1b[31m{",
}


@pytest.mark.parametrize("text", MALFORMED, ids=range(len(MALFORMED)))
def test_a_malformed_variable_is_refused_in_one_short_line(text):
    with pytest.raises(TfConfigError, match=re.escape(MALFORMED[text])) as refused:
        read_tf_config({"TF_CONFIG": text})
    assert str(refused.value).isprintable() and len(str(refused.value)) < 200
    assert warning_for(a_keras(), {"TF_CONFIG": text}) == str(refused.value)


def test_several_workers_are_said_to_need_another_way():
    said = warning_for(a_keras(), {"TF_CONFIG": TWO})
    assert said.startswith("TF_CONFIG names 2 workers: Keras 3 does not work with tf.distribute.Multi")
    assert said == unsupported(Cluster(workers=2))
    assert "MultiWorkerMirroredStrategy (keras-team/keras issue 20585)" in said
    assert "What works: Keras 3 on JAX with keras.distribution" in said and "tf_keras" in said


def test_parameter_servers_are_said_to_need_another_way():
    for servers, named in ((1, "1 parameter server:"), (2, "2 parameter servers:")):
        said = unsupported(Cluster(workers=2, parameter_servers=servers))
        assert f"TF_CONFIG names {named} Keras 3 does not support them (keras-team/keras issue 18624)" in str(said)


@pytest.mark.parametrize(
    ("keras", "text"),
    [
        (a_keras("jax"), TWO),
        (a_keras(version="2.15.0"), TWO),
        (a_keras(), json.dumps({"cluster": {"worker": ["a:1"]}})),
        (a_keras(), ""),
    ],
    ids=["JAX", "Keras 2", "one worker", "none"],
)
def test_nothing_is_said_where_it_works(keras, text):
    assert warning_for(keras, {"TF_CONFIG": text}) is None
