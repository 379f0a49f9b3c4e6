"""The loop all quantisers share: pictures on the device, Adam, one pass of the data an epoch."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ddcl.experiments.reproduce.dynamics import Watch
from ddcl.experiments.reproduce.vq.autoencoder import decoder, encoder, prepared
from ddcl.experiments.reproduce.vq.measuring import EpochCounts
from ddcl.experiments.reproduce.vq.quantisers import Coded, Quantiser, build
from ddcl.experiments.reproduce.vq.settings import Settings

START_IMAGES = 512
"""Pictures whose tokens start a bank: 32,768 of them."""


class Autoencoder(nn.Module):
    """Encoder, quantiser, decoder."""

    def __init__(self, settings: Settings, device: torch.device | str) -> None:
        super().__init__()
        self.encoder, self.decoder = (part(settings.dim, settings.width).to(device) for part in (encoder, decoder))
        self.quantiser: Quantiser = build(settings.quantiser, settings.num_codes, settings.dim, device)
        self.device_type = torch.device(device).type

    def tokens(self, x: Tensor) -> Tensor:
        """What enters the quantiser, (B * 64, dim) in float32."""
        with self._half():
            maps = self.encoder(x)
        tokens: Tensor = maps.permute(0, 2, 3, 1).reshape(-1, maps.shape[1]).float()
        return tokens

    def pictures(self, values: Tensor) -> Tensor:
        """What the decoder makes of values (B * 64, dim)."""
        side = 8
        maps = values.reshape(-1, side, side, values.shape[-1]).permute(0, 3, 1, 2)
        with self._half():
            drawn: Tensor = self.decoder(maps)
        return drawn.float()

    def forward(self, x: Tensor) -> tuple[Tensor, Coded]:
        """Pictures drawn again, and what became of their tokens."""
        coded = self.quantiser(self.tokens(x))
        return self.pictures(coded.value), coded

    def _half(self) -> torch.autocast:
        return torch.autocast(self.device_type, torch.bfloat16, enabled=self.device_type == "cuda")


class Trained(NamedTuple):
    """What a run leaves."""

    model: Autoencoder
    epochs: dict[str, list[float]]


def train(images: Tensor, settings: Settings, seed: int, device: torch.device | str) -> Trained:
    """Fit an autoencoder to pictures uint8 (N, 32, 32, 3)."""
    torch.manual_seed(seed)
    model = Autoencoder(settings, device)
    images = images.to(device)
    batches = len(images) // settings.batch
    steps = batches * settings.epochs
    with torch.no_grad():
        chosen = torch.randperm(len(images), device=device)[:START_IMAGES]
        first = prepared(images[chosen])
        unit = float(first.var())  # of the pixels: errors are counted in it, as the VQ-VAE has it
        model.quantiser.start(model.tokens(first), steps, batches)
    optimiser, rates = _optimiser(model, settings, steps)
    watch, counts = Watch(), EpochCounts(model.quantiser.num_codes, device)
    done = 0
    torch.backends.cudnn.benchmark = True  # all batches have one shape
    for epoch in range(1, settings.epochs + 1):
        model.train()
        for rows in torch.randperm(len(images), device=device).split(settings.batch)[:batches]:
            x = prepared(images[rows])
            drawn, coded = model(x)
            error = (drawn - x).square().mean()
            (error / unit + coded.loss).backward()
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
            rates.step()
            done += 1
            model.quantiser.after_step(done / steps)
            counts.add(coded, error)
        model.quantiser.after_epoch()
        watch.add(epoch, counts.read())
    return Trained(model, watch.epochs)


def _optimiser(
    model: Autoencoder, settings: Settings, steps: int
) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]:
    fast = list(model.quantiser.fast_parameters())
    slow = [one for one in model.parameters() if one.requires_grad and not any(one is other for other in fast)]
    prescribed = model.quantiser.slow_rate
    groups: list[dict[str, object]] = [{"params": slow, "lr": prescribed or settings.lr}]
    if fast:
        groups.append({"params": fast, "lr": model.quantiser.fast_rate or settings.lr})
    optimiser = torch.optim.Adam(groups, fused=model.device_type == "cuda")

    warmup = max(1, min(settings.warmup, steps // 10))

    def share(step: int) -> float:
        if prescribed:
            return 1.0  # the paper's rates are constant
        return min((step + 1) / warmup, 1.0) * 0.5 * (1 + math.cos(math.pi * min(step / steps, 1.0)))

    return optimiser, torch.optim.lr_scheduler.LambdaLR(optimiser, share)
