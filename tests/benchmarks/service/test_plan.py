"""What the service's verbs are asked to do: every refusal in one line before anything starts, and what a plan holds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from unstall.benchmarks.lab.options import UserError
from unstall.benchmarks.service import __main__ as service
from unstall.benchmarks.service.parser import VARIANT, parser
from unstall.benchmarks.service.plan import Plan, ServerPlan, read_plan, read_server
from unstall.pipeline import VARIANTS

WORKER = ("worker", "--dispatcher", "localhost:5050")


def a_plan(*words: str) -> Plan:
    return read_plan(parser().parse_args(["local", "--data", "photos", *words]), Path("out"))


def a_server(*words: str) -> ServerPlan:
    return read_server(parser().parse_args(words))


MEASURING = {
    ("local", "--rounds", "0"): "--rounds must be at least 1. Received: 0.",
    ("local", "--workers", "0"): "--workers must be numbers from 1 to 64. Received: 0.",
    ("local", "--workers", "1,65"): "--workers must be numbers from 1 to 64. Received: 65.",
    ("local", "--workers", "two"): "--workers must be numbers from 1 to 64. Received: two.",
    ("local", "--workers", "-1"): "--workers must be numbers from 1 to 64. Received: -1.",
    ("local", "--workers", ","): "--workers needs at least one name. Received: ','.",
    ("local", "--service", "trainer"): "--service must be HOST:PORT, such as trainer:5050. Received: trainer.",
    ("local", "--service", "none"): "--service must be HOST:PORT, such as trainer:5050. Received: none.",
    ("local", "--service", "trainer:65536"): "--service must be HOST:PORT, such as trainer:5050. Received: trainer",
    ("local", "--image-size", "0"): "--image-size must be at least 1. Received: 0.",
    ("local", "--config", "nowhere.toml"): "--config nowhere.toml cannot be read: No such file or directory.",
    ("local", "--set", "workers"): "--set needs FIELD=VALUE, such as workers=4. Received: 'workers'.",
    ("local", "--set", "batch_size=0"): "`batch_size` must be",
    ("local", "--set", "location=ram"): "`location` must be 'disk' with a service",
    ("local", "--set", "prefetch_to_device=true"): "`prefetch_to_device` must be False with a service",
    ("local", "--device", "tpu"): "--device: A device must be",
    ("local", "--device", "emulated:0"): "--device: emulated:RATE must be above 0",
    ("local", "--device", "cpu"): "--device must be emulated:RATE here: no model is trained. Received: cpu.",
    ("local", "--network", "fast"): "--network must be a rate such as 100mbit or 10gbit. Received: fast.",
    ("local", "--network", "1000"): "--network must be a rate such as 100mbit or 10gbit. Received: 1000.",
    ("local", "--network", "0gbit"): "--network must be a rate such as 100mbit or 10gbit. Received: 0gbit.",
}
SERVERS = {
    ("dispatcher", "--port", "0"): "--port must be a number from 1 to 65535. Received: 0.",
    ("dispatcher", "--port", "65536"): "--port must be a number from 1 to 65535. Received: 65536.",
    WORKER: "worker needs what it serves: either --data DIR, or --pipeline MODULE:FUNCTION.",
    (*WORKER, "--data", "photos", "--pipeline", "mine:make"): "worker needs what it serves: either --data DIR, or",
    (*WORKER, "--pipeline", "mine:make", "--set", "cache=memory"): "--set goes with --data: what MODULE:FUNCTION",
    (*WORKER, "--pipeline", "mine"): "--pipeline must be MODULE:FUNCTION. Received: mine.",
    (*WORKER, "--data", "photos", "--port", "-1"): "--port must be a number from 0 to 65535. Received: -1.",
    (*WORKER, "--data", "photos", "--image-size", "0"): "--image-size must be at least 1. Received: 0.",
    (*WORKER, "--data", "photos", "--set", "location=ram"): "`location` must be 'disk' with a service",
    (
        "worker",
        "--dispatcher",
        "local:2",
        "--data",
        "photos",
    ): "--dispatcher must be HOST:PORT, such as trainer:5050. Received: local:2.",
    ("worker", "--dispatcher", "trainer", "--data", "photos"): "--dispatcher must be HOST:PORT, such as trainer:5050.",
    ("worker", "--dispatcher", "trainer:5050", "--data", "photos"): "worker needs --open to work for another host",
    (*WORKER, "--data", "photos", "--host", "here"): "worker needs --open to work for another host",
}


@pytest.mark.parametrize("words", MEASURING)
def test_what_cannot_be_measured_is_refused(words, tmp_path):
    with pytest.raises(UserError, match=f"^{re.escape(MEASURING[words])}"):
        read_plan(parser().parse_args(words), tmp_path)


@pytest.mark.parametrize("words", SERVERS)
def test_a_server_that_cannot_be_started_is_refused(words):
    with pytest.raises(UserError, match=f"^{re.escape(SERVERS[words])}"):
        a_server(*words)


@pytest.mark.parametrize("words", [*MEASURING, *SERVERS])
def test_a_refusal_is_exit_code_2_in_one_line_and_leaves_nothing(words, tmp_path, monkeypatch, capsys):
    def start(*arguments, **options):
        raise AssertionError(f"{words} are not refused")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(service, "run_plan", start)
    monkeypatch.setattr(service.unstall, "of_ours", start)
    assert service.main(words) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.startswith((MEASURING | SERVERS)[words])
    assert printed.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [[], ["serve"], ["local", "--open"], ["worker", "--data", "photos"]])
def test_words_that_no_verb_knows_end_with_exit_code_2(words, capsys):
    with pytest.raises(SystemExit) as refused:
        service.main(words)
    assert refused.value.code == 2
    assert capsys.readouterr().err.startswith("usage: ")


def test_threads_are_compared_with_every_service_that_is_asked_for():
    plan = a_plan("--workers", "1,2", "--service", "trainer:5050")
    assert plan.asked.services == ("none", "local:1", "local:2", "trainer:5050")


def test_a_config_names_no_service_and_has_the_models_size():
    config = a_plan("--set", "batch_size=16", "--image-size", "96").asked.config
    assert (config.batch_size, config.image_size, config.service) == (16, (96, 96), "none")
    assert config.decode == VARIANTS[VARIANT].decode


def test_a_plan_keeps_no_path_in_what_the_document_holds(tmp_path):
    plan = a_plan("--data", str(tmp_path / "mine"))
    assert (plan.asked.data, plan.data) == ("mine", str(tmp_path / "mine"))


def test_a_device_is_as_fast_as_it_says_and_none_is_no_limit():
    asked = a_plan("--device", "emulated:400").asked
    assert (asked.device, asked.images_per_sec) == ("emulated:400", 400.0)
    assert (a_plan().asked.device, a_plan().asked.images_per_sec) == (None, None)


@pytest.mark.parametrize(
    ("text", "bytes_per_sec"), [("1gbit", 125e6), ("2.5GBIT", 312.5e6), ("100mbit", 12.5e6), ("8kbit", 1000.0)]
)
def test_a_links_rate_is_read_in_bits(text, bytes_per_sec):
    assert a_plan("--network", text).asked.link_bytes_per_sec == bytes_per_sec


def test_a_link_is_no_limit_where_none_is_stated():
    assert a_plan().asked.link_bytes_per_sec is None


def test_a_dispatcher_is_for_this_host_unless_it_is_opened():
    plan = a_server("dispatcher")
    assert (plan.port, plan.open_to_others, plan.journal, plan.dispatcher) == (5050, False, None, None)
    assert a_server("dispatcher", "--open").open_to_others


def test_a_worker_serves_photos_with_a_config_at_a_free_port():
    plan = a_server(*WORKER, "--data", "photos")
    assert plan.dispatcher is not None and plan.dispatcher.text == "localhost:5050"
    assert (plan.data, plan.pipeline, plan.port, plan.open_to_others) == ("photos", None, 0, False)
    assert plan.config is not None and plan.config.image_size == (64, 64)


def test_a_worker_of_the_users_own_pipeline_has_no_config():
    plan = a_server(*WORKER, "--pipeline", "mine:make", "--host", "worker-1", "--port", "5051", "--open")
    assert (plan.data, plan.pipeline, plan.config) == (None, "mine:make", None)
    assert (plan.host, plan.port) == ("worker-1", 5051)
