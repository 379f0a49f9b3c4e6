"""The final readout: a sequence becomes one vector, and with a head a decision (the paper's first paradigm)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ddcl.functional import Readout
from ddcl.functional.checks import check_choice, check_count
from ddcl.functional.outputs import TupleLike, register_output
from ddcl.functional.segments import mean_over_tokens
from ddcl.nn.entrance import BankEntrance
from ddcl.nn.normalisation import Normalisation
from ddcl.nn.pooling import attend_to_prototypes
from ddcl.ops import Backend, Gradient, arithmetic_dtype
from ddcl.shapes import Bool, Float, Int

Pooling = Literal["mean", "bag", "concatenation", "attention"]
POOLINGS: tuple[str, ...] = get_args(Pooling)
TokensRead = Literal["all", "first"]
TOKENS_READ: tuple[str, ...] = get_args(TokensRead)
Head = Literal["classification", "regression"]
HEADS: tuple[str, ...] = get_args(Head)


@register_output
@dataclass(frozen=True, eq=False)
class PooledOutput(TupleLike):
    """What ``PrototypeReadout`` gives back; unpacks as ``vector, logits, readout``."""

    vector: Tensor
    """(B, vector_dim), zero for a sequence of which no token counts."""
    logits: Tensor | None
    """(B, num_outputs): what the head says, class logits or predicted values; None without a head."""
    readout: Readout
    """The readout of the tokens that were read, with the losses."""

    _tuple_fields: ClassVar[tuple[str, ...]] = ("vector", "logits", "readout")


class PrototypeReadout(BankEntrance):
    r"""A sequence of tokens as one vector, read through a bank of prototypes.

    With :math:`\mu_t = \sum_k q_{tk} p_k` the soft centroid of token t and n the number of tokens that count,
    ``output`` is one of

    - ``"mean"``: the mean soft centroid, :math:`\frac1n \sum_t \mu_t`, of dimension m;
    - ``"bag"``: the bag of prototypes, :math:`b = \frac1n \sum_t q_t`, of dimension H K: how much of the sequence each
      prototype holds. A row sums to H;
    - ``"concatenation"``: the two side by side, of dimension m + H K;
    - ``"attention"``: :math:`\sum_k \alpha_k p_k` with
      :math:`\alpha_k \propto b_k \exp(u^\top p_k / \sqrt{m / H})`, of dimension m.

    The mean is a linear function of the bag, :math:`\sum_k b_k p_k`: cheap, but two sequences of different content may
    have the same. The bag tells them apart, the attention often. Its learned query u, one per head, says which
    prototypes matter, and the bag how much of each there is: softmax attention of u over all pairs of a token and a
    prototype with the prior q. The query starts at zero, where all scores are equal and the attention is the mean; it
    scores prototypes by where they are, so it follows a bank that moves or is repaired.

    The mean needs the memory of the readout alone. The others hold the assignments too, a number for each token, head
    and prototype, until the backward pass. In gradient mode ``"stop"`` these are constants: a bag passes no gradient.

    Args:
        dim: dimension of the tokens.
        num_prototypes: K, for each head.
        output: what the vector is, see above.
        tokens: ``"all"``, or ``"first"`` to read only the first token of each sequence, where an encoder leaves its
            summary; a sequence whose first token is masked gives zeros.
        proto_dim, num_heads, normalise: the way into the bank, as for :class:`DDCLAttention`.
        temperature, gradient, backend: see :class:`PrototypeBank`.
        head: a linear ``"classification"`` or ``"regression"`` head on the vector, or None.
        num_outputs: with a head, its classes or values.

    Attributes:
        vector_dim: the dimension of the vector.

    Example:
        >>> model = PrototypeReadout(dim=8, num_prototypes=4, output="bag", head="classification", num_outputs=3)
        >>> x, labels = torch.randn(5, 7, 8), torch.tensor([0, 2, 1, 0, 1])
        >>> output = model.init_from(x)(x)
        >>> output.vector.shape, output.logits.shape
        (torch.Size([5, 4]), torch.Size([5, 3]))
        >>> model.loss(output, labels, lambda_q=0.1).backward()
    """

    query: nn.Parameter | None

    def __init__(
        self,
        dim: int,
        num_prototypes: int,
        *,
        output: Pooling = "mean",
        tokens: TokensRead = "all",
        proto_dim: int | None = None,
        num_heads: int = 1,
        normalise: Normalisation = "none",
        temperature: float | Tensor | None = None,
        gradient: Gradient = "full",
        backend: Backend = "auto",
        head: Head | None = None,
        num_outputs: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        super().__init__(
            dim,
            num_prototypes,
            proto_dim=proto_dim,
            num_heads=num_heads,
            normalise=normalise,
            temperature=temperature,
            gradient=gradient,
            backend=backend,
            **place,
        )
        check_choice("output", output, POOLINGS)
        check_choice("tokens", tokens, TOKENS_READ)
        self.output, self.tokens, self.task = output, tokens, head
        in_bag = num_heads * num_prototypes
        self.vector_dim = {"bag": in_bag, "concatenation": self.width + in_bag}.get(output, self.width)
        query = nn.Parameter(torch.zeros(num_heads, self.head_dim, **place)) if output == "attention" else None
        self.register_parameter("query", query)
        self.head = _make_head(head, self.vector_dim, num_outputs, place)
        self.bank.resizable = output in ("mean", "attention")  # a bag has a place for each prototype

    def forward(
        self,
        x: Float[Tensor, "*batch T dim"],
        mask: Bool[Tensor, "*batch T"] | Int[Tensor, "*batch T"] | None = None,
    ) -> PooledOutput:
        """Sequences x (B, T, dim), mask (B, T) true where a token counts."""
        x, mask = self.without_masked(x, mask)
        found = self.bank(self.to_heads(x, mask), mask)
        vector = self._pool(found, mask)
        return PooledOutput(vector, None if self.head is None else self.head(vector), found)

    def loss(
        self, output: PooledOutput, target: Tensor, *, lambda_q: float = 0.1, ignore_index: int = -100
    ) -> Float[Tensor, ""]:
        r"""What to train on, :math:`L_\text{task} + \lambda_q L_q`.

        The task's loss is the mean cross entropy, or the mean squared error; :math:`L_q` that of ``output.readout``.

        Args:
            output: what ``forward`` gave, with logits.
            target: class numbers (B,); or values (B, num_outputs), and (B,) will do for one.
            lambda_q: the weight of :math:`L_q`, which is a squared length and grows with the tokens: behind
                ``normalise="standard"``, 0.1 / m counts a tenth of its share of their variance, where 0.1 may outweigh
                the task.
            ignore_index: sequences of this class number have no say in the cross entropy, as in torch; if all have it
                the cross entropy is 0.
        """
        if output.logits is None or self.task is None:
            raise ValueError("output: it has no logits, as the module has no head; expected head=" + " or ".join(HEADS))
        if not 0 <= lambda_q < float("inf"):
            raise ValueError(f"lambda_q: got {lambda_q}, expected a finite number of at least 0")
        logits = output.logits.to(arithmetic_dtype(output.logits.dtype))
        if self.task == "classification":
            task = _cross_entropy(logits, target, ignore_index)
        else:
            task = _squared_error(logits, target)
        return task + lambda_q * output.readout.loss.total

    def without_masked(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Of each sequence the tokens that are read, as :class:`BankEntrance` gives them, and their mask."""
        x, mask = super().without_masked(x, mask)
        if x.dim() < 2:
            raise ValueError(f"x: got shape {tuple(x.shape)}, expected (..., T, {self.dim})")
        if self.tokens == "all":
            return x, mask
        return x[..., :1, :], None if mask is None else mask[..., :1]

    def _pool(self, found: Readout, mask: Tensor | None) -> Tensor:
        dtype = found.centroid.dtype
        parts = []
        if self.output in ("mean", "concatenation"):
            parts.append(mean_over_tokens(self.join_heads(found.centroid), mask))
        if self.output != "mean":
            bag = mean_over_tokens(self.join_heads(found.assignments), mask)
            if self.query is not None:
                per_head = bag.unflatten(-1, (self.num_heads, -1))
                # the bank's own: those the readout keeps are constants in mode stop
                bag = attend_to_prototypes(per_head, self.bank.prototypes, self.query).flatten(-2)
            parts.append(bag)
        return (parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)).to(dtype)

    def extra_repr(self) -> str:
        """What is pooled from what, for ``repr``."""
        return f"output={self.output!r}, tokens={self.tokens!r}, vector_dim={self.vector_dim}"


def _make_head(head: Any, vector_dim: int, num_outputs: Any, place: dict[str, Any]) -> nn.Linear | None:
    if head is None:
        if num_outputs is not None:
            raise ValueError(f"num_outputs: got {num_outputs} without a head, expected None")
        return None
    check_choice("head", head, HEADS)
    check_count("num_outputs", num_outputs)
    return nn.Linear(vector_dim, num_outputs, **place)


def _cross_entropy(logits: Tensor, target: Tensor, ignore_index: int) -> Tensor:
    expected = tuple(logits.shape[:-1])
    if target.dtype.is_floating_point or tuple(target.shape) != expected:
        got = f"{target.dtype} of shape {tuple(target.shape)}"
        raise ValueError(f"target: got {got}, expected class numbers (integers) of shape {expected}")
    flat, labels = logits.reshape(-1, logits.shape[-1]), target.reshape(-1).long()
    # divided here, since torch's own mean over no sequence is NaN: a batch without labels should leave none behind
    total = F.cross_entropy(flat, labels, ignore_index=ignore_index, reduction="sum")
    return total / (labels != ignore_index).sum().clamp_min(1)


def _squared_error(logits: Tensor, target: Tensor) -> Tensor:
    values = target
    if logits.shape[-1] == 1 and target.shape == logits.shape[:-1]:
        values = target.unsqueeze(-1)
    if values.shape != logits.shape:  # a silent broadcast would compare every sequence with every target
        raise ValueError(f"target: got shape {tuple(target.shape)}, expected {tuple(logits.shape)}")
    return (logits - values.to(logits.dtype)).square().sum() / max(logits.numel(), 1)
