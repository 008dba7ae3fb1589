"""Profiles an unmodified script: how much of each Keras `fit`, and of each loop over data, is loading or compute.

Afterwards remedies are tried on the script's own data and model. Over 400 lines: the options of the command, and what
happens from the first import of the script to the last line of the report, are read together.

unstall profile [--budget S | --no-trial] [--max-steps N] [--epochs N] [--lines] [--out DIR] train.py ARGS
unstall profile --apply=NAME,...|RESULTS [--write fix.diff] train.py ARGS
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import functools
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from unstall import forks
from unstall.commands import shell_words, typed
from unstall.parser import ArgumentParser
from unstall.profiles import clock, script
from unstall.profiles.data import ADAPTERS, Adapter
from unstall.profiles.script import BUDGET_S
from unstall.profiles.script.children import Children
from unstall.profiles.script.guard import Guard, guarded
from unstall.profiles.script.interrupts import ctrl_c_comes_through
from unstall.profiles.script.misplaced import Misplaced, misplaced
from unstall.profiles.script.run import after_import, run_script
from unstall.profiles.trial.users_files import UsersFiles

if TYPE_CHECKING:
    from unstall.profiles.report.measurements import MeasurementDocument
    from unstall.profiles.report.screen import ScreenLine
    from unstall.profiles.results.verdict import Verdict
    from unstall.profiles.script.loops import Loops
    from unstall.profiles.script.profiler import Profiler
    from unstall.profiles.text import Terminal
    from unstall.profiles.trial.applying import Applied, Wanted
    from unstall.profiles.trial.writing import Written

_NAME = "unstall profile"
# A day: a longer trial is a slip of the pen.
_LONGEST_BUDGET_S = 86_400.0


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command in this process. Returns the script's exit code, or 2 for invalid arguments."""
    prepared = _prepared(list(sys.argv[1:] if argv is None else argv))
    return prepared if isinstance(prepared, int) else prepared.run(None)


def guarded_main(argv: Sequence[str] | None = None) -> int:
    """Runs the command as `main` does, in a child process, whose trials of remedies cannot change the exit code."""
    prepared = _prepared(list(sys.argv[1:] if argv is None else argv))
    return prepared if isinstance(prepared, int) else guarded(prepared.run, _say)


def _prepared(words: list[str]) -> _Run | int:
    """Returns what is to be run; an exit code where that is known already."""
    arguments = _parser().parse_args(words)
    out = Path(arguments.out or clock.run_folder(Path("runs"))).absolute()
    refusal = _refusal(arguments, out)
    if refusal:
        _say(refusal)
        return 2
    run = functools.partial(_Run, arguments, out, misplaced=_misplaced(words, arguments))
    try:
        if arguments.apply is None:
            return run()
        from unstall.profiles.trial.applying import Applied, wanted

        script = Path(arguments.script)
        wants = wanted(arguments.apply, script.name)
        if arguments.write:
            from unstall.profiles.trial.writing import written

            return run(wants=wants, edit=written(wants, script))
        return run(wants=wants, applied=Applied(wants))
    except ValueError as error:
        _say(str(error))
        return 2


def _note_datasets() -> None:
    """Notes for each tf.data.Dataset from now on which call of the script made it."""
    from unstall.profiles.stages.places import note_places

    with contextlib.suppress(AttributeError):  # another package of that name
        note_places(sys.modules["tensorflow"].data.Dataset)


class _Run:
    """One run of a script: what watches it, and the report at its end.

    Attributes:
      blocked: whether a thread still reads the script's data, so that Python could not end by itself.
    """

    def __init__(
        self,
        arguments: argparse.Namespace,
        out: Path,
        *,
        wants: Sequence[Wanted] = (),
        misplaced: Misplaced | None = None,
        applied: Applied | None = None,
        edit: Written | None = None,
    ) -> None:
        self.blocked = False
        self.tries = not (arguments.no_trial or arguments.no_ceilings)
        self._arguments = arguments
        self._out = out
        self._guard: Guard | None = None
        self._applied = applied
        self._wants = wants
        self._edit = edit
        self._misplaced = misplaced
        self._write_to = Path(arguments.write or ".").absolute()
        self._script = Path(arguments.script).absolute()  # the script may go to another folder
        self._profilers: list[Profiler] = []
        self._loops: Loops | None = None
        self._children = Children()
        self._files = UsersFiles(self._script)
        self._pid = 0

    def run(self, guard: Guard | None) -> int:
        """Runs the script, and reports on it. Returns its exit code.

        Args:
          guard: tells a parent process how the script has ended, before remedies are tried; None without a parent.
        """
        self._guard, self._pid = guard, os.getpid()
        forks.keep_inherited_garbage()
        script.loops_of_run = self.loops
        self._children.attach()
        after_import("subprocess", self._children.attach_programs)
        after_import("multiprocessing.process", self._children.attach_processes)
        after_import("keras", self.watch_keras)
        for one in ADAPTERS:
            if one.module is not None:
                after_import(one.module, functools.partial(self.watch_loops, one))
        after_import("tensorflow", _note_datasets)
        replaced = None if self._edit is None else self._edit.replaced
        if self._misplaced is not None and not self._misplaced.are_in(self._files.text):
            self._say_misplaced()
        code = run_script(self._arguments.script, self._arguments.arguments, self.report, replaced=replaced)
        if self.blocked:
            _leave(code)
        return code

    def watch_keras(self) -> None:
        if hasattr(sys.modules["keras"], "Model"):
            from unstall.profiles.cluster import warning_for
            from unstall.profiles.script.profiler import Profiler
            from unstall.profiles.trial.ceilings import measure_ceilings

            if warning := warning_for(sys.modules["keras"], os.environ):
                _say(warning)
            profiler = Profiler(
                # The script may time its `fit`, to see what the remedies bring: the model is not measured inside it.
                ceilings=None if self._arguments.no_ceilings or self._applied is not None else measure_ceilings,
                max_steps=self._arguments.max_steps,
                tries=self.tries,
                applies=self._applied,
            )
            self._profilers.append(profiler)
            profiler.attach()

    def watch_loops(self, adapter: Adapter) -> None:
        """Watches the script's loops over the data of a library."""
        adapter.attach(self.loops())

    def loops(self) -> Loops:
        """Returns what watches the loops of the script."""
        from unstall.profiles.script.loops import Loops

        if self._loops is None:
            self._loops = Loops(max_steps=self._arguments.max_steps, tries=self.tries, applies=self._applied)
        return self._loops

    def report(self, ended_by: BaseException | None, code: int) -> None:
        """Reports on the script, which has ended with this exception, or None, and this exit code."""
        if os.getpid() != self._pid:  # a child process that the script forked also runs this at its end
            return
        with contextlib.suppress(KeyboardInterrupt):
            for profiler in self._profilers:
                profiler.wait()
            if self._loops is not None:
                self._loops.wait()
        if code == 2:  # of argparse, for an option that it does not know
            self._say_misplaced()
        with _quiet_stdout(), ctrl_c_comes_through():
            try:
                self._report(ended_by, code)
            except KeyboardInterrupt:
                _say(f"interrupted. What was watched is in {self._out} if it was written by then.")
                self.blocked = True
            except Exception as error:  # an error here loses the report and must not change how the script ended
                _say(f"no report: {type(error).__name__}: {error}")

    def _report(self, ended_by: BaseException | None, code: int) -> None:
        """Prints to stderr what was measured, and writes the files."""
        ended_well = ended_by is None or isinstance(ended_by, SystemExit)
        watchers: list[Profiler | Loops] = [*self._profilers, *([self._loops] if self._loops else [])]
        for watcher in watchers:
            watcher.pause()
        if not any(watcher.fits for watcher in watchers):
            _say(f"nothing measured, {self._why_nothing(bool(watchers))}")
            return
        from unstall.profiles.report import github
        from unstall.profiles.report.document import write
        from unstall.profiles.report.measurements import KIND, screens_of
        from unstall.profiles.report.remedies import decided_bound
        from unstall.profiles.report.screen import print_findings, print_lines, print_more
        from unstall.profiles.script.report import report_on
        from unstall.profiles.text import Terminal

        document = replace(
            report_on(
                watchers,
                script=self._script.name,
                broken_by=None if ended_well else ended_by,
                files_per_sample=self._arguments.files_per_sample,
            ),
            typed={self._script.name: _words_again(self._arguments)},
        )
        write(self._out, document, KIND, KIND.derive(document))  # before the stage tables, which may fail or block
        if ended_well and any(_can_be_read(one) for one in watchers):
            from unstall.profiles.trial.rereading import with_stages

            document, self.blocked = with_stages(document, watchers, lines=self._arguments.lines)
            write(self._out, document, KIND, KIND.derive(document))
        console = Terminal(stderr=True)
        verdicts = KIND.derive(document)
        (first,) = screens_of(document, verdicts)
        if self._arguments.details:
            KIND.print(console, document, verdicts)
        else:
            print_findings(console, first)
        if ended_well and not self.blocked:
            document = self._try(document, console, watchers, code)
        if not self._arguments.details:
            (last,) = screens_of(document, verdicts)
            if last.verdict != first.verdict:  # the trial has decided
                print_lines(console, last.verdict)
            if self._edit is None:
                print_lines(console, last.next)
        if self._wants:
            print_lines(console, self._brought(document, verdicts))
        trials = document.samples.trials
        decided = {name for name, trial in trials.items() if decided_bound(trial) == "compute"}
        costly = [verdict for verdict in verdicts if verdict.result.subject.variant not in decided]
        github.annotate_script(console, costly, self._arguments.script)
        github.tell(console, document, KIND, verdicts)
        print_more(console, self._out)
        if self._edit is not None:
            self._write_diff(self._edit, ended_well and code == 0)

    def _brought(self, document: MeasurementDocument, verdicts: Sequence[Verdict]) -> list[ScreenLine]:
        """Returns what the remedies in place brought where the trial does not tell, and how they get into the file."""
        from unstall.profiles.remedies import gains_of
        from unstall.profiles.report.remedies import before_and_after
        from unstall.profiles.report.screen import ScreenLine

        applied = next((trial for trial in document.samples.trials.values() if trial.applied), None)
        if applied is not None and len(gains_of(applied).all) > 1:
            remedies = [applied.remedy(name) for name in applied.applied]
            files = [edit.place.file for remedy in remedies for edit in remedy.edits]
            can_be_written = all(remedy.edits for remedy in remedies) and set(files) <= applied.digests.keys()
            if gains_of(applied).chosen is None or not can_be_written:
                return []
            words = document.as_typed(self._script.name)
            code = f"unstall profile --apply={shell_words(str(self._out))} --write fix.diff {words}"
            return [ScreenLine(label="NEXT", text="write it as a diff of your file:", code=(code,))]
        lines: list[ScreenLine] = []
        for want in self._wants:
            places = [(verdict.result.subject.place, verdict.result) for verdict in verdicts]
            at = [result for place, result in places if want.place and place and want.place.is_at(place)]
            # With the edits in the text, the call may stand in another line.
            results = at or ([verdicts[0].result] if len(verdicts) == 1 else [])
            if want.rates and results:
                rates = tuple(results[0].by_round().values())
                lines += before_and_after(want.names, want.rates, rates, results[0].subject.unit)
        return lines

    def _say_misplaced(self) -> None:
        """Says once that the script gets options of ours, where it does."""
        if self._misplaced is not None:
            _say(self._misplaced.line)
            self._misplaced = None

    def _why_nothing(self, imported: bool) -> str:
        """Says why nothing was measured, and what to do.

        Args:
          imported: whether the script has imported a library that trains.
        """
        unwatched = next((profiler.why_unwatched for profiler in self._profilers if profiler.why_unwatched), None)
        if unwatched:
            return f"{unwatched}."
        why = "" if imported else " (it imported neither Keras 3, nor TensorFlow, nor PyTorch's DataLoader, nor Grain)"
        hint = "A loop over other data is watched by `for batch in profiles.watch(data)`."
        return (
            f"{self._script.name} made no step of fit, nor of a loop over a DataLoader or a tf.data.Dataset{why}. "
            f"{self._children.sentence or hint}"
        )

    def _try(
        self, document: MeasurementDocument, console: Terminal, watchers: list[Profiler | Loops], code: int
    ) -> MeasurementDocument:
        """Tries remedies for the data of the longest `fit` or loop. Returns the document with what they gained."""
        from unstall.profiles.report.document import write, write_results
        from unstall.profiles.report.measurements import KIND
        from unstall.profiles.report.remedies import print_trial
        from unstall.profiles.trial.progress import TrialProgress
        from unstall.profiles.trial.trying import longest, with_trial

        if self._applied is not None:
            self._say_applied()
        held = longest(watchers) if self.tries and self._edit is None else None
        only = self._applied.only(held.place) if self._applied is not None and held is not None else ()
        if held is None or (self._applied is not None and not only):
            return document

        def begins(limit_s: float) -> None:
            if self._guard is not None:
                self._guard.fix(code, limit_s)

        verdicts = KIND.derive(document)
        last = document
        for last in with_trial(
            document,
            held,
            budget_s=self._arguments.budget,
            named=self._files.named,
            epochs=self._arguments.epochs,
            only=only,
            begins=begins,
            progress=TrialProgress(console, held.name, self._arguments.budget),
        ):
            write_results(self._out, last, KIND, verdicts)
        if self._guard is not None:
            self._guard.release()
        write(self._out, last, KIND, verdicts)
        if held.name in last.samples.trials and self._arguments.details:
            words = last.as_typed(self._script.name)
            print_trial(console, held.name, last.samples.trials[held.name], words)
        return last

    def _say_applied(self) -> None:
        assert self._applied is not None
        for place, names in self._applied.done.items():
            _say(f"in place at {place}: {names}")
        for place, reason in self._applied.failed.items():
            _say(f"not in place at {place}: {reason}")
        if not self._applied.done and not self._applied.failed:
            _say("no remedy is in place: no fit or loop was at the place that it is for")

    def _write_diff(self, edit: Written, ended_well: bool) -> None:
        """Writes what was changed, if the script with the changes has run to its end."""
        from unstall.profiles.report.writing_files import write_atomically

        target, name = self._arguments.write, self._script.name
        if not ended_well:
            _say(f"{target} is not written: {name} with the remedies did not run to its end")
            return
        if edit.replaced.not_run:
            others = ", ".join(sorted(path.name for path in edit.replaced.not_run))
            _say(f"{target} is not written: {name} ran to its end, and did not import {others} with the remedies")
            return
        write_atomically(self._write_to, edit.diff)
        _say(
            f"written: {target}, a diff of {' and '.join(edit.names)}. {name} with it has run to its end; "
            f"git apply {target} puts it in place"
        )


def _can_be_read(watcher: Profiler | Loops) -> bool:
    """Whether there are data to read again, or to say of that they cannot be."""
    readable = watcher.readable_data
    return any(not fit.loop or fit.name in readable for fit in watcher.fits)


class _ProfileParser(ArgumentParser):
    def error(self, message: str) -> NoReturn:
        _say(f"{message}. See {_NAME} --help.")
        raise SystemExit(2)


def _parser() -> argparse.ArgumentParser:
    parser = _ProfileParser(
        prog=_NAME,
        usage=f"{_NAME} [OPTION ...] SCRIPT.py [ARG ...]",
        description="Runs a training script as it is and says how much of each Keras fit, and of each loop over a "
        "tf.data.Dataset or a DataLoader, was loading and how much compute. The report goes to stderr and to files; "
        "output and exit code are the script's own.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--max-steps",
        type=int,
        metavar="N",
        help="leave the script by SystemExit after N steps, inside fit or a loop",
    )
    parser.add_argument(
        "--budget",
        type=float,
        default=BUDGET_S,
        metavar="S",
        help=f"how many seconds trying remedies may take, once the script has ended [{BUDGET_S:g}]",
    )
    parser.add_argument(
        "--epochs",
        type=int,
        metavar="N",
        help="how many epochs your whole training has: remedies are chosen by what they gain over so many "
        "[as many as the script makes]",
    )
    parser.add_argument("--no-trial", action="store_true", help="try no remedies")
    parser.add_argument(
        "--apply",
        metavar="NAMES|RESULTS",
        help="run the script with remedies in place: NAME,... or the results of an earlier run, whose best is taken",
    )
    parser.add_argument(
        "--write",
        metavar="DIFF",
        help="with --apply=RESULTS: run the script with its text, and that of the files in which its data are made, "
        "edited, and write a diff if that went well",
    )
    parser.add_argument("--details", action="store_true", help="print all tables and sentences")
    parser.add_argument("--no-ceilings", action="store_true", help="neither run the model by itself nor try remedies")
    parser.add_argument("--lines", action="store_true", help="time the lines of the data's Python functions")
    parser.add_argument(
        "--files-per-sample",
        type=int,
        default=1,
        metavar="N",
        help="from how many files the script makes a sample, such as 2 for a photo and its mask [1]",
    )
    parser.add_argument("--out", metavar="DIR", help="folder for results.json and report.html [runs/TIME]")
    parser.add_argument("script", metavar="SCRIPT.py", help="what to run; everything behind it is the script's")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARG", help=argparse.SUPPRESS)
    return parser


def _misplaced(words: list[str], arguments: argparse.Namespace) -> Misplaced | None:
    """Returns the options of ours that were typed after the script; None if there are none."""
    # `--epochs` is what training scripts call an option of their own, also in files that are not looked at.
    ours = {name: value for name, value in vars(arguments).items() if name not in ("script", "arguments", "epochs")}
    takes = {f"--{name.replace('_', '-')}": not isinstance(value, bool) for name, value in ours.items()}
    before = words[: len(words) - len(arguments.arguments) - 1]
    return misplaced(before, arguments.script, arguments.arguments, takes)


def _names_results(text: str | None) -> bool:
    """Whether what `--apply` was given is the path of results that are there."""
    from unstall.profiles.trial.applying import results_in

    path = results_in(text) if text else None
    return path is not None and path.exists()


def _refusal(arguments: argparse.Namespace, out: Path) -> str | None:
    """Returns why the command cannot run with these arguments, in one line; None if it can."""
    script = Path(arguments.script)
    for name in ("max_steps", "epochs", "files_per_sample"):
        value = getattr(arguments, name)
        if value is not None and value < 1:
            return f"--{name.replace('_', '-')} must be at least 1. Received: {value}."
    if not 1 <= arguments.budget <= _LONGEST_BUDGET_S:
        return f"--budget must be from 1 to {_LONGEST_BUDGET_S:g} seconds. Received: {arguments.budget:g}."
    if arguments.write and not _names_results(arguments.apply):
        return f"--write needs --apply=RESULTS, the results of an earlier run. Received: --apply={arguments.apply}."
    if arguments.write and os.path.lexists(arguments.write):
        return f"--write {arguments.write} exists already: nothing is overwritten. Choose another name."
    try:
        if not script.is_file():
            return f"{script}: no such script."
        for name in ("results.json", "report.html"):
            if os.path.lexists(out / name):
                return f"--out {out} holds {name} already: nothing is overwritten. Choose another folder."
        folder = next(path for path in (out, *out.parents) if path.exists())
        if not folder.is_dir() or not os.access(folder, os.W_OK):
            return f"--out {out}: results cannot be written there, {folder} is no folder that can be written to."
        folder = Path(arguments.write or ".").absolute().parent
        if arguments.write and not (folder.is_dir() and os.access(folder, os.W_OK)):
            return f"--write {arguments.write} cannot be written: {folder} is no folder that can be written to."
    except OSError as error:
        return f"{error.filename}: {error.strerror}."
    return None


def _words_again(arguments: argparse.Namespace) -> str:
    """Returns the script and its arguments as typed, with the options of ours that say what is measured of it."""
    values = {"--max-steps": arguments.max_steps, "--epochs": arguments.epochs}
    values |= {} if arguments.files_per_sample == 1 else {"--files-per-sample": arguments.files_per_sample}
    options = (word for name, value in values.items() if value is not None for word in (name, str(value)))
    return shell_words(*options, arguments.script, *arguments.arguments)


def _say(line: str) -> None:
    """Prints a line to stderr. A closed stderr is no error: it must not change the script's exit code."""
    from unstall.profiles.text import printable

    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"{typed(_NAME)}: {printable(typed(line)).replace(chr(10), ' ')}\n")
        sys.stderr.flush()


@contextlib.contextmanager
def _quiet_stdout() -> Iterator[None]:
    """Redirects stdout to stderr: reading the script's data again must add nothing to the script's output."""
    try:
        sys.stdout.flush()
        stdout_copy = os.dup(1)
        os.dup2(2, 1)
    except (OSError, ValueError, AttributeError):  # stdout or stderr is closed
        yield
        return
    try:
        yield
    finally:
        with contextlib.suppress(OSError, ValueError, AttributeError):
            sys.stdout.flush()
        os.dup2(stdout_copy, 1)
        os.close(stdout_copy)


def _leave(code: int) -> NoReturn:
    """Ends the process as Python would, but without waiting for the thread that reading the data blocks."""
    threading._shutdown()  # type: ignore[attr-defined]  # joins the script's threads; no public function does
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    sys.exit(guarded_main())
