"""What is known of a bank: cheap sums at every step, exact figures once per epoch."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TypeVar

import torch
from torch import Tensor

from ddcl.functional import CRITICAL_FACTOR, Decomposition, Readout, cell_moments, perplexity, separation
from ddcl.functional.criticality import MomentSums
from ddcl.functional.separation import DISTINCT_TOLERANCE, prototype_groups
from ddcl.functional.splitting import WIDEST_DENSE, SplitProducts, SplitSums
from ddcl.functional.usage import PAPER_THRESHOLD
from ddcl.nn import PrototypeBank

MARGIN_NUMBERS = 2**24
"""Split margins are gathered over all tokens while K m^2 numbers stay below this (128 MiB) and matrices of that
dimension are built at all; beyond, the kept tokens stand for all."""

MARGIN_TOLERANCE = 1e-3
"""Residual of the split margins of kept tokens; the margins themselves are off by its square."""

KEPT_TOKENS, KEPT_NUMBERS = 8192, 2**23
"""Tokens of an epoch that are kept, to repair a bank from: at least so many, and more where they fit 32 MiB."""

Splits = TypeVar("Splits", SplitSums, SplitProducts)


@dataclass(frozen=True)
class HeadMeasure:
    """Exact figures of one head of one bank over an epoch; plain numbers."""

    tokens: int
    total: float
    reconstruction: float
    variance: float
    quantization: float
    entropy: float
    free_energy: float
    separation: float
    """S(P), the smallest squared distance of two prototypes."""
    relative_separation: float
    """S(P) / trace C."""
    relative_entropy: float
    """H / ln K: 1 when every token mixes all prototypes evenly."""
    usage: float
    """Share of prototypes that won a token."""
    relative_usage: float
    """The same, of those that could have: with fewer tokens than prototypes not all can win one."""
    perplexity: float
    soft_perplexity: float
    distinct: int
    distinct_share: float
    soft_hard_gap: float
    """Mean of |mu - nearest prototype|^2 / trace C: what is lost by reading the hard code."""
    temperature: float
    critical_temperature: float
    relative_temperature: float
    """a = T / T_c."""
    splitting: int
    """Prototypes with a negative split margin: two copies of them would part at this temperature."""
    smallest_margin: float
    """The smallest split margin, over its cell's mass."""
    trace: float
    relative_trace: float
    """trace C against its start: an encoder that shrinks its tokens shows here."""
    paper_usage: float
    """The paper's figure, which a merged bank passes."""

    def as_dict(self) -> dict[str, float]:
        """The figures as plain numbers, for a log."""
        return {field.name: float(getattr(self, field.name)) for field in fields(self)}


class StepSums:
    """Terms of the loss and hard counts, added up on the device without waiting for it."""

    def __init__(self, bank: PrototypeBank) -> None:
        device = bank.prototypes.device
        self.terms = torch.zeros(len(Decomposition._tuple_fields), bank.num_heads, device=device, dtype=torch.float64)
        self.tokens = torch.zeros((), device=device, dtype=torch.float64)
        # column 0 collects the masked tokens
        self.counts = torch.zeros(bank.num_heads, bank.num_prototypes + 1, device=device, dtype=torch.float64)

    @torch.no_grad()
    def add(self, output: Readout, mask: Tensor | None) -> None:
        """Take in what a bank gave back."""
        heads = len(self.counts)
        indices = output.indices.reshape(-1, heads).mT + 1
        self.counts.scatter_add_(1, indices, torch.ones_like(indices, dtype=self.counts.dtype))
        weight = indices.shape[1] if mask is None else mask.sum()
        self.terms += weight * torch.stack(tuple(output.per_head)).reshape(len(self.terms), heads)
        self.tokens += weight

    def read(self) -> dict[str, list[float]]:
        """Means of the terms, usage and perplexity for each head; waits for the device."""
        counts = self.counts[:, 1:]
        means = self.terms / self.tokens.clamp_min(1)
        found = {name: means[i].tolist() for i, name in enumerate(Decomposition._tuple_fields)}
        found["usage"] = (counts > 0).double().mean(-1).tolist()
        found["perplexity"] = perplexity(counts).tolist()
        return found

    def clear(self) -> None:
        """Start again."""
        for sums in (self.terms, self.tokens, self.counts):
            sums.zero_()


class ExactSums:
    """Everything the exact figures of one bank are made of, gathered over the batches of an epoch."""

    def __init__(self, bank: PrototypeBank) -> None:
        self.bank = bank
        self.steps = StepSums(bank)
        self.moments = MomentSums()
        self.mass = torch.zeros_like(self.steps.counts[:, 1:])
        self.gap = torch.zeros(bank.num_heads, device=self.mass.device, dtype=torch.float64)
        gathered = bank.dim <= WIDEST_DENSE and bank.num_prototypes * bank.dim**2 <= MARGIN_NUMBERS
        self.splits = self._for_heads(SplitSums) if gathered else None
        self.keeps = max(KEPT_TOKENS, KEPT_NUMBERS // (bank.num_heads * bank.dim))
        self.kept = bank.prototypes.detach().new_empty(0, bank.num_heads, bank.dim)
        self._order = torch.empty(0)
        self._random = torch.Generator().manual_seed(0)

    def _for_heads(self, kind: type[Splits]) -> list[Splits]:
        banks = self.bank.prototypes.detach().double()
        temperatures = self.bank.temperature.tolist()
        return [kind(one, T, self.bank.splits_like) for one, T in zip(banks, temperatures, strict=True)]

    def _margins(self) -> list[tuple[Tensor, Tensor]]:
        """Split margins and masses of each head."""
        if self.splits is not None:
            found = [sums.result() for sums in self.splits]
        else:
            products = self._for_heads(SplitProducts)
            for head, one in enumerate(products):
                one.add(self.kept[:, head])
            found = [one.result(MARGIN_TOLERANCE) for one in products]
        return [(margins, masses) for margins, _, masses in found]

    @torch.no_grad()
    def add(self, tokens: Tensor, mask: Tensor | None, output: Readout) -> None:
        """Take in tokens (N, H, m), their mask (N,) and what the bank made of them."""
        self.steps.add(output, mask)
        centroids = output.centroid.reshape(tokens.shape)
        indices = output.indices.reshape(tokens.shape[:2])
        if mask is not None:
            tokens, centroids, indices = tokens[mask], centroids[mask], indices[mask]
        banks = self.bank.prototypes.detach()
        self.moments.add(tokens)
        self.mass += cell_moments(tokens.to(banks.dtype), banks, self.bank.temperature).mass
        for head, bank in enumerate(banks):
            self.gap[head] += (centroids[:, head] - bank[indices[:, head]]).double().square().sum()
        for head, sums in enumerate(self.splits or []):
            sums.add(tokens[:, head])
        self._keep(tokens)

    def _keep(self, tokens: Tensor) -> None:
        """A uniform sample of all tokens so far: those with the smallest of independent random numbers."""
        order = torch.cat([self._order, torch.rand(len(tokens), generator=self._random)])
        kept = torch.cat([self.kept, tokens.to(self.kept.dtype)])
        chosen = order.argsort()[: self.keeps]
        self._order, self.kept = order[chosen], kept[chosen.to(kept.device)]

    @torch.no_grad()
    def result(self, start_trace: Tensor | None) -> list[HeadMeasure]:
        """The figures of every head, given trace C at the start (H,) if known."""
        bank, steps = self.bank, self.steps.read()
        banks, K = bank.prototypes.detach(), bank.num_prototypes
        moments = self.moments.result()
        if not bool(torch.isfinite(moments.matrix).all() and torch.isfinite(banks).all()):
            return [_not_finite(moments.num_tokens)] * bank.num_heads
        splits = self._margins()
        critical = (CRITICAL_FACTOR[bank.splits_like] * moments.largest).tolist()
        found = []
        for head in range(bank.num_heads):
            margins, masses = splits[head]
            trace, T = float(moments.trace[head]), float(bank.temperature[head])
            distinct = len(prototype_groups(banks[head], DISTINCT_TOLERANCE * trace).unique())
            mean = self.mass[head] / moments.num_tokens
            apart = float(separation(banks[head]))
            found.append(
                HeadMeasure(
                    tokens=moments.num_tokens,
                    **{name: steps[name][head] for name in (*Decomposition._tuple_fields, "usage", "perplexity")},
                    separation=apart,
                    relative_separation=_ratio(apart, trace),
                    relative_entropy=steps["entropy"][head] / math.log(K) if K > 1 else 0.0,
                    relative_usage=steps["usage"][head] * K / min(K, moments.num_tokens),
                    soft_perplexity=float(perplexity(mean)),
                    distinct=distinct,
                    distinct_share=distinct / K,
                    soft_hard_gap=_ratio(float(self.gap[head]) / moments.num_tokens, trace),
                    temperature=T,
                    critical_temperature=critical[head],
                    relative_temperature=_ratio(T, critical[head]),
                    splitting=int((margins < 0).sum()),
                    smallest_margin=float((margins / masses.clamp_min(torch.finfo(masses.dtype).tiny)).min()),
                    trace=trace,
                    relative_trace=1.0 if start_trace is None else _ratio(trace, float(start_trace[head])),
                    paper_usage=float((mean > PAPER_THRESHOLD).double().mean()),
                )
            )
        return found


def _not_finite(tokens: int) -> HeadMeasure:
    """Of a bank or tokens with NaN or infinity in them: no figure means anything."""
    figures = dict.fromkeys((field.name for field in fields(HeadMeasure)), math.nan)
    return HeadMeasure(**{**figures, "tokens": tokens, "distinct": 0, "splitting": 0})  # type: ignore[arg-type]


def _ratio(value: float, unit: float) -> float:
    """value / unit; data without spread have no unit, and anything but nothing is infinitely large there."""
    if unit > 0:
        return value / unit
    return 0.0 if value == 0 else math.inf
