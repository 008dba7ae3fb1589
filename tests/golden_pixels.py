"""The pixels of prepared copies as they were recorded for `copies.PIXELS_VERSION`, and the comparison with them.

Pixels are compared with a tolerance, not by digests: another CPU may round the last bit of a resized value differently.
Only the bytes of files in records are compared exactly. To record again, from the project's folder:

    python -m tests.golden_pixels
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import sys
import tempfile
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tensorflow as tf

from tests import PROJECT_ROOT
from unstall.pipeline import PipelineConfig, from_folder
from unstall.pipeline.prepared import copies
from unstall.pipeline.prepared.index import open_prepared
from unstall.pipeline.prepared.write import materialize
from unstall.pipeline.sources.source import ImageSource

FOLDER = PROJECT_ROOT / "tests" / "golden" / "pixels"
GOLDEN = FOLDER / "pixels.json"
COMMAND = "python -m tests.golden_pixels"
LIBRARIES = {"tensorflow": tf.__version__, "numpy": np.__version__}
# float32 pixels are recorded in steps of 1/128 level.
_STEPS = 128
# How far pixels may be off that differ in last bits alone. Measured against TensorFlow's other kernel of the same
# mathematics (`ScaleAndTranslate`), which adds in another order, and against changes that the tests plant.
# float32, in levels: that kernel is off by 0.0003, and half a step is 0.004; an accurate DCT is off by 4.4.
_FLOAT_TOLERANCE = 0.02
# uint8: the part of an image's values that rounding may send to the next level. That kernel: 0.010; halves rounded up
# and not to even: 0.115.
_OTHER_RATIO = 0.02
# resized, the mean of an image in levels: such a value changes others of its JPEG block. That kernel: 0.8; JPEG at
# quality 94 in place of 95: 4.6. Smaller changes of the pixels show in raw.
_MEAN_TOLERANCE = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One way to make a copy.

    Attributes:
      images: the folder below `FOLDER`: "jpeg", or "mixed" formats, which another decoder reads.
      image_size: (height, width) in pixels: some images are larger, some smaller.
    """

    images: str
    storage: str
    dtype: str = "uint8"
    decode: str = "full"
    interpolation: str = "bilinear"
    image_size: tuple[int, int] = (8, 12)

    @property
    def name(self) -> str:
        height, width = self.image_size
        return f"{self.images} {self.storage} {self.dtype} {self.decode} {self.interpolation} {height}x{width}"


def _cases() -> tuple[Case, ...]:
    cases = [Case(images=images, storage="records") for images in ("jpeg", "mixed")]
    for images, (storage, dtype), decode, interpolation, image_size in itertools.product(
        ("jpeg", "mixed"),
        (("raw", "uint8"), ("raw", "float32"), ("resized", "uint8")),
        ("full", "scaled"),
        ("bilinear", "nearest"),
        ((8, 12), (14, 6)),
    ):
        if (images, decode) != ("mixed", "scaled"):  # formats other than JPEG are never decoded at a fraction
            case = Case(
                images=images,
                storage=storage,
                dtype=dtype,
                decode=decode,
                interpolation=interpolation,
                image_size=image_size,
            )
            cases.append(case)
    return tuple(cases)


CASES = _cases()


def pixels_of(case: Case) -> np.ndarray | str:
    """Makes a copy. Returns its images, or, of records, a digest of the files' bytes in them."""
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "copy"
        materialize(
            from_folder(FOLDER / case.images),
            out,
            case.storage,
            PipelineConfig(image_size=case.image_size, decode=case.decode, interpolation=case.interpolation),
            dtype=case.dtype,
        )
        return _images(open_prepared(out))


def _images(copy: ImageSource) -> np.ndarray | str:
    if copy.records is not None:
        return hashlib.sha256(b"".join(copy.records[index] for index in range(copy.images))).hexdigest()
    if copy.arrays is not None:
        return np.array(copy.arrays)
    decoded = [tf.io.decode_jpeg(tf.io.read_file(path), dct_method="INTEGER_ACCURATE").numpy() for path in copy.paths]
    return np.stack(decoded)


def differing(document: dict, cases: Collection[Case] = CASES) -> dict[str, str]:
    """Returns the cases whose pixels are not those of a golden document, and how far they are off."""
    problems = {}
    for case in cases:
        problem = _difference(case, pixels_of(case), document["pixels"].get(case.name))
        if problem:
            problems[case.name] = problem
    return problems


def _difference(case: Case, pixels: np.ndarray | str, recorded: dict | str | None) -> str | None:
    if recorded is None:
        return "not recorded"
    if isinstance(pixels, str) or isinstance(recorded, str):
        return None if pixels == recorded else "other bytes"
    expected = _decoded(recorded)
    if (list(pixels.shape), pixels.dtype) != (recorded["shape"], recorded["dtype"]):
        return f"{pixels.shape} {pixels.dtype} in place of {recorded['shape']} {recorded['dtype']}"
    # Each image by itself, because a change may concern one format alone.
    apart = np.abs(pixels - expected).reshape(len(pixels), -1)
    if case.dtype == "float32":
        wrong = apart.max() > _FLOAT_TOLERANCE
    elif case.storage == "raw":
        wrong = apart.max() > 1 or (apart > 0).mean(1).max() > _OTHER_RATIO
    else:
        wrong = apart.mean(1).max() > _MEAN_TOLERANCE
    means = ", ".join(f"{mean:.2f}" for mean in apart.mean(1))
    return f"up to {apart.max():.2f} levels apart, on average by image {means}" if wrong else None


def _encoded(pixels: np.ndarray | str) -> dict | str:
    if isinstance(pixels, str):
        return pixels
    levels = np.rint(pixels * _STEPS).astype("<u2") if pixels.dtype == np.float32 else pixels
    text = base64.b64encode(levels.tobytes()).decode()
    return {"shape": list(pixels.shape), "dtype": str(pixels.dtype), "base64": text}


def _decoded(recorded: dict) -> np.ndarray:
    """Returns recorded pixels as float64."""
    content = base64.b64decode(recorded["base64"])
    if recorded["dtype"] == "float32":
        return np.frombuffer(content, "<u2").reshape(recorded["shape"]) / _STEPS
    return np.frombuffer(content, np.uint8).reshape(recorded["shape"]).astype(np.float64)


def problem_with(document: dict, cases: Collection[Case] = CASES) -> str | None:
    """Returns how the golden pixels differ from those made now, and what to do; None if they do not differ."""
    if document["pixels_version"] != copies.PIXELS_VERSION:
        return (
            f"The golden pixels are those of version {document['pixels_version']}, and PIXELS_VERSION is "
            f"{copies.PIXELS_VERSION}. Record them again: {COMMAND}"
        )
    problems = differing(document, cases)
    if not problems:
        return None
    lines = [f"Copies have other pixels than those recorded for PIXELS_VERSION = {copies.PIXELS_VERSION}:"]
    lines += [f"  {name}: {problem}" for name, problem in problems.items()]
    if document["libraries"] == LIBRARIES:
        lines.append(
            f"If that is meant, raise PIXELS_VERSION in pipeline/prepared/copies.py and record again: {COMMAND}"
        )
    else:
        lines.append(
            f"They were recorded with {document['libraries']}, and these are {LIBRARIES}. If only the libraries "
            f"changed, record again: {COMMAND}. If our code changed too, raise PIXELS_VERSION in "
            "pipeline/prepared/copies.py first."
        )
    return "\n".join(lines)


def record(path: Path = GOLDEN, cases: Collection[Case] = CASES) -> str | None:
    """Writes the golden pixels anew, unless users' copies would then be stale. Returns why not, or None."""
    if path.exists():
        document = json.loads(path.read_text())
        if (document["pixels_version"], document["libraries"]) == (copies.PIXELS_VERSION, LIBRARIES):
            recorded = [case for case in cases if case.name in document["pixels"]]
            problem = problem_with(document, recorded)
            if problem:
                return problem
    document = {
        "pixels_version": copies.PIXELS_VERSION,
        "libraries": LIBRARIES,
        "pixels": {case.name: _encoded(pixels_of(case)) for case in cases},
    }
    path.write_text(json.dumps(document, indent=1) + "\n")
    return None


if __name__ == "__main__":
    sys.exit(record())
