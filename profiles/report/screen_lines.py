"""Lines that the first screens of the main job and of scripts share: verdicts, causes, warnings."""

from __future__ import annotations

from collections.abc import Sequence

from unstall.profiles.report.document import LeftOut
from unstall.profiles.report.screen import ScreenLine
from unstall.profiles.results.attribution import bound_of
from unstall.profiles.results.evidence import Finding
from unstall.profiles.results.flags import FlagKind
from unstall.profiles.results.parts import Parts
from unstall.profiles.results.result import Result
from unstall.profiles.results.rules import BOUND_NAMES, OVERSIZED_RATIO, why_uncertain
from unstall.profiles.results.verdict import Verdict, evidence_of
from unstall.profiles.stage_table import OTHER_PYTHON, SCRIPTS_OWN

# The signs of the parts of a bar, and what a sentence calls them.
SIGNS = {
    "#": "model",
    "=": "waiting",
    "+": "cores taken",
    "~": "device",
    "-": "between epochs",
}
_PHRASES = {
    "=": "waiting for batches",
    "+": "cores taken from the model",
    "~": "work on the device before the model",
    "-": "between epochs",
}
_LABELS = {bound: name.upper() for bound, name in BOUND_NAMES.items()}
# A part below this share is not told.
_LEAST_SHARE = 0.02
# A stage is named as a cause from this share of the loader's time on; so many of them are named.
_LEAST_STAGE, _MOST_STAGES = 0.10, 2
# Flags that make all figures doubtful. Data that changed are named before the others: they are the user's to mend.
_WARNINGS = (FlagKind.DATA_CHANGED, FlagKind.DISTURBED, FlagKind.DRIFT, FlagKind.NOT_TRUSTWORTHY)
# Rules whose findings name a fault of its own, beside what the parts of an epoch say.
_FAULTS = (
    "frozen augmentation",
    "copied data",
    "forked workers",
    "retraced steps",
    "unknown shape",
    "waits for each step",
    "growing memory",
    "remote storage",
    "calls for each element",
    "GIL-bound",
    "recompilation",
    "CPU throttled",
)


def verdict_line(verdict: Verdict, who: str) -> ScreenLine:
    """Returns what limits the rate: the share of loading, and what it is made of."""
    result = verdict.result
    attribution = result.attribution
    if is_short(result):
        flag = next(flag for flag in result.flags if flag.kind is FlagKind.SHORT)
        return ScreenLine(label="NO VERDICT", text=f"{flag.text}.")
    loading = max(attribution.loading_ratio, 0.0)
    if result.is_least:
        return _least_line(verdict, who)
    if attribution.bound == "uncertain":
        low, high = attribution.loading_range
        text = f"between {max(low, 0):.0%} and {min(max(high, 0), 1):.0%} of an epoch{who} is loading: "
        return ScreenLine(label=_LABELS["uncertain"], text=f"{text}{why_uncertain(evidence_of(result))}.")
    text = f"{loading:.0%} of an epoch{who} is loading"
    parts = _parts(result)
    if attribution.bound == "compute" or not parts:
        return ScreenLine(label=_LABELS[attribution.bound], text=f"{text}: the model sets the pace.")
    return ScreenLine(label=_LABELS[attribution.bound], text=f"{text}: {parts}.")


def first_batch_line(result: Result) -> ScreenLine | None:
    """Returns the verdict of epochs of too few steps for a rate that wait for their first batch; None of others."""
    if not is_short(result) or bound_of(result.first_batch_ratio) != "input":
        return None
    text = f"at least {result.first_batch_ratio:.0%} of an epoch is loading: the wait for its first batch."
    return ScreenLine(label=_LABELS["input"], text=text)


def _least_line(verdict: Verdict, who: str) -> ScreenLine:
    """Returns what is known where the model's own rate is not: waiting and edges, which are the least of loading."""
    result = verdict.result
    loading = max(result.attribution.loading_ratio, 0.0)
    label = "INPUT-BOUND" if result.attribution.bound == "input" else "AT LEAST"
    least = "at least " if label == "INPUT-BOUND" else ""
    text = f"{least}{loading:.0%} of an epoch{who} is loading"
    if parts := _parts(result):
        text += f": {parts}"
    most = result.most_taken_ratio
    clause = "is not known" if most is None else f"is at most {most:.0%} of an epoch" if most >= 0.01 else "is nothing"
    held_up = " or of the thread that starts them" if result.subject.facts.fetching_ratio is not None else ""
    return ScreenLine(label=label, text=f"{text}. What the loader takes from the cores of the steps{held_up} {clause}.")


def _parts(result: Result) -> str:
    """Returns the parts of loading that are worth telling, the largest first."""
    shares = by_sign(result.attribution.shares, result)
    signs = sorted((sign for sign in _PHRASES if shares[sign] >= _LEAST_SHARE), key=lambda sign: -shares[sign])
    return ", ".join(f"{shares[sign]:.0%} {_phrase(sign, result)}" for sign in signs[:3])


def _phrase(sign: str, result: Result) -> str:
    shares = result.attribution.shares
    if sign == "=" and (shares.fetch_stall or 0.0) > (shares.prep_stall or 0.0):
        return "waiting, most of it for storage"
    return _PHRASES[sign]


def by_sign(parts: Parts[float | None], result: Result) -> dict[str, float]:
    """Returns parts of an epoch by their signs; the way to the device is noise on a CPU and has no length there."""
    transfer = (parts.transfer or 0.0) if result.subject.device.kind != "cpu" else 0.0
    return {
        "#": parts.compute or 0.0,
        "=": (parts.fetch_stall or 0.0) + (parts.prep_stall or 0.0),
        "+": parts.interference or 0.0,
        "~": (parts.device_augment or 0.0) + transfer,
        "-": parts.epoch_overhead or 0.0,
    }


def stages_line(result: Result) -> ScreenLine | None:
    """Returns the stages of loading that cost most, and how much larger images are decoded than the model takes."""
    clauses = []
    table = result.stages
    if table is not None and (table.stages or table.lines):
        shares: dict[str, float] = {}
        for stage in table.stages:  # several may stand in one call of the user's
            name = f"{stage.name} ({stage.location})" if stage.location else stage.name
            shares[name] = shares.get(name, 0.0) + table.share(stage)
        costly = sorted((name for name in shares if shares[name] >= _LEAST_STAGE), key=lambda name: -shares[name])
        if table.lines:
            told = ", ".join(f"{line.location} {line.code} {line.ratio:.0%}" for line in table.lines[:_MOST_STAGES])
            libraries = [stage.name for stage in table.stages if stage.kind not in (OTHER_PYTHON, SCRIPTS_OWN)]
            called = [name for name in costly if name in libraries][:1]
            clauses.append(f"{told} of the loader's time" + "".join(f"; {name} {shares[name]:.0%}" for name in called))
        elif costly:
            told = ", ".join(f"{name} {shares[name]:.0%}" for name in costly[:_MOST_STAGES])
            clauses.append(f"{told} of the loader's time")
    elif table is not None and table.reason is not None:
        clauses.append(f"its stages are not known: {table.reason}")
    decoded, wanted = result.pixels
    if decoded and wanted and decoded / wanted >= OVERSIZED_RATIO:
        clauses.append(f"images are decoded at {decoded / wanted:,.0f} times the pixels that the model takes")
    return ScreenLine(label="WHY", text=f"{'; '.join(clauses)}.") if clauses else None


def warning_of(results: Sequence[Result]) -> str | None:
    """Returns a reason to doubt all figures; None where there is none."""
    flags = dict.fromkeys(flag for result in results for flag in result.flags if flag.kind in _WARNINGS)
    if not flags:
        return None
    first, *others = sorted(flags, key=lambda flag: flag.kind is not FlagKind.DATA_CHANGED)
    more = f" (and {len(others)} more {'doubt' if len(others) == 1 else 'doubts'}: see report.html)" if others else ""
    text = str(first) if first.kind is FlagKind.DATA_CHANGED else first.text
    return f"Be careful: {text}{more}."


def is_short(result: Result) -> bool:
    """Whether the epochs had too few steps for a rate."""
    return any(flag.kind is FlagKind.SHORT for flag in result.flags)


def is_fault(finding: Finding) -> bool:
    """Whether a finding names a fault of its own, beside what the parts of an epoch say."""
    return finding.rule in _FAULTS


def left_out_lines(left_out: Sequence[LeftOut]) -> tuple[ScreenLine, ...]:
    """Returns a line for each subject without a result."""
    return tuple(ScreenLine(label="LEFT OUT", text=f"{subject.who}: {subject.reason}.") for subject in left_out)


def classes_text(classes: Sequence[object]) -> str:
    """Returns how many classes there are, with the names of the first."""
    names = ", ".join(map(str, classes[:3])) + (", ..." if len(classes) > 3 else "")
    return f"{len(classes)} class{'' if len(classes) == 1 else 'es'} ({names})"
