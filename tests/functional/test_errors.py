"""Bad input to the operation: the message names the argument, the value and what is accepted."""

from __future__ import annotations

import pytest
import torch

import ddcl
from ddcl import assignments, readout

pytestmark = pytest.mark.bad_input

GOOD = {"z": torch.randn(5, 3), "prototypes": torch.randn(4, 3), "temperature": 1.0}

BAD = [
    ({"temperature": 0.0}, ValueError, r"temperature: got 0.0, expected a positive finite number"),
    ({"temperature": -1}, ValueError, r"temperature: got -1, expected a positive"),
    ({"temperature": float("nan")}, ValueError, r"temperature: got nan"),
    ({"temperature": float("inf")}, ValueError, r"temperature: got inf"),
    ({"temperature": torch.tensor([1.0, 2.0, -3.0, 1.0, 1.0])}, ValueError, r"temperature: got -3.0"),
    ({"temperature": torch.tensor(float("nan"))}, ValueError, r"temperature: got nan"),
    ({"temperature": "warm"}, TypeError, r"temperature: got str, expected a number or a tensor"),
    ({"temperature": True}, TypeError, r"temperature: got bool"),
    ({"temperature": torch.tensor(1)}, TypeError, r"temperature: got dtype torch.int64"),
    ({"temperature": torch.ones(4)}, ValueError, r"temperature: got shape \(4,\), expected one that broadcasts"),
    ({"temperature": torch.ones(1, 5, 1)}, ValueError, r"temperature: got shape \(1, 5, 1\)"),
    ({"prototypes": torch.randn(0, 3)}, ValueError, r"prototypes: got shape \(0, 3\), expected K >= 1"),
    ({"prototypes": torch.randn(3)}, ValueError, r"prototypes: got shape \(3,\), expected \(K, m\)"),
    ({"prototypes": torch.randn(1, 1, 4, 3)}, ValueError, r"prototypes: got shape \(1, 1, 4, 3\)"),
    ({"prototypes": [[1.0, 2.0]]}, TypeError, r"prototypes: got list, expected a torch.Tensor"),
    ({"z": torch.randn(5, 2)}, ValueError, r"z: got shape \(5, 2\), expected \(..., m\) = \(..., 3\)"),
    (
        {"prototypes": torch.randn(2, 4, 3)},
        ValueError,
        r"z: got shape \(5, 3\), expected \(..., H, m\) = \(..., 2, 3\)",
    ),
    ({"prototypes": torch.randn(1, 4, 3)}, ValueError, r"for a bank of one head pass prototypes\[0\]"),
    ({"z": torch.tensor(1.0)}, ValueError, r"z: got shape \(\)"),
    ({"z": torch.ones(5, 3, dtype=torch.int64)}, TypeError, r"z: got dtype torch.int64, expected float64, float32"),
    ({"z": torch.randn(5, 3).double()}, TypeError, r"z: got dtype torch.float64 but prototypes have torch.float32"),
    ({"z": torch.randn(5, 3, device="meta")}, ValueError, r"z: is on meta but prototypes are on cpu"),
    ({"mask": torch.ones(4, dtype=torch.bool)}, ValueError, r"mask: got shape \(4,\), expected \(5,\)"),
    ({"mask": torch.ones(5, 3, dtype=torch.bool)}, ValueError, r"mask: got shape \(5, 3\), expected \(5,\)"),
    ({"mask": torch.ones(5)}, TypeError, r"mask: got dtype torch.float32, expected bool"),
    ({"mask": torch.tensor([0, 1, 2, 3, 4])}, ValueError, r"mask: got integers from 0 to 4, expected 0 and 1 only"),
    ({"mask": [True] * 5}, TypeError, r"mask: got list, expected a torch.Tensor or None"),
]
ONLY_READOUT = [
    ({"gradient": "half"}, ValueError, r"gradient: got 'half', expected one of 'full', 'stop'"),
    ({"backend": "cuda"}, ValueError, r"backend: got 'cuda', expected one of 'auto', 'reference', 'eager'"),
]


@pytest.mark.parametrize(
    ("bad", "error", "message"), [*BAD, *ONLY_READOUT], ids=lambda x: next(iter(x)) if isinstance(x, dict) else ""
)
def test_readout_refuses_bad_input_by_name(bad, error, message):
    with pytest.raises(error, match=message):
        readout(**{**GOOD, **bad})


@pytest.mark.parametrize(("bad", "error", "message"), BAD, ids=lambda x: next(iter(x)) if isinstance(x, dict) else "")
def test_assignments_refuse_the_same(bad, error, message):
    with pytest.raises(error, match=message):
        assignments(**{**GOOD, **bad})


@pytest.mark.parametrize("function", [ddcl.split_margins, ddcl.soft_usage, ddcl.cell_moments, ddcl.soft_kmeans_step])
def test_functions_of_a_bank_and_data_refuse_other_dimensions_and_temperatures_by_name(function):
    z, bank = torch.randn(10, 5), torch.randn(3, 4)
    with pytest.raises(ValueError, match=r"z: got shape \(10, 5\), expected \(..., 4\)"):
        function(z, bank, 1.0)
    with pytest.raises(ValueError, match=r"temperature: got shape \(3,\), expected a scalar"):
        function(torch.randn(10, 4), bank, torch.ones(3))
    with pytest.raises(ValueError, match="pass prototypes"):
        function(torch.randn(10, 4), bank[None], 1.0)


def test_labels_never_pass_for_a_mask():
    loader = [(torch.randn(4, 2), torch.tensor([0, 0, 1, 1]))]
    with pytest.raises(TypeError, match=r"got a batch \(z, torch.int64\), expected \(z, bool mask\); if .* labels"):
        ddcl.kmeans(loader, 2)
    with pytest.raises(TypeError, match="no tensor and no pair"):
        ddcl.covariance([(torch.randn(4, 2), None, None)])


def test_batches_of_different_dimensions_are_refused_by_name():
    with pytest.raises(ValueError, match=r"z: got shape \(4, 3\), expected \(..., 2\)"):
        ddcl.covariance([torch.randn(4, 2), torch.randn(4, 3)])


def test_counts_and_scales_are_refused_by_name():
    with pytest.raises(TypeError, match="indices: got int"):
        ddcl.usage([0, 1, 2], 4)
    for scale in (-1.0, float("nan"), torch.ones(3)):
        with pytest.raises(ValueError, match="scale: got"):
            ddcl.distinct_prototypes(torch.randn(4, 2), scale)
