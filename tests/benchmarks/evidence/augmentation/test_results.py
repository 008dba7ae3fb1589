"""What follows from the document of an augmentation run: arithmetic, table and page; and its file has all of it."""

from __future__ import annotations

import io
import json
import re

import numpy as np
import pytest
from rich.console import Console

from tests.builders import a_measured_augmentation as a_measured
from tests.builders import an_augmentation_document as a_document
from tests.builders import an_augmentation_sample as a_sample
from tests.builders import an_augmentation_subject as a_subject
from unstall.benchmarks.evidence.augmentation import __main__ as augmentation
from unstall.benchmarks.evidence.augmentation.report import KIND, table
from unstall.benchmarks.evidence.augmentation.results import derive
from unstall.profiles.report import DocumentError, LeftOut, load, write


def test_a_subject_is_summed_up_by_its_medians():
    alone = [a_sample(cpu_ms=cpu_ms, wall_ms=cpu_ms + 1) for cpu_ms in (2, 4, 90)]
    together = [a_sample(cores=2, cpu_ms=cpu_ms) for cpu_ms in (12, 19, 20)]
    (result,) = derive(a_document(a_measured(samples=(*alone, *together)))).rows
    assert result.cpu_us_per_image == 40.0
    assert result.wall_us_per_image == 50.0
    assert result.effective_parallelism == 1.9
    assert result.spread_ratio == pytest.approx(np.std(np.log([2, 4, 90]), ddof=1))


def test_on_one_core_there_is_no_parallelism_to_show():
    (result,) = derive(a_document(a_measured(samples=(a_sample(),)))).rows
    assert result.effective_parallelism is None


def failed(reason, *labels):
    return tuple(LeftOut(who=label, reason=reason) for label in labels)


def test_a_subject_that_failed_has_no_times_but_a_reason():
    document = a_document(a_measured(), left_out=failed("ValueError: no such thing", "shear, opencv, batch"))
    results = derive(document)
    (result,) = results.rows
    assert (result.cpu_us_per_image, result.spread_ratio, result.effective_parallelism) == (None, None, None)
    assert results.cautions == ("shear, opencv, batch failed: ValueError: no such thing.",)
    assert KIND.rows(results) == []


def test_a_subject_that_does_something_else_is_named():
    document = a_document(a_measured(difference_levels=5.9), a_measured(difference_levels=6.0))
    results = derive(document)
    assert results.cautions == ("shear, opencv, batch does not do the same: 6.0 off.",)
    assert [augmentation.COMMAND.exit_code(document, results), len(results.too_different)] == [1, 1]


def test_a_machine_that_others_use_is_named():
    quiet = a_measured(samples=(a_sample(others_ms=0.5),))
    busy = a_measured(samples=(a_sample(others_ms=9.0),))
    assert derive(a_document(quiet)).cautions == ()
    assert "Other processes took 0.9 of 2 cores" in derive(a_document(busy)).cautions[0]


def test_of_each_library_the_picture_that_is_furthest_off_is_shown():
    measured = [
        a_measured(a_subject("flip", "tf_ops", "element"), difference_levels=1.0),
        a_measured(a_subject("flip", "tf_ops", "batch"), difference_levels=2.0),
        a_measured(a_subject("flip", "opencv", "element"), difference_levels=0.0),
        a_measured(a_subject("flip", "opencv", "batch"), difference_levels=0.0),
        a_measured(a_subject("zoom", "opencv", "batch"), difference_levels=None, picture=None),
    ]
    pictures = derive(a_document(*measured)).pictures
    assert pictures == {"flip": (measured[1], measured[2])}


def test_the_table_fits_eighty_columns():
    slow = [a_sample(round_=number, cpu_ms=cpu_ms) for number, cpu_ms in enumerate((1234.5, 1790.0, 2345.6))]
    slow.append(a_sample(cores=2, wall_ms=1, cpu_ms=31.9))
    generator = a_subject("brightness", "keras_generator", "element")
    document = a_document(
        a_measured(generator, samples=tuple(slow), peak_memory_bytes=12_345_678_901),
        a_measured(a_subject("brightness", "keras_layers", "model"), graph_loop=True, difference_levels=255.0),
        a_measured(a_subject("contrast", "tf_ops", "batch"), graph_loop=False),
        left_out=failed("ValueError: no", "contrast, tf_ops, batch"),
    )
    console = Console(width=80, file=io.StringIO())
    console.print(table(derive(document).rows))
    assert console.file.getvalue().splitlines() == [
        "operation  library         placement     us   ± cores loop      MB   off",
        "brightness keras_generator element   17,900 32%  31.9    - 12345.7   0.2",
        "           keras_layers    model        100   -   1.8  yes    12.3 255.0",
        "contrast   tf_ops          batch     failed   -     -   no    12.3   0.2",
    ]


def printed(document):
    console = Console(width=80, file=io.StringIO())
    KIND.print(console, document, derive(document))
    return console.file.getvalue()


def page_of(document):
    return KIND.page(document, derive(document))


def test_the_page_escapes_what_it_is_given_and_needs_no_network():
    evil = "<script>alert(1)</script>"
    document = a_document(
        a_measured(),
        a_measured(a_subject("flip"), picture=None),
        left_out=failed(evil, "flip, opencv, batch"),
        dataset={"name": evil, "kind": "folder", "fingerprint": "abc"},
    )
    page = page_of(document)
    assert evil not in page
    assert page.count("&lt;script&gt;") == 3  # the data's name; the reason, as a caution and in its row
    assert "Content-Security-Policy" in page and "default-src 'none'" in page
    assert page.count('src="data:image/png;base64,') == page.count(" src=") == 3  # two originals, one result


def test_a_run_that_was_stopped_says_so_and_shows_what_it_has():
    document = a_document(a_measured(), a_measured(a_subject("flip"), samples=()), complete=False)
    caution = "This run was stopped before its end: the numbers are of what was measured until then."
    assert caution in " ".join(printed(document).split())
    assert caution in page_of(document)
    assert page_of(document).count('class="bar"') == 1


def test_the_legend_explains_the_operation_that_does_nothing_only_where_it_is():
    assert "none:" not in printed(a_document(a_measured()))
    assert "none:" in printed(a_document(a_measured(a_subject("none"))))


def test_all_that_follows_from_a_document_follows_from_its_file(tmp_path):
    document = a_document(
        a_measured(),
        a_measured(a_subject("flip", "tf_ops", "element"), graph_loop=True, difference_levels=7.5),
        a_measured(a_subject("flip", "tf_ops", "batch"), picture=None, difference_levels=None, samples=()),
        left_out=failed("it cannot", "flip, tf_ops, batch"),
    )
    write(tmp_path, document, KIND, derive(document))
    again, kind = load(tmp_path, {"augmentation": KIND})
    assert again == document
    assert kind.page(again, kind.derive(again)) == (tmp_path / "report.html").read_text()
    assert printed(again) == printed(document)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"library": "[/nothing]"}, "`operation` and `library` must be keys of `OPERATIONS` and `LIBRARIES`."),
        ({"placement": "nowhere"}, "`placement` of opencv must be one of element, batch."),
    ],
)
def test_a_file_that_names_a_subject_that_there_is_not_is_refused(changes, message, tmp_path):
    document = a_document(a_measured())
    write(tmp_path, document, KIND, derive(document))
    content = json.loads((tmp_path / "results.json").read_text())
    content["samples"]["subjects"][0]["subject"] |= changes
    (tmp_path / "results.json").write_text(json.dumps(content))
    with pytest.raises(DocumentError, match=re.escape(message)):
        load(tmp_path, {"augmentation": KIND})
