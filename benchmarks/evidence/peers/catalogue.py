"""The catalogue of peers: where each peer's loader is made, how its library is installed, which workers it can have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from unstall.benchmarks.evidence.peers.loaders.work import CROP_AREA, CROP_ASPECT
from unstall.pipeline import BASELINE, VARIANTS, Augmentation, PipelineConfig
from unstall.pipeline.config import AUTO

_EXTRA = "pip install -e '.[peers]'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A loader of another library, or one of ours.

    Attributes:
      name: the peer's name in the table.
      module: the module that makes the loader; imported only in the peer's own process.
      functions: by work, the function of the module that makes the loader.
      renditions: by work, how the peer makes its images, which a test proves from their pixels. Peers are compared with
        those of the same rendition.
      packages: distributions whose versions are recorded; the version of the first is shown.
      install: how to install the packages.
      kinds: the kinds of workers that the peer can have, "threads" and "processes"; empty where the library decides.
      least: the smallest number of workers; 0 loads in the main thread.
      beyond_cores: whether the peer can have more workers than there are cores.
      part: whether the peer does only a part of the work, on as many threads as there are cores, and serves no batches
        that could be compared with other peers' batches.
      gpu: whether the peer works on a GPU, which other peers do not see.
      remedied: whether the library's loader has every remedy that this project knows, or else is as the library's own
        documentation has it.
      configs: by work, the description of the pipeline, where this project builds the pipeline.
      note: what a reader of the table must know.
    """

    name: str
    module: str
    functions: Mapping[str, str]
    packages: tuple[str, ...]
    renditions: Mapping[str, str]
    install: str = _EXTRA
    kinds: tuple[str, ...] = ()
    least: int = 1
    beyond_cores: bool = True
    part: bool = False
    gpu: bool = False
    remedied: bool = False
    configs: Mapping[str, PipelineConfig] = field(default_factory=dict)
    note: str = ""

    @property
    def ours(self) -> bool:
        return self.name.startswith("ours:")


# How images are made. All peers with one rendition do the same work, and are compared with each other.
_FULL, _SCALED = "full decode, bilinear", "scaled decode, bilinear"
_FULL_ANTIALIASED, _SCALED_ANTIALIASED = "full decode, antialiased", "scaled decode, antialiased"
_NEAREST, _COMPOSED = "full decode, nearest", "scaled decode, one resampling"
_CROPPED = {"prepared": "bilinear", "prepared-float": "bilinear"}

_PREPARED = {"prepared": "prepared", "prepared-float": "prepared"}
_TORCH = Peer(
    name="torch-opencv",
    module="benchmarks.evidence.peers.loaders.pytorch",
    functions={"cold": "opencv"},
    renditions={"cold": _FULL},
    packages=("torch", "opencv-python-headless"),
    kinds=("processes",),
    least=0,
    note="DataLoader",
)
_GRAIN = Peer(
    name="grain",
    module="benchmarks.evidence.peers.loaders.grain",
    functions={"cold": "cold"},
    renditions={"cold": _FULL},
    packages=("grain", "opencv-python-headless"),
    kinds=("threads", "processes"),
    least=0,
    note="OpenCV",
)
_SPDL = Peer(
    name="spdl",
    module="benchmarks.evidence.peers.loaders.spdl",
    functions={"cold": "full"},
    renditions={"cold": _FULL_ANTIALIASED},
    packages=("spdl", "spdl-io", "opencv-python-headless"),
    install=f"{_EXTRA}, and FFmpeg's libraries, version 4 to 9 (Debian, Ubuntu: apt install ffmpeg)",
    kinds=("threads",),
    note="FFmpeg; OpenCV warps",
)
_DALI = Peer(
    name="dali",
    module="benchmarks.evidence.peers.loaders.dali",
    functions={"cold": "cold"},
    renditions={"cold": _FULL_ANTIALIASED},
    packages=("nvidia-dali-cuda120",),
    kinds=("threads",),
    note="CPU; has no scaled decode",
)
_KERAS = Peer(
    name="image_dataset_from_directory",
    module="benchmarks.evidence.peers.loaders.described",
    functions={"cold": "described"},
    renditions={"cold": _FULL},
    packages=("keras", "tensorflow"),
    configs={"cold": VARIANTS["directory"]},
)


def _remedied(peer: Peer, remedy: str, function: str, renditions: Mapping[str, str], note: str = "") -> Peer:
    """Returns a library's peer with every remedy that we know; its name is the library's and the remedy's."""
    return replace(
        peer,
        name=f"{peer.name}:{remedy}",
        functions=dict.fromkeys(renditions, function),
        renditions=renditions,
        remedied=True,
        note=note or peer.note,
    )


def _with_opencv(peer: Peer) -> tuple[Peer, ...]:
    """Returns a peer that calls OpenCV, as its documentation has it, and with our remedies."""
    return (
        peer,
        _remedied(peer, "scaled", "two_resamplings", {"cold": _SCALED}),
        _remedied(peer, "composed", "one_resampling", {"cold": _COMPOSED}),
    )


def _with_arrays(peer: Peer, note: str) -> tuple[Peer, ...]:
    """Returns a peer that reads an array, as its documentation has it, and with our remedies."""
    plain = replace(peer, name=f"{peer.name.split('-')[0]}-array", functions=_PREPARED, renditions=_CROPPED, note=note)
    return plain, _remedied(plain, "planned", "two_resamplings", _CROPPED)


_CROPS = replace(
    VARIANTS["tf-data-raw"],
    augmentation=Augmentation(shear_degrees=0.0, zoom_range=0.0, crop_area=CROP_AREA, crop_aspect=CROP_ASPECT),
    output_dtype="uint8",
)

# The pipelines of our own rows, by work and name. At each work, the other peers are compared with the fastest of those
# that do the same work.
OURS: dict[str, dict[str, PipelineConfig]] = {
    "cold": {
        name: VARIANTS[name]
        for name in ("tf-data-composed", "py-dataset-composed", "tf-data-scaled-decode", "tf-data-autotune")
    },
    "prepared": {"tf-data-raw": _CROPS},
    "prepared-float": {"tf-data-raw": replace(_CROPS, output_dtype="float32")},
}
_OUR_RENDITIONS = {
    "tf-data-composed": {"cold": _COMPOSED},
    "py-dataset-composed": {"cold": _COMPOSED},
    "tf-data-scaled-decode": {"cold": _SCALED},
    "tf-data-autotune": {"cold": _FULL},
    "tf-data-raw": _CROPPED,
}

# Rows that do the same work by `pipeline.PythonBatches`: name -> the row of `OURS` with the same description.
_IN_PYTHON = {
    "python-composed": "tf-data-composed",
    "python-scaled": "tf-data-scaled-decode",
    "python-full": "tf-data-autotune",
    "python-raw": "tf-data-raw",
}

PEERS: dict[str, Peer] = {
    peer.name: peer
    for peer in (
        *_with_opencv(_TORCH),
        replace(
            _TORCH,
            name="torch-pillow",
            functions={"cold": "pillow"},
            renditions={"cold": _SCALED_ANTIALIASED},
            packages=("torch", "pillow"),
            note="DataLoader; Pillow's draft decode",
        ),
        replace(
            _TORCH,
            name="torch-albumentations",
            functions={"cold": "albumentations"},
            packages=("torch", "albumentations", "opencv-python-headless"),
            note="DataLoader; OpenCV decodes",
        ),
        *_with_arrays(_TORCH, "DataLoader; .npy, OpenCV"),
        *_with_opencv(_GRAIN),
        *_with_arrays(_GRAIN, "array in memory, OpenCV"),
        _SPDL,
        _remedied(_SPDL, "scaled", "scaled", {"cold": _SCALED_ANTIALIASED}),
        _remedied(_SPDL, "composed", "one_resampling", {"cold": _COMPOSED}, note="OpenCV"),
        _DALI,
        _remedied(_DALI, "fast", "remedied", {"cold": _FULL}, note="CPU; a faster inverse transform"),
        _KERAS,
        # Keras' workers do not read from one epoch into the next, those of our `PyDataset` neither: `fit` starts them.
        replace(
            _KERAS,
            name="ImageDataGenerator",
            configs={"cold": BASELINE},
            renditions={"cold": _NEAREST},
            kinds=("threads", "processes"),
            note="starts again for each epoch",
        ),
        Peer(
            name="ffcv",
            module="benchmarks.evidence.peers.loaders.ffcv",
            functions=_PREPARED,
            renditions={"prepared": "area", "prepared-float": "area"},
            packages=("ffcv", "numba", "torch"),
            install=(
                "Debian, Ubuntu: apt install g++ pkg-config libopencv-dev libturbojpeg0-dev; then "
                "pip install -e '.[peers,ffcv]' and pip install --no-deps ffcv==1.0.2"
            ),
            kinds=("threads",),
            # FFCV's workers are threads of Numba, which has no more threads than there are cores.
            beyond_cores=False,
            note=".beton, raw; batches go on over the end of an epoch",
        ),
        Peer(
            name="tfrecord",
            module="benchmarks.evidence.peers.loaders.tensorflow",
            functions=_PREPARED,
            renditions=_CROPPED,
            packages=("tensorflow",),
            note="tf.data, raw bytes, cached",
        ),
    )
}


# Parts of the cold work that every loader has to do, on all cores and without a loader: no loader can be faster.
PARTS = {
    name: Peer(
        name=name,
        module="benchmarks.evidence.peers.loaders.parts",
        functions={"cold": name.replace("-", "_")},
        renditions={"cold": _COMPOSED},
        packages=("unstall", "opencv-python-headless"),
        install="pip install -e .",
        kinds=("threads",),
        part=True,
        note=note,
    )
    for name, note in {
        "decode": "a part of the work: decodes from memory, scaled",
        "read-decode": "a part of the work: reads, decodes scaled",
        "read-decode-warp": "a part of the work: reads, decodes scaled, one warp",
    }.items()
}
# The last part by tf.data's threads: against the same by plain threads, what these and their hand-over cost.
PARTS["read-decode-warp-tf-data"] = replace(
    PARTS["read-decode-warp"],
    name="read-decode-warp-tf-data",
    module="benchmarks.evidence.peers.loaders.parts_tf_data",
    functions={"cold": "read_decode_warp_tf_data"},
    packages=("unstall", "opencv-python-headless", "tensorflow"),
    note="the same part, done by tf.data's threads",
)
# No bound for loaders: it decodes at full size, on another device.
PARTS["decode-gpu"] = Peer(
    name="decode-gpu",
    module="benchmarks.evidence.peers.loaders.nvjpeg",
    functions={"cold": "decode_gpu"},
    renditions={"cold": _FULL},
    packages=("torchvision", "torch"),
    install="pip install torchvision, on a machine with an NVIDIA GPU",
    kinds=("threads",),
    part=True,
    gpu=True,
    note="a part of the work: decodes on the GPU by nvJPEG, at full size",
)


def our_peers() -> dict[str, Peer]:
    """Returns a peer for each pipeline of `OURS`, and a peer without tf.data for each of `_IN_PYTHON`."""
    peers: dict[str, Peer] = {}
    for work, configs in OURS.items():
        for name, config in configs.items():
            earlier = peers.get(f"ours:{name}")
            others = dict(earlier.configs) if earlier else {}
            peers[f"ours:{name}"] = Peer(
                name=f"ours:{name}",
                module="benchmarks.evidence.peers.loaders.described",
                functions=dict.fromkeys((*others, work), "described"),
                renditions=_OUR_RENDITIONS[name],
                packages=("unstall", "tensorflow"),
                install="pip install -e .",
                kinds=() if config.workers == AUTO else ("threads",),
                configs={**others, work: config},
            )
    for name, served in _IN_PYTHON.items():
        peer = peers[f"ours:{served}"]
        peers[f"ours:{name}"] = replace(
            peer,
            name=f"ours:{name}",
            functions=dict.fromkeys(peer.configs, "in_python"),
            configs={work: replace(config, augment_with="opencv") for work, config in peer.configs.items()},
            packages=("unstall", "opencv-python-headless"),
            kinds=("processes",),
            least=0,
            note="no tf.data",
        )
    return peers


def all_peers() -> dict[str, Peer]:
    """Returns all peers, in the order of the catalogue: ours, other libraries' loaders, and parts of the work."""
    return our_peers() | PEERS | PARTS


def worker_choices(peer: Peer, cores: int, asked: tuple[int, ...] = ()) -> list[tuple[int | None, bool]]:
    """Returns the choices to try, each as (number of workers, whether they are processes).

    The numbers are those asked for, or else the peer's least, the number of cores, and twice the number of cores. A
    part of the work has as many threads as there are cores, whatever is asked for.
    """
    if peer.part:
        return [(cores, False)]
    if not peer.kinds:
        return [(None, False)]
    usual = (peer.least, cores, *([2 * cores] if peer.beyond_cores else []))
    numbers = sorted({number for number in asked or usual if number >= peer.least}) or [peer.least]
    choices: list[tuple[int | None, bool]] = []
    for kind in peer.kinds:
        processes = kind == "processes"
        # The least number, no worker or a single one, is tried with the first kind only: the kind makes no difference.
        alike = bool(choices) and processes
        choices += [(number, processes) for number in numbers if not (alike and number <= peer.least)]
    return choices


def workers_text(workers: int | None, processes: bool) -> str:
    if workers is None:
        return "auto"
    if workers == 0:
        return "main thread"
    return f"{workers} {'process' if processes else 'thread'}{'' if workers == 1 else 'es' if processes else 's'}"
