"""Asks TraceML (`traceml-ai`) what it finds, beside `unstall profile`, on a PyTorch script with planted times.

The script itself notes how long each step waited and how long it took, so that each run has its own truth: sleeps and
other programs make every run a little different. TraceML's comparison of two runs is asked of pairs of the same code.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

import unstall
from unstall.benchmarks.lab.child import program
from unstall.benchmarks.lab.options import UserError
from unstall.benchmarks.truth.measure import Run
from unstall.benchmarks.truth.plan import Plan
from unstall.benchmarks.truth.promises import OURS, PAIRS, SHARES, TRACEML
from unstall.benchmarks.truth.samples import Attempt, Case, Figure, Group

# Milliseconds that a batch takes to load, and a step; and the number of worker processes.
_CASES = ((0, 20, 0), (5, 20, 0), (10, 10, 0), (20, 5, 0), (20, 16, 1), (20, 10, 1), (20, 4, 1))
_PAIR = (5, 10, 0)
_STEPS, _PAIR_STEPS, _TIMEOUT_S = 200, 150, 200.0
# The version of TraceML whose files are read here, and its program.
_VERSION = "0.5.0"
_PROGRAM = Path(sys.executable).with_name("traceml")
_SCRIPT = """
import contextlib
import json
import os
import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset

LOAD_S, STEP_S, WORKERS, STEPS = float(sys.argv[1]) / 1e3, float(sys.argv[2]) / 1e3, int(sys.argv[3]), int(sys.argv[4])
step_of = lambda model: contextlib.nullcontext()
if os.environ.get("WITH_TRACEML"):
    import traceml_ai

    traceml_ai.init(mode="auto")
    step_of = traceml_ai.trace_step
torch.set_num_threads(1)


class Batches(Dataset):
    def __len__(self):
        return STEPS

    def __getitem__(self, index):
        time.sleep(LOAD_S)
        return torch.ones(8, 16), torch.zeros(8, dtype=torch.long)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(16, 2)

    def forward(self, images, until):
        outputs = self.layer(images)
        time.sleep(max(0.0, until - time.perf_counter()))
        return outputs


model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loss_of = torch.nn.CrossEntropyLoss()
waited = stepped = 0.0
before = time.perf_counter()
for images, labels in DataLoader(Batches(), batch_size=None, num_workers=WORKERS):
    came = time.perf_counter()
    with step_of(model):
        optimizer.zero_grad()
        loss_of(model(images, came + STEP_S), labels).backward()
        optimizer.step()
    waited, stepped, before = waited + came - before, stepped + time.perf_counter() - came, time.perf_counter()
with open(os.environ["PLANTED_TRUTH"], "w") as file:
    json.dump(waited / (waited + stepped), file)
"""


def open_run(plan: Plan, progress: Progress, errors: Console) -> Run:
    """Gets ready to run the script.

    Raises:
      UserError: if PyTorch or TraceML is not installed.
    """
    for module, package in (("torch", "torch"), ("traceml_ai", f"traceml-ai=={_VERSION}")):
        if importlib.util.find_spec(module) is None:
            text = f"--only attributers needs {module}, which is not installed: pip install {package}"
            raise UserError(text, exit_code=3)
    if not _PROGRAM.exists():
        text = f"--only attributers needs {_PROGRAM.name} beside this Python, in its virtual environment: there is none"
        raise UserError(text, exit_code=3)
    return Run(plan, progress, measure(plan.number("rounds"), plan.number("pairs")))


def measure(rounds: int, pairs: int) -> Generator[Group, None, None]:
    """Runs the script in rounds over the cases under both tools, then in pairs under TraceML; yields after each.

    Raises:
      UserError: if a run fails or hangs.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "planted.py").write_text(_SCRIPT)
        figures: dict[tuple[str, str], Figure] = {}
        for _ in range(rounds):
            for load_ms, step_ms, workers in _CASES:
                case = f"load {load_ms} ms, step {step_ms} ms{', a worker' if workers else ''}"
                words = [str(number) for number in (load_ms, step_ms, workers, _STEPS)]
                for tool, run in _TOOLS.items():
                    truth, share = run(folder, words)
                    figure = Figure(case=case, name=tool, truth=(100 * truth,), measured=(100 * share,))
                    earlier = figures.get((case, tool))
                    figures[case, tool] = figure if earlier is None else earlier.followed_by(figure)
                yield Group(name=SHARES, figures=tuple(figures.values()))
        words = [str(number) for number in (*_PAIR, _PAIR_STEPS)]
        compared = Case(name=TRACEML, attempts=())
        for _ in range(pairs):
            compared = replace(compared, attempts=(*compared.attempts, _pair(folder, words)))
            yield Group(name=PAIRS, cases=(compared,))


def _by_unstall(folder: Path, words: Sequence[str]) -> tuple[float, float]:
    out = Path(tempfile.mkdtemp(dir=folder))
    truth = out / "truth.json"
    command = [sys.executable, "-m", "profiles", "--no-trial", "--out", str(out), "planted.py", *words]
    _run(folder, command, {"PLANTED_TRUTH": str(truth)})
    (result,) = json.loads((out / "results.json").read_text())["results"]
    if result["loading_ratio"] is None:
        raise UserError("we found no share of loading in the planted script.", exit_code=3)
    return json.loads(truth.read_text()), result["loading_ratio"]


def _by_traceml(folder: Path, words: Sequence[str]) -> tuple[float, float]:
    truth = folder / "truth.json"
    summary = _summary(folder, "share", words, truth)
    with _its_own_fields():
        means = json.loads(summary.read_text())["step_time"]["global"]["average"]
        share = means["input_wait_ms"] / means["step_time_ms"]
    return json.loads(truth.read_text()), share


_TOOLS = {OURS: _by_unstall, TRACEML: _by_traceml}


def _summary(folder: Path, name: str, words: Sequence[str], truth: Path) -> Path:
    """Runs the script under TraceML. Returns the file of its summary."""
    shutil.rmtree(folder / "logs" / name, ignore_errors=True)  # TraceML refuses a folder that exists
    options = ["--logs-dir", str(folder / "logs"), "--run-name", name, "--args", *words]
    environment = {"WITH_TRACEML": "1", "PLANTED_TRUTH": str(truth)}
    _run(folder, [str(_PROGRAM), "run", "planted.py", *options], environment)
    summary = folder / "logs" / name / "final_summary.json"
    if not summary.exists():
        raise UserError("TraceML ended without a summary.", exit_code=3)
    return summary


def _pair(folder: Path, words: Sequence[str]) -> Attempt:
    """Runs the same code twice, and returns what TraceML's comparison finds of the step time."""
    one, other = (_summary(folder, name, words, folder / "truth.json") for name in ("one", "other"))
    _run(folder, [str(_PROGRAM), "compare", str(one), str(other), "--output", str(folder / "compared")], {})
    compared = json.loads((folder / "compared.json").read_text())
    with _its_own_fields():
        changed = compared["sections"]["step_time"]["metrics"]["step_time_ms"]["pct_change"] / 100
        found = [each["status"] for each in compared["verdict"]["findings"] if each["metric"] == "step_time_ms"]
    # It lists what it finds of the step time, or else that nothing has changed.
    answer = next((status for status in found if status in ("REGRESSION", "IMPROVEMENT")), "EQUIVALENT")
    return Attempt(answer=answer.lower(), figures={"ratio": (1 + changed,)})


@contextlib.contextmanager
def _its_own_fields() -> Iterator[None]:
    """Raises a line where TraceML's file lacks what is read of it."""
    try:
        yield
    except (KeyError, TypeError) as error:
        text = f"TraceML's file lacks a field ({error!r}): it is read as version {_VERSION} writes it; install that one"
        raise UserError(text, exit_code=3) from error


def _run(folder: Path, command: Sequence[str], environment: Mapping[str, str]) -> None:
    """Runs a command to its end, or ends it with all processes that it has started."""
    environment = {"PYTHONPATH": str(unstall.ROOT), **environment}
    with (folder / "output.txt").open("w+") as output:
        try:
            with program(command, folder, environment, stdout=output, stderr=output) as process:
                code = process.wait(_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            raise UserError(f"{command[0]} did not end within {_TIMEOUT_S:.0f} s.", exit_code=3) from error
        if code:
            output.seek(0)
            raise UserError(f"{command[0]} ended with {code}: {output.read().strip()[-500:]}", exit_code=3)
