"""The report of a search: its table, its sentences, and its page.

Over 400 lines: the sentences share the words for a pipeline, its pixels and its gain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from unstall.benchmarks.lab.tables import Table, page, print_table
from unstall.benchmarks.tune.plan import TOML, Asked
from unstall.benchmarks.tune.results import (
    AUTOTUNE,
    HEURISTIC,
    NAIVE,
    Result,
    Results,
    SearchDocument,
    compared_results,
    derive,
    shared_rounds,
    simplicity,
)
from unstall.benchmarks.tune.samples import SearchSamples
from unstall.pipeline.cost_model import stages_of
from unstall.pipeline.export import drawn_text, install_command, packages_of
from unstall.profiles.report import Kind, Picture, Screen, ScreenBar, ScreenLine
from unstall.profiles.statistics import range_cell, range_text

_BAR_WIDTH = 34
# A rate below this part of the predicted one shows that the prediction lacks what sets the rate.
_PREDICTED_RATIO = 0.7
# What there is of a search that was stopped before it had trained on any pipeline.
_UNMEASURED = (
    "the search was stopped before it had trained on a pipeline: only what the stages cost was measured, which the "
    "report has."
)
_LEGEND = "(*) chosen.  pixels: class, and mean difference in levels of 255, against full decode"


def _rate(result: Result, results: Results) -> float:
    """Returns the images/sec that the table has for a result."""
    return next(row.images_per_sec for row in compared_results(results) if row.result is result)


def _table(document: SearchDocument, results: Results) -> Table:
    assert document.dataset is not None
    rows = compared_results(results)
    return Table(
        title=f"{_title(document)}, {document.dataset['images']:,} images",
        columns=("pipeline", "predicted", "img/s", _compared_with(results), "95 %", "pixels"),
        rows=tuple(
            (
                row.result.name + (" *" if row.result is results.chosen else ""),
                f"{row.result.subject.prediction.images_per_sec:,.0f}",
                f"{row.images_per_sec:,.0f}",
                f"{row.ratio:.2f}x",
                range_cell(row.interval),
                _pixels(row.result),
            )
            for row in rows
        ),
        chosen=next((number for number, row in enumerate(rows) if row.result is results.chosen), None),
    )


def _compared_with(results: Results) -> str:
    """Returns the heading of the ratios, in as many lines as the name of the pipeline has parts."""
    return f"of {results.incumbent.name}".replace(", ", ",\n")


def _title(document: SearchDocument) -> str:
    return f"{document.plan.model} on {document.plan.device.name}"


def _pixels(result: Result) -> str:
    exactness = result.subject.exactness
    if exactness is None:
        return "-"
    return exactness.name if exactness.psnr_db is None else f"{exactness.name} {exactness.mean_levels:.1f}"


def _chosen_stages(document: SearchDocument, results: Results) -> list[dict[str, Any]]:
    """Returns the stages of the chosen pipeline, with the cost of each; those of all where none is chosen."""
    costs = {measured.stage: measured.cost for measured in document.samples.stages}
    stages = [(stage, True) for stage in costs] if results.chosen is None else stages_of(results.chosen.config)
    return [
        {
            "stage": " ".join(stage),
            "in_parallel_calls": parallel,
            "us_per_image": costs[stage].us_per_image,
            "most_calls": costs[stage].most_calls,
            "crowded_factor": costs[stage].crowded_factor,
        }
        for stage, parallel in stages
        if stage in costs
    ]


def _stages_table(document: SearchDocument, results: Results) -> Table:
    return Table(
        title=f"Stages of {'all pipelines' if results.chosen is None else results.chosen.name}",
        columns=("stage", "µs an image", "calls at once"),
        rows=tuple(
            (
                stage["stage"],
                f"{stage['us_per_image']:,.1f}",
                _calls(stage),
            )
            for stage in _chosen_stages(document, results)
        ),
    )


def _calls(stage: Mapping[str, Any]) -> str:
    if not stage["in_parallel_calls"]:
        return "1"
    return "any" if stage["most_calls"] is None else f"up to {stage['most_calls']:.1f}"


def _print(console: Console, document: SearchDocument, results: Results) -> None:
    if results.chosen is None:
        print_table(console, _stages_table(document, results))
    else:
        print_table(console, _table(document, results))
        console.print(f"\n{_LEGEND}")
        console.print()
        for line in _bars(results):
            console.print(line)
    console.print()
    for sentence in _sentences(document, results):
        console.print(sentence)
    for left_out in document.left_out:
        console.print(f"could not be measured: {left_out.who}: {left_out.reason}")


def screens_of(document: SearchDocument, results: Results) -> tuple[Screen, ...]:
    """Returns the first screen; see `Kind`."""
    chosen, samples = results.chosen, document.samples
    assert document.dataset is not None
    images = f"unstall: {document.dataset['images']:,} images from {document.as_typed(document.plan.data)}"
    if chosen is None:
        stopped = ScreenLine(label="NO VERDICT", text=_UNMEASURED)
        return (Screen(heading=(images, _title(document)), verdict=(stopped,)),)
    faster = chosen is not results.incumbent
    exactness = chosen.subject.exactness
    text = " ".join([_choice(chosen, results), *_of_passed_over(chosen, results)])
    if faster and exactness is not None and exactness.psnr_db is not None:
        text += f" Its images are {exactness.name}: {exactness.mean_levels:.1f} levels of 255 off on average."
    usual = _usual(results) or [(results.incumbent.name, results.incumbent)]  # none could be measured
    shown = [(name, _ratio(result, results)) for name, result in usual]
    if faster:
        on_copy = results.on_chosen_copy
        if on_copy is not None and (gain := on_copy.again_against(results.incumbent)) is not None:
            shown.append((on_copy.name, gain[0]))
        shown.append(("tuned", _ratio(chosen, results)))
    beside = _rate(results.incumbent, results)
    return (
        Screen(
            heading=(
                images,
                f"{_title(document)}; {len(results.results)} pipelines measured of {samples.predicted:,} predicted, "
                f"{samples.seconds:.0f} s",
            ),
            verdict=(
                ScreenLine(label="FASTEST", text=f"{text[0].upper()}{text[1:]}"),
                ScreenLine(label="LIMIT", text=_limit(chosen, document, results)),
            ),
            picture=Picture(
                columns=("img/s", "times"),
                signs={"#": "images/sec of whole epochs"},
                bars=tuple(
                    ScreenBar(
                        name=name,
                        cells=(f"{beside * ratio:,.0f}", f"{ratio:.2f}x"),
                        parts={"#": beside * ratio},
                    )
                    for name, ratio in shown
                ),
            ),
            why=(ScreenLine(label="BATCHES", text=_batches(chosen)),),
            next=_next(document, chosen),
        ),
    )


def _next(document: SearchDocument, chosen: Result) -> tuple[ScreenLine, ...]:
    """Returns how the chosen pipeline gets into a training: what to install first, and the lines that use it."""
    script = document.plan.script
    lines = f"from {Path(script).stem} import fit_arguments", "model.fit(**fit_arguments(), epochs=5)"
    use = ScreenLine(label="NEXT", text=f"{script} gives these batches to a script next to it:", code=lines)
    install = install_command(_packages(document, chosen))
    if not install:
        return (use,)
    return ScreenLine(label="NEXT", text=f"what {script} needs besides TensorFlow:", code=(install,)), use


def _packages(document: SearchDocument, chosen: Result) -> tuple[str, ...]:
    assert document.dataset is not None
    return packages_of(chosen.config, files=document.dataset["kind"] not in ("records", "raw"))


def _batches(chosen: Result) -> str:
    """Returns what a training gets that uses the chosen pipeline in the place of its own."""
    config = chosen.config
    range_ = (
        "uint8 pixels" if config.output_dtype == "uint8" else "pixels in [0, 1], so leave out a Rescaling of your model"
    )
    unasked = "; --set augmentation=false for none" if config.augmentation is not None else ""
    return f"{range_}. {drawn_text(config).rstrip('.')}{unasked}."


def _usual(results: Results) -> list[tuple[str, Result]]:
    """Returns the usual pipelines that were measured, with their names."""
    return [(name, result) for name in (NAIVE, HEURISTIC, AUTOTUNE) if (result := results.named(name)) is not None]


def _bars(results: Results) -> list[str]:
    """Returns lines for the usual pipelines (naive, heuristic, AUTOTUNE) and the chosen one: name, bar and rate."""
    assert results.chosen is not None
    rates = [(name, _rate(result, results)) for name, result in (*_usual(results), ("tuned", results.chosen))]
    fastest = max(rate for _, rate in rates)
    return [f"{name:<10}{'█' * max(1, round(_BAR_WIDTH * rate / fastest))} {rate:,.0f} img/s" for name, rate in rates]


def _sentences(document: SearchDocument, results: Results) -> list[str]:
    chosen, samples = results.chosen, document.samples
    if chosen is None:
        return [_UNMEASURED, *_of_algorithms(results)]
    sentences = [_choice(chosen, results), *(_of_passed_over(chosen, results) or _of_highest(chosen, results))]
    sentences.append(_limit(chosen, document, results))
    if results.prepare_s:
        sentences.append(f"Before its first epoch it takes {results.prepare_s:,.1f} s, once.")
    sentences += [*_of_copy(chosen, results), *_of_algorithms(results)]
    sentences.append(_price_of_order(chosen, results))
    exactness = chosen.subject.exactness
    if exactness is not None and exactness.psnr_db is not None:
        sentences.append(
            f"Its pixels are {exactness.name}: {exactness.mean_levels:.1f} levels of 255 off on average, "
            f"{exactness.largest_levels:.0f} at most, {exactness.psnr_db:.1f} dB."
        )
    if install := install_command(_packages(document, chosen)):
        sentences.append(f"{document.plan.script} needs TensorFlow, and what this installs: {install}")
    most_first = sorted(samples.rejected.items(), key=lambda item: -item[1])
    rejected = "; ".join(f"{count:,} {reason}" for reason, count in most_first)
    reached = sorted(result.of_prediction for result in results.results)
    range_ = " to ".join(dict.fromkeys(f"{ratio:.0%}" for ratio in (reached[0], reached[-1])))
    sentences.append(
        f"{samples.predicted:,} pipelines were predicted in {samples.seconds:.0f} s in all. Inside an epoch those that "
        f"were measured had {range_} of what was predicted. Not measured: {rejected}."
    )
    return sentences


def _ratio(result: Result, results: Results) -> float:
    """Returns how many times as fast as the incumbent a result is: the chosen one as its sentence says."""
    incumbent = results.incumbent
    if result is results.chosen and result is not incumbent:
        return (result.again_against(incumbent) or result.against(incumbent))[0]
    return result.against(incumbent)[0]


def _choice(chosen: Result, results: Results) -> str:
    incumbent = results.incumbent
    if chosen is incumbent:
        measured_again = any(result.again_images_per_sec for result in results.results)
        reason = (
            "the fastest was not significantly faster when both were measured again"
            if measured_again
            else "nothing that was measured is significantly faster"
        )
        return f"{incumbent.name} stays: {reason}."
    again_against = chosen.again_against(incumbent)
    ratio, interval = again_against or chosen.against(incumbent)
    where = "; measured again, in rounds that did not choose it" if again_against else ""
    return f"{chosen.name} is {ratio:.2f} times as fast as {incumbent.name} ({range_text(interval)}{where})."


def _of_passed_over(chosen: Result, results: Results) -> list[str]:
    """Says by how much the fastest would be faster, where it is not chosen because its pixels are not exact."""
    fastest = results.passed_over
    if fastest is None:
        return []
    exact = results.rivals[1]
    against = fastest.again_against(exact)
    gain = "" if against is None else f" {against[0]:.2f} times as fast ({range_text(against[1])})"
    exactness = fastest.subject.exactness
    off = "drawn in another way" if exactness is None else f"off by up to {exactness.largest_levels:.0f} of 255 levels"
    than = "this" if exact is chosen else f"{exact.name}, whose gain was not confirmed either"
    return [f"{fastest.name}, whose pixels are {off}, is not surely faster than {than}:{gain}."]


def _of_highest(chosen: Result, results: Results) -> list[str]:
    """Says why the highest pipeline of the table is not the chosen one; nothing where it is."""
    if chosen is results.incumbent:
        return []
    *_, highest = (row.result for row in compared_results(results) if row.result is not results.incumbent)
    if highest is chosen:
        return []
    ratio, interval = chosen.against(highest)
    shared, _ = shared_rounds(chosen.epoch_images_per_sec, highest.epoch_images_per_sec)
    simpler = ", and is the simpler" if simplicity(chosen.config) < simplicity(highest.config) else ""
    if chosen.is_exact and not highest.is_exact:
        simpler = ", and is exact"
    return [
        f"{highest.name} stands above it in the table. In all {len(shared)} rounds that both have, the chosen pipeline "
        f"has {ratio:.2f} times its rate ({range_text(interval)}){simpler}."
    ]


def _of_copy(chosen: Result, results: Results) -> list[str]:
    """Says what of the gain is the copy's, and what the tuning adds."""
    on_copy = results.on_chosen_copy
    if on_copy is None:
        return []
    of_copy, of_tuning = on_copy.again_against(results.incumbent), chosen.again_against(on_copy)
    if of_copy is None or of_tuning is None:
        return []
    return [
        f"AUTOTUNE on the same copy or cache, with one iterator for all epochs, is {of_copy[0]:.2f} times as fast as "
        f"AUTOTUNE as it is ({range_text(of_copy[1])}); the chosen pipeline is {of_tuning[0]:.2f} times as fast as "
        f"that ({range_text(of_tuning[1])})."
    ]


def _of_algorithms(results: Results) -> list[str]:
    if not results.algorithms:
        return []
    rates = {result.config.autotune_algorithm: result.rate for result in results.algorithms}
    text = ", ".join(f"{name} {rate:,.0f}" for name, rate in rates.items())
    fastest = max(rates, key=lambda name: rates[name])
    return [f"AUTOTUNE has the fastest of TensorFlow's algorithms, {fastest}: {text} img/s."]


def _limit(chosen: Result, document: SearchDocument, results: Results) -> str:
    """Says what limits the rate, and how far it is from that of a loader that costs nothing."""
    consumer = document.samples.consumer
    assert consumer is not None
    prediction, ready, rate = chosen.subject.prediction, 1e6 / consumer.us_per_image, _rate(chosen, results)
    of_ready = ""
    if document.plan.device.kind != "gpu":  # there the ready batches were float32 on the host: others may be faster
        of_ready = f" It has {rate / ready:.0%} of the rate with a loader that costs nothing, {ready:,.0f} img/s."
        if rate > ready:  # they were measured one after the other, and the machine's speed changed
            of_ready = f" It is as fast as with a loader that costs nothing, {ready:,.0f} img/s before these rounds."
    limits = {
        "compute": "the model itself",
        "cores": "the cores, which loader and model share",
        "one call": "the loader, which makes one call at a time",
    }
    megabytes = f"{prediction.memory_bytes / 1e6:,.0f} MB"
    if chosen.of_prediction < _PREDICTED_RATIO:
        return (
            f"Inside an epoch it reaches {chosen.of_prediction:.0%} of the {prediction.images_per_sec:,.0f} img/s "
            f"predicted; `unstall pipeline` on these images, with {TOML} as its --config, measures what sets its rate. "
            f"It takes {megabytes} of memory.{of_ready}"
        )
    limit = limits.get(prediction.limit, f"the stage {prediction.limit}")
    return f"By the prediction its rate is set by {limit}; it takes {megabytes} of memory.{of_ready}"


def _price_of_order(chosen: Result, results: Results) -> str:
    if chosen.config.workers == 1:
        return "One call at a time: `deterministic` costs nothing, and stays on."
    if results.order is None:
        return "The price of `deterministic`, which stays on, was not measured: --thorough measures it."
    any_order, in_order = results.order.any_order, results.order.in_order
    ratio, interval = any_order.against(in_order)
    return (
        f"The price of `deterministic`, which stays on: {in_order.rate:,.0f} images/sec in a fixed "
        f"order, {any_order.rate:,.0f} in whatever order they are done: {ratio:.2f} times as fast "
        f"({range_text(interval)})."
    )


def _copies(document: SearchDocument, results: Results) -> dict[str, Any]:
    return {
        "chosen": results.chosen and results.chosen.name,
        "packages": results.chosen and _packages(document, results.chosen),
        "passed_over": results.passed_over and results.passed_over.name,
        "results": [
            {
                "name": row.result.name,
                "images_per_sec": row.images_per_sec,
                "of_autotune": {"ratio": row.ratio, "ci95": row.interval},
                "exactness_class": row.result.subject.exactness and row.result.subject.exactness.name,
                "exact": row.result.is_exact,
                "epoch_images_per_sec": row.result.epoch_images_per_sec,
                "again_images_per_sec": row.result.again_images_per_sec,
                "loader_images_per_sec": row.result.loader_images_per_sec,
            }
            for row in compared_results(results)
        ],
        "stages": _chosen_stages(document, results),
        "autotune_images_per_sec": {result.config.autotune_algorithm: result.rate for result in results.algorithms},
        "autotune_on_copy_images_per_sec": results.on_copy and results.on_copy.again_images_per_sec,
        "any_order_images_per_sec": results.order and results.order.any_order.rate,
        "in_order_images_per_sec": results.order and results.order.in_order.rate,
        "prepare_s": results.prepare_s,
        "sentences": _sentences(document, results),
    }


def _page(document: SearchDocument, results: Results) -> str:
    limits = document.plan.limits
    facts = {
        "rounds": "each pipeline trains in each round, in an order that is drawn anew; img/s are of whole epochs",
        "predicted": "images/sec of training, from stages that were measured once, each by itself",
        "pixels": "class, and mean difference in levels of 255, against full decode",
        "limits": f"{limits.memory_bytes / 1e9:,.1f} GB of memory, {limits.disk_bytes / 1e9:,.1f} GB of disk, images "
        f"of class {limits.exactness} at the widest, {limits.budget_s:g} s of measuring",
    }
    stages = _stages_table(document, results)
    tables = (stages,) if results.chosen is None else (_table(document, results), stages)
    return page("The fastest pipeline", document, tables=tables, notes=_sentences(document, results), facts=facts)


def _flat(results: Results) -> Sequence[Mapping[str, Any]]:
    return [
        {
            "pipeline": row.result.name,
            "chosen": row.result is results.chosen,
            "predicted_images_per_sec": row.result.subject.prediction.images_per_sec,
            "images_per_sec": row.images_per_sec,
            "of_autotune": row.ratio,
            "ci95_low": row.interval and row.interval[0],
            "ci95_high": row.interval and row.interval[1],
            "exactness_class": row.result.subject.exactness and row.result.subject.exactness.name,
        }
        for row in compared_results(results)
    ]


KIND = Kind(
    plan=Asked,
    samples=SearchSamples,
    derive=derive,
    copies=_copies,
    report=_page,
    print=_print,
    rows=_flat,
    is_empty=lambda document, results: not (document.samples.stages or results.results),
    screens=screens_of,
)
