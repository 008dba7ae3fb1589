"""Finds how a peer's work differs from that of a reference: pure functions of what the peer's process saw."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

from tests.benchmarks.evidence.peers.seen import Identity, Survey
from unstall.benchmarks.evidence.peers.loaders.work import FLIP_PROBABILITY, SIDE

# For pixel values from 0 to 1. Decoders, resizing filters and random draws differ by less, a missing step by more.
MEAN_TOLERANCE, STD_TOLERANCE = 0.02, 0.03
# Wider than that of all images, because the mean of the fewer images of one class is less certain.
CLASS_TOLERANCE = 0.03
# Augmented images with the right labels have at least this correlation of their brightness with that of their photos.
LEAST_PAIRING = 0.5
# At least this fraction of images must differ between two epochs; the others may be alike by chance.
LEAST_CHANGED_RATIO = 0.9
# Pixels, from 0 to 255, differ by 0 to 1.5 from those of the right rendition, and by 0.35 to 4.3 more from those of the
# next: medians over 32 photos of 400 pixels a side, for each peer of the catalogue. Decoders other than ours are among
# them.
MOST_DIFFERENCE, DIFFERENCE_MARGIN = 2.0, 0.1
_SHAPES = ((SIDE, SIDE, 3), (3, SIDE, SIDE))


def made_otherwise(differences: Mapping[str, tuple[float, ...]], stated: str) -> tuple[str, ...]:
    """Returns how a peer's images were made, where it is not as stated; empty where it is.

    Args:
      differences: by rendition, how far each image is from the same photo made in that way, from 0 to 255.
      stated: the rendition that the catalogue states.
    """
    medians = {name: statistics.median(each) for name, each in differences.items()}
    nearest = min(medians, key=lambda name: medians[name])
    off, least = medians[stated], medians[nearest]
    if off > MOST_DIFFERENCE:
        return (f"pixels off by {off:.1f} of 255 from {stated}, by {least:.1f} from {nearest}",)
    # Renditions of small or smooth photos are alike: then the stated one need not be the nearest.
    if off - least > DIFFERENCE_MARGIN:
        return (f"{nearest}, not {stated}: pixels off by {least:.1f} and {off:.1f} of 255",)
    return ()


def differences(survey: Survey, identity: Identity, reference: Survey, dtype: str) -> tuple[str, ...]:
    """Returns how a peer's work differs from the reference's, in words; empty if it does not differ.

    Args:
      survey: what one epoch of the peer looked like.
      identity: what two epochs with numbered images showed.
      reference: the survey of the reference.
      dtype: the dtype that the batches must have.
    """
    return (*_form(survey, reference, dtype), *_content(survey, reference), *_numbered(identity))


def _form(survey: Survey, reference: Survey, dtype: str) -> list[str]:
    differing = []
    if survey.images != reference.images:
        differing.append(f"{survey.images:,} images an epoch, not {reference.images:,}")
    if not survey.full_batches:
        differing.append("batches of other sizes")
    if survey.shape not in _SHAPES:
        differing.append(f"images of {'x'.join(map(str, survey.shape))}")
    if survey.dtype != dtype:
        differing.append(f"{survey.dtype}, not {dtype}")
    return differing


def _content(survey: Survey, reference: Survey) -> list[str]:
    low, high = survey.range
    if low < -1e-6 or high > (255 if survey.dtype == "uint8" else 1 + 1e-6):
        return [f"values from {low:.3g} to {high:.3g}"]
    differing = []
    for name, ours, theirs, tolerance in (
        ("mean", survey.mean, reference.mean, MEAN_TOLERANCE),
        ("std", survey.std, reference.std, STD_TOLERANCE),
    ):
        off = max(abs(value - other) for value, other in zip(ours, theirs, strict=True))
        if off > tolerance:
            differing.append(f"{name} off by {off:.3f}")
    if survey.labels != reference.labels:
        differing.append(f"labels {_counts(survey.labels)}, not {_counts(reference.labels)}")
    else:
        off = max(abs(survey.class_means[label] - mean) for label, mean in reference.class_means.items())
        if off > CLASS_TOLERANCE:
            differing.append(f"a class's mean off by {off:.3f}")
    return differing


def _counts(labels: Mapping[str, int]) -> str:
    listed = ", ".join(f"{label}: {count:,}" for label, count in list(labels.items())[:4])
    return f"{listed}, ..." if len(labels) > 4 else listed


def _numbered(identity: Identity) -> list[str]:
    differing = []
    if not identity.once:
        differing.append(f"not each image once an epoch ({identity.distinct:,} of {identity.images:,} seen)")
    if not identity.shuffled:
        differing.append("not shuffled")
    if identity.pairing < LEAST_PAIRING:
        differing.append(f"labels of other images (correlation {identity.pairing:.2f})")
    if identity.changed_ratio < LEAST_CHANGED_RATIO:
        differing.append(f"{1 - identity.changed_ratio:.0%} of the images the same in two epochs")
    # Three standard deviations of this many coin flips, and 0.1 for crops so strong that they hide a flip.
    margin = 0.1 + 3 * 0.5 / (2 * max(identity.images, 1)) ** 0.5
    if abs(identity.flipped_ratio - FLIP_PROBABILITY) > margin:
        differing.append(f"{identity.flipped_ratio:.0%} flipped, not {FLIP_PROBABILITY:.0%}")
    return differing
