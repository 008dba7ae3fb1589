"""The rules of a verdict. Each is a pure function that returns a finding about the evidence, or None.

A rule compares the lower end of an interval with its threshold, where there is an interval.

Over 400 lines: all rules stand together, so that a reader compares their conditions and gains in one place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from unstall import forks
from unstall.profiles.data.kinds import DataKind
from unstall.profiles.results.attribution import BALANCED_FROM, INPUT_FROM, bound_of
from unstall.profiles.results.evidence import Evidence, Finding, PossibleGain
from unstall.profiles.results.flags import FlagKind
from unstall.profiles.samples import Sample
from unstall.profiles.stage_table import Stage
from unstall.profiles.statistics import LEAST_ROUNDS, Interval, falls, median, slope
from unstall.profiles.unit import Unit

# From this share on a part of an epoch or a `fit` is costly. Source: xprof warns of input that takes 10 % of a step.
COSTLY_RATIO = BALANCED_FROM
# A stage or a part is most of the loss if it explains more than this. Source: the design of this project.
MOST_RATIO = 0.5
# Part of the time that an accelerator should be busy. Source: MLPerf Storage.
UTILIZATION = 0.9
# CPU time over wall time of threads that hold the interpreter's lock in turn is near 1. Below, the threads wait for
# something else; above, part of the work runs without the lock. Source: rule R03 of the field's list.
GIL_FROM, GIL_TO = 0.7, 1.3
# Decoded pixels over needed pixels from which libjpeg can decode at half of the height and width.
OVERSIZED_RATIO = 4.0
# Less throttling than this is no worse than the error of clocks that is not flagged (`checks.UNCLAIMED_RATIO`).
THROTTLED_RATIO = 0.05
# A step that takes this many times the typical one compiles: a short batch takes no longer than a full one, and
# compiling takes seconds. Source: issue 3 of this project's rules.
RECOMPILED_RATIO = 5.0
# Memory grows if its slope over so many epochs behind the first ones, which fill buffers, is surely above 1 MB an
# epoch, and an order as rising is as unlikely as this by accident. Source: rule R09 of the field's list.
_FIRST_EPOCHS, _LEAST_GROWING_EPOCHS, _GROWS_P = 3, 8, 0.01
# Python's allocator gives a small object about so many bytes; fewer more in an epoch than this are no leak.
_BLOCK_BYTES, _LEAST_BLOCKS = 64, 100.0
# A script waits for each step if it does so in this part of them.
_EACH_STEP = 0.9
# Bytes of a pixel in uint8 over those in float32.
UINT8_RATIO = 0.25

# How verdicts name the bounds.
BOUND_NAMES = {"compute": "compute-bound", "balanced": "balanced", "input": "input-bound", "uncertain": "uncertain"}
# A loading ratio nearer to a bound than this is at the bound: more rounds would not settle on which side.
_AT_THE_BOUND = 0.01
# Other programs that take a smaller part of the cores are no reason to measure again.
OTHERS_MATTER = 0.05
# Flags that are named in the sentence of a verdict.
_DOUBTS = (FlagKind.DISTURBED, FlagKind.DRIFT, FlagKind.FEW_ROUNDS, FlagKind.NOT_TRUSTWORTHY)
PART_NAMES = {
    "compute": "compute",
    "device_augment": "augmentation on the device",
    "transfer": "transfer to the device",
    "fetch_stall": "waiting for storage",
    "prep_stall": "waiting for batches",
    "interference": "the loader taking cores from the model",
    "epoch_overhead": "epoch edges",
}
# How libraries decode a JPEG at a half, a quarter or an eighth of its size, by the kind of their stages.
_SCALED_DECODES = {
    "Pillow": '`image.draft("RGB", (width, height))` right after `Image.open`',
    "OpenCV": "`cv2.IMREAD_REDUCED_COLOR_{scale}`",
}
_SCALES = (8, 4, 2)
_DECODES = ("decode", "imread", "jpeg", "pil.image.load", "pil.image.convert", "load_img")


def bound(evidence: Evidence) -> Finding:
    """Says whether loading or compute sets the pace. The only rule that always returns a finding."""
    attribution = evidence.result.attribution
    loading = attribution.loading_ratio
    rule = BOUND_NAMES[attribution.bound]
    text = f"{rule}: {max(loading, 0):.0%} of an epoch is loading"
    if rule == "uncertain":
        text += f" ({_doubt(evidence)})"
    elif doubts := _doubts(evidence):
        text += f" (doubtful: {', '.join(doubts)})"
    if bound_of(loading) == "compute":
        return Finding(rule=rule, text=text, cost_ratio=max(loading, 0.0))
    culprit = evidence.result.culprit
    share = evidence.lost[culprit]
    amount = "most of it" if share > MOST_RATIO * loading else "the largest part of it"
    return Finding(
        rule=rule,
        text=f"{text}, {amount} {PART_NAMES[culprit]} ({share:.0%})",
        cost_ratio=loading,
        gain=gain_without(loading, "if loading cost nothing"),
    )


def culprit_stage(evidence: Evidence) -> Finding | None:
    """Finds the stage that explains most of the loss."""
    table = evidence.stages
    stage = None if table is None else table.culprit
    if table is None or stage is None or not _loading_is_costly(evidence):
        return None
    explained = table.share(stage) * evidence.loader_ratio
    if explained <= MOST_RATIO * evidence.result.attribution.loading_ratio:
        return None
    place, unit = f" ({stage.location})" if stage.location else "", _unit(evidence)
    gain = _gain_of_part(evidence, explained, f"if {stage.name} cost nothing")
    return Finding(
        rule="culprit stage",
        text=f"{stage.name}{place} takes {table.share(stage):.0%} of the loader's time for {unit.article} {unit.noun}, "
        f"{stage.cpu_us_per_image:,.0f} us of CPU",
        cost_ratio=explained,
        advice="make it cheaper, or do it once (a cache behind it, a prepared format)" if gain else None,
        gain=gain,
        hypothesis=table.excess_ratio is not None,
    )


def calls_for_each_element(evidence: Evidence) -> Finding | None:
    """Finds functions of tf.data that are called for each element and do so little that the call costs most."""
    table, batch = evidence.stages, _batch(evidence)
    if table is None or batch < 2 or not _loading_is_costly(evidence):
        return None
    parts = [
        (table.share(stage) * call_us / stage.busy_us_per_image, stage, call_us)
        for stage in table.stages
        if stage.busy_us_per_image and (call_us := min(stage.call_us_per_image or 0.0, stage.busy_us_per_image))
    ]
    explained = sum(share for share, _, _ in parts) * (1 - 1 / batch) * evidence.loader_ratio
    if explained < COSTLY_RATIO:
        return None
    _, stage, call_us = max(parts, key=lambda part: part[0])
    unit, place = _unit(evidence), f" ({stage.location})" if stage.location else ""
    gain = _gain_of_part(evidence, explained, f"if one call were left for {batch} {unit.plural}")
    return Finding(
        rule="calls for each element",
        text=f"{stage.name}{place} takes {stage.busy_us_per_image:,.0f} us for {unit.article} {unit.noun}; a call of a "
        f"function that does next to nothing takes {call_us:,.0f} us here",
        cost_ratio=explained,
        advice="call it for whole batches: `batch` in front of the map, and operations that take batches "
        "(`tf.io.parse_example`, `tf.io.decode_csv`, arithmetic)"
        if gain
        else None,
        gain=gain,
    )


def ineffective_workers(evidence: Evidence) -> Finding | None:
    """Finds that fewer workers were busy than were asked for, while the model waited."""
    asked, seen = evidence.workers_asked, evidence.workers_seen
    if asked is None or seen is None or seen >= asked or _has_loader_of_pytorch(evidence):
        return None
    if not _loading_is_costly(evidence):
        return None
    gain = _gain_of_faster_loader(evidence, min(asked, evidence.cores or asked) / max(seen, 1), "if all of them worked")
    return Finding(
        rule="workers not effective",
        text=f"{asked} workers were asked for, at most {seen} were busy at once",
        cost_ratio=_cost(gain),
        advice="set the workers on the data itself; `fit` does not pass them on" if gain else None,
        gain=gain,
    )


def copied_data(evidence: Evidence) -> Finding | None:
    """Finds that each worker of a `DataLoader` gives all of the data: an epoch has every sample several times."""
    copies = evidence.result.subject.facts.copies
    if not copies:
        return None
    return Finding(
        rule="copied data",
        text=f"Each of the {copies} workers gives the whole data set: the first batches of two of them were the same, "
        f"and an epoch has every {_unit(evidence).noun} {copies} times",
        cost_ratio=1 - 1 / copies,
        advice="divide the IterableDataset among the workers (`torch.utils.data.get_worker_info()` in its `__iter__`)",
        gain=PossibleGain(
            ratio=float(copies), kind="predicted", assumption=f"if an epoch had every {_unit(evidence).noun} once"
        ),
    )


def forked_workers(evidence: Evidence) -> Finding | None:
    """Finds that workers are forked from a process in which TensorFlow runs, and collect garbage of TensorFlow."""
    if not evidence.result.subject.facts.forks_collect:
        return None
    return Finding(
        rule="forked workers",
        text="Without unstall training may hang, mostly in the second `fit` of a script: each of its "
        f"{evidence.workers_asked} worker processes is forked while TensorFlow runs, and one that collects an old "
        f"iterator of TensorFlow waits for ever. {forks.LINE} in front of the first `fit` ends that",
        cost_ratio=1.0,  # nothing is trained behind it
    )


def retraced_steps(evidence: Evidence) -> Finding | None:
    """Finds that the steps of a loop trace functions of TensorFlow again and again."""
    traced = evidence.result.subject.facts.retraced
    if traced is None or traced.ratio < COSTLY_RATIO:
        return None
    share = traced.ratio
    gain = gain_without(share, "if nothing were traced behind the first steps")
    return Finding(
        rule="retraced steps",
        text=f"TensorFlow traced {traced.function} {traced.count:,} times behind the first steps, "
        f"{traced.ms:,.0f} ms each: {share:.0%} of the loop",
        cost_ratio=share,
        advice="give it batches of one shape and tensors in the place of Python's numbers, and make each `tf.function` "
        "once, outside of the loop"
        if gain
        else None,
        gain=gain,
    )


def unknown_shape(evidence: Evidence) -> Finding | None:
    """Finds that TensorFlow does not know the shape of images."""
    shape = evidence.result.subject.facts.unknown_shape
    if shape is None:
        return None
    return Finding(
        rule="unknown shape",
        text=f"TensorFlow does not know the shape of the batches: {shape}. Steps on them are traced for any shape, and "
        "may take several times as long: say `channels=3` where images are decoded, or `tf.ensure_shape` at the end of "
        "the map",
        hypothesis=True,
    )


def waits_for_each_step(evidence: Evidence) -> Finding | None:
    """Finds that a script waits for a device behind it in each step, so that no loading goes on beside the steps."""
    ratio = evidence.result.subject.facts.waited_for_ratio
    loading, compute = evidence.lost.prep_stall, evidence.lost.compute
    if ratio is None or ratio < _EACH_STEP or not _loading_is_costly(evidence):
        return None
    gain = _gain_of_part(evidence, min(loading, compute), "if batches were made while the device computes")
    return Finding(
        rule="waits for each step",
        text="The result of each step is there before the script asks for the next batch (it reads a loss or prints, "
        "or the device is the CPU and computes at once), so that loading and compute take turns",
        cost_ratio=min(loading, compute),
        advice="have batches made ahead of time (tf.data: `prefetch`; a DataLoader: `num_workers`), and read losses "
        "once in many steps"
        if gain
        else None,
        gain=gain,
    )


def interpreter_lock(evidence: Evidence) -> Finding | None:
    """Finds that several threads run Python, and together use the time of one core."""
    workers, seen = evidence.workers_asked, evidence.workers_seen
    config, facts = evidence.result.subject.config, evidence.result.subject.facts
    forks = config.get("use_multiprocessing") or facts.worker_processes or _has_loader_of_pytorch(evidence)
    single = seen is not None and seen < 2
    if workers is None or workers < 2 or single or forks or (evidence.cores or 2) < 2:
        return None
    parallelism = _effective_parallelism(evidence)
    if parallelism is None or not GIL_FROM <= parallelism <= GIL_TO or not _loading_is_costly(evidence):
        return None
    table = evidence.stages
    has_stages = table is not None and bool(table.stages)
    if table is not None and has_stages:
        python_us = sum(stage.cpu_us_per_image for stage in table.stages if stage.python)
        if python_us <= MOST_RATIO * table.cpu_us_per_image:
            return None
    elif seen is None:  # threads of tf.data, which do not hold the lock
        return None
    times = min(workers, evidence.cores or workers) / parallelism
    gain = _gain_of_faster_loader(evidence, times, "if the workers ran side by side")
    return Finding(
        rule="GIL-bound",
        text=f"{workers} threads of the loader use {parallelism:.2f} cores together: "
        "Python's lock lets one run at a time",
        cost_ratio=_cost(gain),
        advice="use processes, or operations that release the lock (OpenCV, tf.data)" if gain else None,
        gain=gain,
        hypothesis=not has_stages,
    )


def frozen_augmentation(evidence: Evidence) -> Finding | None:
    """Finds random operations before a cache, which keeps the draws of the first epoch for all epochs."""
    names = evidence.frozen_by_cache
    if not names:
        return None
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return Finding(
        rule="frozen augmentation",
        text=f"Frozen augmentation: {', '.join(names[:3])}{more} before a cache draws once, "
        f"so that every epoch repeats the first one's {_unit(evidence).plural}; behind the cache it would draw anew",
        cost_ratio=1.0,  # it spoils what the model learns in the whole epoch
    )


def remote_storage(evidence: Evidence) -> Finding | None:
    """Finds that files lie on storage behind a network, or outside of a virtual machine, and are waited for."""
    table = evidence.stages
    if table is None or table.storage is None or not table.storage.remote or not _loading_is_costly(evidence):
        return None
    total_us = sum(stage.busy_us_per_image for stage in table.stages)
    waits_us = sum(max(stage.wait_us_per_image or 0.0, 0.0) for stage in table.stages)
    share = min(waits_us / total_us, 1.0) * evidence.loader_ratio if total_us else 0.0
    if share < COSTLY_RATIO:
        return None
    gain = _gain_of_part(evidence, share, "if nothing waited for that storage")
    return Finding(
        rule="remote storage",
        text=f"The files lie on {table.storage.text}, and the loader waits for {waits_us / total_us:.0%} of its time",
        cost_ratio=share,
        advice="copy them to a local disk, or prepare them once (`unstall materialize`)" if gain else None,
        gain=gain,
        hypothesis=True,  # not every wait is for the storage
    )


def oversized_decode(evidence: Evidence) -> Finding | None:
    """Finds that images are decoded at many times the size that the model needs."""
    decoded, wanted = evidence.decoded_pixels, evidence.wanted_pixels
    if decoded is None or wanted is None or decoded < OVERSIZED_RATIO * wanted or not _loading_is_costly(evidence):
        return None
    text = f"Images are decoded at {decoded / wanted:.0f} times the pixels that the model takes"
    own_work = set(evidence.result.subject.work)
    for variant in evidence.advice:
        if set(variant.work) - own_work == {"scaled decode"} and own_work <= set(variant.work):
            gain = PossibleGain(ratio=variant.measured_ratio, kind="measured", ci95=variant.ci95)
            advice = f"decode at a fraction of the size, as {variant.change} does"
            return Finding(rule="oversized decode", text=text, cost_ratio=_cost(gain), advice=advice, gain=gain)
    table = evidence.stages
    stages = () if table is None else table.stages
    decodes = [stage for stage in stages if any(word in stage.name.lower() for word in _DECODES)]
    if table is None or not decodes:
        return Finding(rule="oversized decode", text=f"{text}; what that costs was not measured", hypothesis=True)
    if table.decoded_pixels is not None and not any("resize" in stage.name.lower() for stage in table.stages):
        return None  # a part of each image may be cut out at its full size
    share = sum(table.share(stage) for stage in decodes) * evidence.loader_ratio
    predicted = _gain_of_part(evidence, share, "if decoding cost nothing")
    return Finding(
        rule="oversized decode",
        text=text,
        cost_ratio=share,
        advice=f"decode at a fraction of the size{_how(decodes, decoded / wanted)}, or prepare smaller copies once"
        if predicted
        else None,
        gain=predicted,
    )


def _how(decodes: Sequence[Stage], times: float) -> str:
    """Returns how the libraries of some stages decode at a fraction of the size, in brackets; "" where not known.

    Args:
      times: how many times the pixels that the model takes are decoded.
    """
    scale = next((scale for scale in _SCALES if scale**2 <= times), 2)
    known = dict.fromkeys(_SCALED_DECODES[stage.kind] for stage in decodes if stage.kind in _SCALED_DECODES)
    return f" ({', '.join(text.format(scale=scale) for text in known)})" if known else ""


def costly_epoch_edges(evidence: Evidence) -> Finding | None:
    """Finds that much time passes between the last step of an epoch and the first step of the next."""
    if evidence.surely_lost.epoch_overhead < COSTLY_RATIO:
        return None
    share = evidence.lost.epoch_overhead
    seconds = evidence.result.attribution.seconds_per_image.epoch_overhead or 0.0
    lost_s = seconds * _epoch_images(evidence)
    opening_s = min(evidence.result.first_batch_s, lost_s)
    gain = _gain_of_part(evidence, share, "if the epoch edges were gone")
    tuner_off = _tuner_off(evidence)
    facts, table = evidence.result.subject.facts, evidence.stages
    starts_s, ends_s = (None, None) if table is None else (table.workers_start_s, table.epoch_end_s)
    if _has_loader_of_pytorch(evidence) and evidence.workers_asked:
        longer = "keep its workers from epoch to epoch (`persistent_workers=True`), or start fewer of them"
    elif facts.worker_processes:
        longer = "start fewer worker processes, which begin anew with each epoch, or threads instead"
    elif facts.loop:
        longer = "make fewer, longer epochs (repeat the data)"
    else:
        longer = "make fewer, longer epochs (repeat the data and set `steps_per_epoch`)"
    return Finding(
        rule="epoch edges",
        text=f"Each epoch loses {_time(lost_s)} at its boundary: {_time(opening_s)} until its first batch"
        f"{_of_boundary(opening_s, 'workers start and give it', starts_s)}, "
        f"{_time(lost_s - opening_s)} after its last step"
        f"{_of_boundary(lost_s - opening_s, '`on_epoch_end` of the data', ends_s)}",
        cost_ratio=share,
        advice=(f"{tuner_off}, or {longer}" if tuner_off else longer) if gain else None,
        gain=gain,
    )


def _of_boundary(lost_s: float, what: str, seconds: float | None) -> str:
    """Returns what a part of an epoch boundary is made of, in brackets; "" where that explains less than a tenth."""
    return f" ({what}: {_time(min(seconds, lost_s))})" if seconds and seconds >= lost_s / 10 else ""


def interference(evidence: Evidence) -> Finding | None:
    """Finds that the loader takes cores that the model computes on."""
    if evidence.result.subject.device.accelerator or evidence.surely_lost.interference < COSTLY_RATIO:
        return None
    share = evidence.lost.interference
    alone = evidence.lost.compute + evidence.lost.device_augment + evidence.lost.transfer
    loader_ms = evidence.result.cpu_ms_per_image["loader"]
    takes = "" if loader_ms is None else f", which takes {loader_ms:.2f} ms of CPU per {_unit(evidence).noun},"
    gain = _gain_of_part(evidence, share, "if the loader took no core from the model")
    return Finding(
        rule="interference",
        text=f"Beside the loader{takes} a training step takes {(alone + share) / alone:.2f} times as long as alone",
        cost_ratio=share,
        advice=f"do less per {_unit(evidence).noun} (a cache, a prepared format); "
        "more workers shorten the waiting, not this"
        if gain
        else None,
        gain=gain,
    )


def costly_transfer(evidence: Evidence) -> Finding | None:
    """Finds that the model waits for batches on their way to the device."""
    if evidence.surely_lost.transfer < COSTLY_RATIO:
        return None
    share = evidence.lost.transfer
    if evidence.result.subject.config.get("output_dtype") == "float32":
        gain = _gain_of_part(
            evidence, (1 - UINT8_RATIO) * share, "if a quarter of the bytes took a quarter of the time"
        )
        advice = 'send uint8 and rescale on the device (`output_dtype = "uint8"`)'
    else:
        gain = _gain_of_part(evidence, share, "if batches arrived while the device computes")
        advice = "send uint8, and have batches on the device ahead of time (tf.data: `prefetch_to_device`)"
    return Finding(
        rule="costly transfer",
        text=f"{share:.0%} of an epoch is batches on their way to the device",
        cost_ratio=share,
        advice=advice if gain else None,
        gain=gain,
    )


def cores_to_feed(evidence: Evidence) -> Finding | None:
    """Says how many cores this loader needs to keep an accelerator busy."""
    result, cores, unit = evidence.result, evidence.cores, _unit(evidence)
    loader_ms = result.cpu_ms_per_image["loader"]
    waits = evidence.surely_lost.prep_stall + evidence.surely_lost.fetch_stall
    if not result.subject.device.accelerator or loader_ms is None or waits < COSTLY_RATIO:
        return None
    rate = UTILIZATION * result.compute_images_per_sec
    needed = loader_ms / 1e3 * rate
    needed_text = f"{needed:.1f}" if needed >= 1 else f"{needed:.2f}"
    text = (
        f"To keep this device busy {UTILIZATION:.0%} of the time, the loader needs {needed_text} cores: "
        f"{loader_ms:.2f} ms of CPU per {unit.noun}, {rate:,.0f} {unit.plural}/sec"
    )
    if cores is None:
        return Finding(rule="cores to feed", text=text, cost_ratio=evidence.loader_ratio)
    if needed > cores:
        text += f"; {cores:g} are usable"
        advice = f"give it {needed_text} cores, or at most {1e3 * cores / rate:.2f} ms of work per {unit.noun}"
    else:
        text += f"; {cores:g} are usable, and it does not use them"
        advice = "let more of them work (workers, parallel calls, prefetch)"
    gain = PossibleGain(
        ratio=UTILIZATION * result.attribution.headspace,
        kind="predicted",
        assumption=f"if loading fell to {1 - UTILIZATION:.0%}",
    )
    return Finding(rule="cores to feed", text=text, cost_ratio=evidence.loader_ratio, advice=advice, gain=gain)


def throttled(evidence: Evidence) -> Finding | None:
    """Finds that the CPU quota stopped the run."""
    ratio = evidence.throttled_ratio
    if ratio is None or ratio < THROTTLED_RATIO:
        return None
    cores = "" if evidence.cores is None else f" of {evidence.cores:g} cores"
    return Finding(
        rule="CPU throttled",
        text=f"The CPU quota{cores} stopped the run in {ratio:.0%} of the scheduler's periods",
        cost_ratio=ratio,  # an upper limit: the run was stopped for a part of each such period
    )


def recompiled(evidence: Evidence) -> Finding | None:
    """Finds that XLA compiles the model anew for the short last batch of every epoch."""
    result = evidence.result
    if not result.subject.facts.jit_compile or _epoch_images(evidence, measured=True) % _batch(evidence) == 0:
        return None
    train = sorted(result.explained, key=lambda sample: sample.round)
    epochs = [epoch for sample in train for epoch in _epochs(sample)]
    if not result.of("warmup"):
        epochs = epochs[1:]  # in the first epoch XLA compiles every shape
    if not epochs or min(map(len, epochs)) < 2:
        return None
    typical_ns = median([step for steps in epochs for step in steps[:-1]])
    # A host that runs ahead waits in the last step for all that the device has left to do: all steps, at most.
    ahead_ns = 0.0
    if result.subject.device.asynchronous:
        ahead_ns = max(map(len, epochs)) * _batch(evidence) * 1e9 / result.compute_images_per_sec
    lasts = [steps[-1] for steps in epochs]
    if min(lasts) <= RECOMPILED_RATIO * typical_ns + ahead_ns:
        return None
    lost_ns = median(lasts) - typical_ns - ahead_ns
    share = lost_ns / median([sample.epoch_ns / sample.epochs for sample in train])
    gain = gain_without(share, "if the last step took as long as the others")
    return Finding(
        rule="recompilation",
        text=f"The short last batch of each epoch takes {_time(median(lasts) / 1e9)}, "
        f"a full one {_time(typical_ns / 1e9)}: XLA compiles the model for it again",
        cost_ratio=share,
        advice="drop the remainder (`drop_remainder=True`), or choose a batch size that divides the "
        f"{_unit(evidence).plural}"
        if gain
        else None,
        gain=gain,
    )


def growing_memory(evidence: Evidence) -> Finding | None:
    """Finds that the process or its workers take more memory with every epoch."""
    train = [sample for sample in evidence.result.of("train") if sample.round >= _FIRST_EPOCHS]
    strains = {sample.round: sample.strain for sample in train if sample.strain is not None}
    own = _growth({epoch: strain.memory_bytes for epoch, strain in strains.items()})
    workers = _growth({epoch: strain.workers_bytes for epoch, strain in strains.items()})
    if own is None and workers is None:
        return None
    text = []
    if own is not None:
        blocks = _growth({epoch: strain.python_blocks for epoch, strain in strains.items()}, least=_LEAST_BLOCKS)
        in_python = blocks is not None and blocks[0] * _BLOCK_BYTES >= MOST_RATIO * own[0]
        kind = (
            f"most of it Python's own small objects, {blocks[0]:,.0f} more"
            if in_python and blocks
            else ("not in Python's small objects, but in arrays or in a library's own memory")
        )
        text.append(f"this process by {_growth_text(own)}, {kind}")
    if workers is not None:
        text.append(f"its worker processes by {_growth_text(workers)}")
    return Finding(
        rule="growing memory",
        text=f"Memory grows with every epoch: {'; '.join(text)}. Something keeps what an epoch makes",
        cost_ratio=1.0,  # in the end it ends the run
    )


def _growth(values: Mapping[int, int | None], least: float = 1e6) -> tuple[float, Interval] | None:
    """Returns (by how much values grow in an epoch, its 95 % interval); None unless they surely grow by more.

    Args:
      values: by the number of the epoch; epochs may be missing.
      least: growth in an epoch that is none yet.
    """
    known = {epoch: float(value) for epoch, value in sorted(values.items()) if value is not None}
    if len(known) < _LEAST_GROWING_EPOCHS:
        return None
    by, interval = slope(list(known), list(known.values()))
    return (by, interval) if interval[0] > least and falls([-value for value in known.values()]) < _GROWS_P else None


def _growth_text(growth: tuple[float, Interval]) -> str:
    by, (low, high) = growth
    return f"{by / 1e6:,.1f} MB ({low / 1e6:,.1f} to {high / 1e6:,.1f})"


RULES: tuple[Callable[[Evidence], Finding | None], ...] = (
    bound,
    culprit_stage,
    calls_for_each_element,
    copied_data,
    forked_workers,
    retraced_steps,
    unknown_shape,
    waits_for_each_step,
    ineffective_workers,
    interpreter_lock,
    frozen_augmentation,
    remote_storage,
    oversized_decode,
    costly_epoch_edges,
    interference,
    costly_transfer,
    cores_to_feed,
    throttled,
    recompiled,
    growing_memory,
)


def findings(evidence: Evidence) -> tuple[Finding, ...]:
    """Returns the findings of all rules: first what sets the pace, then the others, the most costly first."""
    first, *others = (finding for rule in RULES if (finding := rule(evidence)) is not None)
    return (first, *sorted(others, key=lambda finding: -finding.cost_ratio))


def _doubt(evidence: Evidence) -> str:
    """Returns a clause about an uncertain bound: the range of loading, its bounds, and what would settle the bound."""
    attribution = evidence.result.attribution
    low, high = attribution.loading_range
    bounds = list(BOUND_NAMES)
    first, last = (bounds.index(bound_of(ratio)) for ratio in (low, high))
    names = " or ".join(BOUND_NAMES[bound] for bound in bounds[first : last + 1])
    between = f"between {max(low, 0):.0%} and {min(max(high, 0), 1):.0%}: {names}"
    return f"{between}; {why_uncertain(evidence)}"


def why_uncertain(evidence: Evidence) -> str:
    """Returns a clause: why it is not known whether loading or compute sets the pace, and what would settle that."""
    attribution = evidence.result.attribution
    low, high = attribution.loading_range
    doubts: list[str] = [doubt for doubt in _doubts(evidence) if doubt is not FlagKind.FEW_ROUNDS]
    if attribution.others_ratio >= OTHERS_MATTER:
        doubts.append(f"other programs took {attribution.others_ratio:.0%} of the cores")
    if doubts:
        return f"{', '.join(doubts)}: measure again while nothing else runs"
    rounds = len(evidence.result.explained)
    nearest = min((BALANCED_FROM, INPUT_FROM), key=lambda ratio: abs(ratio - attribution.loading_ratio))
    distance = abs(attribution.loading_ratio - nearest)
    if distance < _AT_THE_BOUND:
        return f"the loading lies at the bound itself, {nearest:.0%}: either is right"
    if {sample.round for sample in evidence.result.of("resident")}.isdisjoint(
        sample.round for sample in evidence.result.explained
    ):
        return "a longer run would tell"  # of a script, whose model is measured alone after its `fit`
    # The width of an interval shrinks with the square root of the number of rounds.
    needed = max(LEAST_ROUNDS, rounds + 1, round(rounds * ((high - low) / 2 / distance) ** 2))
    return f"measured {rounds} times, about {needed} would tell"


def _doubts(evidence: Evidence) -> list[FlagKind]:
    """Returns the kinds of the result's flags that a verdict names as doubts."""
    kinds = {flag.kind for flag in evidence.result.flags}
    return [kind for kind in _DOUBTS if kind in kinds]


def _loading_is_costly(evidence: Evidence) -> bool:
    return evidence.result.attribution.loading_range[0] >= COSTLY_RATIO


def _gain_of_part(evidence: Evidence, share: float, assumption: str) -> PossibleGain | None:
    """Returns the gain if a share of an epoch that is part of loading were gone: at most the gain without all loading.

    By noise, a part can be larger than all loading, where another part is negative.
    """
    return gain_without(min(share, evidence.result.attribution.loading_ratio), assumption)


def gain_without(share: float, assumption: str) -> PossibleGain | None:
    """Returns the gain if a share of an epoch or a `fit` were gone; None where the share is not between 0 and 1."""
    return PossibleGain(ratio=1 / (1 - share), kind="predicted", assumption=assumption) if 0 < share < 1 else None


def _gain_of_faster_loader(evidence: Evidence, times: float, assumption: str) -> PossibleGain | None:
    """Returns the gain of less waiting if the loader alone were `times` as fast; None if `times` is no more than 1."""
    rate, attribution = evidence.result.loader_images_per_sec, evidence.result.attribution
    if rate is None or times <= 1:
        return None
    stall_s = (attribution.seconds_per_image.fetch_stall or 0.0) + (attribution.seconds_per_image.prep_stall or 0.0)
    saved_s = min(stall_s, (1 - 1 / times) / rate)
    return _gain_of_part(evidence, saved_s / attribution.epoch_s_per_image, assumption)


def _cost(gain: PossibleGain | None) -> float:
    """Returns the share of an epoch that a gain saves; 0 without a gain."""
    return 0.0 if gain is None else max(1 - 1 / gain.ratio, 0.0)


def _effective_parallelism(evidence: Evidence) -> float | None:
    """Returns CPU time over wall time of the loader alone; None where it was not measured."""
    if evidence.stages is not None and evidence.stages.effective_parallelism is not None:
        return evidence.stages.effective_parallelism
    loader = evidence.result.of("loader")
    return median([sample.cpu_ns / sample.epoch_ns for sample in loader]) if loader else None


def _tuner_off(evidence: Evidence) -> str | None:
    """Returns advice to switch tf.data's tuner off, which can delay the end of an iterator; None if it does not run."""
    off = "`options.autotune.enabled = False` and numbers for parallel calls"
    subject = evidence.result.subject
    by_tf_data = subject.config.get("loader") in ("tf_data", "image_dataset_from_directory")
    if (by_tf_data and subject.config.get("autotune")) or subject.facts.kind is DataKind.TF_DATA:
        return f"switch tf.data's tuner off ({off})"
    if subject.facts.kind is DataKind.ARRAYS:
        return f"feed the arrays by a tf.data.Dataset of your own without its tuner ({off})"
    return None


def _has_loader_of_pytorch(evidence: Evidence) -> bool:
    """Whether the batches come from a `DataLoader`, whose workers are processes."""
    return evidence.result.subject.facts.kind is DataKind.DATA_LOADER


def _unit(evidence: Evidence) -> Unit:
    return evidence.result.subject.unit


def _batch(evidence: Evidence) -> int:
    return evidence.result.subject.batch_size


def _epoch_images(evidence: Evidence, *, measured: bool = False) -> int:
    """Returns the images of an epoch in real use, or of the measured epoch."""
    train = evidence.result.explained[0]
    return (None if measured else evidence.result.subject.images) or round(train.epoch_images / train.epochs)


def _epochs(sample: Sample) -> list[Sequence[int]]:
    """Returns the times of each epoch's steps; empty where the steps do not divide evenly into epochs."""
    steps, rest = divmod(len(sample.step_ns), sample.epochs)
    return [] if rest else [sample.step_ns[n * steps : (n + 1) * steps] for n in range(sample.epochs)]


def _time(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 0.1 else f"{seconds * 1e3:.1f} ms"
