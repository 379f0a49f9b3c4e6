"""Bad input to the operation: the message names the argument, the value and what is accepted."""

from __future__ import annotations

import pytest
import torch

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
