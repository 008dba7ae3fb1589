"""How images were made is found out from their pixels: each way is planted, by code of this file's own."""

from __future__ import annotations

import statistics

import cv2
import numpy as np
import pytest
from PIL import Image

from tests.benchmarks.evidence.peers.renditions import Renditions
from unstall.benchmarks.evidence.peers.catalogue import all_peers
from unstall.benchmarks.evidence.peers.loaders.work import WORKS, draw_affine, draw_crop
from unstall.pipeline.sources.folder import from_folder

PHOTOS = 12
# The margin between the right way and the next, of 255: with less, noise of a decoder could decide.
LEAST_MARGIN = 0.5


@pytest.fixture(scope="module")
def material(tmp_path_factory):
    """Returns renditions of textured photos, their files, and the photos at 64x64."""
    folder, random = tmp_path_factory.mktemp("textured"), np.random.default_rng(0)
    for number in range(PHOTOS):
        path = folder / f"class-{number % 2}" / f"{number:02d}.jpg"
        path.parent.mkdir(exist_ok=True)
        coarse = random.integers(0, 256, (13, 15, 3)).astype(np.float32)
        fine = random.normal(0, 25, (260, 300, 3))
        pixels = cv2.GaussianBlur(fine, (3, 3), 0) * 2 + cv2.resize(coarse, (300, 260), interpolation=cv2.INTER_CUBIC)
        Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(path, quality=92)
    source = from_folder(folder)
    plain = np.stack(
        [np.asarray(Image.open(path).resize((64, 64), Image.Resampling.BILINEAR)) for path in source.paths]
    )
    return Renditions(source, plain), source.paths, plain


def warped(image: np.ndarray, matrix: np.ndarray, how: int = cv2.INTER_LINEAR) -> np.ndarray:
    how |= cv2.WARP_INVERSE_MAP
    return cv2.warpAffine(image, matrix, (64, 64), flags=how, borderMode=cv2.BORDER_REPLICATE)


def served_from_a_photo(path: str, way: str, random: np.random.Generator) -> np.ndarray:
    decode, how = way.split(", ")
    reduced = cv2.IMREAD_COLOR if decode == "full decode" else cv2.IMREAD_REDUCED_COLOR_4
    image = cv2.cvtColor(cv2.imread(path, reduced), cv2.COLOR_BGR2RGB)
    matrix = np.array(draw_affine(random))
    if how == "one resampling":
        across, down = image.shape[1] / 64, image.shape[0] / 64
        corners = np.array([[across, 0, across / 2 - 0.5], [0, down, down / 2 - 0.5], [0, 0, 1]])
        return warped(image, (corners @ np.vstack([matrix, [0, 0, 1]]))[:2])
    filters = {"antialiased": Image.Resampling.BILINEAR, "nearest": Image.Resampling.NEAREST}
    if how in filters:
        small = np.asarray(Image.fromarray(image).resize((64, 64), filters[how]))
    else:
        small = cv2.resize(image, (64, 64), interpolation=cv2.INTER_LINEAR)
    return warped(small, matrix, cv2.INTER_NEAREST if how == "nearest warp" else cv2.INTER_LINEAR)


def served_from_an_array(image: np.ndarray, way: str, random: np.random.Generator) -> np.ndarray:
    filters = {"bilinear": cv2.INTER_LINEAR, "area": cv2.INTER_AREA, "nearest": cv2.INTER_NEAREST}
    top, left, height, width = draw_crop(random)
    cropped = cv2.resize(image[top : top + height, left : left + width], (64, 64), interpolation=filters[way])
    return cropped[:, ::-1] if random.random() < 0.5 else cropped


def medians_of(differences: dict[str, tuple[float, ...]]) -> dict[str, float]:
    return {name: statistics.median(each) for name, each in differences.items()}


@pytest.mark.parametrize("decode", ["full decode", "scaled decode"])
@pytest.mark.parametrize("how", ["bilinear", "antialiased", "nearest", "nearest warp", "one resampling"])
def test_how_photos_were_decoded_and_resampled_is_found(material, decode, how):
    renditions, paths, _ = material
    way, random = f"{decode}, {how}", np.random.default_rng(1)
    served = np.stack([served_from_a_photo(path, way, random) for path in paths])
    medians = medians_of(renditions.differences("cold", (served / 255).astype(np.float32)))
    right = medians.pop(way)
    assert right < 1
    assert min(medians.values()) > right + LEAST_MARGIN


@pytest.mark.parametrize("way", ["bilinear", "area", "nearest"])
def test_how_crops_were_resampled_is_found(material, way):
    renditions, _, plain = material
    random = np.random.default_rng(2)
    served = np.stack([served_from_an_array(image, way, random) for image in plain])
    medians = medians_of(renditions.differences("prepared", (served / 255).astype(np.float32)))
    right = medians.pop(way)
    assert right < 2
    assert min(medians.values()) > right + LEAST_MARGIN


def test_an_image_that_was_not_served_is_not_compared(material):
    renditions, _, plain = material
    served = plain.astype(np.float32) / 255
    served[3] = np.nan
    assert {len(each) for each in renditions.differences("prepared", served).values()} == {PHOTOS - 1}


def test_peers_state_ways_that_can_be_found(material):
    renditions, _, plain = material
    served = plain.astype(np.float32) / 255
    ways = {work: set(renditions.differences(work, served)) for work in WORKS}
    for peer in all_peers().values():
        assert set(peer.renditions) >= set(peer.functions), peer.name
        assert {work: way for work, way in peer.renditions.items() if way not in ways[work]} == {}, peer.name
