"""Which photos commands refuse that read, copy or serve files."""

from __future__ import annotations

import importlib
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

from unstall.benchmarks.lab import command
from unstall.benchmarks.lab.options import UserError
from unstall.benchmarks.service import servers
from unstall.pipeline import VARIANTS, from_arrays

ARRAYS = from_arrays(np.zeros((40, 8, 8, 3), np.uint8), np.arange(40) % 2)
REFUSED = r"^--data must be a folder of files, or generated:N\. Received: a copy\.$"
PLAN = SimpleNamespace(data="a copy", against="a copy", skip_list=None)


@pytest.mark.parametrize(
    "name",
    [
        "evidence.augmentation.measure",
        "evidence.peers.measure",
        "service.planning.measure",
    ],
)
def test_a_command_that_needs_files_refuses_a_prepared_copy_in_one_line(name, monkeypatch):
    module = importlib.import_module(f"benchmarks.{name}")
    monkeypatch.setattr(command, "read_source", lambda *arguments, **options: ARRAYS)
    console = Console(quiet=True)
    with pytest.raises(UserError, match=REFUSED) as refused:
        module.open_run(PLAN, command.progress_bar(console), console)
    assert refused.value.exit_code == 2


def test_a_worker_of_the_service_refuses_a_prepared_copy_in_one_line(monkeypatch):
    monkeypatch.setattr(servers, "open_source", lambda *arguments, **options: ARRAYS)
    plan = SimpleNamespace(data="a copy", skip_list=None, config=VARIANTS["tf-data-composed"])
    with pytest.raises(UserError, match=REFUSED):
        servers._of_photos(plan, None)
