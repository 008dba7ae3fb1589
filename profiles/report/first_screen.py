"""Makes the first screen of a measured training: of the main job, of a profiled script, and of `profiles.profile`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import unstall
from profiles.remedies import Trial, gains_of
from profiles.report.document import LeftOut
from profiles.report.remedies import needs_text
from profiles.report.screen import Bar, Line, Picture, Screen
from profiles.results.account import Account
from profiles.results.evidence import Advice, Finding
from profiles.results.fit_rules import fit_findings
from profiles.results.parts import Parts
from profiles.results.result import Result
from profiles.results.rules import why_uncertain
from profiles.results.verdict import Verdict, evidence_of
from profiles.statistics import range_text

# The signs of the parts of a bar, and what a sentence calls them.
_SIGNS = {
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
_LABELS = {"compute": "COMPUTE-BOUND", "balanced": "BALANCED", "input": "INPUT-BOUND", "uncertain": "UNCERTAIN"}
# A part below this share is not told.
_LEAST_SHARE = 0.02
# A stage is named as a cause from this share of the loader's time on; so many of them are named.
_LEAST_STAGE, _MOST_STAGES = 0.10, 2
# Images are decoded at this many times the pixels that the model takes: worth a clause.
_OVERSIZED = 4.0
# Flags that make all figures doubtful.
_WARNINGS = ("disturbed", "drift", "not trustworthy", "data changed")
# Rules whose findings name a fault of its own, beside what the parts of an epoch say.
_FAULTS = (
    "frozen augmentation",
    "copied data",
    "retraced steps",
    "waits for each step",
    "growing memory",
    "remote storage",
    "calls for each element",
    "GIL-bound",
    "recompilation",
    "CPU throttled",
)
# So many faults are told; the report has all.
_MOST_FAULTS = 2
_LOADERS = {
    "image_data_generator": "Keras' ImageDataGenerator",
    "py_dataset": "a PyDataset",
    "image_dataset_from_directory": "image_dataset_from_directory",
    "tf_data": "tf.data",
}


def compared_screens(
    verdicts: Sequence[Verdict],
    *,
    baseline: str,
    dataset: Mapping[str, Any],
    data: str,
    left_out: Sequence[LeftOut] = (),
) -> tuple[Screen, ...]:
    """Returns a screen for each model and device: its variants beside each other.

    Args:
      verdicts: of all variants.
      baseline: the variant that the others are compared with.
      dataset: the data, as the document holds them.
      data: as the user typed it.
      left_out: variants without a result.
    """
    groups: dict[tuple[str, str], list[Verdict]] = {}
    for verdict in verdicts:
        subject = verdict.result.subject
        groups.setdefault((subject.model, subject.device.name), []).append(verdict)
    first, *others = (_compared_screen(group, baseline, dataset, data) for group in groups.values())
    return (replace(first, why=(*first.why, *_left_out_lines(left_out))), *others)


def _compared_screen(group: Sequence[Verdict], baseline: str, dataset: Mapping[str, Any], data: str) -> Screen:
    warm = [verdict for verdict in group if verdict.result.subject.page_cache == "warm"] or group
    slowest = min(warm, key=lambda verdict: verdict.result.epoch_images_per_sec)
    judged = next((verdict for verdict in warm if verdict.result.subject.variant == baseline), slowest)
    result, subject = judged.result, judged.result.subject
    size = subject.config.get("image_size") or ()
    facts = [
        "x".join(map(str, size)) if isinstance(size, Sequence) else "",
        f"{subject.training['parameters']:,} parameters" if "parameters" in subject.training else "",
    ]
    cores = "" if subject.cores is None else f", {subject.cores:g} cores"
    images, classes = dataset.get("images"), list(dataset.get("classes") or ())
    heading = (
        f"unstall: {images:,} images, {_classes(classes)}, from {dataset.get('name')}"
        if isinstance(images, int) and classes
        else f"unstall: {data}",
        f"{subject.model} ({', '.join(fact for fact in facts if fact)}) on {subject.device.name}{cores}; "
        f"{len(warm)} pipeline{'s' if len(warm) > 1 else ''}",
    )
    with_loader = f" with {_loader(result)}"
    lines = [_verdict_line(judged, with_loader)]
    if judged.rivals:
        lines.append(_fastest_line(judged, group))
    if result.model_images_per_sec is not None and not _is_short(result):
        lines.append(
            Line(
                label="LIMIT",
                text=f"the model alone does {result.model_images_per_sec:,.0f} {subject.unit.rate}: no loader can "
                "give more.",
            )
        )
    why = _stages_line(result) or _first_fault(judged)
    return Screen(
        heading=heading,
        warning=_warning([verdict.result for verdict in group]),
        verdict=tuple(lines),
        picture=_compared_picture(group, result, baseline),
        why=() if why is None else (why,),
        next=(_next_of_compared(judged, data),),
    )


def script_screen(
    verdicts: Sequence[Verdict],
    *,
    accounts: Mapping[str, Account],
    trials: Mapping[str, Trial],
    name: str,
    words: str | None,
    left_out: Sequence[LeftOut] = (),
) -> Screen:
    """Returns the screen of what a script, or `profiles.profile`, trained.

    Args:
      verdicts: of each `fit` and loop.
      accounts: where the wall time of each `fit` went.
      trials: of remedies.
      name: what was run, for the heading.
      words: the script and its arguments as typed, for what is to be typed next; None where there is no script.
      left_out: each `fit` and loop without a result.
    """
    if not verdicts:
        return Screen(heading=(f"unstall: {name}",), verdict=_left_out_lines(left_out))
    tried = [verdict for verdict in verdicts if verdict.result.subject.variant in trials]
    main = (tried or [max(verdicts, key=lambda verdict: _total_s(verdict.result))])[0]
    result, subject = main.result, main.result.subject
    cores = "" if subject.cores is None else f", {subject.cores:g} cores"
    fed = next((note for note in subject.notes if note.startswith("fed by")), "")
    heading = (
        f"unstall: {name} on {subject.device.name}{cores}",
        f"{subject.label}: {subject.model}, batches of {subject.batch_size}{', ' if fed else ''}{fed}",
    )
    lines = [_verdict_line(main, "")]
    if result.model_images_per_sec is not None and not _is_short(result):
        lines.append(
            Line(
                label="LIMIT",
                text=f"the model alone does {result.model_images_per_sec:,.0f} {subject.unit.rate}; with this loader "
                f"it does {result.epoch_images_per_sec:,.0f}.",
            )
        )
    account = accounts.get(subject.variant)
    findings = [*main.findings[1:], *(fit_findings(account, result) if account is not None else ())]
    return Screen(
        heading=heading,
        warning=_warning([result]),
        verdict=tuple(lines),
        picture=_script_picture(verdicts),
        why=(*_causes(result, findings), *_left_out_lines(left_out)),
        next=_next_of_script(main, trials.get(subject.variant), words),
    )


def _left_out_lines(left_out: Sequence[LeftOut]) -> tuple[Line, ...]:
    return tuple(Line(label="LEFT OUT", text=f"{subject.who}: {subject.reason}.") for subject in left_out)


def _classes(classes: Sequence[object]) -> str:
    names = ", ".join(map(str, classes[:3])) + (", ..." if len(classes) > 3 else "")
    return f"{len(classes)} class{'' if len(classes) == 1 else 'es'} ({names})"


def _loader(result: Result) -> str:
    kind = _LOADERS.get(str(result.subject.config.get("loader")))
    return f"{result.subject.variant}{f' ({kind})' if kind else ''}"


def _verdict_line(verdict: Verdict, who: str) -> Line:
    """Returns what limits the rate: the share of loading, and what it is made of."""
    result = verdict.result
    attribution = result.attribution
    if _is_short(result):
        flag = next(flag for flag in result.flags if flag.startswith("short"))
        return Line(label="NO VERDICT", text=f"{flag.partition(': ')[2]}.")
    loading = max(attribution.loading_ratio, 0.0)
    if result.model_images_per_sec is None and result.subject.device.kind == "cpu":
        return _least_line(verdict, who)
    if attribution.bound == "uncertain":
        low, high = attribution.loading_range
        text = f"between {max(low, 0):.0%} and {min(max(high, 0), 1):.0%} of an epoch{who} is loading: "
        return Line(label=_LABELS["uncertain"], text=f"{text}{why_uncertain(evidence_of(result))}.")
    text = f"{loading:.0%} of an epoch{who} is loading"
    parts = _parts(result)
    if attribution.bound == "compute" or not parts:
        return Line(label=_LABELS[attribution.bound], text=f"{text}: the model sets the pace.")
    return Line(label=_LABELS[attribution.bound], text=f"{text}: {parts}.")


def _least_line(verdict: Verdict, who: str) -> Line:
    """Returns what is known where the model's own rate is not: waiting and edges, which are the least of loading."""
    result = verdict.result
    loading = max(result.attribution.loading_ratio, 0.0)
    label = "INPUT-BOUND" if result.attribution.bound == "input" else "AT LEAST"
    least = "at least " if label == "INPUT-BOUND" else ""
    text = f"{least}{loading:.0%} of an epoch{who} is loading"
    if parts := _parts(result):
        text += f": {parts}"
    return Line(label=label, text=f"{text}. What the loader takes from the cores of the steps is not known.")


def _parts(result: Result) -> str:
    """Returns the parts of loading that are worth telling, the largest first."""
    shares = _by_sign(result.attribution.shares, result)
    signs = sorted((sign for sign in _PHRASES if shares[sign] >= _LEAST_SHARE), key=lambda sign: -shares[sign])
    return ", ".join(f"{shares[sign]:.0%} {_phrase(sign, result)}" for sign in signs[:3])


def _phrase(sign: str, result: Result) -> str:
    shares = result.attribution.shares
    if sign == "=" and (shares.fetch_stall or 0.0) > (shares.prep_stall or 0.0):
        return "waiting, most of it for storage"
    return _PHRASES[sign]


def _by_sign(parts: Parts[float | None], result: Result) -> dict[str, float]:
    """Returns parts of an epoch by their signs; the way to the device is noise on a CPU and has no length there."""
    transfer = (parts.transfer or 0.0) if result.subject.device.kind != "cpu" else 0.0
    return {
        "#": parts.compute or 0.0,
        "=": (parts.fetch_stall or 0.0) + (parts.prep_stall or 0.0),
        "+": parts.interference or 0.0,
        "~": (parts.device_augment or 0.0) + transfer,
        "-": parts.epoch_overhead or 0.0,
    }


def _fastest_line(verdict: Verdict, group: Sequence[Verdict]) -> Line:
    """Returns the variant that is surely the fastest, how much faster than the judged one, and how it differs."""
    subject = verdict.result.subject
    if not verdict.advice:
        return Line(label="FASTEST", text=f"no other pipeline is surely faster than {subject.variant}.")
    rates = {other.result.subject.variant: other.result.epoch_images_per_sec for other in group}
    *same, fastest = verdict.printed_advice
    text = f"{_times(fastest)}, {rates[fastest.change]:,.0f} {subject.unit.rate}."
    if not fastest.same_work:
        text += (
            f" Its images differ: {', '.join(fastest.work) or 'full decode, bilinear, augmented'}; those of "
            f"{subject.variant}: {', '.join(subject.work) or 'full decode, bilinear, augmented'}."
        )
    if same:
        text += f" With the same images: {_times(same[0])}."
    return Line(label="FASTEST", text=text)


def _times(advice: Advice) -> str:
    again = "; measured again after it was chosen" if advice.again else ""
    return f"{advice.change}, {advice.measured_ratio:.2f}x ({range_text(advice.ci95)}{again})"


def _warning(results: Sequence[Result]) -> str | None:
    flags = dict.fromkeys(flag for result in results for flag in result.flags if flag.startswith(_WARNINGS))
    if not flags:
        return None
    first, *others = flags
    more = f" (and {len(others)} more doubts: see the report)" if others else ""
    text = first if first.startswith("data changed") else first.partition(": ")[2]
    return f"Be careful: {text}{more}."


def _is_short(result: Result) -> bool:
    return any(flag.startswith("short") for flag in result.flags)


def _compared_picture(group: Sequence[Verdict], judged: Result, baseline: str) -> Picture:
    results = sorted((verdict.result for verdict in group), key=lambda result: -result.epoch_images_per_sec)
    return Picture(
        columns=(judged.subject.unit.rate, "times"),
        signs=_SIGNS,
        bars=tuple(
            Bar(
                name=f"{result.subject.label}{' (baseline)' if result.subject.label == baseline else ''}",
                cells=(
                    f"{result.epoch_images_per_sec:,.0f}",
                    f"{result.epoch_images_per_sec / judged.epoch_images_per_sec:.2f}x",
                ),
                parts=_by_sign(result.attribution.seconds_per_image, result),
            )
            for result in results
        ),
    )


def _script_picture(verdicts: Sequence[Verdict]) -> Picture:
    """Returns a bar for each `fit` and loop, each of which is a whole epoch."""

    def parts(result: Result) -> dict[str, float]:
        lengths = {sign: max(length, 0.0) for sign, length in _by_sign(result.attribution.shares, result).items()}
        total = sum(lengths.values())
        return {sign: length / total for sign, length in lengths.items()} if total else lengths

    alone = any(verdict.result.model_images_per_sec is not None for verdict in verdicts)
    return Picture(
        columns=(verdicts[0].result.subject.unit.rate,),
        signs={**_SIGNS, "#": "model" if alone else "steps"},
        bars=tuple(
            Bar(
                name=verdict.result.subject.label,
                cells=(f"{verdict.result.epoch_images_per_sec:,.0f}",),
                parts=parts(verdict.result),
            )
            for verdict in verdicts
        ),
    )


def _stages_line(result: Result) -> Line | None:
    """Returns the stages of loading that cost most, and how much larger images are decoded than the model takes."""
    clauses = []
    if result.stages is not None and result.stages.stages:
        table = result.stages
        shares: dict[str, float] = {}
        for stage in table.stages:  # several may stand in one call of the user's
            name = f"{stage.name} ({stage.location})" if stage.location else stage.name
            shares[name] = shares.get(name, 0.0) + table.share(stage)
        costly = sorted((name for name in shares if shares[name] >= _LEAST_STAGE), key=lambda name: -shares[name])
        if costly:
            told = ", ".join(f"{name} {shares[name]:.0%}" for name in costly[:_MOST_STAGES])
            clauses.append(f"{told} of the loader's time")
    elif result.stages is not None and result.stages.reason is not None:
        clauses.append(f"its stages are not known: {result.stages.reason}")
    decoded, wanted = result.subject.decoded_pixels, result.subject.wanted_pixels
    if decoded and wanted and decoded / wanted >= _OVERSIZED:
        clauses.append(f"images are decoded at {decoded / wanted:,.0f} times the pixels that the model takes")
    return Line(label="WHY", text=f"{'; '.join(clauses)}.") if clauses else None


def _first_fault(verdict: Verdict) -> Line | None:
    fault = next((finding for finding in verdict.findings[1:] if finding.rule in _FAULTS), None)
    return None if fault is None else Line(label="WHY", text=fault.sentences())


def _causes(result: Result, findings: Sequence[Finding]) -> tuple[Line, ...]:
    """Returns why loading costs what it costs, and faults of their own."""
    lines = []
    shares = _by_sign(result.attribution.shares, result)
    costly = result.attribution.bound != "compute"
    edges = next((finding for finding in findings if finding.rule == "epoch edges"), None)
    if costly and edges is not None and shares["-"] > max(shares["="], shares["+"]):
        lines.append(Line(label="WHY", text=f"{edges.text}."))
    elif costly and (stages := _stages_line(result)) is not None:
        lines.append(stages)
    for fault in [finding for finding in findings if finding.rule in _FAULTS or _of_fit(finding)][:_MOST_FAULTS]:
        lines.append(Line(label="ALSO" if lines else "WHY", text=fault.sentences()))
    return tuple(lines)


def _of_fit(finding: Finding) -> bool:
    """Whether a finding is about a `fit` as a whole, such as its validation, and worth doing something about."""
    return finding.rule.startswith(("validation", "retracing", "slower")) and finding.gain is not None


def _next_of_compared(verdict: Verdict, data: str) -> Line:
    bound = verdict.result.attribution.bound
    subject = verdict.result.subject
    if bound == "compute":
        return Line(label="NEXT", text="nothing here: look for time in the model (docs/models.md).")
    if bound == "uncertain" or _is_short(verdict.result):
        return Line(
            label="NEXT", text="the same again when the machine is quiet, with more photos, or with --thorough."
        )
    command = unstall.command("python -m benchmarks.tune")
    code = f"{command} --data {shlex.quote(data)} --model {shlex.quote(subject.model)}"
    return Line(label="NEXT", text="the fastest pipeline for these photos, as tf.data code:", code=(code,))


def _next_of_script(verdict: Verdict, trial: Trial | None, words: str | None) -> tuple[Line, ...]:
    """Returns the remedy that helped, its code, and how it is put in place; else what may help."""
    bound = verdict.result.attribution.bound
    gains = None if trial is None else gains_of(trial)
    if trial is not None and gains is not None and gains.chosen is not None:
        chosen = gains.chosen
        ratio, interval = chosen.best
        needs = needs_text(trial, chosen)
        whole = ""
        if chosen.whole_ratio is not None:
            whole = f"; over the script's {trial.epochs} epochs {chosen.whole_ratio:.2f}x"
        faster = Line(
            label="FASTER",
            text=f"{ratio:.2f}x ({range_text(interval)}) with {chosen.name}, measured on your own data and "
            f"model{whole}. Batches: {chosen.effect}.{f' Needs {needs}.' if needs else ''}",
            code=tuple(
                line
                for remedy in map(trial.remedy, chosen.contender.remedies)
                for line in ([f"# {remedy.place}"] if remedy.place else []) + remedy.code.splitlines()
            ),
        )
        if words is None:
            return (faster,)
        command = unstall.command("python -m profiles")
        names = ",".join(chosen.contender.remedies)
        return (
            faster,
            Line(label="NEXT", text="edit these lines, or see it first:", code=(f"{command} --apply={names} {words}",)),
        )
    if bound == "compute":
        return (Line(label="NEXT", text="nothing that was seen of the loader is worth a change: look at the model."),)
    if bound == "uncertain" or _is_short(verdict.result):
        return (Line(label="NEXT", text="the same again when the machine is quiet, or for more epochs."),)
    tried = [gain.name for gain in gains.all[1:]] if gains is not None else []
    said = f"tried, and not faster: {', '.join(tried)}. " if tried else ""
    advice = next((finding for finding in verdict.findings if finding.advice is not None), None)
    if advice is not None and advice.advice is not None:
        said += f"{advice.advice[0].upper()}{advice.advice[1:]}: {advice.gain.text() if advice.gain else ''}."
    return (Line(label="NEXT", text=said),) if said else ()


def _total_s(result: Result) -> float:
    return sum(sample.epoch_ns for sample in result.explained) / 1e9
