"""Tokens to their banks and back as one tensor: what the feed-forward and the integration modes are built on."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ddcl.nn.entrance import BankEntrance


class TokenReader(BankEntrance):
    r"""Reads tokens in a bank and joins the soft centroids of the heads: the base of modules that live in a network.

    .. math:: z^{(h)} = W_h x, \qquad \mu(x) = [\mu^{(1)}(z^{(1)}) \cdots \mu^{(H)}(z^{(H)})]

    Arguments as for :class:`ddcl.nn.entrance.BankEntrance`.
    """

    @property
    def place(self) -> dict[str, Any]:
        """Device and dtype of the parameters, for more of them."""
        return {"device": self.bank.prototypes.device, "dtype": self.bank.prototypes.dtype}

    def read(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """The joined soft centroids (..., m) of tokens that ``without_masked`` has seen."""
        return self.join_heads(self.bank(self.to_heads(x, mask), mask).centroid)
