"""Train a small transformer encoder and a bank of prototypes together, with a task.

Sequences belong to one of six topics, each with its own words; the encoder learns to tell them apart through
the bank's soft centroids. The same model is trained twice by `ddcl.Trainer`: with the paper's temperatures, which are
absolute, and with temperatures stated in units of the critical one, which follows the tokens as the encoder moves them.

    python examples/train_encoder.py [--quick]
"""

from __future__ import annotations

import argparse
import warnings
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import ddcl
from ddcl.training import Exponential, Progress

TOPICS, WORDS, LENGTH, DIM, PROTOTYPES = 6, 60, 16, 32, 12
Batch = tuple[Tensor, Tensor, Tensor]


class Classifier(nn.Module):
    """Embedding, two transformer blocks, unit-norm tokens, the bank, and a linear head on the mean centroid."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, DIM)
        block = nn.TransformerEncoderLayer(DIM, nhead=4, dim_feedforward=64, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(block, num_layers=2, enable_nested_tensor=False)
        self.norm = ddcl.TokenNorm(DIM, "unit")  # as sentence encoders give them
        self.bank = ddcl.PrototypeBank(PROTOTYPES, DIM)
        self.head = nn.Linear(DIM, TOPICS)

    def forward(self, words: Tensor, mask: Tensor) -> tuple[Tensor, ddcl.Readout]:
        """Class scores and the readout with its losses."""
        tokens = self.norm(self.encoder(self.embed(words), src_key_padding_mask=~mask))
        out: ddcl.Readout = self.bank(tokens, mask)
        pooled = out.centroid.sum(1) / mask.sum(1, keepdim=True)  # masked centroids are zero
        return self.head(pooled), out


def sequences(count: int, generator: torch.Generator) -> Batch:
    """Words, mask and topic of random sequences: half of the words are the topic's own, half are anyone's."""
    topic = torch.randint(TOPICS, (count,), generator=generator)
    own = topic[:, None] * 5 + torch.randint(5, (count, LENGTH), generator=generator)
    shared = torch.randint(TOPICS * 5, WORDS, (count, LENGTH), generator=generator)
    words = torch.where(torch.rand(count, LENGTH, generator=generator) < 0.5, own, shared)
    length = torch.randint(LENGTH // 2, LENGTH + 1, (count, 1), generator=generator)
    return words, torch.arange(LENGTH) < length, topic


def task_and_bank(model: nn.Module, batch: Batch) -> Tensor:
    """The loss: tell the topics apart, and stay close to the prototypes."""
    words, mask, topic = batch
    scores, out = model(words, mask)
    loss: Tensor = F.cross_entropy(scores, topic) + 0.1 * out.loss.total
    return loss


def show(progress: Progress) -> None:
    """One line of the table."""
    figures = progress.metrics
    if figures:  # of the epochs that were measured
        losses = [figures[name] for name in ("total", "reconstruction", "variance", "quantization")]
        print(f"{progress.epoch:5d}" + "".join(f"  {value:.4f}" for value in losses), end="")
        print(f"  {figures['relative_entropy']:.4f}  {figures['relative_temperature']:8.3g}")


def train(title: str, recipe: ddcl.Recipe, monitor: ddcl.CollapseMonitor | None, batches: list[Batch]) -> Progress:
    """One run with a recipe; its last figures, and the accuracy on sequences it has not seen."""
    torch.manual_seed(0)
    model = Classifier()
    print(f"\n{title}\nepoch     L_q       R       V   min d   H/lnK     T/T_c")
    trainer = ddcl.Trainer(
        model,
        recipe,
        loss=task_and_bank,
        forward=lambda model, batch: model(*batch[:2]),
        monitor=monitor,
        measure_every=3,
        callback=show,
    )
    last = trainer.fit(batches)[-1]
    words, mask, topic = sequences(512, torch.Generator().manual_seed(2))
    with torch.no_grad():
        scores, _ = model(words, mask)
    accuracy = float((scores.argmax(-1) == topic).double().mean())
    return replace(last, metrics=last.metrics | {"accuracy": accuracy})


def main() -> None:
    """Train twice and compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="a few steps only")
    quick = parser.parse_args().quick
    epochs, steps = (2, 3) if quick else (9, 30)
    generator = torch.Generator().manual_seed(1)
    batches = [sequences(64, generator) for _ in range(steps)]

    warnings.simplefilter("ignore", ddcl.CollapseWarning)  # the troubles are printed below
    as_in_the_paper = replace(ddcl.paper_recipe(epochs), temperature=Exponential(tau=epochs / 3))
    paper = train("The paper's recipe: T from 2.0 to 0.3", as_in_the_paper, ddcl.CollapseMonitor(), batches)
    # by gradient, so that the bank learns from the task too; running soft k-means would see the tokens alone
    ours = ddcl.Recipe(epochs=epochs, move="gradient")
    relative = train("The default plan: T in units of T_c", ours, None, batches)

    print(f"\nAfter training, {PROTOTYPES} prototypes:        paper  relative")
    for name, label in (
        ("accuracy", "accuracy on new sequences"),
        ("relative_entropy", "entropy of assignments / ln K"),
        ("separation", "smallest squared distance S(P)"),
        ("usage", "share that wins a token"),
        ("perplexity", "perplexity of the winners"),
        ("trace", "spread of the tokens, trace C"),
        ("paper_usage", "the paper's usage figure"),
    ):
        print(f"  {label:32s} {paper.metrics[name]:9.3f} {relative.metrics[name]:9.3f}")
    for who, run in (("paper", paper), ("relative", relative)):
        found = [trouble.split(" (")[0] for trouble in run.troubles]
        print(f"The monitor says of {who}: {', '.join(found) or 'healthy'}.")


if __name__ == "__main__":
    main()
