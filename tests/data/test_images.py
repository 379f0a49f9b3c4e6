"""Image sets from the user's folder, from the hub, and from scikit-learn."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch

from ddcl.data import MissingDataError, load_images


def pictures(count, *shape, start=0):
    return (np.arange(count * int(np.prod(shape))) + start).astype(np.uint8).reshape(count, *shape)


def test_a_split_in_several_files_is_strung_together_in_their_order(tmp_path, monkeypatch):
    (tmp_path / "cifar10").mkdir()
    parts = [pictures(2, 32, 32, 3, start=17 * i) for i in range(5)]
    for i, part in enumerate(parts):
        np.savez(tmp_path / "cifar10" / f"train_{i}.npz", x=part, y=np.array([i, i + 1]))
    monkeypatch.setenv("DDCL_DATA", str(tmp_path))
    found = load_images("cifar10")
    assert torch.equal(found.images, torch.from_numpy(np.concatenate(parts)))
    assert found.labels.tolist() == [0, 1, 1, 2, 2, 3, 3, 4, 4, 5]
    assert found.images.dtype == torch.uint8
    assert found.labels.dtype == torch.int64
    assert (found.names[3], found.white) == ("cat", 255)


def test_one_of_five_files_is_not_the_set(tmp_path, monkeypatch):
    (tmp_path / "cifar10").mkdir()
    np.savez(tmp_path / "cifar10" / "train_0.npz", x=pictures(1, 32, 32, 3), y=np.array([0]))
    monkeypatch.setenv("DDCL_DATA", str(tmp_path))
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingDataError, match=r"train_0\.npz to cifar10/train_4\.npz .*`pip install datasets`"):
        load_images("cifar10")


def test_pictures_from_the_hub_become_one_array(monkeypatch):
    class Rows(dict):
        features = {"label": SimpleNamespace(names=list("0123456789"))}  # noqa: RUF012

    made = pictures(3, 28, 28)
    module = ModuleType("datasets")
    homes = {("ylecun/mnist", "test"): Rows(image=[*made], label=[7, 2, 1])}
    module.load_dataset = lambda address, split: homes[address, split]
    monkeypatch.setitem(sys.modules, "datasets", module)
    monkeypatch.delenv("DDCL_DATA", raising=False)
    found = load_images("mnist", "test")
    assert torch.equal(found.images, torch.from_numpy(made))
    assert found.labels.tolist() == [7, 2, 1]


def test_files_of_other_kinds_of_numbers_are_refused(tmp_path, monkeypatch):
    (tmp_path / "mnist").mkdir()
    np.savez(tmp_path / "mnist" / "test.npz", x=np.zeros((2, 28, 28), dtype=np.float32), y=np.zeros(2, dtype=np.int64))
    monkeypatch.setenv("DDCL_DATA", str(tmp_path))
    with pytest.raises(ValueError, match=r"test\.npz: x must be uint8"):
        load_images("mnist", "test")


def test_the_digits_need_no_folder_and_have_one_split(monkeypatch):
    pytest.importorskip("sklearn")
    monkeypatch.delenv("DDCL_DATA", raising=False)
    found = load_images("digits")
    assert found.images.shape == (1797, 8, 8)
    assert int(found.images.max()) == found.white == 16
    assert found.labels.bincount().tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    with pytest.raises(ValueError, match="digits has no split 'test'; it has train"):
        load_images("digits", "test")


def test_without_scikit_learn_the_digits_say_what_to_install(monkeypatch):
    monkeypatch.delenv("DDCL_DATA", raising=False)
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(MissingDataError, match="`pip install scikit-learn`"):
        load_images("digits")


def test_an_unknown_set_is_answered_with_the_known_ones():
    with pytest.raises(ValueError, match="no set of images called 'imagenet'; known: cifar10, mnist, digits"):
        load_images("imagenet")
