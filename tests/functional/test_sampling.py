"""Drawing prototypes from q."""

from __future__ import annotations

import pytest
import torch

import ddcl
from ddcl.functional.sampling import sample_assignments
from ddcl.ops import blocks


@pytest.mark.parametrize("heads", [None, 3])
def test_prototypes_are_drawn_as_often_as_q_says(heads, generator):
    K, m, draws = 7, 5, 20_000
    shape = (m,) if heads is None else (heads, m)
    z = torch.randn(*shape)
    bank = torch.randn(*shape[:-1], K, m)
    T = 2.0 if heads is None else torch.tensor([0.5, 2.0, 8.0])
    drawn = sample_assignments(z.expand(draws, *shape), bank, T, generator=generator)
    assert drawn.shape == (draws, *shape[:-1])
    q = ddcl.assignments(z, bank, T)
    share = torch.nn.functional.one_hot(drawn, K).float().mean(0)
    # five standard errors of a share
    assert ((share - q).abs() < 5 * (q * (1 - q) / draws).sqrt() + 1e-6).all()


def test_draws_do_not_depend_on_the_blocks(monkeypatch):
    z, bank = torch.randn(31, 5), torch.randn(11, 5)
    mask = torch.rand(31) > 0.3
    whole = sample_assignments(z, bank, 1.0, mask=mask, generator=torch.Generator().manual_seed(1))
    monkeypatch.setitem(blocks.BLOCK_NUMBERS, "cpu", 4 * 11)
    parts = sample_assignments(z, bank, 1.0, mask=mask, generator=torch.Generator().manual_seed(1))
    assert torch.equal(whole, parts)
    assert (whole[~mask] == -1).all()
    assert (whole[mask] >= 0).all()


def test_a_temperature_per_token_is_followed():
    bank = torch.tensor([[0.0], [1.0], [100.0]])
    z = torch.zeros(2000, 1)
    T = torch.where(torch.arange(2000) < 1000, 1e-6, 1e9)
    drawn = sample_assignments(z, bank, T)
    assert (drawn[:1000] == 0).all()
    assert torch.bincount(drawn[1000:], minlength=3).min() > 250  # a third each


def test_a_prototype_without_weight_is_never_drawn():
    # q is exactly 0 beyond the first, whatever the rounding of its running sum
    bank = torch.tensor([[1e3], [0.0], [1e3], [1e3]])
    assert (sample_assignments(torch.zeros(5000, 1), bank, 1.0) == 1).all()


def test_masked_content_and_half_precision_do_no_harm():
    z, bank = torch.randn(3, 7, 5), torch.randn(11, 5)
    mask = torch.rand(3, 7) > 0.4
    results = []
    for junk in (0.0, float("nan")):
        dirty = torch.where(mask.unsqueeze(-1), z, junk)
        results.append(sample_assignments(dirty, bank, 1.0, mask=mask, generator=torch.Generator().manual_seed(2)))
    assert torch.equal(*results)
    half = sample_assignments(z.bfloat16(), bank.bfloat16(), 1e-4)
    assert torch.equal(half, ddcl.readout(z.bfloat16(), bank.bfloat16(), 1.0).indices)


def test_shapes_without_tokens_and_on_the_meta_device_are_kept():
    assert sample_assignments(torch.randn(0, 3, 5), torch.randn(7, 5), 1.0).shape == (0, 3)
    found = sample_assignments(torch.randn(2, 3, 5, device="meta"), torch.randn(3, 7, 5, device="meta"), 1.0)
    assert found.shape == (2, 3)


@pytest.mark.bad_input
def test_bad_arguments_are_refused_by_name():
    with pytest.raises(ValueError, match=r"z: got shape \(2, 4\)"):
        sample_assignments(torch.randn(2, 4), torch.randn(7, 5), 1.0)
    with pytest.raises(ValueError, match="temperature: got 0"):
        sample_assignments(torch.randn(2, 5), torch.randn(7, 5), 0.0)
    with pytest.raises(ValueError, match=r"mask: got shape \(3,\)"):
        sample_assignments(torch.randn(2, 5), torch.randn(7, 5), 1.0, mask=torch.ones(3, dtype=torch.bool))


@pytest.mark.compiled
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_compiled_draws_follow_q_and_differ_from_call_to_call():
    torch._dynamo.reset()
    bank = torch.randn(3, 7, 5)
    fast = torch.compile(sample_assignments, fullgraph=True, backend="aot_eager", dynamic=True)
    for count in (5000, 7001):
        z = torch.randn(3, 5).expand(count, 3, 5)
        first, second = (fast(z, bank, 2.0) for _ in range(2))
        assert not torch.equal(first, second)
        q = ddcl.assignments(z[0], bank, 2.0)
        share = torch.nn.functional.one_hot(first, 7).float().mean(0)
        assert ((share - q).abs() < 5 * (q * (1 - q) / count).sqrt() + 1e-6).all()


def test_the_operator_passes_pytorchs_own_checks():
    z, bank, T = torch.randn(5, 2, 3), torch.randn(2, 4, 3), torch.ones(1, 2)
    for mask in (None, torch.rand(5) > 0.3):
        verdicts = torch.library.opcheck(
            torch.ops.ddcl.sample_assignments.default,
            (z, bank, T, mask, torch.rand(5, 2)),
            test_utils=("test_schema", "test_faketensor"),
        )
        assert set(verdicts.values()) == {"SUCCESS"}
