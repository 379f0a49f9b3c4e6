"""HierarchicalReadout: the paper's Proposition 5 level by level, pooling, paths, starting, and training."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from sklearn.metrics import adjusted_rand_score
from torch._dynamo.testing import CompileCounter

import ddcl
from ddcl.functional.segments import pool_segments, pool_sequence, pool_windows
from ddcl.nn.hierarchy import HierarchicalReadout, Level
from ddcl.training import quantisation_loss

B, T, DIM = 5, 11, 7
SENTENCES = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 2, 3, 3])
PARAGRAPHS = torch.tensor([0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1])


def ragged() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Sequences of different lengths, and so of different numbers of sentences; the last is empty."""
    lengths = torch.tensor([11, 7, 4, 9, 0])
    return torch.randn(B, T, DIM), torch.arange(T) < lengths.unsqueeze(-1), SENTENCES.expand(B, T)


def three_levels(**options) -> HierarchicalReadout:
    levels = [Level(6, pool="segments", temperature=0.9), Level(4, pool=3, temperature=0.5), Level(3, temperature=0.2)]
    return HierarchicalReadout(DIM, levels, **options)


def forward(hierarchy, x, mask=None, segments=None):
    """The call for any of the hierarchies here: segments go only where they are asked for."""
    wants = any(level.level.pool == "segments" for level in hierarchy.levels)
    return hierarchy(x, mask, segments if wants else None)


POOLS = {
    "mask": [Level(5), Level(3)],
    "windows": [Level(5, pool=4), Level(3)],
    "segments": [Level(5, pool="segments"), Level(3)],
    "plain": [Level(5, pool=None), Level(3, pool=None)],
    "projected": [Level(5, dim=4, pool="segments", normalise="standard"), Level(3, dim=6, num_heads=2)],
}
by_pool = pytest.mark.parametrize("levels", POOLS.values(), ids=POOLS)


def test_two_levels_are_two_readouts_with_a_mean_over_tokens_between_them():
    hierarchy = HierarchicalReadout(DIM, [Level(6, temperature=0.9), Level(4, temperature=0.3)])
    x, mask, _ = ragged()
    first, second = (level.bank.prototypes[0] for level in hierarchy.levels)
    q = torch.softmax(-(x.unsqueeze(-2) - first).square().sum(-1) / 0.9, -1)
    pooled = torch.stack([(q @ first)[b, mask[b]].mean(0) for b in range(B - 1)])
    q = torch.softmax(-(pooled.unsqueeze(-2) - second).square().sum(-1) / 0.3, -1)
    out = hierarchy(x, mask)
    torch.testing.assert_close(out.levels[1].items[: B - 1, 0], pooled)
    torch.testing.assert_close(out.vector[: B - 1], q @ second)
    assert (out.vector[B - 1] == 0).all()
    assert out.mask.tolist() == [True, True, True, True, False]
    expected = (q * (pooled.unsqueeze(-2) - second).square().sum(-1)).sum(-1).mean()
    torch.testing.assert_close(out.levels[1].readout.loss.total, expected)


def test_the_total_is_the_weighted_sum_of_all_reconstructions_and_variances():
    weights = (1.0, 0.5, 3.0)
    levels = [Level(6, pool="segments", weight=weights[0]), Level(4, pool=3, weight=weights[1])]
    hierarchy = HierarchicalReadout(DIM, [*levels, Level(3, weight=weights[2])], dtype=torch.float64)
    x, mask, segments = ragged()
    vector, loss, found = hierarchy(x.double(), mask, segments)
    assert vector.shape == (B, DIM)
    assert len(found) == 3
    parts = [level.readout.loss for level in found]
    for name in ("total", "reconstruction", "variance", "entropy"):
        expected = sum(w * getattr(part, name) for w, part in zip(weights, parts, strict=True))
        torch.testing.assert_close(getattr(loss, name), expected)
    torch.testing.assert_close(loss.total, loss.reconstruction + loss.variance, rtol=1e-12, atol=0)
    assert all(part.variance > 0 for part in parts)


@pytest.mark.parametrize("detach", [False, True])
def test_the_force_on_each_level_is_that_of_its_own_assignments_alone(detach):
    hierarchy = three_levels(gradient="stop", detach=detach, dtype=torch.float64)
    x, mask, segments = ragged()
    out = hierarchy(x.double(), mask, segments)
    for level, module in zip(out.levels, hierarchy.levels, strict=True):
        P, T_level = module.bank.prototypes, module.bank.temperature
        z = level.items[level.mask].detach()
        q = torch.softmax(-(z.unsqueeze(-2) - P[0].detach()).square().sum(-1) / T_level, -1)
        sigma = (torch.diag_embed(q) - q.unsqueeze(-1) * q.unsqueeze(-2)).mean(0)  # of V as a mean over items
        (force,) = torch.autograd.grad(level.readout.loss.variance, P, retain_graph=True)
        torch.testing.assert_close(force[0], 2 * sigma @ P[0].detach(), rtol=1e-9, atol=1e-12)
        assert force.abs().max() > 1e-3


def pull(hierarchy, term, at, on):
    """The gradient of a term of level ``at`` with respect to the bank of level ``on``, largest entry."""
    x, mask, segments = ragged()
    value = getattr(hierarchy(x, mask, segments).levels[at].readout.loss, term)
    (grad,) = torch.autograd.grad(value, hierarchy.levels[on].bank.prototypes, allow_unused=True)
    return 0.0 if grad is None else float(grad.abs().max())


@pytest.mark.parametrize(("at", "on"), [(1, 0), (2, 0), (2, 1)])
def test_level_below_feels_the_variance_above_in_mode_full_only_and_never_if_detached(at, on):
    # the ledger's claim "hierarchy-decoupled": in a plain stack the whole loss is felt in either mode, in mode stop one
    # level down, since with q held a soft centroid does not depend on its item
    assert pull(three_levels(gradient="full"), "variance", at, on) > 1e-6
    assert pull(three_levels(gradient="full"), "total", at, on) > 1e-6
    assert pull(three_levels(gradient="stop"), "variance", at, on) == 0
    assert (pull(three_levels(gradient="stop"), "total", at, on) > 1e-6) == (at - on == 1)
    for gradient in ("full", "stop"):
        assert pull(three_levels(gradient=gradient, detach=True), "total", at, on) == 0
        assert pull(three_levels(gradient=gradient), "total", on, at) == 0  # nothing flows up


@pytest.mark.parametrize(
    ("gradient", "detach", "reached"), [("full", False, True), ("full", True, False), ("stop", False, False)]
)
def test_a_task_reaches_the_tokens_in_mode_full_if_not_detached(gradient, detach, reached):
    x, mask, segments = ragged()
    hierarchy, tokens = three_levels(gradient=gradient, detach=detach), x.clone().requires_grad_()
    hierarchy(tokens, mask, segments).vector.square().sum().backward()
    assert (tokens.grad is not None and bool(tokens.grad.abs().sum() > 0)) == reached
    assert hierarchy.levels[-1].bank.prototypes.grad.abs().sum() > 0


def mixture_of_mixtures(seed: int, topics: int = 4, words: int = 3, dim: int = 5):
    """Sequences, each of one topic; a topic is a cluster of words, a word a cluster of tokens."""
    draw = torch.Generator().manual_seed(seed)

    def centers(number: int, radius: float) -> torch.Tensor:
        while True:  # until they stand apart: a mixture whose parts coincide has no answer to recover
            found = radius * dim**-0.5 * torch.randn(number, dim, generator=draw)
            if torch.pdist(found).min() > 0.6 * radius:
                return found

    of_topics, of_words = centers(topics, 12.0), torch.stack([centers(words, 3.0) for _ in range(topics)])
    topic = torch.randint(topics, (203,), generator=draw)
    word = torch.randint(words, (203, 13), generator=draw)
    noise = 0.4 * dim**-0.5 * torch.randn(203, 13, dim, generator=draw)
    return of_topics[topic].unsqueeze(1) + of_words[topic.unsqueeze(1), word] + noise, topic * words, word, topic


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_a_mixture_of_mixtures_is_recovered_at_both_levels(seed):
    x, offset, word, topic = mixture_of_mixtures(seed)
    hierarchy = HierarchicalReadout(5, [Level(12), Level(4)])
    last = ddcl.Trainer(hierarchy, ddcl.Recipe(epochs=10)).fit(x.split(51))[-1]
    paths = hierarchy(x).paths
    assert adjusted_rand_score((offset.unsqueeze(1) + word).flatten(), paths[..., 0].flatten()) > 0.95
    assert adjusted_rand_score(topic, paths[:, 0, 1]) > 0.95
    assert last.troubles == ()
    assert last.metrics["levels.0.bank/0/distinct"] == 12
    assert last.metrics["levels.1.bank/0/distinct"] == 4


@pytest.mark.slow
def test_a_mixture_of_mixtures_is_recovered_by_descending_the_total_of_ragged_segments():
    x, offset, word, topic = mixture_of_mixtures(3)
    # two sequences one after the other, of which the second may be cut short: the topic changes inside the sequence
    pair = torch.cat([x[:100], x[100:200]], 1)
    mask = torch.arange(26) < torch.randint(7, 27, (100, 1))
    halves = (torch.arange(26) >= 13).long().expand(100, 26)
    topics = torch.stack([topic[:100], topic[100:200]], 1)
    hierarchy = HierarchicalReadout(5, [Level(12, pool="segments"), Level(4, pool=None)])
    batches = [(pair[i::4], mask[i::4], halves[i::4]) for i in range(4)]
    trainer = ddcl.Trainer(
        hierarchy,
        ddcl.Recipe(epochs=10),
        loss=lambda model, batch: model(*batch, num_segments=2).loss.total,
        forward=lambda model, batch: model(*batch, num_segments=2),
    )
    assert trainer.fit(batches)[-1].troubles == ()
    out = hierarchy(pair, mask, halves)
    words = torch.cat([(offset.unsqueeze(1) + word)[:100], (offset.unsqueeze(1) + word)[100:200]], 1)
    assert adjusted_rand_score(words[mask], out.paths[..., 0][mask]) > 0.95
    counts = out.mask
    assert 100 < counts.sum() < 200
    assert adjusted_rand_score(topics[counts], out.levels[1].readout.indices[counts]) > 0.95


def test_the_trainer_descends_the_loss_of_all_levels():
    hierarchy = HierarchicalReadout(DIM, [Level(6), Level(4, weight=2.0)])
    x, mask, _ = ragged()
    out = hierarchy(x, mask)
    assert torch.equal(quantisation_loss(hierarchy, (x, mask)), out.loss.total)
    quantisation_loss(hierarchy, (x, mask)).backward()
    assert all(level.bank.prototypes.grad.abs().sum() > 0 for level in hierarchy.levels)


def test_default_trainer_starts_and_moves_every_bank():
    x = torch.randn(29, T, DIM)
    hierarchy = HierarchicalReadout(DIM, [Level(5, pool=4), Level(3), Level(2)])
    history = ddcl.Trainer(hierarchy, ddcl.Recipe(epochs=2, restarts=1)).fit(x.split(10))
    assert all(level.bank.initialised for level in hierarchy.levels)
    assert {name.split("/")[0] for name in history[-1].metrics} == {f"levels.{i}.bank" for i in range(3)}


@by_pool
def test_masked_content_reaches_neither_outputs_nor_any_gradient(levels):
    hierarchy = HierarchicalReadout(DIM, levels)
    clean, _, segments = ragged()
    mask = torch.rand(B, T) > 0.4
    mask[2, :8] = False  # whole windows and segments of one sequence
    mask[4] = False
    results = []
    for junk in (0.0, float("nan"), 1e30):
        x = clean.clone()
        x[~mask] = junk
        x.requires_grad_()
        hierarchy.zero_grad()
        out = forward(hierarchy, x, mask, torch.where(mask, segments, 10**9 if junk else -1))
        (out.vector.square().sum() + out.loss.total).backward()
        grads = [p.grad.clone() for p in hierarchy.parameters()]
        results.append([out.vector, *out.loss, out.paths, x.grad, *grads])
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))
    assert all(torch.isfinite(one).all() for one in results[0])
    assert (results[0][0][4] == 0).all()
    assert (out.paths[~mask] == -1).all()
    assert (out.paths[mask] >= 0).all()


def test_ragged_segments_are_means_of_their_own_tokens_and_what_is_missing_is_masked():
    x, mask, segments = ragged()
    segments = segments.clone()
    segments[0, 4] = -1  # in no segment
    hierarchy = HierarchicalReadout(DIM, [Level(6, pool="segments"), Level(4, pool=None)])
    out = hierarchy(x, mask, segments)
    centroid, (items, counts, _) = out.levels[0].readout.centroid, out.levels[1]
    assert items.shape == (B, 4, DIM)
    for b in range(B):
        for g in range(4):
            inside = mask[b] & (segments[b] == g)
            assert counts[b, g] == inside.any()
            expected = centroid[b, inside].mean(0) if inside.any() else torch.zeros(DIM)
            torch.testing.assert_close(items[b, g], expected)
    assert counts.sum(-1).tolist() == [4, 3, 2, 3, 0]
    assert out.paths[0, 4, 0] >= 0  # the first level has read it
    assert out.paths[0, 4, 1] == -1
    assert out.levels[1].readout.per_token.total[~counts].eq(0).all()


def test_a_larger_num_segments_adds_masked_items_and_changes_nothing_else():
    hierarchy = three_levels()
    x, mask, segments = ragged()
    counted, given = hierarchy(x, mask, segments), hierarchy(x, mask, segments, num_segments=6)
    assert counted.levels[1].mask.shape == (B, 4)
    assert given.levels[1].mask.shape == (B, 6)
    torch.testing.assert_close(tuple(counted.loss), tuple(given.loss))
    torch.testing.assert_close(counted.vector, given.vector)
    assert torch.equal(counted.paths, given.paths)


def test_windows_that_do_not_divide_the_length_end_in_a_shorter_one():
    hierarchy = HierarchicalReadout(DIM, [Level(6, pool=4), Level(3)])
    x = torch.randn(B, T, DIM)
    out = hierarchy(x)
    expected = torch.stack([part.mean(1) for part in out.levels[0].readout.centroid.split(4, dim=1)], 1)
    assert expected.shape == (B, 3, DIM)
    torch.testing.assert_close(out.levels[1].items, expected)
    assert out.levels[1].mask is None
    masked = hierarchy(x, torch.arange(T).expand(B, T) < 6)
    torch.testing.assert_close(masked.levels[1].items[:, 1], masked.levels[0].readout.centroid[:, 4:6].mean(1))
    assert masked.levels[1].mask[0].tolist() == [True, True, False]


def test_segments_of_equal_length_are_windows_and_one_segment_is_the_whole_sequence():
    z, mask = torch.randn(3, 12, 5, dtype=torch.float64), torch.rand(3, 12) > 0.3
    pieces = (torch.arange(12) // 4).expand(3, 12)
    windows, given = pool_windows(z, 4, mask), pool_segments(z, pieces, 3, mask)
    torch.testing.assert_close(given.means, windows.means)
    assert torch.equal(given.mask, windows.mask)
    whole, given = pool_sequence(z, mask), pool_segments(z, torch.zeros_like(pieces), 1, mask)
    torch.testing.assert_close(given.means, whole.means)
    assert torch.equal(given.mask, whole.mask)


def test_numbers_outside_the_segments_belong_to_none_where_they_cannot_be_refused():
    z = torch.tensor([[1.0], [5.0], [7.0]])
    means, mask, groups = pool_segments(z, torch.tensor([0, 9, -4]), num_segments=2)
    assert means.flatten().tolist() == [1.0, 0.0]
    assert mask.tolist() == [True, False]
    assert groups.tolist() == [0, -1, -1]


def test_a_path_is_the_prototype_of_the_token_then_of_each_item_it_is_in():
    hierarchy = three_levels()
    x, mask, segments = ragged()
    out = hierarchy(x, mask, segments)
    tokens, sentences, documents = (level.readout.indices for level in out.levels)
    assert out.paths.shape == (B, T, 3)
    for b in range(B):
        for t in range(T):
            sentence = SENTENCES[t]
            expected = [tokens[b, t], sentences[b, sentence], documents[b, sentence // 3]] if mask[b, t] else [-1] * 3
            assert out.paths[b, t].tolist() == [int(one) for one in expected]
    assert len(out.paths[mask].unique(dim=0)) > 3


def test_paths_have_a_column_for_each_head():
    hierarchy = HierarchicalReadout(DIM, [Level(6, dim=4, num_heads=2), Level(3, dim=6, num_heads=3)])
    out = hierarchy(torch.randn(B, T, DIM))
    assert out.paths.shape == (B, T, 5)
    assert torch.equal(out.paths[..., :2], out.levels[0].readout.indices)
    assert torch.equal(out.paths[:, 8, 2:], out.levels[1].readout.indices[:, 0])
    assert out.vector.shape == (B, 6)


def test_nested_segments_are_given_by_token_for_each_level():
    levels = [Level(6, pool="segments"), Level(4, pool="segments"), Level(3)]
    hierarchy = HierarchicalReadout(DIM, levels)
    x, mask, sentences = ragged()
    paragraphs = PARAGRAPHS.expand(B, T)
    out = hierarchy(x, mask, (sentences, paragraphs))
    assert [level.items.shape[1] for level in out.levels] == [T, 4, 2]
    centroid = out.levels[1].readout.centroid
    torch.testing.assert_close(out.levels[2].items[0], centroid[0].unflatten(0, (2, 2)).mean(1))
    torch.testing.assert_close(out.levels[2].items[1, 1], centroid[1, 2])  # seven tokens: the third sentence alone
    assert out.levels[2].members[0].tolist() == PARAGRAPHS.tolist()
    same = hierarchy(x, mask, [sentences, paragraphs], num_segments=(4, 2))
    assert torch.equal(out.vector, same.vector)


def test_a_plain_stack_reads_every_centroid_again():
    hierarchy = HierarchicalReadout(DIM, [Level(6, pool=None), Level(4, pool=None)])
    x, mask, _ = ragged()
    out = hierarchy(x, mask)
    assert torch.equal(out.levels[1].items, out.levels[0].readout.centroid)
    assert out.vector.shape == (B, T, DIM)
    assert torch.equal(out.mask, mask)


def test_init_from_starts_each_level_from_what_the_started_ones_below_make_of_the_data():
    x, mask, segments = ragged()
    x = x.masked_fill(~mask.unsqueeze(-1), float("nan"))
    for data in (x, [(x[:2], mask[:2], segments[:2]), (x[2:], mask[2:], segments[2:])]):
        hierarchy = HierarchicalReadout(DIM, [Level(6, pool="segments"), Level(4), Level(2)])
        beside = {"mask": mask, "segments": segments} if isinstance(data, torch.Tensor) else {}
        assert hierarchy.init_from(data, num_segments=4, **beside) is hierarchy
        out = hierarchy(x, mask, segments, num_segments=4)
        for found, level in zip(out.levels, hierarchy.levels, strict=True):
            assert level.bank.initialised
            critical = ddcl.critical_temperature(found.items.detach(), mask=found.mask).float()
            torch.testing.assert_close(level.bank.temperature, 0.1 * critical.reshape(1))
        assert hierarchy.training


def test_init_from_takes_options_one_shot_iterators_and_pairs():
    x, mask, _ = ragged()
    batches = [(x[:3], mask[:3]), (x[3:], mask[3:])]
    found = []
    for data in (batches, iter(batches)):
        hierarchy = HierarchicalReadout(DIM, [Level(6), Level(3)])
        hierarchy.init_from(data, method="farthest", generator=torch.Generator().manual_seed(0))
        found.append([level.bank.prototypes.detach() for level in hierarchy.levels])
    torch.testing.assert_close(found[0], found[1])


def test_init_from_sets_running_moments_before_the_bank_meets_them():
    x, mask, _ = ragged()
    hierarchy = HierarchicalReadout(DIM, [Level(6, normalise="standard"), Level(3, normalise="standard")])
    hierarchy.init_from([(5 + 3 * x, mask)]).eval()
    for level in hierarchy(5 + 3 * x, mask).levels:
        counted = level.items[level.mask]
        torch.testing.assert_close(counted.mean(0), torch.zeros(DIM), atol=1e-4, rtol=0)
        torch.testing.assert_close(counted.var(0, correction=0), torch.ones(DIM), atol=1e-3, rtol=0)


def test_init_from_is_not_seen_by_what_follows_the_banks_in_training():
    x, mask, _ = ragged()
    hierarchy = HierarchicalReadout(DIM, [Level(6), Level(3)])
    mover = ddcl.SoftKMeans().attach(hierarchy)
    hierarchy.init_from(x, mask=mask)
    before = [level.bank.prototypes.clone() for level in hierarchy.levels]
    mover.step()  # has seen nothing, so nothing moves
    assert all(torch.equal(a, b.bank.prototypes) for a, b in zip(before, hierarchy.levels, strict=True))


@by_pool
def test_state_dict_round_trip_restores_outputs(levels):
    x, mask, segments = ragged()
    hierarchy, other = HierarchicalReadout(DIM, levels), HierarchicalReadout(DIM, levels)
    wants = any(level.pool == "segments" for level in levels)
    hierarchy.init_from(x, mask=mask, segments=segments if wants else None)
    other.load_state_dict(hierarchy.state_dict(), strict=True)
    one, two = (forward(model.eval(), x, mask, segments) for model in (hierarchy, other))
    assert torch.equal(one.vector, two.vector)
    assert all(level.bank.initialised for level in other.levels)


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["deepcopy", "pickle"])
def test_copies_give_the_same_outputs_and_are_independent(clone):
    hierarchy = three_levels()
    other = clone(hierarchy)
    x, mask, segments = ragged()
    assert torch.equal(hierarchy(x, mask, segments).vector, other(x, mask, segments).vector)
    with torch.no_grad():
        other.levels[0].bank.prototypes += 1
    assert not torch.equal(hierarchy(x, mask, segments).vector, other(x, mask, segments).vector)


@by_pool
def test_device_and_dtype_reach_every_part(levels):
    hierarchy = HierarchicalReadout(DIM, levels, device="meta", dtype=torch.bfloat16)
    assert all(p.is_meta and p.dtype == torch.bfloat16 for p in hierarchy.parameters())
    wants = any(level.pool == "segments" for level in levels)
    segments = torch.zeros(B, T, device="meta", dtype=torch.int64) if wants else None
    x = torch.randn(B, T, DIM, device="meta", dtype=torch.bfloat16)
    out = hierarchy(x, None, segments, num_segments=4 if wants else None)
    assert out.vector.is_meta
    assert out.vector.shape[0] == B


@by_pool
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_every_float_type_trains(levels, dtype):
    hierarchy = HierarchicalReadout(DIM, levels, dtype=dtype)
    x, mask, segments = ragged()
    out = forward(hierarchy, x.to(dtype), mask, segments)
    assert out.vector.dtype == dtype
    assert out.loss.total.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    (out.vector.float().sum() + out.loss.total).backward()
    assert all(torch.isfinite(p.grad).all() and p.grad.dtype == dtype for p in hierarchy.parameters())


def test_means_of_half_precision_are_taken_in_float32():
    z = torch.full((1, 4099, 1), 1.0, dtype=torch.bfloat16)  # bfloat16 cannot count beyond 256
    segments = torch.zeros(1, 4099, dtype=torch.int64)
    for found in (pool_sequence(z), pool_windows(z, 4096), pool_segments(z, segments, 1)):
        assert found.means.dtype == torch.bfloat16
        assert (found.means == 1).all()


@by_pool
def test_autocast_computes_projections_in_half_and_means_and_losses_in_float32(levels):
    hierarchy = HierarchicalReadout(DIM, levels)
    x, mask, segments = ragged()
    plain = forward(hierarchy, x, mask, segments)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = forward(hierarchy, x, mask, segments)
    assert mixed.loss.total.dtype == torch.float32
    torch.testing.assert_close(mixed.loss.total, plain.loss.total, rtol=0.05, atol=0.05)
    if levels[0].dim is None:  # no projection, so nothing is computed in half
        assert torch.equal(mixed.vector, plain.vector)
    (mixed.vector.float().sum() + mixed.loss.total).backward()
    assert all(p.grad.dtype == torch.float32 for p in hierarchy.parameters())


@by_pool
def test_batches_of_nothing_and_any_number_of_leading_axes_are_defined(levels):
    hierarchy = HierarchicalReadout(DIM, levels).eval()  # nothing has no moments to be standardised by
    for shape in ((0, T), (T,), (2, 3, T), (3, 0)):
        segments = SENTENCES.expand(shape) if shape[-1] == T else torch.zeros(shape, dtype=torch.int64)
        out = forward(hierarchy, torch.randn(*shape, DIM), None, segments)
        assert out.vector.shape[: len(shape) - 1] == shape[:-1]
        assert out.paths.shape[:-1] == shape
        assert torch.isfinite(out.loss.total)


def test_one_level_is_a_bank_and_a_mean():
    hierarchy = HierarchicalReadout(DIM, [Level(6)])
    x = torch.randn(B, T, DIM)
    out = hierarchy(x)
    alone = hierarchy.levels[0].bank(x)
    torch.testing.assert_close(out.vector, alone.centroid.mean(1))
    assert torch.equal(out.loss.total, alone.loss.total)


def test_repr_says_how_the_levels_pool():
    text = repr(three_levels(detach=True))
    assert f"dim={DIM}, detach=True" in text
    assert "pool='segments', weight=1" in text
    assert "num_prototypes=6" in text


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"num_prototypes": 0}, ValueError, "num_prototypes: got 0"),
        ({"dim": 0}, ValueError, "dim: got 0"),
        ({"num_heads": 0}, ValueError, "num_heads: got 0"),
        ({"pool": 0}, ValueError, "pool: got 0, expected an integer of at least 1"),
        ({"pool": "mean"}, ValueError, "pool: got 'mean', expected one of 'mask', 'segments'"),
        ({"temperature": -1.0}, ValueError, "temperature: got -1.0"),
        ({"normalise": "batch"}, ValueError, "normalise: got 'batch'"),
        ({"weight": -1.0}, ValueError, "weight: got -1.0, expected a finite number of at least 0"),
    ],
)
def test_bad_levels_are_refused_by_name(arguments, error, message):
    with pytest.raises(error, match=message):
        Level(**{"num_prototypes": 4, **arguments})


@pytest.mark.bad_input
def test_bad_hierarchies_are_refused_by_name():
    with pytest.raises(ValueError, match="levels: got none, expected at least one Level"):
        HierarchicalReadout(DIM, [])
    with pytest.raises(TypeError, match="levels: got int among them, expected Level"):
        HierarchicalReadout(DIM, [6, 3])
    with pytest.raises(ValueError, match="dim: got 0"):
        HierarchicalReadout(0, [Level(6)])


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("segments", "options", "error", "message"),
    [
        (None, {}, ValueError, "segments: got 0, expected 1, one for each level with pool='segments'"),
        ((SENTENCES, SENTENCES), {}, ValueError, "segments: got 2, expected 1"),
        (SENTENCES, {}, ValueError, r"segments: got shape \(11,\), expected \(5, 11\), one entry per token"),
        (SENTENCES.expand(B, T).float(), {}, TypeError, "segments: got dtype torch.float32, expected integers"),
        (SENTENCES.expand(B, T), {"num_segments": 3}, ValueError, "segments: got numbers up to 3, expected below"),
        (SENTENCES.expand(B, T), {"num_segments": 0}, ValueError, "num_segments: got 0"),
        (SENTENCES.expand(B, T), {"num_segments": (4, 2)}, ValueError, "num_segments: got 2 numbers, expected 1"),
        (["a"], {}, TypeError, "segments: got str, expected a torch.Tensor"),
    ],
)
def test_bad_segments_are_refused_by_name(segments, options, error, message):
    with pytest.raises(error, match=message):
        three_levels()(torch.randn(B, T, DIM), None, segments, **options)


@pytest.mark.bad_input
def test_segments_that_cut_items_or_that_nothing_asks_for_are_refused():
    x, segments = torch.randn(B, T, DIM), SENTENCES.expand(B, T)
    nested = HierarchicalReadout(DIM, [Level(6, pool=2), Level(4, pool="segments"), Level(3)])
    with pytest.raises(ValueError, match="segments: got tokens of one item of the level below in different segments"):
        nested(x, None, segments)
    with pytest.raises(ValueError, match=r"segments: got 1, expected 0, .*; none has it"):
        HierarchicalReadout(DIM, [Level(6)])(x, None, segments)


@pytest.mark.bad_input
def test_bad_tokens_and_batches_are_refused_by_name():
    hierarchy = HierarchicalReadout(DIM, [Level(6)])
    with pytest.raises(ValueError, match=r"x: got shape \(7,\), expected \(..., T, 7\)"):
        hierarchy(torch.randn(DIM))
    with pytest.raises(TypeError, match=r"x: got dtype torch.float64"):
        hierarchy(torch.randn(B, T, DIM).double())
    with pytest.raises(ValueError, match="mask: got shape"):
        hierarchy(torch.randn(B, T, DIM), torch.ones(B, dtype=torch.bool))
    with pytest.raises(TypeError, match=r"data: got a batch \(x, torch.int64\), expected \(x, bool mask\)"):
        hierarchy.init_from([(torch.randn(B, T, DIM), torch.zeros(B, dtype=torch.int64))])
    with pytest.raises(TypeError, match="data: got batches beside mask or segments"):
        hierarchy.init_from([torch.randn(B, T, DIM)], mask=torch.ones(B, T, dtype=torch.bool))


compiler = [
    pytest.mark.compiled,
    # PyTorch's own modules warn about each other while tracing
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


@pytest.fixture
def compile_():
    torch._dynamo.reset()
    yield lambda fn, **options: torch.compile(fn, fullgraph=True, backend="aot_eager", **options)
    torch._dynamo.reset()


class TestCompiled:
    pytestmark = compiler

    @pytest.mark.slow
    @pytest.mark.parametrize("masked", [False, True])
    def test_every_kind_of_pooling_compiles_and_trains_the_same(self, masked, compile_):
        levels = [Level(6, pool=None), Level(5, dim=4, pool="segments", normalise="standard"), Level(4, pool=3)]
        hierarchy = HierarchicalReadout(DIM, [*levels, Level(3, dim=6, num_heads=2)])
        x, mask, segments = ragged()
        results = []
        for call in (hierarchy, compile_(hierarchy)):
            hierarchy.zero_grad()
            out = call(x, mask if masked else None, segments, num_segments=4)
            (out.vector.square().sum() + out.loss.total).backward()
            grads = [p.grad.clone() for p in hierarchy.parameters()]
            results.append([out.vector.detach(), *(one.detach() for one in out.loss), out.paths, *grads])
        torch.testing.assert_close(results[0], results[1])

    @pytest.mark.slow
    def test_lengths_may_change_without_compiling_again(self):
        torch._dynamo.reset()
        hierarchy, counter = HierarchicalReadout(DIM, [Level(6, pool=3), Level(4)]), CompileCounter()
        fast = torch.compile(hierarchy, fullgraph=True, backend=counter, dynamic=True)
        for length in (5, 8, 12):  # the windows divide only the last
            x, mask = torch.randn(3, length, DIM), torch.rand(3, length) > 0.3
            torch.testing.assert_close(fast(x, mask).vector, hierarchy(x, mask).vector)
        assert counter.frame_count == 1

    @pytest.mark.slow
    def test_nested_segments_compile(self, compile_):
        hierarchy = HierarchicalReadout(DIM, [Level(6, pool="segments"), Level(4, pool="segments"), Level(3)])
        x, mask, sentences = ragged()
        arguments = (x, mask, (sentences, PARAGRAPHS.expand(B, T)))
        found = compile_(hierarchy)(*arguments, num_segments=(4, 2))
        torch.testing.assert_close(found.vector, hierarchy(*arguments).vector)

    def test_segments_must_be_counted_beforehand(self, compile_):
        x, mask, segments = ragged()
        with pytest.raises(Exception, match="num_segments: got None, expected how many there are"):
            compile_(three_levels())(x, mask, segments)

    def test_export_gives_the_same_object(self):
        hierarchy = three_levels().eval()
        x, mask, segments = ragged()
        program = torch.export.export(hierarchy, (x, mask, segments), {"num_segments": 4})
        found, expected = program.module()(x, mask, segments, num_segments=4), hierarchy(x, mask, segments)
        torch.testing.assert_close(found.vector, expected.vector)
        assert torch.equal(found.paths, expected.paths)
