"""Warnings about set-ups that end badly, and silence about the others."""

from __future__ import annotations

import math
import warnings

import pytest
from torch import nn

from ddcl import DDCLAttention, PrototypeBank, TokenNorm
from ddcl.training import GuardWarning, warn_of_ratio, warn_of_unconstrained_encoder
from ddcl.training.guards import STABLE_RATIOS, encoder_learns, unconstrained_encoder


def test_a_ratio_inside_the_stable_range_passes_without_a_word():
    low, high = STABLE_RATIOS
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for epsilon in (low, 0.01, high):
            warn_of_ratio(epsilon)
    assert said == []


@pytest.mark.parametrize(
    ("epsilon", "message"),
    [
        (math.nextafter(0.1, 1), r"above 0\.1\. The bank must be the faster"),
        (1.0, "is 1 times the bank's, above"),
        (math.nextafter(1e-4, 0), r"below 0\.0001: it will hardly move"),
        (1e-6, "is 1e-06 times the bank's, below"),
    ],
)
def test_a_ratio_outside_the_stable_range_is_warned_of(epsilon, message):
    with pytest.warns(GuardWarning, match=message):
        warn_of_ratio(epsilon)


def encoder_and_bank(*between: nn.Module, frozen: bool = False) -> nn.Sequential:
    encoder = nn.Linear(7, 3)
    return nn.Sequential(encoder.requires_grad_(not frozen), *between, PrototypeBank(5, 3))


@pytest.mark.parametrize(
    ("model", "learns", "unconstrained"),
    [
        (PrototypeBank(5, 3), False, False),
        (encoder_and_bank(), True, True),
        (encoder_and_bank(frozen=True), False, False),
        (encoder_and_bank(TokenNorm(3, "none")), True, True),
        (encoder_and_bank(TokenNorm(3, "unit")), True, False),
        (encoder_and_bank(TokenNorm(3, "layer")), True, False),
        (encoder_and_bank(TokenNorm(3, "standard")), True, False),
        (encoder_and_bank(TokenNorm(3), frozen=True), False, False),
        (DDCLAttention(6, 5), True, True),
        (DDCLAttention(6, 5, normalise="standard"), True, False),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else str(value),
)
def test_an_encoder_is_unconstrained_if_it_learns_and_nothing_normalises_its_tokens(model, learns, unconstrained):
    assert encoder_learns(model) is learns
    assert unconstrained_encoder(model) is unconstrained
    if unconstrained:
        with pytest.warns(GuardWarning, match="maps everything to one point"):
            warn_of_unconstrained_encoder(model)
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warn_of_unconstrained_encoder(model)


def test_a_bank_whose_prototypes_alone_learn_is_no_encoder_with_several_banks_either():
    assert not encoder_learns(nn.ModuleList([PrototypeBank(5, 3), PrototypeBank(4, 3, num_heads=2)]))
