"""Edits of a user's source text: the text as it reads afterwards, and what is too involved."""

from __future__ import annotations

import ast
import subprocess
import textwrap
from dataclasses import replace

import pytest

from tests.checks import pasted, snippets_in
from unstall import forks
from unstall.profiles.remedies.edits import (
    TooInvolved,
    diff,
    edited,
    gives_elements_only,
    name_from_here,
    reads_as,
    source_of,
)
from unstall.profiles.remedies.remedy import Edit
from unstall.profiles.stages.places import Place

SOURCE = """\
import tensorflow as tf


def make():
    ds = tf.data.Dataset.range(10)
    ds = ds.map(load)  # größer
    ds = ds.shuffle(100)
    return (ds.batch(8)
              .map(norm,))


model.fit(make(), epochs=3)
"""


def place_of(name, source=SOURCE):
    """The place of the call of a method or function of this name."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and (getattr(node.func, "attr", "") or getattr(node.func, "id", "")) == name:
            return Place(file="train.py", line=node.lineno, end_line=node.end_lineno, end_column=node.end_col_offset)
    raise AssertionError(name)


def edit(name, kind, text="", source=SOURCE):
    return Edit(place=place_of(name, source), kind=kind, text=text)


def changed_lines(*edits, source=SOURCE):
    before, after = source.splitlines(), edited(source, edits).splitlines()
    return [line for line in after if line not in before]


@pytest.mark.parametrize(
    ("edits", "expected"),
    [
        ([("shuffle", "argument", "seed=1")], ["    ds = ds.shuffle(100, seed=1)"]),
        ([("range", "argument", "output_type=tf.int32")], ["    ds = tf.data.Dataset.range(10, output_type=tf.int32)"]),
        ([("make", "argument", "n=2")], ["model.fit(make(n=2), epochs=3)"]),
        ([("fit", "argument", "epochs=5")], ["model.fit(make(), epochs=5)"]),
        ([("shuffle", "behind", ".prefetch(2)")], ["    ds = ds.shuffle(100).prefetch(2)"]),
        (
            [("shuffle", "behind", ".prefetch(2)"), ("shuffle", "behind", ".cache()")],
            ["    ds = ds.shuffle(100).cache().prefetch(2)"],
        ),
        ([("fit", "before", "data.workers = 2")], ["data.workers = 2"]),
        (
            [("shuffle", "option", "autotune.enabled = False"), ("shuffle", "option", "deterministic = False")],
            [
                "    options = tf.data.Options()",
                "    options.autotune.enabled = False",
                "    options.deterministic = False",
                "    ds = ds.shuffle(100).with_options(options)",
            ],
        ),
        ([("batch", "remove", "")], ["    return (ds", "              .map(norm,))"][:1]),
    ],
)
def test_the_text_reads_as_it_should(edits, expected):
    assert changed_lines(*(edit(*one) for one in edits)) == expected


@pytest.mark.parametrize(
    ("call", "argument", "expected"),
    [
        (
            "DataLoader(data,\n    8,  # per GPU\n)",
            "num_workers=4",
            "DataLoader(data,\n    8, num_workers=4,  # per GPU\n)",
        ),
        (
            "DataLoader(data,\n    size=8  # per GPU\n)",
            "num_workers=4",
            "DataLoader(data,\n    size=8, num_workers=4  # per GPU\n)",
        ),
        ("DataLoader(  # nothing\n)", "num_workers=4", "DataLoader(num_workers=4  # nothing\n)"),
        ("DataLoader((data))", "num_workers=4", "DataLoader((data), num_workers=4)"),
        ("DataLoader(data, 32, True, None, None, 0)", "num_workers=4", "DataLoader(data, 32, True, None, None, 4)"),
        ("ds.map(parse, tf.data.AUTOTUNE)", "num_parallel_calls=2", "ds.map(parse, 2)"),
        ("ds.batch(8, True)", "num_parallel_calls=2", "ds.batch(8, True, num_parallel_calls=2)"),
        ("ds.interleave(read, 4, 1, 3)", "num_parallel_calls=2", "ds.interleave(read, 4, 1, 2)"),
    ],
)
def test_an_argument_stands_behind_the_last_or_in_its_place(call, argument, expected):
    source = f"loader = {call}\n"
    name = call.partition("(")[0].rpartition(".")[2]
    assert edited(source, [edit(name, "argument", argument, source)]) == f"loader = {expected}\n"


@pytest.mark.parametrize("call", ["DataLoader(*given)", "DataLoader(one for one in data)"])
def test_arguments_of_which_the_places_are_not_known_are_too_involved(call):
    source = f"loader = {call}\n"
    with pytest.raises(TooInvolved):
        edited(source, [edit("DataLoader", "argument", "num_workers=4", source)])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("train = load('photos')\nmodel.fit(train)\n", True),
        ("model.fit(load('photos'))\n", True),
        ("train = load('photos')\nnames = train.class_names\n", False),
        ("train, test = load('photos', subset='both')\n", False),
    ],
)
def test_what_a_library_gives_may_have_more_than_elements(text, expected, tmp_path):
    path = tmp_path / "train.py"
    path.write_text(text)
    place = place_of("load", text)
    place = Place(file=str(path), line=place.line, end_line=place.end_line, end_column=place.end_column)
    assert gives_elements_only(place) is expected


def test_a_call_over_several_lines_and_letters_of_several_bytes_are_found():
    source = SOURCE.replace("load)  #", 'load, name="ü")  #')
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    maps = [node for node in calls if getattr(node.func, "attr", "") == "map"]
    edits = [
        Edit(
            place=Place(file="t", line=1, end_line=node.end_lineno, end_column=node.end_col_offset),
            kind="argument",
            text="num_parallel_calls=2",
        )
        for node in maps
    ]
    lines = edited(source, edits).splitlines()
    assert '    ds = ds.map(load, name="ü", num_parallel_calls=2)  # größer' in lines
    assert "              .map(norm, num_parallel_calls=2,))" in lines


def test_a_statement_that_only_removes_goes_with_its_line():
    assert edited(SOURCE, [edit("shuffle", "remove")]) == SOURCE.replace("    ds = ds.shuffle(100)\n", "")
    source = "ds = ds.map(load); ds = ds.shuffle(5); steps = len(ds)\n"
    assert edited(source, [edit("shuffle", "remove", source=source)]) == source.replace("ds.shuffle(5)", "ds")


def test_equal_edits_count_once_and_options_get_a_free_name():
    source = SOURCE.replace("model.fit", "options = 3\nmodel.fit")
    one = edit("shuffle", "option", "deterministic = False", source)
    new = edited(source, [one, one])
    assert new.count("deterministic") == 1 and "tuned_options = tf.data.Options()" in new


@pytest.mark.parametrize(
    ("call", "text", "expected"),
    [
        ("model.fit(data, epochs=3)", "{data}.repeat()", "model.fit(data.repeat(), epochs=3)"),
        ("model.fit(x=a if b else c)", "{data}.repeat()", "model.fit(x=(a if b else c).repeat())"),
        (
            "model.fit(X[:9], Y, epochs=3, batch_size=8, sample_weight=w)",
            "slices({data}).batch(8)",
            "model.fit(slices((X[:9], Y, w)).batch(8), epochs=3)",
        ),
        (
            "model.fit(shuffle=True, y=Y,\n          x={'a': X},\n          epochs=3)",
            "slices({data})",
            "model.fit(x=slices(({'a': X}, Y)),\n          epochs=3)",
        ),
        (
            "model.fit(batch_size=8, y=Y, verbose=0, x=X, shuffle=True)",
            "a({data})",
            "model.fit(verbose=0, x=a((X, Y)))",
        ),
        (
            "model.fit(X, Y, batch_size=options.size * 2, shuffle=False)",
            "slices({data}).batch({batch_size})",
            "model.fit(slices((X, Y)).batch(options.size * 2))",
        ),
        (
            "model.fit(X, batch_size=512, validation_data=V)",
            "a({data})",
            "model.fit(a(X), batch_size=512, validation_data=V)",
        ),
    ],
)
def test_fit_is_fed_with_other_data(call, text, expected):
    source = f"import keras\n{call}\n"
    assert edited(source, [edit("fit", "feed", text, source)]) == f"import keras\n{expected}\n"


def test_steps_and_a_pipeline_inside_the_call_are_edited_together():
    source = "model.fit(data.map(f).batch(2), epochs=3)\n"
    edits = [
        edit("fit", "feed", "{data}.repeat()", source),
        edit("fit", "argument", "steps_per_epoch=5", source),
        edit("map", "argument", "num_parallel_calls=2", source),
        edit("batch", "behind", ".prefetch(2)", source),
    ]
    expected = "data.map(f, num_parallel_calls=2).batch(2).prefetch(2).repeat()"
    assert edited(source, edits) == f"model.fit({expected}, epochs=3, steps_per_epoch=5)\n"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            "a = data.map(f).batch(8).prefetch(1)\n",
            "a = data.batch(8).map(f, num_parallel_calls=2).cache().prefetch(1)\n",
        ),
        (
            "a = data.map(\n    f,\n)  # one\na = a.batch(8)  # two\n",
            "a = data.batch(8)  # one\na = a.map(\n    f, num_parallel_calls=2,\n).cache()  # two\n",
        ),
    ],
)
def test_a_map_and_its_batch_change_places_with_the_edits_of_both(source, expected):
    swap = Edit(place=place_of("map", source), kind="swap", other=place_of("batch", source))
    others = [edit("map", "argument", "num_parallel_calls=2", source), edit("batch", "behind", ".cache()", source)]
    assert edited(source, [swap, *others]) == expected


def test_lines_before_one_statement_keep_their_order():
    source = "import keras\nmodel.fit(X, y=None, epochs=2)\n"
    edits = [edit("fit", "before", line, source) for line in ("a = 1", "b = a")]
    text = edited(source, [*edits, edit("fit", "feed", "slices({data})", source)])
    assert text == "import keras\na = 1\nb = a\nmodel.fit(slices(X), epochs=2)\n"


@pytest.mark.parametrize(
    "source",
    [
        "a = data.map(f)\ntrain = a.batch(8)\nvalid = a.batch(9)\n",
        "a = data.map(f)\nprint(next(iter(a)))\na = a.batch(8)\n",
        "a = data.map(f)\nif batches:\n    a = a.batch(8)\n",
    ],
)
def test_a_map_that_is_read_twice_is_not_moved(source):
    swap = Edit(place=place_of("map", source), kind="swap", other=place_of("batch", source))
    with pytest.raises(TooInvolved, match="may be read elsewhere"):
        edited(source, [swap])


def test_calls_in_different_files_do_not_change_places():
    elsewhere = replace(place_of("shuffle"), file="data.py")
    swap = Edit(place=place_of("batch"), kind="swap", other=elsewhere)
    with pytest.raises(TooInvolved, match=r"train\.py:\d+ and data\.py:\d+ are in different files"):
        edited(SOURCE, [swap])


def test_tensorflow_is_imported_where_an_edit_needs_it():
    source = '"""A script."""\nimport os\nimport keras\n\nmodel.fit(X, Y)\n'
    text = edited(source, [edit("fit", "feed", "tf.data.Dataset.from_tensor_slices({data})", source)])
    assert "import keras\nimport tensorflow as tf\n\nmodel.fit(tf.data.Dataset.from_tensor_slices((X, Y)))" in text
    assert edited(text, [edit("fit", "before", "a = tf.data.Options()", text)]).count("import tensorflow") == 1


def test_what_an_edit_names_is_imported_once_where_a_script_imports():
    source = "import os.path\nimport keras\n\nmodel.fit(photos)\n"
    text = edited(source, [edit("fit", "before", forks.LINE, source)])
    assert text.startswith("import os.path\nimport keras\nimport gc\n\nos.register_at_fork(")
    assert edited(text, [edit("fit", "before", forks.LINE, text)]).count("import ") == 3


def test_what_a_function_imports_is_not_there_for_the_rest_of_the_script():
    source = "import keras\ndef load():\n    import gc, os\nmodel.fit(photos)\n"
    text = edited(source, [edit("fit", "before", forks.LINE, source)])
    assert text.startswith("import keras\nimport gc\nimport os\ndef load")


def test_what_a_call_unpacks_may_hold_the_argument_already():
    source = "given = {'num_workers': 1}\ndata = DataLoader(rows, **given)\n"
    texts = ("num_workers=2", "dataset=kept({dataset})", "sampler=by({dataset})")
    of_two = source.replace("**given", "**(given or {})")
    text = edited(of_two, [edit("DataLoader", "argument", texts[0], of_two)])
    assert text.splitlines()[1] == 'data = DataLoader(rows, **({**(given or {}), "num_workers": 2}))'
    text = edited(source, [edit("DataLoader", "argument", one, source) for one in texts])
    assert text.splitlines()[1] == 'data = DataLoader(kept(rows), **{**given, "num_workers": 2, "sampler": by(rows)})'


def test_of_two_numbers_for_one_argument_the_larger_counts():
    edits = [edit("map", "argument", f"num_parallel_calls={calls}") for calls in (2, 16, 4)]
    text = edited(SOURCE, [Edit(place=edits[0].place, kind="argument", text=one.text) for one in edits])
    assert text.count("num_parallel_calls") == 1 and "num_parallel_calls=16" in text


@pytest.mark.parametrize(
    ("source", "name", "kind", "message"),
    [
        ("data = make(*given)\n", "make", "argument", "in its arguments"),
        ("data = make(**given, **others)\n", "make", "argument", r"has several \*\* in its arguments"),
        ("data = make(1)\n", "make", "remove", "is no call of a method"),
        (
            "data = make(1)\n",
            "make",
            "option",
            "no line in front of line 1 imports anything, where `import tensorflow as tf` could stand",
        ),
        ("model.fit(x, y, 32)\n", "fit", "feed", "more than its data by position"),
        ("model.fit(*given)\n", "fit", "feed", "more than its data by position"),
        ("model.fit(**given)\n", "fit", "feed", "in its arguments"),
        ("model.fit(epochs=3)\n", "fit", "feed", "no data"),
        ("make(1)\n", "make", "swap", "is no call of a method"),
    ],
)
def test_what_is_too_involved_is_said(source, name, kind, message):
    place = place_of(name, source)
    one = Edit(place=place, kind=kind, text="a=1", other=place if kind == "swap" else None)
    with pytest.raises(TooInvolved, match=message):
        edited(source, [one])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("model.fit(X, Y, batch_size=8, shuffle=args.shuffle)", "decides while it runs whether `fit` shuffles"),
        ("fit_in_eights(X, Y)", "does not say what `batch_size` is"),
    ],
)
def test_arrays_are_not_fed_where_the_call_does_not_say_how_they_are_cut(call, message):
    source = f"import keras\n{call}\n"
    name = "fit" if ".fit" in call else "fit_in_eights"
    with pytest.raises(TooInvolved, match=message):
        edited(source, [edit(name, "feed", "slices({data}).batch({batch_size})", source)])


def test_a_call_that_is_not_there_is_said():
    nowhere = Place(file="train.py", line=1, end_line=1, end_column=3)
    with pytest.raises(TooInvolved, match="no call ends in line 1, column 3"):
        edited(SOURCE, [Edit(place=nowhere, kind="behind", text=".cache()")])
    with pytest.raises(TooInvolved, match="cannot be parsed"):
        edited("def (", [edit("shuffle", "remove")])


def test_a_diff_is_one_that_patch_reads(tmp_path):
    after = edited(SOURCE, [edit("shuffle", "behind", ".prefetch(2)")])
    text = diff(SOURCE, after, "train.py")
    assert text.startswith("--- a/train.py\n+++ b/train.py\n@@ ")
    assert "-    ds = ds.shuffle(100)\n+    ds = ds.shuffle(100).prefetch(2)\n" in text
    assert diff("a", "b", "t").count("\\ No newline at end of file") == 2


def test_the_lines_that_change_are_shown_and_nothing_where_the_file_is_gone(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(SOURCE)
    one = edit("shuffle", "behind", ".prefetch(2)")
    here = Edit(
        place=Place(file=str(path), line=1, end_line=one.place.end_line, end_column=one.place.end_column),
        kind=one.kind,
        text=one.text,
    )
    assert reads_as([here]) == "# train.py:7\n    ds = ds.shuffle(100).prefetch(2)"
    assert reads_as([one]) is None
    assert reads_as([]) is None


READ = {
    "a call over several lines": (
        "loader = DataLoader(\n    rows,\n    batch_size=8,\n)\nrun(loader)\n",
        [("DataLoader", "argument", "num_workers=2")],
        ["1-4"],
    ),
    "a chain in a return": (SOURCE, [("batch", "behind", ".cache()"), ("map", "behind", ".cache()")], ["6", "8-9"]),
    "an import that is missing": (
        "import keras\n\nx = 1\n\nmodel.fit(data)\n",
        [("fit", "before", "gc.freeze()")],
        ["1", "5"],
    ),
    "a statement that goes": (
        "def a():\n    ds = f(1)\n    ds = ds.shuffle(9)\n",
        [("shuffle", "remove", "")],
        ["2-3"],
    ),
    "the first statement goes": ("ds = ds.shuffle(9)\n# b\nb()\n", [("shuffle", "remove", "")], ["1-3"]),
    "a statement before one in a block": (
        "with a:\n    b()\n    c(\n        1)\n",
        [("c", "before", "d = 1")],
        ["3-4"],
    ),
    "the head of a loop": ("for x in f(\n    1,\n):\n    g(x)\n", [("f", "argument", "a=1")], ["1-3"]),
    "decorators": ("@a\n@b(1)\ndef c():\n    pass\n", [("b", "argument", "a=1")], ["1-3"]),
    "options": (
        "import tensorflow as tf\nds = ds.map(f)\nds = ds.batch(8)\n",
        [("batch", "option", "deterministic = False"), ("map", "argument", "n=2")],
        ["2-3"],
    ),
    "lines that end as on Windows": ("a = 1\r\nb = f(\r\n    2)\r\n", [("f", "argument", "n=1")], ["2-3"]),
}


@pytest.mark.parametrize("name", READ)
def test_what_is_shown_are_whole_statements_that_give_the_edited_text_where_they_stand(name, tmp_path):
    """Put in the place of the lines that they name, they are the edit."""
    source, made, expected = READ[name]
    path = tmp_path / "train.py"
    path.write_bytes(source.encode())
    edits = [edit(*one, source=source) for one in made]
    edits = [replace(one, place=replace(one.place, file=str(path))) for one in edits]
    shown = reads_as(edits)
    assert [span for span, _ in snippets_in(shown)] == expected
    assert pasted(source.replace("\r\n", "\n"), shown) == edited(source.replace("\r\n", "\n"), edits)
    for _, text in snippets_in(shown):
        ast.parse(textwrap.dedent(text if not text.rstrip().endswith(":") else f"{text} pass"))


def test_statements_of_several_files_are_shown_below_the_names_of_their_files(tmp_path):
    edits = []
    for name in ("train.py", "data.py"):
        (tmp_path / name).write_text(SOURCE)
        one = edit("shuffle", "behind", ".prefetch(2)")
        edits.append(replace(one, place=replace(one.place, file=str(tmp_path / name))))
    changed = "    ds = ds.shuffle(100).prefetch(2)"
    assert reads_as(edits) == f"# train.py:7\n{changed}\n# data.py:7\n{changed}"


@pytest.mark.parametrize(
    ("source", "name"),
    [
        (SOURCE.replace("\n", "\r\n"), "train.py"),
        (f"page = 'a\x0cb\x1cc\u2028d'\n{SOURCE}", "train.py"),
        (SOURCE.rstrip("\n"), "my train.py"),
    ],
    ids=["lines that end as on Windows", "what ends a line for Python's texts alone", "a name with spaces"],
)
def test_the_diff_of_every_kind_of_file_applies(source, name, tmp_path):
    path = tmp_path / name
    path.write_bytes(source.encode())
    assert source_of(path) == source
    new = edited(source, [edit("map", "behind", ".cache()", source), edit("make", "before", "x = 1", source)])
    assert "ds = ds.map(load).cache()  # größer" in new and new.count("\r\n") in (0, new.count("\n"))
    (tmp_path / "fix.diff").write_bytes(diff(source, new, name).encode())
    subprocess.run(["patch", "-p1", "-s", "-i", "fix.diff"], cwd=tmp_path, check=True, timeout=60)
    assert path.read_bytes() == new.encode()


def test_a_file_has_its_place_in_a_diff_and_none_outside_of_the_folder(tmp_path, monkeypatch):
    (tmp_path / "scripts").mkdir()
    monkeypatch.chdir(tmp_path)
    assert name_from_here(tmp_path / "scripts" / "train.py") == "scripts/train.py"
    monkeypatch.chdir(tmp_path / "scripts")
    with pytest.raises(TooInvolved, match="train.py lies outside of this folder"):
        name_from_here(tmp_path / "train.py")


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("f()", "f(a=1, b=2)"),
        ("f(x)", "f(x, a=1, b=2)"),
        ("f(x,)", "f(x, a=1, b=2,)"),
        ("f(a=3)", "f(a=1, b=2)"),
    ],
)
def test_two_arguments_of_one_call_are_written_with_a_comma(call: str, expected: str) -> None:
    place = Place(file="train.py", line=1, end_line=1, end_column=len(call))
    edits = [Edit(place=place, kind="argument", text=text) for text in ("a=1", "b=2")]
    assert edited(f"{call}\n", edits) == f"{expected}\n"


def test_an_argument_names_others_of_the_call() -> None:
    call = "DataLoader(rows[1:], 8)"
    place = Place(file="train.py", line=1, end_line=1, end_column=len(call))
    edit = Edit(place=place, kind="argument", text="sampler=Batched({dataset}, {batch_size})")
    assert edited(call, [edit]) == "DataLoader(rows[1:], 8, sampler=Batched(rows[1:], 8))"
    with pytest.raises(TooInvolved, match="line 1 does not say what `generator` is"):
        edited(call, [replace(edit, text="sampler=Batched({generator})")])
