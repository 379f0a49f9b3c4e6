"""A finished run, loaded: new texts or embeddings to mixtures of its prototypes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ddcl.data import embed, load_encoder
from ddcl.data.encoders import Encoder
from ddcl.explain.outputs import Explanation, Vocabulary
from ddcl.fitting.errors import BadInputError
from ddcl.fitting.explaining import Explainer
from ddcl.fitting.folder import RunFolder, finished_run
from ddcl.fitting.levels import climb, parents_of
from ddcl.fitting.mixtures import class_logits
from ddcl.fitting.settings import Settings
from ddcl.fitting.training import bank_of, make_model
from ddcl.nn import PrototypeBank, PrototypeReadout
from ddcl.shapes import Float

if TYPE_CHECKING:
    from ddcl.fitting.exporting import Exported, Format, What

Inputs = Union[str, Sequence[str], Tensor, np.ndarray]
"""One text, texts, or embeddings (N, m) or (m,)."""


class Fitted:
    """What :func:`ddcl.load` gives: a trained bank, its head if there is one, and the encoder when it is needed.

    Everything takes one text, texts, or embeddings (N, m) of the kind that was fitted, and gives a row for each.

    Attributes:
        folder: the :class:`RunFolder`, with the inputs, assignments and figures of the run.
        config: what config.json holds.
        settings: the settings of the run.
        model: a :class:`ddcl.PrototypeBank`, or with a head a :class:`ddcl.PrototypeReadout`, in evaluation mode.
        levels: the bank of each level, finest first; one where the run has no hierarchy.
    """

    def __init__(self, folder: RunFolder, device: torch.device | str = "cpu") -> None:
        self.folder = folder
        self.config: dict[str, Any] = folder.config
        self.settings: Settings = folder.settings
        self.device = torch.device(device)
        self.model = make_model(self.settings)
        state = folder.read_model()
        above = {name: state.pop(name) for name in list(state) if name.startswith("levels.")}
        if isinstance(self.model, PrototypeBank):
            state = {name.removeprefix("bank."): tensor for name, tensor in state.items()}
        self.model.load_state_dict(state)
        self.model.to(self.device).eval().requires_grad_(False)
        self.levels = (bank_of(self.model), *self._above(above))

    def _above(self, state: dict[str, Tensor]) -> list[PrototypeBank]:
        """The banks of the levels above the first."""
        found = []
        for level, size in enumerate((self.settings.levels or ())[1:], start=1):
            bank = PrototypeBank(size, self.settings.dim, temperature=float(state[f"levels.{level}.temperature"]))
            bank.move_to(state[f"levels.{level}.prototypes"][None])
            bank.initialised.fill_(True)
            found.append(bank.to(self.device).eval().requires_grad_(False))
        return found

    @property
    def prototypes(self) -> Float[Tensor, "K m"]:
        """The prototypes."""
        return bank_of(self.model).prototypes[0].detach()

    @property
    def temperature(self) -> float:
        """T, at which the mixtures are read."""
        return float(bank_of(self.model).temperature[0])

    @property
    def classes(self) -> tuple[str, ...] | None:
        """What the head tells apart; None without a head."""
        return self.settings.classes

    @property
    def parents(self) -> list[list[int]]:
        """For each level but the last, the prototype of the next that has the largest share in each of its own."""
        return parents_of(self.levels)

    @property
    def names(self) -> list[str | None]:
        """What people have called the prototypes; None for those that have no name."""
        named = self.folder.names()
        return [named.get(number) for number in range(self.settings.prototypes)]

    def rename(self, prototype: int, name: str | None) -> None:
        """Name a prototype, or with None take its name away; kept in the run folder."""
        if not 0 <= prototype < self.settings.prototypes:
            known = self.settings.prototypes - 1
            raise BadInputError(f"prototype: got {prototype}, expected a number from 0 to {known}")
        names = self.folder.names()
        names.pop(prototype, None)
        if name is not None:
            names[prototype] = name
        self.folder.write_names(names)

    def export(
        self,
        path: str | Path | None = None,
        format: Format = "onnx",  # noqa: A002  the word that callers expect
        what: What = "readout",
        *,
        opset: int | None = None,
        force: bool = False,
    ) -> Exported:
        """Write a program that runs without ddcl and was found to compute the same, as `ddcl export` does.

        Args:
            path: a file for a readout (.onnx or .pt2), a folder for a whole model; None: in the run folder.
            format: ``"onnx"`` or ``"torch"`` (torch.export).
            what: ``"readout"``, from embeddings, or ``"whole"``, from the tokens of texts.
            opset: the operator set of ONNX.
            force: replace an earlier export.
        """
        from ddcl.fitting.exporting import export_run  # it loads what only an export needs

        return export_run(self, path, export_format=format, what=what, opset=opset, force=force)

    @cached_property
    def encoder(self) -> Encoder:
        """The encoder of the run, found when it is first asked for; another one of its name is refused."""
        settings = self.settings
        if settings.encoder is None:
            raise BadInputError(
                f"{self.folder.path} was fitted to embeddings, so no encoder is known; pass embeddings, not texts"
            )
        try:
            found = load_encoder(settings.encoder)
        except FileNotFoundError as error:
            raise BadInputError(str(error)) from error
        if found.fingerprint != settings.fingerprint:
            raise BadInputError(f"the encoder {settings.encoder!r} has other weights now than when the run was made")
        return found

    def embeddings(self, inputs: Inputs) -> Float[Tensor, "N m"]:
        """What enters the bank: texts embedded as in the run (nothing is kept of them), embeddings checked."""
        if isinstance(inputs, np.ndarray) and inputs.dtype.kind in "UO":
            inputs = inputs.tolist()
        if isinstance(inputs, (Tensor, np.ndarray)):
            return self._checked(torch.as_tensor(inputs).detach())
        if isinstance(inputs, Mapping) or not isinstance(inputs, Iterable):
            raise BadInputError(f"inputs: got {type(inputs).__name__}, expected a text, texts or embeddings")
        texts = [inputs] if isinstance(inputs, str) else list(inputs)
        if not all(isinstance(text, str) for text in texts):
            raise BadInputError("inputs: got a sequence that holds something else than texts, expected strings only")
        if not texts:
            return torch.zeros(0, self.settings.dim, device=self.device)
        encoder, length = self.encoder, self.settings.max_tokens
        assert length is not None, "a run with an encoder has a length"
        return embed(texts, encoder=encoder, max_tokens=length, device=self.device, progress=False, keep=False).to(
            self.device
        )

    def mixture(self, inputs: Inputs, level: int = 0) -> Float[Tensor, "N K"]:
        """The share of every prototype in each input; rows sum to 1.

        Args:
            inputs: what to read.
            level: 0 for the bank itself; 1 for the level above it, which reads the soft centroids from below; and on.
        """
        if not 0 <= level < len(self.levels):
            raise BadInputError(f"level: got {level}, expected a number from 0 to {len(self.levels) - 1}")
        *_, shares = climb(self.levels[: level + 1], self.embeddings(inputs))
        return shares

    def transform(self, inputs: Inputs) -> Float[Tensor, "N m"]:
        """The soft centroid of each input: its mixture of prototypes, as a vector."""
        return self.mixture(inputs) @ self.prototypes

    def predict(self, inputs: Inputs) -> list[int] | list[str]:
        """The class of each input where there is a head, otherwise the number of its nearest prototype."""
        shares = self.mixture(inputs)
        if isinstance(self.model, PrototypeReadout) and self.classes is not None:
            return [self.classes[number] for number in class_logits(self.model, shares).argmax(-1).tolist()]
        numbers: list[int] = shares.argmax(-1).tolist()
        return numbers

    def probabilities(self, inputs: Inputs) -> Float[Tensor, "N C"]:
        """The head's probability of every class, in the order of ``classes``."""
        if not isinstance(self.model, PrototypeReadout):
            raise BadInputError(f"{self.folder.path} was fitted without labels, so it has no head and no classes")
        return class_logits(self.model, self.mixture(inputs)).softmax(-1)

    def explain(self, inputs: Inputs, *, examples: int = 3, shares: int = 3, words: bool = True) -> list[Explanation]:
        """Why each input is read as it is: its leading prototypes, the rows nearest to it, the words that carried it.

        Args:
            inputs: one text, texts, or embeddings.
            examples: rows of the data that was fitted, nearest first by cosine.
            shares: prototypes to name.
            words: whether to find how far each word carried the leading prototype; only texts have words. A short text
                is embedded once more for each of its words.
        """
        _check_counts(examples=examples, shares=shares)
        return self.explainer.explain(inputs, examples=examples, shares=shares, words=words)

    def vocabulary(self, *, terms: int = 8, examples: int = 5, outliers: int = 10, neighbours: int = 3) -> Vocabulary:
        """The bank as a whole: a card for each prototype, and the rows that are the most undecided.

        Args:
            terms: words and pairs of words on a card, by class-based tf-idf; none for embeddings.
            examples: rows on a card, most typical first.
            outliers: rows, the most undecided first.
            neighbours: other prototypes on a card, nearest first.
        """
        _check_counts(terms=terms, examples=examples, outliers=outliers, neighbours=neighbours)
        return self.explainer.vocabulary(terms=terms, examples=examples, outliers=outliers, neighbours=neighbours)

    @cached_property
    def explainer(self) -> Explainer:
        """What the two above work by; it keeps what it has read and computed once."""
        return Explainer(self)

    def _checked(self, z: Tensor) -> Tensor:
        dim = self.settings.dim
        if z.dim() not in (1, 2) or z.shape[-1] != dim or z.is_complex():
            raise BadInputError(f"inputs: got embeddings of shape {tuple(z.shape)}, expected (N, {dim})")
        z = z.reshape(-1, dim).to(self.device, torch.float32)
        if not bool(torch.isfinite(z).all()):
            raise BadInputError("inputs: the embeddings hold NaN or infinity, expected finite numbers")
        return F.normalize(z, dim=-1) if self.settings.normalise else z

    def __repr__(self) -> str:
        head = "" if self.classes is None else f", {len(self.classes)} classes"
        return f"Fitted({str(self.folder.path)!r}: {self.settings.prototypes} prototypes{head})"


def _check_counts(**counts: int) -> None:
    for name, count in counts.items():
        if count < 0:
            raise BadInputError(f"{name}: got {count}, expected a number from 0")


def load(run: str | Path, *, device: torch.device | str = "cpu") -> Fitted:
    """Load the run that ``ddcl fit`` left in a folder.

    Args:
        run: the folder.
        device: where the model, and an encoder if texts are given, work.
    """
    return Fitted(finished_run(run), device)
