"""The notebook of the docs, run cell by cell, and the cell magic."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import PROJECT_ROOT
from tests.checks import SHORTEN, run_python
from tests.planted import planted
from unstall.profiles.magic import load, run_watched

pytestmark = pytest.mark.long

NOTEBOOK = PROJECT_ROOT / "docs" / "notebook.ipynb"
# Runs each cell of code as a kernel does, in short windows, and prints what its last line shows, as a page and as text.
RUN = (
    SHORTEN
    + """
import gc, json
from IPython.core.interactiveshell import InteractiveShell
shorten("remedies.turns", _WINDOW_S=0.1, _MOST_ROUNDS=4, _ROUNDS_AGAIN=3)
shell = InteractiveShell.instance()
for number, cell in enumerate(json.loads(sys.argv[1])):
    if cell["cell_type"] == "code":
        gc.freeze()  # each window collects garbage first, which takes long among the objects of TensorFlow
        result = shell.run_cell("".join(cell["source"]))
        result.raise_error()
        shown, _ = shell.display_formatter.format(result.result)
        print("CELL", json.dumps({"number": number, "html": shown.get("text/html"), "text": shown.get("text/plain")}))
"""
)


@planted
@pytest.mark.needs("IPython")
def test_the_notebook_runs_and_shows_a_page_where_something_was_measured(tmp_path: Path) -> None:
    text = NOTEBOOK.read_text()
    assert text.count("budget_s=15") == 1
    ended = run_python(tmp_path, "-c", RUN, json.dumps(json.loads(text.replace("budget_s=15", "budget_s=8"))["cells"]))
    assert ended.returncode == 0, ended.stderr[-3000:]
    cells = [json.loads(line[5:]) for line in ended.stdout.splitlines() if line.startswith("CELL ")]
    pages = [cell["html"] for cell in cells if cell["html"]]
    assert len(pages) == 3 and all(page.startswith("<iframe srcdoc=") for page in pages)
    stalls, watched, _ = pages
    assert "fit 1 (" in stalls and "is input-bound" in stalls
    assert "loop 1 (" in watched and "is input-bound" in watched
    assert cells[-1]["text"].startswith("[('")
    assert "INPUT-BOUND" in cells[-2]["text"]


def test_the_notebook_keeps_no_outputs() -> None:
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    assert all(not cell.get("outputs") and cell.get("execution_count") is None for cell in cells)


def test_what_a_cell_raises_is_raised_and_nothing_is_watched_any_more() -> None:
    import keras

    before = keras.Model.fit

    def fails() -> None:
        assert keras.Model.fit is not before
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_watched(fails)
    assert keras.Model.fit is before


def test_the_magic_is_registered_and_runs_its_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    import keras

    from unstall.profiles.trial import ceilings

    monkeypatch.setattr(ceilings, "READY_WINDOW_S", 0.02)
    monkeypatch.setattr(ceilings, "_MOST_ROUNDS", 3)
    monkeypatch.setattr(ceilings, "_LONGEST_STEP_TOGETHER_S", 0.0)

    class Shell:
        """As much of IPython's shell as the magic uses."""

        def __init__(self) -> None:
            self.magics: dict[str, Any] = {}

        def register_magic_function(self, function: Any, kind: str, name: str) -> None:
            self.magics[name] = kind, function

        def transform_cell(self, cell: str) -> str:
            return cell

        def ex(self, cell: str) -> None:
            exec(cell, {"model": model, "np": np})

    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    shell = Shell()
    load(shell)
    kind, stalls = shell.magics["stalls"]
    shown = stalls("", "model.fit(np.zeros((64, 2)), np.zeros(64), batch_size=4, epochs=3, verbose=0)")
    assert kind == "cell"
    assert [result["variant"][:5] for result in shown.to_dict()["results"]] == ["fit 1"]
