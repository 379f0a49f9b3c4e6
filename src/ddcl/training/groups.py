"""Two time scales: a fast bank and a slow encoder (the paper's Algorithm 1)."""

from __future__ import annotations

from typing import Any

from torch import nn

from ddcl.nn import banks_of


def learning_parameters(model: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """What learns in a model: the prototypes of its banks, and everything else."""
    of_banks = {id(parameter) for bank in banks_of(model).values() for parameter in bank.learned}
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    prototypes = [parameter for parameter in trainable if id(parameter) in of_banks]
    others = [parameter for parameter in trainable if id(parameter) not in of_banks]
    return prototypes, others


def param_groups(model: nn.Module, lr: float, epsilon: float = 0.1) -> list[dict[str, Any]]:
    r"""Prototypes at ``lr``, everything else at ``epsilon * lr``, ready for any torch optimiser.

    :math:`\varepsilon = \eta_\theta / \eta_P`; the paper asks for 0.01 to 0.1. Prototypes are never decayed: weight
    decay would draw the whole bank to the origin. Frozen parameters are left out.

    Args:
        model: any module with prototype banks in it.
        lr: the learning rate of the prototypes.
        epsilon: the ratio of the two rates.

    Example:
        >>> layer = DDCLAttention(dim=8, num_prototypes=4)
        >>> optimiser = torch.optim.AdamW(param_groups(layer, lr=1e-2, epsilon=0.1))
        >>> [(group["name"], group["lr"]) for group in optimiser.param_groups]
        [('prototypes', 0.01), ('encoder', 0.001)]
    """
    for name, value in (("lr", lr), ("epsilon", epsilon)):
        if not 0 < value < float("inf"):
            raise ValueError(f"{name}: got {value}, expected a positive finite number")
    prototypes, others = learning_parameters(model)
    if not prototypes:
        why = "all its prototypes are frozen" if banks_of(model) else "it holds no PrototypeBank"
        raise ValueError(f"model: {why}, so there is no bank to give a learning rate of its own")
    if not others:
        raise ValueError(
            "model: it has no trainable parameter besides its prototypes, so there is nothing to slow down; "
            "pass model.parameters() to the optimiser, or a model that contains the encoder"
        )
    return [
        {"name": "prototypes", "params": prototypes, "lr": lr, "weight_decay": 0.0},
        {"name": "encoder", "params": others, "lr": epsilon * lr},
    ]
