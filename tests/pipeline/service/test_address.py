"""The config's `service`: what it may be, and what happens where nothing answers."""

from __future__ import annotations

import dataclasses
import socket

import pytest

from unstall.pipeline import VARIANTS, ConfigError, PipelineConfig
from unstall.pipeline.address import Address, parse_address
from unstall.pipeline.errors import UnavailableError
from unstall.pipeline.service.handshake import check_reachable

TF_DATA = VARIANTS["tf-data-composed"]


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("none", None),
        ("local:2", Address(workers=2)),
        ("trainer:5050", Address(host="trainer", port=5050)),
        ("10.0.0.1:1", Address(host="10.0.0.1", port=1)),
        ("[::1]:5050", Address(host="::1", port=5050)),
    ],
)
def test_an_address_is_read(text, address):
    assert parse_address(text) == address
    if address is not None:
        assert address.text == text


def test_tensorflow_gets_an_address_with_its_protocol():
    assert Address(host="::1", port=5050).target == "grpc://[::1]:5050"


@pytest.mark.parametrize("text", ["", "local", "local:0", "local:x", "local:1025", "host", "host:", ":5050", "host:0"])
def test_another_text_is_refused(text):
    with pytest.raises(ConfigError, match="`service` must be 'none', 'local:N'"):
        PipelineConfig(service=text)


@pytest.mark.parametrize("text", ["host:65536", "grpc://host:5050", "a b:5050"])
def test_a_host_that_cannot_be_is_refused(text):
    with pytest.raises(ConfigError, match="`service` must be"):
        parse_address(text)


@pytest.mark.parametrize(
    ("base", "settings", "message"),
    [
        (TF_DATA, {"storage": "raw"}, "`storage` must be 'files' with a service"),
        (TF_DATA, {"location": "ram"}, "`location` must be 'disk' with a service"),
        (VARIANTS["tf-data-cache"], {}, "`cache` must be 'none' with a service"),
        (VARIANTS["tf-data-device-prefetch"], {}, "`prefetch_to_device` must be False with a service"),
        (
            VARIANTS["tf-data-batch-augment"],
            {"augment_with": "keras_layers"},
            "`augment_with` must not be 'keras_layers' with a service",
        ),
        (VARIANTS["py-dataset"], {}, "`service` must be 'none' for loader='py_dataset'"),
    ],
)
def test_what_a_service_cannot_serve_is_refused(base, settings, message):
    with pytest.raises(ConfigError, match=message):
        dataclasses.replace(base, service="local:2", **settings)


def test_a_dispatcher_that_does_not_answer_is_an_error_at_once():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(UnavailableError, match=f"no dispatcher answers at 127.0.0.1:{port} .*: start one there with"):
        check_reachable(Address(host="127.0.0.1", port=port))
