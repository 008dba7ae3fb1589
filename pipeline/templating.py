"""The templates of Python code that this package writes."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Template


@functools.cache
def code_template(name: str) -> Template:
    """Returns a template of Python code. It writes values by the filter `repr`; a missing value is an error."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).with_name("templates")),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # the result is Python, not HTML
    )
    environment.filters["repr"] = repr
    return environment.get_template(name)
