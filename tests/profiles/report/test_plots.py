"""Graphs of the machine: numbers in, coordinates out."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from profiles.machine.telemetry import Mark, Trace
from profiles.report.plots import FRAME, Graph, Graphs, graphs_of, round_step

WIDTH, HEIGHT = FRAME.right - FRAME.left, FRAME.bottom - FRAME.top


def a_trace(**changes: Any) -> Trace:
    """Four rows of one second, two cores."""
    values: dict[str, Any] = {
        "seconds": (1.0, 2.0, 3.0, 4.0),
        "cores": (0, 3),
        "cpu_ratio": ((0.0, 0.25, 0.5, 1.0), (1.0, 1.0, 1.0, 1.0)),
        "memory_bytes": (10**9, 2 * 10**9, 3 * 10**9, 4 * 10**9),
        "disk_read_bytes_per_sec": (0, None, 3_000_000, 5_000_000),
        "gpu_ratio": (),
        "gpu_memory_bytes": (),
        "marks": (
            Mark(seconds=0.0, text="warm-up", phase=True),
            Mark(seconds=1.5, text="train: a"),
            Mark(seconds=2.0, text="round 1", phase=True),
        ),
    }
    return Trace(**(values | changes))


def drawn(trace: Trace) -> Graphs:
    graphs = graphs_of(trace)
    assert graphs is not None
    return graphs


def graph(trace: Trace, title: str) -> Graph:
    return next(one for one in drawn(trace).graphs if one.title == title)


def points(polyline: str) -> list[tuple[float, float]]:
    """Back to parts of the axes: time from the left, value from the bottom."""
    pairs = [tuple(map(float, pair.split(","))) for pair in polyline.split()]
    return [((x - FRAME.left) / WIDTH, (FRAME.bottom - y) / HEIGHT) for x, y in pairs]


def close(seen: list[tuple[float, float]], expected: list[tuple[float, float]]) -> bool:
    return len(seen) == len(expected) and all(
        one == pytest.approx(other, abs=1e-3) for one, other in zip(seen, expected, strict=True)
    )


def test_a_value_stands_in_the_middle_of_its_stretch_at_its_height() -> None:
    first, second = graph(a_trace(), "CPU use").lines
    assert (first.label, second.label) == ("core 0", "core 3")
    assert close(points(first.polylines[0]), [(0.125, 0.0), (0.375, 0.25), (0.625, 0.5), (0.875, 1.0)])
    assert close(points(second.polylines[0]), [(0.125, 1.0), (0.375, 1.0), (0.625, 1.0), (0.875, 1.0)])


def test_bytes_are_drawn_to_an_axis_of_round_numbers() -> None:
    memory = graph(a_trace(), "Memory of the run's processes")
    assert [level.text for level in memory.levels] == ["0 GB", "1 GB", "2 GB", "3 GB", "4 GB"]
    assert memory.levels[0].at == FRAME.bottom and memory.levels[-1].at == FRAME.top
    assert close(points(memory.lines[0].polylines[0]), [(0.125, 0.25), (0.375, 0.5), (0.625, 0.75), (0.875, 1.0)])


def test_a_missing_value_parts_the_line() -> None:
    disks = graph(a_trace(), "Disk reads of the machine")
    assert [level.text for level in disks.levels] == ["0 MB/s", "2 MB/s", "4 MB/s", "6 MB/s"]
    first, second = disks.lines[0].polylines
    assert close(points(first), [(0.125, 0.0)])
    assert close(points(second), [(0.625, 0.5), (0.875, 5 / 6)])


@pytest.mark.parametrize(
    ("most", "levels"),
    [
        (0, ["0 MB", "1 MB"]),
        (1_000, ["0 kB", "0.25 kB", "0.5 kB", "0.75 kB", "1 kB"]),
        (7_000_000, ["0 MB", "2 MB", "4 MB", "6 MB", "8 MB"]),
        (10_000_000, ["0 MB", "2.5 MB", "5 MB", "7.5 MB", "10 MB"]),
        (139 * 10**9, ["0 GB", "50 GB", "100 GB", "150 GB"]),
    ],
)
def test_an_axis_ends_at_or_above_the_highest_value(most: int, levels: list[str]) -> None:
    memory = graph(a_trace(memory_bytes=(0, most, 0, None)), "Memory of the run's processes")
    assert [level.text for level in memory.levels] == levels


@pytest.mark.parametrize(
    ("least", "step"),
    [(0, 1), (0.03, 0.05), (0.2, 0.2), (0.21, 0.25), (1, 1), (1.01, 2), (2.4, 2.5), (2.6, 5), (5.1, 10), (900, 1000)],
)
def test_steps_of_an_axis_are_round(least: float, step: float) -> None:
    assert round_step(least) == pytest.approx(step)


def test_what_was_never_told_has_no_graph() -> None:
    trace = a_trace(disk_read_bytes_per_sec=(None,) * 4, gpu_ratio=((None,) * 4,), gpu_memory_bytes=((1, 2, 3, 4),))
    assert [one.title for one in drawn(trace).graphs] == ["CPU use", "Memory of the run's processes", "GPU memory"]


def test_every_gpu_has_a_line() -> None:
    trace = a_trace(gpu_ratio=((0.0,) * 4, (0.5,) * 4), gpu_memory_bytes=((1,) * 4, (2,) * 4))
    assert [line.label for line in graph(trace, "GPU use").lines] == ["GPU 0", "GPU 1"]
    assert close(points(graph(trace, "GPU use").lines[1].polylines[0])[:1], [(0.125, 0.5)])


def test_temperature_and_power_are_drawn_on_scales_of_their_own() -> None:
    trace = a_trace(gpu_celsius=((40.0, 80.0, None, 60.0),), gpu_watts=((90.0, 300.0, 250.0, 100.0),))
    heat = graph(trace, "GPU temperature")
    assert [level.text for level in heat.levels] == ["0 °C", "20 °C", "40 °C", "60 °C", "80 °C"]
    assert [len(polyline.split()) for polyline in heat.lines[0].polylines] == [2, 1]
    assert [level.text for level in graph(trace, "GPU power").levels] == ["0 W", "100 W", "200 W", "300 W"]


def many_cores(count: int) -> Trace:
    ratios = tuple((core / 100,) * 4 for core in range(count))
    return a_trace(cores=tuple(range(count)), cpu_ratio=ratios)


def test_eight_cores_are_told_apart_by_colour_and_dashes() -> None:
    lines = graph(many_cores(8), "CPU use").lines
    assert len({line.colour for line in lines}) == 8
    assert [line.dashed for line in lines] == [False] * 4 + [True] * 4
    # Their labels stand in order, beside each other, within the frame.
    xs = [line.label_x for line in lines]
    assert xs == sorted(xs) and min(b - a for a, b in itertools.pairwise(xs)) > 60
    assert FRAME.left + 100 < xs[0] and xs[-1] < FRAME.right


def test_more_than_eight_cores_are_a_mean_and_the_highest() -> None:
    mean, highest = graph(many_cores(9), "CPU use").lines
    assert (mean.label, highest.label) == ("mean of 9", "highest of them")
    assert points(mean.polylines[0])[0][1] == pytest.approx(0.04, abs=1e-3)
    assert points(highest.polylines[0])[0][1] == pytest.approx(0.08, abs=1e-3)


def test_of_many_gpus_the_silent_ones_are_left_out_of_the_mean() -> None:
    trace = a_trace(gpu_ratio=((None,) * 4, *[(0.5, 0.5, None, 0.5)] * 9))
    mean, highest = graph(trace, "GPU use").lines
    for line in (mean, highest):
        assert [len(polyline.split()) for polyline in line.polylines] == [2, 1]
        assert points(line.polylines[0])[0][1] == pytest.approx(0.5, abs=1e-3)


def test_a_long_run_is_averaged_to_what_can_be_seen() -> None:
    count = 5000
    trace = a_trace(
        seconds=tuple(float(second) for second in range(1, count + 1)),
        cores=(0,),
        cpu_ratio=((0.0, 1.0) * (count // 2),),
        memory_bytes=(1,) * count,
        disk_read_bytes_per_sec=(None,) * count,
    )
    (polyline,) = graph(trace, "CPU use").lines[0].polylines
    seen = points(polyline)
    assert len(seen) == 500  # ten rows each
    assert all(height == pytest.approx(0.5) for _, height in seen)
    assert seen[0][0] == pytest.approx(5 / count, abs=1e-3)


@pytest.mark.parametrize(
    ("end_s", "texts"),
    [
        (2.5, ["0 s", "1 s", "2 s"]),
        (15.0, [f"{second} s" for second in range(16)]),
        (16.0, [f"{second} s" for second in range(0, 17, 2)]),
        (7200.0, [f"{second:,} s" for second in range(0, 7201, 600)]),
    ],
)
def test_the_axis_of_time_has_round_seconds(end_s: float, texts: list[str]) -> None:
    trace = a_trace(seconds=(0.5, 1.0, 1.5, end_s), marks=())
    ticks = drawn(trace).times
    assert [tick.text for tick in ticks] == texts
    assert ticks[0].at == FRAME.left
    assert ticks[1].at - FRAME.left == pytest.approx(WIDTH / end_s * float(texts[1].split()[0]), abs=0.1)


def test_a_phase_is_a_band_to_the_next_one_and_windows_are_none() -> None:
    first, second = drawn(a_trace()).bands
    assert (first.text, second.text) == ("warm-up", "round 1")
    assert (first.left, first.right) == (FRAME.left, FRAME.left + WIDTH / 2)
    assert (second.left, second.right) == (FRAME.left + WIDTH / 2, FRAME.right)


def test_where_one_name_does_not_fit_all_are_short_and_where_that_does_not_fit_none_stands() -> None:
    starts = (0.0, 2.0, 2.1, 2.101)
    marks = tuple(Mark(seconds=at, text=f"round {number}", phase=True) for number, at in enumerate(starts, 1))
    bands = drawn(a_trace(marks=marks)).bands
    assert [band.text for band in bands] == ["1", "2", "", "4"]
    assert [band.title for band in bands] == ["round 1", "round 2", "round 3", "round 4"]


def test_a_mark_after_the_last_reading_still_fits() -> None:
    marks = (Mark(seconds=8.0, text="round 1", phase=True),)
    graphs = drawn(a_trace(marks=marks))
    assert graphs.bands[0].right == FRAME.right
    assert graphs.times[-1].text == "8 s"


@pytest.mark.parametrize("rows", [0, 1])
def test_a_run_too_short_for_a_line_has_no_graphs(rows: int) -> None:
    trace = a_trace(
        seconds=(1.0,) * rows,
        cpu_ratio=((0.5,) * rows,) * 2,
        memory_bytes=(1,) * rows,
        disk_read_bytes_per_sec=(1,) * rows,
    )
    assert graphs_of(trace) is None
