"""Writes and reads documents, and renders results: as text for the terminal, and as an HTML page with plots."""

from profiles.report import document, html, measurements, plots, show, text
from profiles.report.codec import encode
from profiles.report.document import (
    REPORT,
    RESULTS,
    SCHEMA_VERSION,
    Document,
    DocumentError,
    Kind,
    LeftOut,
    load,
    now,
    write,
    write_results,
)
from profiles.report.files import to_json, write_atomically
from profiles.report.html import PART_COLOURS
from profiles.report.plots import COLOURS, Frame, Tick, round_step
from profiles.report.text import print_stages

__all__ = [
    "COLOURS",
    "PART_COLOURS",
    "REPORT",
    "RESULTS",
    "SCHEMA_VERSION",
    "Document",
    "DocumentError",
    "Frame",
    "Kind",
    "LeftOut",
    "Tick",
    "document",
    "encode",
    "html",
    "load",
    "measurements",
    "now",
    "plots",
    "print_stages",
    "round_step",
    "show",
    "text",
    "to_json",
    "write",
    "write_atomically",
    "write_results",
]
