"""What is exported: a fitted model as plain torch modules of tensors in and tensors out.

The library's own operation is a registered one, which a file could not be loaded without; here stands the formula in
operations that torch and ONNX have themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ddcl.fitting.mixtures import class_logits
from ddcl.fitting.training import Model, bank_of
from ddcl.nn import PrototypeReadout
from ddcl.ops import bank_center
from ddcl.shapes import Float, Int

if TYPE_CHECKING:
    from ddcl.fitting.fitted import Fitted

What = Literal["readout", "whole"]
WHATS: tuple[str, ...] = get_args(What)


class ReadoutProgram(nn.Module):
    r"""Embeddings to mixture, soft centroid, nearest prototype and, with a head, class probabilities; float32.

    Scores are :math:`2 z\cdot p_k - |p_k|^2` about the middle of a bank that lies far from the origin: :math:`|z|^2`,
    the same for all prototypes, would cost digits. Their differences are formed before they are divided by T, so that
    the smallest T ends in shares of 0 and 1 and not in NaN.

    Args:
        model: of a run, on the CPU.
        normalise: bring embeddings to length 1 first.
    """

    center: Tensor
    directions: Tensor
    offsets: Tensor
    prototypes: Tensor
    temperature: Tensor

    def __init__(self, model: Model, *, normalise: bool) -> None:
        super().__init__()
        bank = bank_of(model)
        prototypes = bank.prototypes[0].detach()
        center = bank_center(prototypes)
        points = prototypes - center
        self.model = model if isinstance(model, PrototypeReadout) else None
        self.normalise = normalise
        self.register_buffer("center", center[0])
        self.register_buffer("directions", 2 * points)
        self.register_buffer("offsets", -points.square().sum(-1))
        self.register_buffer("prototypes", prototypes)
        self.register_buffer("temperature", bank.temperature[0].clone())

    def forward(self, embeddings: Float[Tensor, "N m"]) -> dict[str, Tensor]:
        """(N, m) to all outputs by name."""
        z = F.normalize(embeddings, dim=-1) if self.normalise else embeddings
        scores = F.linear(z - self.center, self.directions, self.offsets)
        differences = scores - scores.amax(-1, keepdim=True)
        mixture = torch.softmax(differences / self.temperature, dim=-1)
        found = {"mixture": mixture, "centroid": mixture @ self.prototypes, "prototype": mixture.argmax(-1)}
        if self.model is not None:
            found["probabilities"] = class_logits(self.model, mixture).softmax(-1)
        return found


class WholeProgram(nn.Module):
    """Tokens of texts to the same, the encoder included.

    Args:
        encoder: of transformers.
        readout: what reads the mean of its states.
    """

    def __init__(self, encoder: nn.Module, readout: ReadoutProgram) -> None:
        super().__init__()
        self.encoder, self.readout = encoder, readout

    def forward(self, input_ids: Int[Tensor, "N L"], attention_mask: Int[Tensor, "N L"]) -> dict[str, Tensor]:
        """Token numbers, and 1 where a token stands, 0 where there is padding."""
        states: Tensor = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        counts = attention_mask.bool().unsqueeze(-1)
        # a text of no tokens, which some tokenizers make of an empty one, is 0
        mean = states.masked_fill(~counts, 0.0).sum(1) / counts.sum(1).clamp(min=1)
        found: dict[str, Tensor] = self.readout(mean)
        return found


class Program(NamedTuple):
    """A module and what a tracer must know of its inputs."""

    module: nn.Module
    example: dict[str, Tensor]
    """Inputs by name, of sizes that are not taken for constants."""
    dynamic: dict[str, dict[int, Any]]
    """Which axes of them may have any size."""
    outputs: dict[str, list[str | int]]
    """Shapes by name."""

    @property
    def axes(self) -> dict[str, dict[int, str]]:
        """What the axes of any size are called."""
        return {name: {axis: dim.__name__ for axis, dim in axes.items()} for name, axes in self.dynamic.items()}

    @property
    def inputs(self) -> dict[str, list[str | int]]:
        """Shapes by name."""
        return {
            name: [self.axes[name].get(axis, size) for axis, size in enumerate(tensor.shape)]
            for name, tensor in self.example.items()
        }


def program_of(fitted: Fitted, what: What) -> Program:
    """The part of a fitted model, on the CPU, that is to be exported."""
    settings = fitted.settings
    readout = ReadoutProgram(fitted.model, normalise=settings.normalise).eval().requires_grad_(False)
    outputs: dict[str, list[str | int]] = {
        "mixture": ["N", settings.prototypes],
        "centroid": ["N", settings.dim],
        "prototype": ["N"],
    }
    if settings.classes is not None:
        outputs["probabilities"] = ["N", len(settings.classes)]
    rows = torch.export.Dim("N")
    if what == "readout":
        example = {"embeddings": torch.ones(2, settings.dim)}
        return Program(readout, example, {"embeddings": {0: rows}}, outputs)
    assert settings.max_tokens is not None, "a run with an encoder has a length"
    # longer texts were never seen: a file of torch refuses them, one of ONNX has no way to
    axes = {0: rows, 1: torch.export.Dim("L", max=settings.max_tokens)}
    example = {name: torch.ones(2, 3, dtype=torch.long) for name in ("input_ids", "attention_mask")}
    return Program(
        WholeProgram(fitted.encoder.model.to("cpu"), readout).eval(), example, dict.fromkeys(example, axes), outputs
    )
