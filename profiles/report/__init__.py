"""What is written about results: the document, text for the terminal, the page, its plots."""

from profiles.report import document, html, plots, text
from profiles.report.document import SCHEMA_VERSION, now
from profiles.report.html import PART_COLOURS
from profiles.report.plots import COLOURS, Frame, Tick, round_step
from profiles.report.text import print_stages
from profiles.report.write import to_json, write_atomically

__all__ = [
    "COLOURS",
    "PART_COLOURS",
    "SCHEMA_VERSION",
    "Frame",
    "Tick",
    "document",
    "html",
    "now",
    "plots",
    "print_stages",
    "round_step",
    "text",
    "to_json",
    "write_atomically",
]
