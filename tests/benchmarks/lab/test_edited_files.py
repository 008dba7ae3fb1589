"""A results file that somebody has edited, or that is damaged, is shown or refused in one line: never a traceback."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from profiles.report import RESULTS, write_results
from profiles.report.show import main as show
from tests.benchmarks.lab.test_run import COMMANDS
from tests.checks import kind_of

EDITS = 30
VALUES: tuple[Any, ...] = (None, True, 0, -1, 1e308, 0.5, "", "a text", [], {}, [1], {"a": 1})


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yields each list or object in a JSON value with each of its indices or keys."""
    for key in value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from places(value[key])


def edit(content: dict[str, Any], draw: random.Random) -> None:
    """Removes, repeats or replaces one value of the plan, the samples or what else is read back."""
    read = {name: content[name] for name in ("plan", "samples", "provenance", "dataset", "left_out", "telemetry")}
    holder, key = draw.choice(list(places(read)))
    if holder is read:
        holder = content
    action = draw.choice(("remove", "repeat", "replace", "replace"))
    if action == "remove":
        del holder[key]
    elif action == "repeat" and isinstance(holder, list):
        holder.insert(key, copy.deepcopy(holder[key]))
    elif isinstance(holder[key], (int, float)) and draw.random() < 0.7:  # of the same type, so that decoding lets it by
        holder[key] = (
            draw.choice((0, -1, 7, 10**9)) if isinstance(holder[key], int) else draw.choice((0.0, -1.0, 1e308))
        )
    else:
        holder[key] = draw.choice(VALUES)


@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")  # NumPy, of a rate of 0
@pytest.mark.parametrize("name", COMMANDS)
def test_an_edited_file_is_shown_or_refused_in_one_line(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command, document, _ = COMMANDS[name]
    kind = kind_of(command)
    write_results(tmp_path, document, kind, kind.derive(document))
    content = json.loads((tmp_path / RESULTS).read_text())
    codes = []
    for number in range(EDITS):
        edited = copy.deepcopy(content)
        edit(edited, random.Random(number))
        (tmp_path / RESULTS).write_text(json.dumps(edited))
        page = tmp_path / f"{number}.html"
        form = ([], ["--json"], ["--html", str(page)])[number % 3]
        codes.append(show(["show", str(tmp_path), *form], {document.command: kind}))
        errors = capsys.readouterr().err
        assert codes[-1] in (0, 2), (number, errors)
        if codes[-1] == 2:
            assert errors.count("\n") == 1 and len(errors) < 1000, (number, errors)
            assert not page.exists()
    assert 0 < codes.count(2) < EDITS  # some edits are refused, and some leave a document that can be shown
