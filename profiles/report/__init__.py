"""Writes and reads documents, and renders results: as text for the terminal, and as an HTML page with charts."""

from profiles.report import bars, charts, document, github, html, measurements, show, text
from profiles.report.answer import answer_of
from profiles.report.codec import encode
from profiles.report.document import (
    REPORT,
    RESULTS,
    Document,
    DocumentError,
    Kind,
    LeftOut,
    load,
    now,
    print_document,
    write,
    write_results,
)
from profiles.report.figures import Figure
from profiles.report.files import to_json, write_atomically
from profiles.report.plots import machine_charts
from profiles.report.remedies import faster_line, trial_copies, trial_sentences
from profiles.report.screen import Bar, Line, Picture, Screen, print_lines, print_more
from profiles.report.screen_lines import SIGNS, by_sign, classes_text, left_out_lines

__all__ = [
    "REPORT",
    "RESULTS",
    "SIGNS",
    "Bar",
    "Document",
    "DocumentError",
    "Figure",
    "Kind",
    "LeftOut",
    "Line",
    "Picture",
    "Screen",
    "answer_of",
    "bars",
    "by_sign",
    "charts",
    "classes_text",
    "document",
    "encode",
    "faster_line",
    "github",
    "html",
    "left_out_lines",
    "load",
    "machine_charts",
    "measurements",
    "now",
    "print_document",
    "print_lines",
    "print_more",
    "show",
    "text",
    "to_json",
    "trial_copies",
    "trial_sentences",
    "write",
    "write_atomically",
    "write_results",
]
