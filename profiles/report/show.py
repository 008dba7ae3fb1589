"""Prints the document of a run again, or compares the documents of two runs.

unstall show runs/TIME/results.json
unstall compare runs/BEFORE runs/AFTER
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import UndefinedError

from unstall.profiles.report.answer import answer_of
from unstall.profiles.report.codec import encode
from unstall.profiles.report.comparison import compare, print_comparison
from unstall.profiles.report.document import Document, DocumentError, Kind, judged_by, load, print_document
from unstall.profiles.report.figures import FORMS
from unstall.profiles.report.measurements import KINDS
from unstall.profiles.report.writing_files import to_json, write_atomically
from unstall.profiles.show_parser import TRACE, parser
from unstall.profiles.text import Terminal, printable

# What a spreadsheet takes for the beginning of a formula. Source: OWASP, "CSV Injection".
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def main(argv: Sequence[str], kinds: Mapping[str, Kind[Any, Any, Any]] = KINDS) -> int:
    """Runs one of the verbs.

    Args:
      argv: the verb and its words.
      kinds: of documents that can be shown, by the command that wrote them.
    Returns:
      0; 2 for a file that cannot be shown; 3 if two documents have nothing that can be compared.
    """
    arguments = parser().parse_args(argv)
    errors = Terminal(stderr=True)
    try:
        return _compare(arguments) if arguments.verb == "compare" else _show(arguments, kinds)
    except DocumentError as error:
        errors.print(printable(str(error)), style="bold red", soft_wrap=True)
        return 2
    except BrokenPipeError:  # the program that reads the output has ended, such as `head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what Python writes at its end
        return 0
    except OSError as error:
        errors.print(f"{error.filename}: {error.strerror}.", style="bold red", soft_wrap=True)
        return 3


def _show(arguments: argparse.Namespace, kinds: Mapping[str, Kind[Any, Any, Any]]) -> int:
    document, kind = load(arguments.file, kinds)
    with _refused_if_it_does_not_follow(arguments.file):
        return _show_document(arguments, document, kind)


def _show_document(arguments: argparse.Namespace, document: Document[Any, Any], kind: Kind[Any, Any, Any]) -> int:
    derived = kind.derive(document)
    for option in ("html", "svg"):
        out = getattr(arguments, option)
        if out is not None and os.path.lexists(out):
            raise DocumentError(f"--{option} {out} is there already: nothing is overwritten. Give another name.")
    if arguments.html is not None:
        write_atomically(arguments.html, kind.page(document, derived))
    elif arguments.svg is not None:
        write_atomically(arguments.svg, _svg(document, kind, derived))
    elif arguments.json:
        facts = {"command": document.command, "created": document.created, "complete": document.complete}
        copies = kind.copies(document, derived)
        answer = answer_of(document, kind, derived)
        sys.stdout.write(to_json(encode({**facts, **copies, "left_out": document.left_out, "answer": answer})))
    elif arguments.form == TRACE:
        if kind.trace is None:
            raise DocumentError(f"--as {TRACE}: a run of {document.command} keeps no steps.")
        sys.stdout.write(to_json(kind.trace(document, derived)))
    elif arguments.form is not None:
        if kind.figures is None:
            raise DocumentError(f"--as {arguments.form}: a run of {document.command} has no figures to follow.")
        sys.stdout.write(FORMS[arguments.form](document.command, kind.figures(derived)))
    elif arguments.csv:
        rows = kind.rows(derived)
        writer = csv.DictWriter(sys.stdout, fieldnames=list(rows[0]) if rows else [])
        writer.writeheader()
        writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)
    else:
        print_document(Terminal(), document, kind, derived, details=arguments.details)
    if not document.complete:
        text = "this run was stopped before its end: the above is of what was measured by then"
        Terminal(stderr=True).print(text, style="dim")
    if other_version := judged_by(document):
        Terminal(stderr=True).print(other_version, style="dim")
    return 0


def _svg(document: Document[Any, Any], kind: Kind[Any, Any, Any], derived: Any) -> str:
    """Returns the first screen, 80 columns wide, as a picture that loads no font from elsewhere."""
    console = Terminal(width=80, file=io.StringIO(), force_terminal=True)
    console.record = True
    print_document(console, document, kind, derived)
    return re.sub(r"@font-face \{[^}]*\}\s*", "", console.export_svg(title=f"unstall {document.command}"))


@contextlib.contextmanager
def _refused_if_it_does_not_follow(*files: Path) -> Iterator[None]:
    """Says in one line that the fields of a file contradict each other; each alone is of its type.

    Raises:
      DocumentError: in place of what the computation raised.
    """
    try:
        yield
    except UnicodeEncodeError:  # the terminal's encoding lacks a letter: no fault of the file
        raise
    except (
        ArithmeticError,
        AssertionError,
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
        UndefinedError,
    ) as error:
        names, reason = " or ".join(map(str, files)), " ".join(str(error).split())
        raise DocumentError(
            f"{names}: samples and plan contradict each other ({type(error).__name__}: {reason})."
        ) from error


def _cell(value: Any) -> Any:
    """Returns a value; a text that a spreadsheet would take for a formula has an apostrophe before it."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def _compare(arguments: argparse.Namespace) -> int:
    (before, _), (after, _) = (load(path, KINDS) for path in (arguments.before, arguments.after))
    with _refused_if_it_does_not_follow(arguments.before, arguments.after):
        comparison = compare(before, after)
        print_comparison(Terminal(), comparison)
    return 0 if comparison.compared else 3
