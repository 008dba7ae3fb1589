"""Lists the published comparisons of CPU and GPU: the cases that were measured, and the figures that were published."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from unstall.models import MODELS, Figure
from unstall.pipeline import VARIANTS, PipelineConfig

# The fastest of the variants that read the photos' own files. Source: docs/benchmarks.md.
BEST = "tf-data-composed"
FLOAT32 = "float32"
PRECISIONS = (FLOAT32, "mixed_float16", "mixed_bfloat16")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A network and how it is fed.

    Attributes:
      model: a name from `MODELS`.
      config: the pipeline that reads the photos; None for a network with data of its own, which lie in memory.
      feed: the name of the pipeline: a name from `VARIANTS`, or "arrays".
      batch_size: examples a step; None for all examples in a single step.
      precision: the dtype policy of Keras, one of `PRECISIONS`.
      steps_per_execution: as Keras' `compile` takes it.
    """

    model: str
    config: PipelineConfig | None
    feed: str
    batch_size: int | None
    precision: str = FLOAT32
    steps_per_execution: int = 1

    @property
    def name(self) -> str:
        """Names the case; no two cases have the same name."""
        parts = [self.model, self.feed, "full batch" if self.batch_size is None else f"batch {self.batch_size}"]
        if self.config is not None:
            parts.append(f"{self.config.workers} worker{'s' * (self.config.workers != 1)}")
        if self.precision != FLOAT32:
            parts.append(self.precision)
        if self.steps_per_execution != 1:
            parts.append(f"{self.steps_per_execution} steps an execution")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A published figure, and the cases that the figure is about.

    Attributes:
      kinds: the kinds of devices that the figure is about, "cpu" and "accelerator"; a ratio of the two has both.
      cases: the cases that were measured; a published range goes from the smallest to the largest of their figures.
      against: the case that a `rate_ratio` is over.
    """

    figure: Figure
    kinds: tuple[str, ...]
    cases: tuple[Case, ...]
    against: Case | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """A published comparison.

    Attributes:
      title: what was compared, in a few words.
      cases: what is measured on every device; the first case is the subject of the comparison.
      claims: the published figures.
    """

    title: str
    cases: tuple[Case, ...]
    claims: tuple[Claim, ...]

    def in_precision(self, precision: str) -> Experiment:
        """Returns the experiment with all cases in a precision."""

        def changed(case: Case) -> Case:
            return replace(case, precision=precision)

        return replace(
            self,
            cases=tuple(map(changed, self.cases)),
            claims=tuple(
                replace(
                    claim,
                    cases=tuple(map(changed, claim.cases)),
                    against=None if claim.against is None else changed(claim.against),
                )
                for claim in self.claims
            ),
        )


def photos(model: str, variant: str, *, augmented: bool = True) -> Case:
    """Returns a network fed from photos by a named variant.

    Args:
      augmented: False for the variant without shear, zoom and flip.
    """
    config = VARIANTS[variant] if augmented else replace(VARIANTS[variant], augmentation=None)
    feed = variant if config == VARIANTS[variant] else f"{variant}, not augmented"
    return Case(model=model, config=config, feed=feed, batch_size=config.batch_size)


def arrays(model: str, batch_size: int | None = None) -> Case:
    """Returns a network fed from its own data, with the published batch size unless another is given."""
    return Case(model=model, config=None, feed="arrays", batch_size=batch_size or MODELS[model].training.batch_size)


_CPU, _ACCELERATOR, _BOTH = ("cpu",), ("accelerator",), ("cpu", "accelerator")
_Chosen = Callable[[Figure], bool]


def _kinds(figure: Figure) -> tuple[str, ...]:
    """Returns the kinds of device that a figure is about, from the published names of the devices."""
    if figure.quantity == "speed_up" or figure.on in ("CPU and GPU", "VM and GPU"):
        return _BOTH
    return _CPU if any(word in figure.on for word in ("CPU", "VM", "Xeon")) else _ACCELERATOR


def _claims(model: str, *cases: Case, chosen: _Chosen = lambda _: True, against: Case | None = None) -> list[Claim]:
    """Returns a network's published figures on speed as claims about cases; those on accuracy are in `accuracy`."""
    return [
        Claim(
            figure=figure,
            kinds=_kinds(figure),
            cases=cases or (arrays(model),),
            against=against if figure.quantity == "rate_ratio" else None,
        )
        for figure in MODELS[model].published
        if figure.quantity != "accuracy" and chosen(figure)
    ]


def _of_arrays(title: str, model: str, *batch_sizes: int) -> Experiment:
    cases = tuple(arrays(model, size) for size in batch_sizes) or (arrays(model),)
    return Experiment(title=title, cases=cases, claims=tuple(_claims(model, *cases)))


def _pair(model: str) -> tuple[Case, Case]:
    """Returns a cat/dog network with its published pipeline, and with the best pipeline of this project."""
    return photos(model, "generator"), photos(model, BEST)


def _against(title: str, model: str, other: str) -> Experiment:
    """Returns an experiment that compares a cat/dog network with another."""
    new, old = _pair(model), _pair(other)
    return Experiment(title=title, cases=(*new, *old), claims=tuple(_claims(model, new[0], against=old[0])))


def _workers_and_batch() -> Experiment:
    plain, best = _pair("cats-dogs-64")
    four, larger, queue, ram = (
        photos("cats-dogs-64", f"generator-{name}") for name in ("4-workers", "batch-64", "queue-64", "ram")
    )
    larger_plain = replace(plain, config=replace(VARIANTS["generator"], batch_size=64), batch_size=64)
    claims = [
        *_claims(
            "cats-dogs-64", plain, larger_plain, four, larger, chosen=lambda figure: "workers 1 and 4" in figure.when
        ),
        *_claims("cats-dogs-64", larger, chosen=lambda figure: "best workers" in figure.when, against=plain),
        *_claims("cats-dogs-64", queue, ram, chosen=lambda figure: "queue" in figure.when, against=four),
    ]
    return Experiment(
        title="workers, batch size, queue and RAM disk on cats and dogs at 64 px",
        cases=(plain, larger_plain, four, larger, queue, ram, best),
        claims=tuple(claims),
    )


def _augmentation() -> Experiment:
    augmented, best = _pair("cats-dogs-64")
    plain, best_plain = photos("cats-dogs-64", "generator-no-augment"), photos("cats-dogs-64", BEST, augmented=False)
    rates: _Chosen = lambda figure: figure.quantity == "images_per_sec" and figure.on == "V100"  # noqa: E731
    claims = [
        *_claims("cats-dogs-64", augmented, chosen=lambda figure: rates(figure) and not figure.when),
        *_claims("cats-dogs-64", plain, chosen=lambda figure: rates(figure) and bool(figure.when)),
    ]
    return Experiment(
        title="cats and dogs without shear, zoom and flip",
        cases=(augmented, best, plain, best_plain),
        claims=tuple(claims),
    )


EXPERIMENTS: Mapping[str, Experiment] = MappingProxyType(
    {
        "cifar10-mlp": _of_arrays("a perceptron on CIFAR-10", "cifar10-mlp"),
        "mnist": _of_arrays("an extremely simple network on MNIST digits", "mnist-digits"),
        "text": _of_arrays("a small classifier of texts", "text-classifier"),
        "feed-forward": _of_arrays("10,000 x 1,000 random features, all in one batch", "feed-forward"),
        "cifar10-cnn": _of_arrays("TensorFlow's CIFAR-10 tutorial network", "cifar10-cnn", 128, 512),
        "workers-and-batch": _workers_and_batch(),
        "augmentation": _augmentation(),
        "deeper": _against("cats and dogs, one more pair of layers", "cats-dogs-64-deeper", "cats-dogs-64"),
        "dropout": _against("cats and dogs, dropout 0.5", "cats-dogs-64-dropout", "cats-dogs-64-deeper"),
        "128-px": _against("cats and dogs at 128 px", "cats-dogs-128", "cats-dogs-64-dropout"),
        "very-deep": _against("cats and dogs, 30 more convolutions", "cats-dogs-very-deep", "cats-dogs-128"),
    }
)
