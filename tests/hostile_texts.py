"""Texts that would do harm in a page, a terminal or a spreadsheet if they were not escaped; and documents with them."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import numpy as np

from unstall.pipeline import from_arrays
from unstall.pipeline.sources.source import ImageSource, Skipped
from unstall.profiles.text import printable

PAYLOADS = {
    "script": "<script>document.title='pwned'</script>",
    "image": "<img src=x onerror=\"document.title='pwned'\">",
    "end of style": "</style><script>document.title='pwned'</script>",
    "end of title": "</title><svg onload=\"document.title='pwned'\">",
    "double quote": '" onmouseover="document.title=\'pwned\'" x="',
    "single quote": "' onclick='document.title=1' x='",
    "template": "{{ document }}{% raw %}",
    "entity": "&lt;script&gt;&#60;b&#62;",
    "comment": "--><!--[if IE]>",
    "link": "<a href='javascript:document.title=1'>x</a><base href=https://evil.example>",
    "fetched": "<link rel=stylesheet href=https://evil.example/x.css>",
    "colour": "\x1b[31mred\x1b[2J\x1b[H",
    "terminal link": "\x1b]8;;https://evil.example\x07here\x1b]8;;\x07",
    "clipboard": "\x1b]52;c;cm0gLXJmIH4=\x07\x9b31m",
    "overwritten": "harmless\rOK      \b\b\x07\x00",
    "direction": "gpj.\u202ecats\u2066\u2028",
    "no UTF-8": "latin-\udcff\udc9b",
    "rich markup": "[bold red]x[/] [/nothing] [link=https://evil.example]here[/link] :boom:",
    "formula": "=cmd|' /C calc'!A0",
    "sum": "@SUM(1+1)*cmd|' /C calc'!A0",
    "lines": "a\nstopped: nothing measured\n",
}
# Characters that terminals obey: control characters but the end of a line, and marks that change a text's direction.
OBEYED = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\u2029\ud800-\udfff]")


def with_text(value: Any, text: str) -> Any:
    """Returns a document with every text replaced by `text`, except `page_cache`, which has only two valid values."""
    if isinstance(value, dict):
        return {key: item if key == "page_cache" else with_text(item, text) for key, item in value.items()}
    if isinstance(value, list):
        return [with_text(item, text) for item in value]
    return text if isinstance(value, str) else value


def hostile_source(text: str) -> ImageSource:
    arrays = from_arrays(np.zeros((4, 8, 8, 3), np.uint8), np.array([0, 1, 0, 1]), class_names=(text, "b"))
    left_out = (Skipped(file=text, reason=printable(text)),)
    return dataclasses.replace(arrays, name=text, skipped=left_out, stale_skips=left_out)
