"""What is read of a script without running it: values, loaders with an equivalent, and what has none."""

from __future__ import annotations

import ast

import pytest

from unstall.pipeline.migration.loaders import Draws, loaders_of
from unstall.pipeline.migration.values import Script, Unknown

FLOW = "from keras.preprocessing.image import ImageDataGenerator\n"


def value_of(text: str, before: str = "") -> object:
    script = Script(f"{before}\nresult = ({text})\n")
    assigned = script.tree.body[-1]
    assert isinstance(assigned, ast.Assign)
    return script.value(assigned.value)


@pytest.mark.parametrize(
    ("text", "before", "expected"),
    [
        ("1. / 255", "", 1 / 255),
        ("-0.5 * 2", "", -1.0),
        ("(H, W)", "H, W = 64, 128", (64, 128)),
        ("SIZE[0]", "SIZE = (64, 32)", 64),
        ("os.path.join(BASE, 'train')", "BASE = 'data'", "data/train"),
        ("Path('data') / 'train'", "", "data/train"),
        ("str(Path('data'))", "", "data"),
        ("dict(a=1, b=[2])", "", {"a": 1, "b": [2]}),
        ("f'data'", "", "data"),
        ("A", "B = 3\nA = B", 3),
        ("args.batch", "args = parse()", Unknown("args.batch")),
        ("A", "A = 1\nA = 2", 2),
        ("A", "A = 1\nif x:\n    A = 2", Unknown("A")),
        ("A", "A = A", Unknown("A")),
        ("A", "A = 1\nA += 1", Unknown("A")),
        ("A", "for A in (1, 2): pass", Unknown("A")),
        ("A", "A = dict(a=1)\nA['b'] = 2", Unknown("A")),
        ("A", "A = dict(a=[1])\nA['a'][0] = 2", Unknown("A")),
        ("A", "A = dict(a=1)\nA.update(b=2)", Unknown("A")),
        ("A", "A = [1]\nif x:\n    A.append(2)", Unknown("A")),
        ("A", "A = dict(a=1)\ndel A['a']", Unknown("A")),
        ("A", "def f():\n    A['b'] = 2\nA = dict(a=1)\nf()", Unknown("A")),
        ("A", "def f():\n    A = {}\n    A['b'] = 2\nA = dict(a=1)", {"a": 1}),
        ("A", "A = 1\ndef f():\n    global A\n    A = 2\nf()", Unknown("A")),
        ("A", "def f():\n    global A\n    A = 2\nA = 1\nf()", Unknown("A")),
        ("1 / 0", "", Unknown("1 / 0")),
        ("open('x')", "", Unknown("open('x')")),
    ],
)
def test_a_value_is_what_constants_make_or_not_known(text: str, before: str, expected: object) -> None:
    assert value_of(text, before) == expected


def test_an_argument_of_a_function_is_not_the_name_outside() -> None:
    script = Script("SIZE = 3\ndef load(SIZE):\n    return SIZE\ndef other():\n    return SIZE\n")
    load, other = (node.body[0].value for node in script.tree.body if isinstance(node, ast.FunctionDef))
    assert (script.value(load), script.value(other)) == (Unknown("SIZE"), 3)


def test_an_inner_function_changes_the_name_of_its_outer_one() -> None:
    text = "def load():\n    A = 1\n    def change():\n        nonlocal A\n        A = 2\n    change()\n    return A\n"
    script = Script(text)
    [returned] = [node.value for node in ast.walk(script.tree) if isinstance(node, ast.Return)]
    assert returned is not None and script.value(returned) == Unknown("A")


@pytest.mark.parametrize(
    ("change", "call"),
    [
        ("opts['horizontal_flip'] = True", "ImageDataGenerator(**opts)"),
        ("opts.update(horizontal_flip=True)", "ImageDataGenerator(**opts)"),
        ("g.horizontal_flip = True", "g"),
    ],
)
def test_settings_that_are_changed_after_they_were_written_are_not_dropped(change: str, call: str) -> None:
    made = "opts = dict(rescale=1 / 255)\ng = ImageDataGenerator(rescale=1 / 255)"
    loaders, [stays] = loaders_of(Script(f"{FLOW}{made}\n{change}\na = {call}.flow_from_directory('x')\n"))
    assert loaders == [] and "only known when the script runs" in stays.reason


def test_a_name_for_the_generator_its_dictionary_and_its_positions_are_understood() -> None:
    text = (
        "from tensorflow.keras.preprocessing.image import ImageDataGenerator as G\n"
        "opts = dict(rotation_range=40, zoom_range=[0.8, 1.0], horizontal_flip=True)\n"
        "def sets(batch):\n"
        "    gen = G(rescale=1 / 255, validation_split=0.25, **opts)\n"
        "    train = gen.flow_from_directory(folder(), (80, 60), 'grayscale', batch_size=batch, subset='training')\n"
        "    return train\n"
    )
    [loader], [goes_on] = loaders_of(Script(text))
    assert (goes_on.line, goes_on.what) == (6, "return train")
    assert (loader.name, loader.line, loader.method) == ("train", 5, "flow_from_directory")
    assert loader.passed == (("directory", "folder()"), ("batch_size", "batch"))
    assert (loader.directory, loader.image_size, loader.channels, loader.part) == (None, (80, 60), 1, (0.25, 1.0))
    assert loader.draws == Draws(rotation=40, zoom=(0.8, 1.0), horizontal_flip=True)


@pytest.mark.parametrize(
    ("generator", "call", "reason"),
    [
        ("zca_whitening=True", "", "needs the statistics of `fit`"),
        ("featurewise_center=True", "", "needs the statistics of `fit`"),
        ("width_shift_range=[-2, 2]", "", "only a float has an equivalent"),
        ("fill_mode='wrap'", "", "`fill_mode='wrap'` has no equivalent"),
        ("rotation_range=args.r", "", "`rotation_range=args.r` is only known when the script runs"),
        ("**args", "", "`**args` is only known when the script runs"),
        ("*args", "", "handed on by `*`"),
        ("", ", color_mode='rgba'", "`color_mode='rgba'` has no equivalent"),
        ("", ", save_to_dir='x'", "`save_to_dir='x'` has no equivalent"),
        ("", ", interpolation='hamming'", "`interpolation='hamming'` has no equivalent"),
        ("data_format='channels_first'", "", "`data_format='channels_first'` has no equivalent"),
        ("zoom_range=None", "", "its ranges are of no form that Keras takes"),
        ("zoom_range=[0.2]", "", "its ranges are of no form that Keras takes"),
        ("brightness_range=0.5", "", "its ranges are of no form that Keras takes"),
        ("shear_range='x'", "", "its ranges are of no form that Keras takes"),
        ("rescale='a'", "", "`rescale='a'` is no number"),
        ("", ", target_size=None", "`target_size=None` is no size of an image"),
        ("zoom_range={'a': 1}", "", "its ranges are of no form that Keras takes"),
        ("", ", target_size=64", "`target_size=64` is no size of an image"),
        ("", ", target_size=(64,)", "`target_size=(64,)` is no size of an image"),
        ("", ", target_size=(64, 'x')", "`target_size=(64, 'x')` is no size of an image"),
    ],
)
def test_what_has_no_equivalent_is_named_with_the_reason(generator: str, call: str, reason: str) -> None:
    loaders, [stays] = loaders_of(Script(f"{FLOW}a = ImageDataGenerator({generator}).flow_from_directory('x'{call})\n"))
    assert loaders == [] and reason in stays.reason and stays.line == 2


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("class Mine(keras.utils.Sequence):\n    pass", "class Mine, Sequence"),
        ("class Mine(keras.utils.PyDataset):\n    pass", "class Mine, PyDataset"),
        (FLOW + "a = ImageDataGenerator().flow_from_dataframe(df)", "flow_from_dataframe"),
        ("a = keras.utils.image_dataset_from_directory('x', batch_size=None)", "image_dataset_from_directory"),
        ("a, b = image_dataset_from_directory('x', subset='both', seed=1)", "image_dataset_from_directory"),
        ("a = image_dataset_from_directory('x', image_size=(64,))", "image_dataset_from_directory"),
        ("a = image_dataset_from_directory('x', color_mode=[1])", "image_dataset_from_directory"),
    ],
)
def test_code_of_ones_own_and_tables_stay(text: str, what: str) -> None:
    loaders, [stays] = loaders_of(Script(text))
    assert loaders == [] and stays.what == what


@pytest.mark.parametrize(
    "text",
    [
        "a = {}\na = a.cache().shuffle(1000).prefetch(2)",
        "a = {}\nb = a.map(f).cache('file')",
        "a = {}.cache()",
        "a = {}\ndef get():\n    return a.cache()",
    ],
)
def test_a_dataset_that_the_script_caches_gets_no_second_cache(text: str) -> None:
    loaders, [stays] = loaders_of(Script(text.format("image_dataset_from_directory('x')")))
    assert loaders == [] and stays.reason == "the script caches it already"
    other = text.format("image_dataset_from_directory('x')").replace("cache", "batch")
    assert [loader.method for loader in loaders_of(Script(other))[0]] == ["image_dataset_from_directory"]


def test_a_flow_of_another_object_is_none() -> None:
    assert loaders_of(Script("graph.flow(a)\nriver = River()\nriver.flow_from_directory('x')\n")) == ([], [])


def test_what_the_script_does_with_an_iterator_is_kept_or_told() -> None:
    text = (
        f"{FLOW}train = ImageDataGenerator().flow_from_directory('x')\n"
        "model.fit(train, steps_per_epoch=train.samples // 32)\nprint(train.class_indices)\n"
        "x, y = next(train)\ntrain.reset()\nx, y = train[0]\nfor x, y in train:\n    break\n"
        "both = zip(train, train)\nx, y = next(iter(train))\n"
    )
    [loader], stays = loaders_of(Script(text))
    assert len(loader.repeated) == 1 and loader.attributes == ("class_indices", "samples")
    assert [(stay.line, stay.what) for stay in stays] == [
        (5, "next(train)"),
        (6, "train.reset"),
        (7, "train[...]"),
        (8, "for ... in train"),
        (10, "zip(train)"),
        (10, "zip(train)"),
    ]
    [plain], _ = loaders_of(Script(f"{FLOW}train = ImageDataGenerator().flow_from_directory('x')\nmodel.fit(train)\n"))
    assert plain.repeated == () and plain.attributes == ()


@pytest.mark.parametrize(
    ("use", "what"),
    [
        ("def get():\n    return a", "return a"),
        ("mine(a)", "mine(a)"),
        ("mine(data=a)", "mine(a)"),
        ("both = a, 1", "a"),
        ("parts = {'train': a}", "a"),
        ("self.train = a", "a"),
        ("b = a", "a"),
        ("model.fit(b, validation_data=a if x else None)", "a"),
    ],
)
def test_data_that_go_on_under_another_name_are_told(use: str, what: str) -> None:
    [loader], [stays] = loaders_of(Script(f"{FLOW}a: object = ImageDataGenerator().flow_from_directory('x')\n{use}\n"))
    assert (loader.name, stays.what) == (
        "a",
        what,
    ) and "it goes on from here: put `.repeat()` behind it" in stays.reason


@pytest.mark.parametrize(
    "use",
    ["model.fit(b, validation_data=a)", "model.predict(a)", "len(a)", "print(f'{a}')", "if a is None:\n    pass", "a"],
)
def test_uses_that_a_dataset_allows_are_not_told(use: str) -> None:
    assert loaders_of(Script(f"{FLOW}a = ImageDataGenerator().flow_from_directory('x')\n{use}\n"))[1] == []


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("return {}", "return flow(...)"),
        ("self.train = {}", "flow(...)"),
        ("first = {}, 1", "flow(...)"),
        ("mine({})", "mine(flow(...))"),
        ("x, y = next({})", "next(flow(...))"),
        ("for x, y in {}:\n        break", "for ... in flow(...)"),
        ("global train\n    train = {}", "global train"),
    ],
)
def test_data_without_a_name_of_their_own_are_told_where_a_dataset_is_another_thing(text: str, what: str) -> None:
    made = text.format("ImageDataGenerator().flow(x, y)")
    [_], [stays] = loaders_of(Script(f"{FLOW}def load(self, x, y):\n    {made}\n"))
    assert stays.what == what


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("fit(a, epochs=5, validation_data=b, validation_steps=50)", ["b"]),
        ("fit(a, steps_per_epoch=100, validation_data=b)", ["a"]),
        ("fit_generator(a, 100, validation_data=b)", ["a"]),
        ("fit_generator(a, None, validation_data=b, validation_steps=3)", ["b"]),
        ("fit(a, steps_per_epoch=9, validation_data=b, validation_steps=3)", ["a", "b"]),
        ("fit(x=a, steps_per_epoch=len(a), validation_data=b, validation_steps=None)", ["a"]),
        ("predict(b)", []),
        ("evaluate(b, steps=4)", ["b"]),
    ],
)
def test_data_never_end_only_where_their_own_steps_are_counted(call: str, expected: list[str]) -> None:
    made = "ImageDataGenerator().flow_from_directory"
    loaders, _ = loaders_of(Script(f"{FLOW}a = {made}('x')\nb = {made}('y')\nmodel.{call}\n"))
    assert [loader.name for loader in loaders for _ in loader.repeated] == expected


def test_a_loader_without_a_name_never_ends_where_its_steps_are_counted() -> None:
    made = "ImageDataGenerator().flow_from_directory('x')"
    [loader], _ = loaders_of(Script(f"{FLOW}model.fit({made}, steps_per_epoch=9)\n"))
    assert loader.repeated == (loader.node,)
    text = "import keras\nmodel.fit(keras.utils.image_dataset_from_directory('x'), steps_per_epoch=9)\n"
    [dataset], _ = loaders_of(Script(text))
    assert dataset.repeated == ()  # it ends, as it is


def test_arrays_have_a_number_and_no_files() -> None:
    text = f"{FLOW}a = ImageDataGenerator().flow(x, y)\nprint(a.n, a.batch_size, a.filenames)\n"
    [loader], [stays] = loaders_of(Script(text))
    assert loader.attributes == ("batch_size", "n") and stays.what == "a.filenames"


def test_preprocessing_of_keras_takes_batches_and_a_function_of_ones_own_images() -> None:
    text = (
        f"{FLOW}from keras.applications.vgg16 import preprocess_input\n"
        "a = ImageDataGenerator(preprocessing_function=preprocess_input).flow_from_directory('x')\n"
        "b = ImageDataGenerator(preprocessing_function=mine).flow_from_directory('x')\n"
    )
    loaders, _ = loaders_of(Script(text))
    assert [(loader.preprocessing, loader.passed[1]) for loader in loaders] == [
        ("batch", ("preprocess", "preprocess_input")),
        ("image", ("preprocess", "mine")),
    ]


def test_a_name_that_is_given_twice_is_what_was_given_right_before() -> None:
    text = (
        f"{FLOW}def make(kind):\n"
        "    if kind:\n"
        "        g = ImageDataGenerator(rotation_range=10)\n"
        "        data = g.flow_from_directory('a')\n"
        "    else:\n"
        "        g = ImageDataGenerator()\n"
        "        data = g.flow_from_directory('b')\n"
        "    return data\n"
    )
    loaders, [goes_on] = loaders_of(Script(text))
    assert (goes_on.line, goes_on.what) == (9, "return data")
    assert [(loader.name, loader.draws.rotation) for loader in loaders] == [("data", 10.0), ("data_8", 0.0)]


def test_a_generator_that_only_the_running_script_knows_is_named() -> None:
    text = f"{FLOW}if x:\n    g = ImageDataGenerator()\nelse:\n    g = other()\na = g.flow_from_directory('a')\n"
    loaders, [stays] = loaders_of(Script(text))
    assert loaders == [] and "only known when the script runs" in stays.reason
