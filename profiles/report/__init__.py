"""Writes and reads documents, and renders results: as text for the terminal, and as an HTML page with charts."""

from unstall.profiles.report import bars, charts, document, github, html, measurements, show, terminal
from unstall.profiles.report.answer import answer_of
from unstall.profiles.report.codec import encode
from unstall.profiles.report.document import (
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
from unstall.profiles.report.figures import Figure
from unstall.profiles.report.plots import machine_charts
from unstall.profiles.report.remedies import faster_line, trial_copies, trial_sentences
from unstall.profiles.report.screen import Picture, Screen, ScreenBar, ScreenLine, print_lines, print_more
from unstall.profiles.report.screen_lines import SIGNS, by_sign, classes_text, left_out_lines
from unstall.profiles.report.writing_files import to_json, write_atomically

__all__ = [
    "REPORT",
    "RESULTS",
    "SIGNS",
    "Document",
    "DocumentError",
    "Figure",
    "Kind",
    "LeftOut",
    "Picture",
    "Screen",
    "ScreenBar",
    "ScreenLine",
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
    "terminal",
    "to_json",
    "trial_copies",
    "trial_sentences",
    "write",
    "write_atomically",
    "write_results",
]
