"""Charts of the machine: which quantities they have, over which axes, and what stands for long and many columns."""

from __future__ import annotations

import re
from typing import Any

import pytest
from markupsafe import Markup

from tests.checks import Page
from unstall.profiles.machine.telemetry import Mark, Trace
from unstall.profiles.report.plots import machine_charts


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


def titles(trace: Trace) -> list[str]:
    return [re.findall(r"<figcaption>(.*?)</figcaption>", chart)[0] for chart in machine_charts(trace)]


def chart(trace: Trace, title: str) -> Markup:
    return machine_charts(trace)[titles(trace).index(title)]


def texts(drawn: Markup, kind: str) -> list[str]:
    return re.findall(rf'<text class="{kind}".*?>(.*?)</text>', drawn)


def levels(drawn: Markup) -> list[str]:
    return texts(drawn, "level")


def legend(drawn: Markup) -> list[str]:
    return re.findall(r"</svg>([^<]+)</span>", drawn)


def positions(drawn: Markup) -> list[list[tuple[float, float]]]:
    """Each polyline's points as parts of the axes: time from the left, value from the bottom."""
    lines = [attributes for tag, attributes in Page(drawn).tags if tag == "line" and attributes["class"] == "grid"]
    left, right = (float(lines[0][side] or 0) for side in ("x1", "x2"))
    bottom, top = (float(lines[end]["y1"] or 0) for end in (0, -1))
    polylines = [attributes["points"] or "" for tag, attributes in Page(drawn).tags if tag == "polyline"]
    pairs = [[tuple(map(float, pair.split(","))) for pair in polyline.split()] for polyline in polylines]
    return [[((x - left) / (right - left), (bottom - y) / (bottom - top)) for x, y in pieces] for pieces in pairs]


def close(seen: list[tuple[float, float]], expected: list[tuple[float, float]]) -> bool:
    return len(seen) == len(expected) and all(
        position == pytest.approx(other, abs=1e-3) for position, other in zip(seen, expected, strict=True)
    )


def test_a_value_stands_in_the_middle_of_its_stretch_at_its_height() -> None:
    drawn = chart(a_trace(), "CPU use")
    first, second = positions(drawn)
    assert legend(drawn) == ["core 0", "core 3"]
    assert levels(drawn) == ["0 %", "25 %", "50 %", "75 %", "100 %"]
    assert close(first, [(0.125, 0.0), (0.375, 0.25), (0.625, 0.5), (0.875, 1.0)])
    assert close(second, [(0.125, 1.0), (0.375, 1.0), (0.625, 1.0), (0.875, 1.0)])


def test_bytes_are_drawn_to_an_axis_of_round_numbers() -> None:
    drawn = machine_charts(a_trace())[1]
    assert levels(drawn) == ["0 GB", "1 GB", "2 GB", "3 GB", "4 GB"]
    assert close(positions(drawn)[0], [(0.125, 0.25), (0.375, 0.5), (0.625, 0.75), (0.875, 1.0)])
    assert legend(drawn) == []  # a line alone needs none


def test_a_missing_value_parts_the_line() -> None:
    drawn = chart(a_trace(), "Disk reads of the machine")
    assert levels(drawn) == ["0 MB/s", "2 MB/s", "4 MB/s", "6 MB/s"]
    first, second = positions(drawn)
    assert close(first, [(0.125, 0.0)])
    assert close(second, [(0.625, 0.5), (0.875, 5 / 6)])


@pytest.mark.parametrize(
    ("most", "expected"),
    [
        (0, ["0 MB", "1 MB"]),
        (1_000, ["0 kB", "0.25 kB", "0.5 kB", "0.75 kB", "1 kB"]),
        (7_000_000, ["0 MB", "2 MB", "4 MB", "6 MB", "8 MB"]),
        (10_000_000, ["0 MB", "2.5 MB", "5 MB", "7.5 MB", "10 MB"]),
        (139 * 10**9, ["0 GB", "50 GB", "100 GB", "150 GB"]),
    ],
)
def test_an_axis_ends_at_or_above_the_highest_value(most: int, expected: list[str]) -> None:
    assert levels(machine_charts(a_trace(memory_bytes=(0, most, 0, None)))[1]) == expected


def test_what_was_never_told_has_no_chart() -> None:
    trace = a_trace(disk_read_bytes_per_sec=(None,) * 4, gpu_ratio=((None,) * 4,), gpu_memory_bytes=((1, 2, 3, 4),))
    assert titles(trace) == ["CPU use", "Memory of the run&#39;s processes", "GPU memory"]


def test_every_gpu_has_a_line() -> None:
    drawn = chart(a_trace(gpu_ratio=((0.0,) * 4, (0.5,) * 4), gpu_memory_bytes=((1,) * 4, (2,) * 4)), "GPU use")
    assert legend(drawn) == ["GPU 0", "GPU 1"]
    assert close(positions(drawn)[1][:1], [(0.125, 0.5)])


def test_temperature_and_power_are_drawn_on_scales_of_their_own() -> None:
    trace = a_trace(gpu_celsius=((40.0, 80.0, None, 60.0),), gpu_watts=((90.0, 300.0, 250.0, 100.0),))
    drawn = chart(trace, "GPU temperature")
    assert levels(drawn) == ["0 °C", "20 °C", "40 °C", "60 °C", "80 °C"]
    assert [len(polyline) for polyline in positions(drawn)] == [2, 1]
    assert levels(chart(trace, "GPU power")) == ["0 W", "100 W", "200 W", "300 W"]


def many_cores(count: int) -> Trace:
    ratios = tuple((core / 100,) * 4 for core in range(count))
    return a_trace(cores=tuple(range(count)), cpu_ratio=ratios)


def test_eight_cores_have_a_look_each() -> None:
    drawn = chart(many_cores(8), "CPU use")
    looks = [attributes["class"] for tag, attributes in Page(drawn).tags if tag == "polyline"]
    assert len(set(looks)) == 8


def test_more_than_eight_cores_are_a_mean_and_the_highest() -> None:
    drawn = chart(many_cores(9), "CPU use")
    mean, highest = positions(drawn)
    assert legend(drawn) == ["mean of 9", "highest of them"]
    assert mean[0][1] == pytest.approx(0.04, abs=1e-3)
    assert highest[0][1] == pytest.approx(0.08, abs=1e-3)


def test_of_many_gpus_the_silent_ones_are_left_out_of_the_mean() -> None:
    drawn = chart(a_trace(gpu_ratio=((None,) * 4, *[(0.5, 0.5, None, 0.5)] * 9)), "GPU use")
    seen = positions(drawn)
    assert [len(polyline) for polyline in seen] == [2, 1, 2, 1]
    assert [polyline[0][1] for polyline in seen] == pytest.approx([0.5] * 4, abs=1e-3)


def test_a_long_run_is_averaged_to_what_can_be_seen() -> None:
    count = 5000
    trace = a_trace(
        seconds=tuple(float(second) for second in range(1, count + 1)),
        cores=(0,),
        cpu_ratio=((0.0, 1.0) * (count // 2),),
        memory_bytes=(1,) * count,
        disk_read_bytes_per_sec=(None,) * count,
    )
    (seen,) = positions(chart(trace, "CPU use"))
    assert len(seen) == 500  # ten rows each
    assert all(height == pytest.approx(0.5) for _, height in seen)
    assert seen[0][0] == pytest.approx(5 / count, abs=1e-3)


@pytest.mark.parametrize(
    ("end_s", "expected"),
    [
        (2.5, ["0 s", "1 s", "2 s"]),
        (15.0, [f"{second} s" for second in range(16)]),
        (16.0, [f"{second} s" for second in range(0, 17, 2)]),
        (7200.0, [f"{second:,} s" for second in range(0, 7201, 600)]),
    ],
)
def test_the_axis_of_time_has_round_seconds(end_s: float, expected: list[str]) -> None:
    trace = a_trace(seconds=(0.5, 1.0, 1.5, end_s), marks=())
    assert texts(chart(trace, "CPU use"), "value") == expected


def test_a_phase_is_a_band_to_the_next_one_and_windows_are_none() -> None:
    drawn = chart(a_trace(), "CPU use")
    first, second = (attributes for tag, attributes in Page(drawn).tags if tag == "rect")
    left, middle = float(first["x"] or 0), float(second["x"] or 0)
    assert texts(drawn, "value")[:2] == ["warm-up", "round 1"]
    assert middle - left == float(first["width"] or 0) == float(second["width"] or 0)


def test_a_mark_after_the_last_reading_still_fits() -> None:
    drawn = chart(a_trace(marks=(Mark(seconds=8.0, text="round 1", phase=True),)), "CPU use")
    assert texts(drawn, "value")[-1] == "8 s"


@pytest.mark.parametrize("rows", [0, 1])
def test_a_run_too_short_for_a_line_has_no_charts(rows: int) -> None:
    trace = a_trace(
        seconds=(1.0,) * rows,
        cpu_ratio=((0.5,) * rows,) * 2,
        memory_bytes=(1,) * rows,
        disk_read_bytes_per_sec=(1,) * rows,
    )
    assert machine_charts(trace) == ()
