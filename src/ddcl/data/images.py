"""Image sets with labels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ddcl.data.catalogue import SETS, DataSet
from ddcl.data.folder import check_split, find_files, missing, unknown
from ddcl.data.homes import fetch


class ImageSet(NamedTuple):
    """Pictures, a label for each, and the labels' names."""

    images: Tensor
    """uint8, (N, height, width) or (N, height, width, 3)."""
    labels: Tensor
    """int64, (N,)."""
    names: list[str]
    white: int
    """The value of the brightest pixel there can be: ``images / white`` lies between 0 and 1."""


def load_images(name: str, split: str = "train") -> ImageSet:
    """An image set by name: cifar10 (32x32, three colours), mnist (28x28) or digits (8x8, values 0 to 16).

    The data folder (``DDCL_DATA``) is looked into first: ``NAME/SPLIT.npz`` with the arrays ``x`` and ``y``, for the
    training split of cifar10 ``train_0.npz`` to ``train_4.npz``. What is not there comes from its public home, where
    the package that fetches it is installed and the network can be reached. The digits come with scikit-learn and have
    one split, "train".

    Args:
        name: of the set.
        split: "train" or "test".

    Example:
        >>> from ddcl.data import load_images
        >>> digits = load_images("digits")
        >>> tuple(digits.images.shape), digits.white
        ((1797, 8, 8), 16)
    """
    known = SETS.get(name)
    if known is None or known.kind != "images":
        raise unknown(name, "images")
    check_split(known, split)
    paths = find_files(known, split)
    white = 16 if name == "digits" else 255
    if paths is not None:
        images, labels = _read(paths)
    elif name == "digits":
        images, labels = _digits(known)
    else:
        rows = fetch(known, split)
        images, labels = np.stack([np.asarray(image, dtype=np.uint8) for image in rows.content]), np.array(rows.labels)
    return ImageSet(torch.from_numpy(images), torch.from_numpy(labels.astype(np.int64)), list(known.classes), white)


def _read(paths: Sequence[Path]) -> tuple[np.ndarray, np.ndarray]:
    images, labels = [], []
    for path in paths:
        with np.load(path) as arrays:
            if arrays["x"].dtype != np.uint8 or len(arrays["x"]) != len(arrays["y"]):
                raise ValueError(f"{path}: x must be uint8, of as many rows as y")
            images.append(arrays["x"])
            labels.append(arrays["y"])
    return np.concatenate(images), np.concatenate(labels)


def _digits(known: DataSet) -> tuple[np.ndarray, np.ndarray]:
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise missing(known, "train") from error
    found = load_digits()
    return found.images.astype(np.uint8), found.target
