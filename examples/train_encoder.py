"""Train a small transformer encoder and a bank of prototypes together, at two time scales.

Sequences belong to one of six topics, each with its own words; the encoder learns to tell them apart through
the bank's soft centroids. The same model is trained twice: with the paper's temperatures, which are absolute,
and with temperatures stated as multiples of the critical one, which follows the tokens as the encoder moves them.

    python examples/train_encoder.py [--quick]
"""

from __future__ import annotations

import argparse
import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import ddcl

TOPICS, WORDS, LENGTH, DIM, PROTOTYPES = 6, 60, 16, 32, 12


class Classifier(nn.Module):
    """Embedding, two transformer blocks, unit-norm tokens, the bank, and a linear head on the mean centroid."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, DIM)
        block = nn.TransformerEncoderLayer(DIM, nhead=4, dim_feedforward=64, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(block, num_layers=2)
        self.bank = ddcl.PrototypeBank(PROTOTYPES, DIM)
        self.head = nn.Linear(DIM, TOPICS)

    def tokens(self, words: Tensor, mask: Tensor) -> Tensor:
        """Unit-norm token vectors, as sentence encoders give them."""
        hidden: Tensor = self.encoder(self.embed(words), src_key_padding_mask=~mask)
        return F.normalize(hidden, dim=-1)

    def forward(self, words: Tensor, mask: Tensor) -> tuple[Tensor, ddcl.Readout]:
        """Class scores and the readout with its losses."""
        out: ddcl.Readout = self.bank(self.tokens(words, mask), mask)
        pooled = out.centroid.sum(1) / mask.sum(1, keepdim=True)  # masked centroids are zero
        return self.head(pooled), out


def sequences(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Words, mask and topic of random sequences: half of the words are the topic's own, half are anyone's."""
    topic = torch.randint(TOPICS, (count,), generator=generator)
    own = topic[:, None] * 5 + torch.randint(5, (count, LENGTH), generator=generator)
    shared = torch.randint(TOPICS * 5, WORDS, (count, LENGTH), generator=generator)
    words = torch.where(torch.rand(count, LENGTH, generator=generator) < 0.5, own, shared)
    length = torch.randint(LENGTH // 2, LENGTH + 1, (count, 1), generator=generator)
    return words, torch.arange(LENGTH) < length, topic


def train(relative: bool, epochs: int, steps: int) -> dict[str, float]:
    """One run; ``relative`` states the temperatures in units of T_c."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    model = Classifier()
    words, mask, _ = sequences(256, generator)
    with torch.no_grad():
        start = model.tokens(words, mask)
    model.bank.init_from(start, mask=mask, generator=generator)
    schedule: ddcl.CriticalSchedule | ddcl.ExponentialSchedule
    if relative:
        schedule = ddcl.CriticalSchedule(0.5, 0.1, steps=epochs).attach(model).observe(start, mask=mask)
    else:
        schedule = ddcl.ExponentialSchedule(2.0, 0.3, tau=epochs / 3).attach(model)
    optimiser = torch.optim.Adam(ddcl.param_groups(model, lr=1e-2, epsilon=0.1))

    title = "T in units of T_c: 0.5 to 0.1" if relative else "T as in the paper: 2.0 to 0.3"
    print(f"\n{title}\nepoch   L_q     R      V    min d   H/lnK   T/T_c  accuracy")
    row: dict[str, float] = {}
    for epoch in range(epochs):
        correct = seen = 0
        for _ in range(steps):
            words, mask, topic = sequences(64, generator)
            scores, out = model(words, mask)
            loss = F.cross_entropy(scores, topic) + 0.1 * out.loss.total
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            correct, seen = correct + int((scores.argmax(-1) == topic).sum()), seen + len(topic)
        row = measure(model, generator) | {"accuracy": correct / seen}
        schedule.step()
        if epoch % max(1, epochs // 6) == 0 or epoch == epochs - 1:
            print(
                f"{epoch:5d}  {row['total']:.3f}  {row['reconstruction']:.3f}  {row['variance']:.3f}  "
                f"{row['quantization']:.3f}   {row['entropy']:.3f}   {row['relative']:5.2f}   {row['accuracy']:.3f}"
            )
    return row


@torch.no_grad()
def measure(model: Classifier, generator: torch.Generator) -> dict[str, float]:
    """The losses and the honest usage figures on fresh sequences."""
    words, mask, _ = sequences(512, generator)
    z = model.tokens(words, mask)
    out: ddcl.Readout = model.bank(z, mask)
    moments = ddcl.covariance(z, mask=mask)
    hard = ddcl.usage(out.indices, PROTOTYPES)
    soft = ddcl.soft_usage(z, model.bank.prototypes[0], model.bank.temperature[0], mask=mask)
    return out.loss.as_dict() | {
        "entropy": float(out.loss.entropy) / math.log(PROTOTYPES),
        "relative": float(model.bank.temperature[0] / (4 * moments.largest)),
        "separation": float(ddcl.separation(model.bank.prototypes[0])),
        "usage": float(hard.usage),
        "perplexity": float(hard.perplexity),
        "trace": float(moments.trace),
        "paper usage": float(soft.paper_usage),
    }


def main() -> None:
    """Train twice and compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="a few steps only")
    quick = parser.parse_args().quick
    epochs, steps = (2, 3) if quick else (14, 30)
    paper, relative = train(False, epochs, steps), train(True, epochs, steps)
    print(f"\nAfter training, {PROTOTYPES} prototypes:        paper   in units of T_c")
    for name, label in (
        ("accuracy", "task accuracy"),
        ("entropy", "entropy of assignments / ln K"),
        ("separation", "smallest squared distance S(P)"),
        ("usage", "prototypes that win a token"),
        ("perplexity", "perplexity of the winners"),
        ("trace", "spread of the tokens, trace C"),
        ("paper usage", "the paper's usage figure"),
    ):
        print(f"  {label:32s} {paper[name]:9.3f}  {relative[name]:12.3f}")


if __name__ == "__main__":
    main()
