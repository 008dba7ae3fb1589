"""Samples kept as they are before their first random transform: what draws goes on drawing, the rest is the same.

Over 400 lines: half of them are small data sets, one for each way in which samples can be made.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.checks import run_python
from tests.profiles.remedies.scripts import loader_of
from unstall.profiles.data import Use, adapter
from unstall.profiles.remedies import reading_twice
from unstall.profiles.remedies.edits import edited
from unstall.profiles.remedies.room import Room

pytestmark = pytest.mark.needs("torch")

ROOM = Room(calls=2, memory_bytes=1e9, disk_bytes=1e9)


class Compose:
    """As torchvision's."""

    def __init__(self, *transforms: Any) -> None:
        self.transforms = list(transforms)

    def __call__(self, image: Any) -> Any:
        for transform in self.transforms:
            image = transform(image)
        return image


class Halve:
    """Draws nothing."""

    def __call__(self, image: Any) -> Any:
        return image[::2, ::2] if isinstance(image, np.ndarray) else image.resize((image.width // 2, image.height // 2))


class Flip:
    """Draws by Python's generator, and does something in one of two samples."""

    def __call__(self, image: Any) -> Any:
        if random.random() >= 0.5:
            return image
        return image[:, ::-1].copy() if isinstance(image, np.ndarray) else image.transpose(0)


class Unseen:
    """Draws by a generator that nothing else can see."""

    def __call__(self, image: Any) -> Any:
        return image + np.random.default_rng().integers(9, dtype=np.uint8)


class Noise:
    """Draws by PyTorch's generator."""

    def __call__(self, image: Any) -> Any:
        import torch

        return image + torch.rand(image.shape)


def to_tensor(image: Any) -> Any:
    import torch

    return torch.from_numpy(np.array(image)).permute(2, 0, 1) / 255


def of_library(name: str, library: str = "torchvision") -> Any:
    """Returns a transform of a library's class of this name, which is found random by that name alone."""
    return type(name, (), {"__module__": f"{library}.transforms", "__call__": lambda self, image: image})()


class Images:
    """Images that are made with some work, and their numbers."""

    def __init__(self, transform: Any, *, photos: bool = False) -> None:
        self.transform, self.photos = transform, photos

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> Any:
        from PIL import Image

        image = np.random.default_rng(index).integers(255, size=(8, 12, 3), dtype=np.uint8)
        return self.transform(Image.fromarray(image) if self.photos else image), index


class Named(Images):
    def __getitem__(self, index: int) -> Any:
        image = np.random.default_rng(index).integers(255, size=(8, 12, 3), dtype=np.uint8)
        return self.transform(image=image)["image"], index


class NamedGoesOn(Named):
    def __getitem__(self, index: int) -> Any:
        image, number = super().__getitem__(index)
        return image / 255, number


class GoesOn(Images):
    def __getitem__(self, index: int) -> Any:
        image, number = super().__getitem__(index)
        return image * 2, number


class Worded(Images):
    def __getitem__(self, index: int) -> Any:
        image, number = super().__getitem__(index)
        return {"image": image, "number": number}


class Sized(Images):
    def __getitem__(self, index: int) -> Any:
        return self.transform(np.zeros((index + 1, 2, 3), np.uint8)), index


class Counts(Images):
    calls = 0

    def __getitem__(self, index: int) -> Any:
        self.calls += 1
        return super().__getitem__(index)


class Masked(Images):
    """Draws for the image and its mask together, and seldom."""

    def __getitem__(self, index: int) -> Any:
        image = np.random.default_rng(index).integers(255, size=(8, 8, 3), dtype=np.uint8)
        both = self.transform(image=image, mask=np.eye(8, dtype=np.uint8))
        return both["image"], both["mask"]


class Twice(Images):
    def __getitem__(self, index: int) -> Any:
        image, number = super().__getitem__(index)
        return image, self.transform(np.zeros((8, 8, 3), np.uint8)), number


class Wrapper:
    """A data set around another, with a `transform` of its own that is no list."""

    def __init__(self, dataset: Any) -> None:
        self.dataset, self.transform = dataset, None

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        return self.dataset[index]


class OneIsUnlike(Images):
    """One sample has another type, at an index that no look at the samples meets."""

    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> Any:
        image, number = super().__getitem__(index)
        return image, np.float32(number + 0.5) if index == 7 else number


@pytest.fixture(autouse=True)
def worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading_twice, "_LEAST_NS", 0)


def opened(dataset: Any, room: Room = ROOM, **settings: Any) -> Any:
    from torch.utils.data import DataLoader

    loader = DataLoader(dataset, **({"batch_size": 8, "shuffle": True} | settings))
    return adapter(loader).rebuilt(loader, Use(), ["waiting"], room=room)


def found(data: Any) -> Any:
    return next((remedy for remedy in data.remedies if remedy.name == "cache-before-draws"), None)


def batches(data: Any, names: tuple[str, ...], epochs: int = 1) -> list[Any]:
    import torch

    torch.manual_seed(3)
    random.seed(3)
    np.random.seed(3)
    loader = data.built(names, float("inf"))
    return [[part.tolist() for part in batch] for _ in range(epochs) for batch in loader]


@pytest.mark.parametrize(
    ("transform", "photos", "before"),
    [
        (Compose(Halve(), Flip(), to_tensor), False, "Flip"),
        (Compose(Halve(), Flip(), to_tensor), True, "Flip"),
        (Compose(Halve(), to_tensor, Noise()), True, "Noise"),
        (Compose(Flip(), Halve()), False, "Flip"),
        (Compose(of_library("Resize"), of_library("RandomErasing"), to_tensor), True, "RandomErasing"),
        (Compose(of_library("OfNextYear"), to_tensor), True, "OfNextYear"),
        (Compose(Compose(Halve()), Compose(Flip()), to_tensor), True, "Compose"),
    ],
    ids=["array", "photo", "tensor", "first of all", "seldom random", "unknown of a library", "nested"],
)
def test_epochs_are_those_of_the_same_seed_and_what_draws_goes_on_drawing(
    transform: Any, photos: bool, before: str
) -> None:
    data = opened(Images(transform, photos=photos))
    remedy = found(data)
    assert f"before `{before}` draws" in remedy.text
    epochs = batches(data, ("cache-before-draws",), epochs=3)
    assert epochs == batches(data, (), epochs=3)


def test_images_are_kept_in_their_own_type_and_made_once() -> None:
    class Noted(Images):
        made = 0

        def __getitem__(self, index: int) -> Any:
            type(self).made += 1
            return super().__getitem__(index)

    data = opened(Noted(Compose(Halve(), Flip(), to_tensor), photos=True))
    assert found(data).memory_bytes == 24 * (4 * 6 * 3 + 8)
    Noted.made = 0
    batches(data, ("cache-before-draws",), epochs=4)
    assert Noted.made == 1 + 24  # the first one tells their shape


def test_albumentations_go_on_drawing() -> None:
    import albumentations

    def transform(p: float = 1) -> Any:
        steps = [albumentations.Resize(4, 6, p=p), albumentations.HorizontalFlip(p=0.5)]
        return albumentations.Compose(steps, seed=7)

    data = opened(Named(transform()))
    assert "before `HorizontalFlip` draws" in found(data).text and found(data).effect == "other draws"
    fixed = Named(albumentations.Compose([albumentations.Resize(4, 6)]))
    seen = set()
    for images, numbers in batches(data, ("cache-before-draws",), epochs=8):
        for image, number in zip(images, numbers, strict=True):
            plain = fixed[number][0]
            flipped = image == plain[:, ::-1].tolist()
            assert flipped or image == plain.tolist()
            seen.add((number, flipped))
    assert len(seen) > 1.9 * 24  # in eight epochs nearly each was seen both ways
    goes_on = opened(NamedGoesOn(transform()))
    assert found(goes_on) is None and "made apart from the rest" in goes_on.untried[-1].reason
    # What is left out once in a while is no fixed part.
    assert "before `Resize` draws" in found(opened(Named(transform(p=0.99)))).text


def test_a_subset_keeps_what_its_data_set_makes() -> None:
    from torch.utils.data import Subset

    data = opened(Subset(Images(Compose(Halve(), Flip())), [3, 4, 5, 9, 11]), batch_size=2)
    assert "before `Flip` draws" in found(data).text
    epochs = batches(data, ("cache-before-draws",), epochs=2)
    assert epochs == batches(data, (), epochs=2)
    assert sorted(number for batch in epochs[:3] for number in batch[1]) == [3, 4, 5, 9, 11]


def test_workers_share_what_was_kept_and_draw_on_their_own(tmp_path: Path) -> None:
    class Noted(Images):
        def __getitem__(self, index: int) -> Any:
            with (tmp_path / "made").open("a") as file:
                file.write("x")
            return super().__getitem__(index)

    data = opened(Noted(Compose(Halve(), to_tensor, Noise()), photos=True), num_workers=2)
    (tmp_path / "made").unlink()
    kept = data.built(("cache-before-draws",), float("inf"))
    epochs = [[batch[0].tolist() for batch in kept] for _ in range(3)]
    assert len((tmp_path / "made").read_text()) == 1 + 24
    assert epochs[0] != epochs[1] != epochs[2]


@pytest.mark.parametrize(
    ("dataset", "why"),
    [
        # Nothing tells such a draw from a fault: its samples differ when they are made from the same states.
        (Images(Compose(Halve(), Unseen())), "made apart from the rest"),
        (GoesOn(Compose(to_tensor, Noise())), "made apart from the rest"),
        (Worded(Compose(Halve(), Flip())), "its samples are of type dict"),
        (Sized(Compose(Flip(), Halve())), "before `Flip`, the first transform that draws, its samples differ in shape"),
        (Counts(Compose(Halve(), Flip())), "making a sample changes `calls` of the data"),
    ],
    ids=["a draw that nothing sees", "goes on after its transform", "a dict", "shapes", "counts"],
)
def test_what_may_not_be_kept_is_said_with_the_reason(dataset: Any, why: str) -> None:
    data = opened(dataset)
    assert found(data) is None
    [reason] = [one.reason for one in data.untried if one.name == "cache-before-draws"]
    assert why in reason


def test_transforms_that_take_more_than_an_image_are_not_split() -> None:
    import albumentations

    turns = albumentations.Compose([albumentations.NoOp(p=1), albumentations.RandomRotate90(p=0.02)], seed=7)
    for dataset in (Masked(turns), Twice(Compose(Halve(), Flip()))):
        data = opened(dataset)
        assert found(data) is None
        [reason] = [one.reason for one in data.untried if one.name == "cache-before-draws"]
        assert "made apart from the rest" in reason


def test_transforms_of_an_inner_data_set_are_found_past_an_empty_attribute() -> None:
    data = opened(Wrapper(Images(Compose(Halve(), Flip()))))
    assert "before `Flip` draws" in found(data).text
    assert batches(data, ("cache-before-draws",), 2) == batches(data, (), 2)


def test_a_sample_that_is_unlike_the_others_is_given_as_it_is() -> None:
    data = opened(OneIsUnlike(Compose(Halve(), Flip())))
    kept = data.built(("cache-before-draws",), float("inf")).dataset
    for _ in range(2):
        assert kept[7][1] == np.float32(7.5) and kept[8][1] == 8


def test_both_caches_are_not_combined_and_a_failing_look_costs_one_remedy() -> None:
    class Fails(Images):
        def __getattribute__(self, name: str) -> Any:
            if name == "dataset":
                raise KeyError(name)
            return super().__getattribute__(name)

    assert not opened(Images(Compose(Halve(), Flip()))).fits(("cache-samples", "cache-before-draws"))
    data = opened(Fails(Compose(Halve(), Flip())))
    assert "workers" in [remedy.name for remedy in data.remedies]
    assert any("looking at the data failed (KeyError" in one.reason for one in data.untried)


def test_nothing_is_offered_where_nothing_draws_or_no_transforms_are_seen() -> None:
    for dataset in (Images(Compose(Halve(), to_tensor)), Images(Flip())):
        data = opened(dataset)
        assert found(data) is None and "cache-before-draws" not in [one.name for one in data.untried]


def test_random_states_are_as_they_were_when_samples_were_looked_at() -> None:
    import albumentations

    def states() -> Any:
        import torch

        return random.getstate(), str(np.random.get_state()), torch.get_rng_state().tolist()

    own = albumentations.Compose([albumentations.HorizontalFlip(p=0.5)], seed=7)
    drawn = [own(image=np.eye(4, dtype=np.uint8))["image"].tolist() for _ in range(20)]
    transform = albumentations.Compose([albumentations.HorizontalFlip(p=0.5)], seed=7)
    before = states()
    opened(Named(transform))
    opened(Images(Compose(Halve(), Flip(), to_tensor)))
    assert states() == before
    assert [transform(image=np.eye(4, dtype=np.uint8))["image"].tolist() for _ in range(20)] == drawn


SCRIPT = """
import random
import torch
import numpy as np
from PIL import Image
from torch.utils.data import DataLoader, Dataset


class Compose:
    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, image):
        for transform in self.transforms:
            image = transform(image)
        return image


def flip(image):
    return image.transpose(0) if torch.rand(()) < 0.5 else image


def to_tensor(image):
    return torch.from_numpy(np.asarray(image).copy())


class Photos(Dataset):
    def __init__(self, transform):
        self.transform = transform

    def __len__(self):
        return 20

    def __getitem__(self, index):
        image = Image.fromarray(np.full((8, 8, 3), index, np.uint8) + np.arange(8, dtype=np.uint8)[:, None])
        return self.transform(image), index % 2


def main():
    torch.manual_seed(5)
    photos = Photos(Compose([lambda image: image.resize((4, 4)), flip, to_tensor]))
    loader = DataLoader(photos, batch_size=8, shuffle=True, num_workers=WORKERS)
    for epoch in range(3):
        for images, labels in loader:
            print(images.tolist(), labels.tolist(), images.dtype)
    return loader


if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize("workers", [0, 1])
def test_a_script_with_the_edit_prints_the_same_batches(workers: int, tmp_path: Path) -> None:
    script, new = tmp_path / "train.py", tmp_path / "edited.py"
    script.write_text(SCRIPT.replace("WORKERS", str(workers)))
    loader = loader_of(script)
    data = adapter(loader).rebuilt(loader, Use(), ["waiting"], room=ROOM)
    new.write_text(edited(script.read_text(), found(data).edits))
    assert len(found(data).edits[0].text.splitlines()) <= 30 and "unstall" not in new.read_text()
    before, after = run_python(tmp_path, script.name), run_python(tmp_path, new.name)
    assert after.returncode == 0, after.stderr
    assert after.stdout == before.stdout and len(before.stdout.splitlines()) == 9
