"""The documents: links inside of the repository lead somewhere, and each code block says what it is."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests import PROJECT_ROOT

DOCUMENTS = [PROJECT_ROOT / "README.md", *sorted((PROJECT_ROOT / "docs").glob("*.md"))]
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def anchors(text: str) -> set[str]:
    """Returns what a link may name behind `#`, as GitHub makes it from headings."""
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_inside_of_the_repository_lead_somewhere(path: Path) -> None:
    broken = []
    for link in _LINK.findall(path.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = (path.parent / file).resolve() if file else path
        if not target.exists() or (anchor and anchor not in anchors(target.read_text(encoding="utf-8"))):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_python_in_documents_is_python(path: Path) -> None:
    for code in re.findall(r"^```python\n(.*?)^```", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL):
        ast.parse(code)


def test_every_document_can_be_reached_from_the_readme() -> None:
    reached, waiting = set(), [PROJECT_ROOT / "README.md"]
    while waiting:
        path = waiting.pop()
        reached.add(path)
        for link in _LINK.findall(path.read_text(encoding="utf-8")):
            target = (path.parent / link.partition("#")[0]).resolve()
            if target.suffix == ".md" and target.exists() and target not in reached:
                waiting.append(target)
    assert {path.name for path in DOCUMENTS} - {path.name for path in reached} == set()
