"""The second way to move a bank: running soft k-means, the limit of an infinitely fast bank."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ddcl.functional import Readout
from ddcl.functional.checks import check_choice, check_count
from ddcl.functional.soft_kmeans import cell_moments
from ddcl.nn import PrototypeBank
from ddcl.ops import autocast_off
from ddcl.shapes import Float
from ddcl.training.entering import entering_tokens
from ddcl.training.following import FollowsBanks, carried_rows

if TYPE_CHECKING:
    from typing_extensions import Self


Burden = Literal["distortion", "mass"]
BURDENS: tuple[str, ...] = get_args(Burden)


class SoftKMeans(FollowsBanks["_RunningCells"]):
    r"""Moves the banks of a model by running soft k-means instead of by gradient.

    .. math:: p_k \leftarrow p_k + \frac{\langle \sum_n q_{nk} (z_n - p_k) \rangle}{\langle \sum_n q_{nk} \rangle}

    with running means :math:`\langle\cdot\rangle` over batches. No learning rate, no scale: the step is the same for
    data in any units. The prototypes stop taking gradients; tokens still get theirs.

    Args:
        momentum: weight of the past in the running means; 0 takes every batch for itself.
        revive: prototypes whose running mass is below this share of the mean mass take half of the cells that carry
            the most, as codes behind an encoder that learns need; 0 leaves them. No host synchronisation.
        every: steps from one such look to the next.
        relieve: the cells that are halved for them: those with the most ``"distortion"``, or the most ``"mass"``, by
            which codes are used more evenly.

    Example:
        >>> z = torch.cat([torch.randn(100, 2) - 5, torch.randn(100, 2) + 5])
        >>> bank = PrototypeBank(num_prototypes=2, dim=2, temperature=1.0)
        >>> mover = SoftKMeans(momentum=0.5).attach(bank)
        >>> for _ in range(30):
        ...     readout = bank(z)
        ...     mover.step()
        >>> bool(bank(z).loss.quantization < 3)
        True
    """

    _without_banks = "there is nothing to move"

    def __init__(
        self, momentum: float = 0.9, *, revive: float = 0.0, every: int = 10, relieve: Burden = "distortion"
    ) -> None:
        super().__init__()
        for name, value in (("momentum", momentum), ("revive", revive)):
            if not 0 <= value < 1:
                raise ValueError(f"{name}: got {value}, expected a number from 0 to below 1")
        check_count("every", every)
        check_choice("relieve", relieve, BURDENS)
        self.momentum, self.revive, self.every, self.relieve = momentum, revive, every, relieve

    def attach(self, model: nn.Module) -> Self:
        """Follow what enters every bank of the model in training, and where distortion lies if any are revived."""
        super().attach(model)
        if self.revive:
            for cells in self._followers.values():
                self._hooks.append(cells.bank.register_forward_hook(cells.observe_distortion))
        return self

    def _follow(self, bank: PrototypeBank) -> _RunningCells:
        cells = _RunningCells(bank, self.momentum)
        for parameter in bank.learned:
            parameter.requires_grad_(False)
        bank.moved_by_soft_kmeans = True
        return cells

    def _hook(self, bank: PrototypeBank, follower: _RunningCells) -> RemovableHandle:
        return bank.register_forward_pre_hook(follower.observe, with_kwargs=True)

    def _release(self, follower: _RunningCells) -> None:
        for parameter, learning in zip(follower.bank.learned, follower.was_learning, strict=True):
            parameter.requires_grad_(learning)
        follower.bank.moved_by_soft_kmeans = False

    def step(self) -> None:
        """Move every bank to the running means of its cells."""
        for cells in self._followers.values():
            cells.move()
            if self.revive and cells.moves % self.every == 0:
                cells.revive(self.revive, self.relieve)

    def mass(self, bank: PrototypeBank) -> Float[Tensor, "H K"]:
        """The running mass of each cell of a bank: tokens of a batch, counted by their share."""
        return self._of(bank).mass.clone()

    def forget(self, bank: PrototypeBank, head: int, rows: Tensor) -> None:
        """Start the running means of some prototypes anew where they now stand: someone has put them elsewhere."""
        self._of(bank).forget(head, rows)

    def _resize(self, follower: _RunningCells, origin: Tensor) -> None:
        follower.mass, follower.total = carried_rows(follower.mass, origin), carried_rows(follower.total, origin)
        follower.distortion = carried_rows(follower.distortion, origin)

    def state_dict(self) -> dict[str, Any]:
        """The running means."""
        return {
            name: {
                "mass": cells.mass.clone(),
                "total": cells.total.clone(),
                "distortion": cells.distortion.clone(),
                "moves": cells.moves,
            }
            for name, cells in self._followers.items()
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Return to saved running means of the same banks."""
        self._check_names(state)
        for name, cells in self._followers.items():
            saved, size = state[name]["mass"].shape[-1], cells.bank.num_prototypes
            if saved != size:
                raise ValueError(f"state: bank {name!r} had {saved} prototypes, expected {size}; load the model first")
            cells.mass.copy_(state[name]["mass"])
            cells.total.copy_(state[name]["total"])
            cells.distortion.copy_(state[name]["distortion"])
            cells.moves = state[name]["moves"]


class _RunningCells:
    """Running mass and running sum of tokens of each cell of one bank."""

    def __init__(self, bank: PrototypeBank, momentum: float) -> None:
        self.bank, self.momentum = bank, momentum
        self.was_learning = [parameter.requires_grad for parameter in bank.learned]
        points = bank.prototypes.detach().to(bank.temperature.dtype)
        self.mass = torch.zeros_like(points[..., 0])
        self.total = torch.zeros_like(points)
        self.distortion = torch.zeros_like(self.mass)
        self.moves = 0

    @torch.no_grad()
    def observe(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A forward pre-hook of the bank."""
        if not module.training:
            return
        tokens, mask = entering_tokens(self.bank, args, kwargs)
        points = self.bank.prototypes.to(self.mass.dtype)
        with autocast_off(tokens):
            mass, pull = cell_moments(tokens.to(self.mass.dtype), points, self.bank.temperature, mask=mask)
        self.mass.lerp_(mass, 1 - self.momentum)
        self.total.lerp_(pull + mass.unsqueeze(-1) * points, 1 - self.momentum)

    @torch.no_grad()
    def observe_distortion(self, module: nn.Module, args: Any, output: Readout) -> None:  # noqa: ARG002
        """A forward hook of the bank: what each cell adds to the sum of squared distances to the nearest prototype."""
        if not module.training:
            return
        heads = len(self.mass)
        won = output.indices.reshape(-1, heads).mT
        lost = output.per_token.quantization.reshape(-1, heads).mT.to(self.mass.dtype)
        # masked tokens have index -1 and distance 0
        found = torch.zeros_like(self.distortion).scatter_add_(1, won.clamp_min(0), lost)
        self.distortion.lerp_(found, 1 - self.momentum)

    @torch.no_grad()
    def revive(self, share: float, burden: Burden) -> None:
        """Cells of too little mass take half of those that carry the most, at most an eighth of them at a time.

        Both copies stand beside the old place, by a third of the cell's spread: near enough to divide its tokens.
        """
        points = self.bank.prototypes.detach().to(self.mass.dtype)
        light = self.mass < share * self.mass.mean(-1, keepdim=True)
        at_once = points.shape[1] // 8 + 1
        low = self.mass.topk(at_once, largest=False).indices
        carried = self.distortion if burden == "distortion" else self.mass
        top = carried.masked_fill(light, -1.0).topk(at_once).indices
        heavy = self.distortion.gather(1, top)
        wanted = light.gather(1, low) & ~light.gather(1, top) & (heavy > 0)
        half = self.mass.gather(1, top) / 2
        spread = (heavy / (2 * half).clamp_min(torch.finfo(half.dtype).tiny) / points.shape[-1]).clamp_min(0).sqrt()
        there = _rows(points, top)
        shift = torch.randn_like(there) * (0.3 * spread).unsqueeze(-1)
        for rows, place in ((top, there - shift), (low, there + shift)):
            kept = wanted.unsqueeze(-1)
            index = rows.unsqueeze(-1).expand_as(place)
            points.scatter_(1, index, torch.where(kept, place, _rows(points, rows)))
            self.mass.scatter_(1, rows, torch.where(wanted, half, self.mass.gather(1, rows)))
            self.distortion.scatter_(1, rows, torch.where(wanted, heavy / 2, self.distortion.gather(1, rows)))
            self.total.scatter_(1, index, torch.where(kept, place * half.unsqueeze(-1), _rows(self.total, rows)))
        self.bank.move_to(points)

    @torch.no_grad()
    def move(self) -> None:
        """Prototypes to the means of their cells; one that holds nothing stays."""
        self.moves += 1
        tiny = torch.finfo(self.mass.dtype).tiny
        held = (self.mass > tiny).unsqueeze(-1)
        means = self.total / self.mass.clamp_min(tiny).unsqueeze(-1)
        self.bank.move_to(torch.where(held, means, self.bank.prototypes.to(means.dtype)))

    @torch.no_grad()
    def forget(self, head: int, rows: Tensor) -> None:
        """No past for these prototypes: the next batches alone say where their cells lie."""
        self.mass[head, rows] = 0.0
        self.total[head, rows] = 0.0
        self.distortion[head, rows] = 0.0


def _rows(values: Tensor, rows: Tensor) -> Tensor:
    """Rows (H, n) of values (H, K, m)."""
    return values.gather(1, rows.unsqueeze(-1).expand(-1, -1, values.shape[-1]))
