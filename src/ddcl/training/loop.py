"""The one training loop: every experiment, the battery and the command line go through here."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ddcl.functional.checks import check_count
from ddcl.nn import TokenNorm, banks_of
from ddcl.training.barrier import barrier_loss
from ddcl.training.checkpoint import load_checkpoint, restore_random, save_checkpoint
from ddcl.training.critical import CriticalSchedule
from ddcl.training.following import FollowsBanks
from ddcl.training.groups import learning_parameters, param_groups
from ddcl.training.guards import encoder_learns, warn_of_ratio, warn_of_unconstrained_encoder
from ddcl.training.loading import count_batches, to_device
from ddcl.training.losses import Loss, call, quantisation_loss
from ddcl.training.monitor import CollapseMonitor, Condition, repairing
from ddcl.training.progress import Progress
from ddcl.training.recipe import Recipe, Setting
from ddcl.training.schedules import ExponentialSchedule
from ddcl.training.soft_kmeans import SoftKMeans
from ddcl.training.starting import Scales, start_banks, tokens_entering


class Trainer:
    r"""Trains any module with banks in it: schedule, monitor, two time scales, checkpoints.

    The bank is started from what enters it, its temperature follows the recipe's plan, the bank moves by running soft
    k-means or by gradient, everything else by Adam at ``epsilon * lr``; after an epoch the banks are measured exactly.

    Args:
        model: embeddings straight into a :class:`PrototypeBank`, or an encoder with banks anywhere in it.
        recipe: what the run is made of.
        loss: a function of the model and a batch that gives a scalar. None: the quantisation loss alone.
        forward: how to call the model on a batch to measure it. None: ``model(batch)``, with a mask if there is one.
        monitor: None: one that repairs dead and duplicate prototypes and warns of all else. Where the recipe lets the
            banks find their size, such prototypes are taken out instead.
        optimiser: made from parameter groups; None: ``torch.optim.Adam``.
        measure_every: epochs from one exact measurement to the next; each is one more pass over the data.
        device: where model and batches go; None leaves the model where it is.
        callback: called with a :class:`Progress` after every epoch.

    Example:
        >>> centers = 5 * torch.randn(4, 8)
        >>> z = centers[torch.randint(4, (512,))] + torch.randn(512, 8)
        >>> bank = PrototypeBank(num_prototypes=4, dim=8)
        >>> history = Trainer(bank, Recipe(epochs=10)).fit(z.split(128))
        >>> history[-1].metrics["distinct"], history[-1].metrics["usage"]
        (4.0, 1.0)
    """

    def __init__(
        self,
        model: nn.Module,
        recipe: Recipe | None = None,
        *,
        loss: Loss | None = None,
        forward: Callable[[nn.Module, Any], Any] | None = None,
        monitor: CollapseMonitor | None = None,
        optimiser: Callable[[list[dict[str, Any]]], Optimizer] | None = None,
        measure_every: int = 1,
        device: torch.device | str | None = None,
        callback: Callable[[Progress], None] | None = None,
    ) -> None:
        self.model, self.recipe = model if device is None else model.to(device), recipe or Recipe()
        if not banks_of(model):
            raise ValueError("model: it holds no PrototypeBank, so there is nothing to train here")
        self.loss, self.forward = loss or quantisation_loss, forward or call
        self.monitor = monitor or CollapseMonitor(conditions=self._conditions())
        self.make_optimiser = optimiser or torch.optim.Adam
        check_count("measure_every", measure_every)
        self.measure_every, self.callback = measure_every, callback
        self.device = next(iter(banks_of(model).values())).prototypes.device
        self._unsupervised = loss is None
        self.schedule: CriticalSchedule | ExponentialSchedule | None = None
        self.mover: SoftKMeans | None = None
        self.optimiser: Optimizer | None = None

    def fit(
        self,
        batches: Iterable[Any],
        *,
        measured: Iterable[Any] | None = None,
        checkpoint: str | Path | None = None,
        resume: bool = False,
    ) -> list[Progress]:
        """Run the recipe over batches that can be walked once per epoch (a ``DataLoader``, a list).

        Args:
            batches: what the loss takes, as the loader gives it.
            measured: what the exact figures are of, where all of the batches would be too much; none of another kind,
                and enough of them that every prototype in use wins some tokens. None: the batches.
            checkpoint: a file written after every epoch.
            resume: go on from that file if it is there, as if the run had never stopped.
        """
        recipe = self.recipe
        measured_on = batches if measured is None else measured
        # each looked at once: to begin a walk of a loader that shuffles moves its random numbers on
        for name, given in (("batches", batches), ("measured", measured)):
            if given is not None and iter(given) is given:
                raise TypeError(f"{name}: got an iterator that ends after one epoch, expected a loader or a list")
        steps_per_epoch = count_batches(batches)
        if not steps_per_epoch:
            raise ValueError("batches: got none, expected at least one per epoch")
        saved = load_checkpoint(checkpoint) if resume and checkpoint and Path(checkpoint).exists() else None
        try:
            self._begin(batches, measured_on, recipe.epochs * steps_per_epoch, saved)
            history = [] if saved is None else self._restore(saved)
            began = time.monotonic()
            for epoch in range(len(history), recipe.epochs):
                mean_loss = self._epoch(batches)
                last = epoch + 1 == recipe.epochs
                due = last or (epoch + 1) % self.measure_every == 0
                metrics, troubles = self._measure(measured_on, last) if due else ({}, ())
                if due and self._adapt(last) and last:
                    metrics, troubles = self._measure(measured_on, last)
                history.append(
                    Progress(
                        epoch=epoch + 1,
                        epochs=recipe.epochs,
                        step=(epoch + 1) * steps_per_epoch,
                        steps=recipe.epochs * steps_per_epoch,
                        loss=mean_loss,
                        seconds=time.monotonic() - began,
                        metrics=metrics,
                        troubles=troubles,
                        num_prototypes={name: bank.num_prototypes for name, bank in banks_of(self.model).items()},
                    )
                )
                if checkpoint is not None:
                    self._save(checkpoint, history)
                if self.callback is not None:
                    self.callback(history[-1])
        finally:
            self._end()
        return history

    def _begin(
        self, batches: Iterable[Any], measured_on: Iterable[Any], steps: int, saved: dict[str, Any] | None
    ) -> None:
        """Banks to their data, then mover, schedule, optimiser and monitor to the banks."""
        recipe, model = self.recipe, self.model
        if saved is not None:
            model.load_state_dict(saved["model"])  # first: banks that have found their size are followed at that size
        if recipe.adapt is not None:
            recipe.adapt.check(model)
        move = recipe.move or ("soft-kmeans" if self._unsupervised and not recipe.barrier else "gradient")
        if move == "soft-kmeans":
            self.mover = SoftKMeans(recipe.momentum).attach(model)
        entering: dict[str, Tensor] = {}
        if saved is None:
            self.scales, entering = start_banks(
                model,
                lambda names: self._entering(batches, names),
                method=recipe.init,
                restarts=recipe.restarts,
                generator=torch.Generator().manual_seed(recipe.seed),
            )
            self.started = recipe.init is not None or all(bool(bank.initialised) for bank in banks_of(model).values())
        else:
            self.scales, self.started = Scales(*saved["scales"]), saved["started"]
        resolution = None if recipe.adapt is None else recipe.adapt.resolution
        setting = Setting(steps, self.scales.resolving, self.started, encoder_learns(model), resolution)
        self.schedule = recipe.temperature.schedule(setting).attach(model)
        if isinstance(self.schedule, CriticalSchedule):
            for name, tokens in entering.items():
                bank = banks_of(model)[name]
                self.schedule.observe(tokens[:, 0] if bank.num_heads == 1 else tokens, bank=name)
        if self._unsupervised:
            warn_of_unconstrained_encoder(model)
        self.optimiser = self._make_optimiser(self.scales.spread)
        self.monitor.attach(model, optimiser=self.optimiser, mover=self.mover)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=recipe.precision == "float16")
        if saved is None:
            self._measure(measured_on)  # what trace C is compared with later
            if not bool(torch.isfinite(barrier_loss(model, recipe, self.scales.spread))):
                raise ValueError(f"barrier: got {recipe.barrier!r}, expected 0: prototypes coincide at the start")

    def _entering(self, batches: Iterable[Any], names: Collection[str]) -> dict[str, Tensor]:
        """The tokens that enter some banks, behind normalisations of what the encoder and other banks give now."""
        self._recalibrate(batches)
        return tokens_entering(
            self.model, (to_device(batch, self.device) for batch in batches), self.forward, names=names
        )

    def _make_optimiser(self, spread: float) -> Optimizer | None:
        """Two groups at two rates; with nothing to descend by gradient, none."""
        recipe = self.recipe
        lr = recipe.lr * (spread if recipe.relative_lr and spread > 0 else 1.0)
        of_banks, others = learning_parameters(self.model)
        if others:
            warn_of_ratio(recipe.epsilon)
        if of_banks and others:
            groups = param_groups(self.model, lr, recipe.epsilon * recipe.lr / lr)
        elif others:
            groups = [{"name": "encoder", "params": others, "lr": recipe.epsilon * recipe.lr}]
        elif of_banks:
            groups = [{"name": "prototypes", "params": of_banks, "lr": lr, "weight_decay": 0.0}]
        else:
            return None
        for group in groups:
            group.setdefault("weight_decay", recipe.weight_decay)
        return self.make_optimiser(groups)

    def _epoch(self, batches: Iterable[Any]) -> float:
        self.model.train()
        self.monitor.clear()
        total, count = torch.zeros((), device=self.device), 0
        for batch in batches:
            with self._autocast():
                loss = self.loss(self.model, to_device(batch, self.device))
            if self.recipe.barrier:
                loss = loss + barrier_loss(self.model, self.recipe, self.scales.spread)
            self._descend(loss)
            if self.mover is not None:
                self.mover.step()
            if self.recipe.temperature.per_step:
                self._cool()
            total += loss.detach()
            count += 1
        if not self.recipe.temperature.per_step:
            self._cool()
        return float(total) / count

    def _conditions(self) -> tuple[Condition, ...]:
        """Repair what can be; a bank that finds its own size drops what is idle, and has nothing to repair."""
        found = repairing()
        return found if self.recipe.adapt is None else tuple(one for one in found if one.action != "repair")

    def _adapt(self, last: bool) -> bool:
        """Let the banks find their size; at the last look they only shrink: what is new would stay untrained."""
        changed = False
        for bank in banks_of(self.model).values() if self.recipe.adapt is not None else []:
            tokens = self.monitor.measured_tokens(bank)
            if tokens is not None and self.recipe.adapt is not None:
                parts = (self.monitor, self.mover, self.schedule)
                found = self.recipe.adapt.adapt(bank, tokens, optimiser=self.optimiser, followers=parts, grow=not last)
                changed |= any(found)
        return changed

    def _cool(self) -> None:
        if self.schedule is not None:
            self.schedule.step()

    def _descend(self, loss: Tensor) -> None:
        if self.optimiser is None or (self.mover is not None and not loss.requires_grad):
            return  # what learns has no part in this loss, and the banks are moved by other means
        if not loss.requires_grad:
            raise ValueError("loss: it depends on nothing that learns, so there is nothing to descend")
        self.optimiser.zero_grad()
        self.scaler.scale(loss).backward()
        if self.recipe.clip is not None:
            self.scaler.unscale_(self.optimiser)
            # the bank is left out: the encoder's gradients must not slow it down
            groups = [group for group in self.optimiser.param_groups if group.get("name") == "encoder"]
            nn.utils.clip_grad_norm_([p for group in groups for p in group["params"]], self.recipe.clip)
        self.scaler.step(self.optimiser)
        self.scaler.update()

    @torch.no_grad()
    def _measure(
        self, batches: Iterable[Any], last: bool = False, attempts: int = 3
    ) -> tuple[dict[str, float], tuple[str, ...]]:
        """Exact figures and what they announce; of the last ones, those of the bank that repairs have left."""
        self._recalibrate(batches)
        with self.monitor.measuring() as report:
            self._walk(batches)
        if last and any(trouble.repaired for trouble in report.troubles):
            return self._measure(batches, last, attempts - 1) if attempts > 1 else self._measure(batches)
        return report.as_dict(), tuple(str(trouble) for trouble in report.troubles)

    @torch.no_grad()
    def _recalibrate(self, batches: Iterable[Any]) -> None:
        """Running moments of normalisations trail behind the encoder: one pass makes them those of it as it is."""
        self.model.eval()
        norms = [part for part in self.model.modules() if isinstance(part, TokenNorm) and part.kind == "standard"]
        if norms:
            with ExitStack() as stack:
                for norm in norms:
                    stack.enter_context(norm.recalibrating())
                self._walk(batches)

    def _walk(self, batches: Iterable[Any]) -> None:
        """Every batch through the model."""
        with self._autocast():
            for batch in batches:
                self.forward(self.model, to_device(batch, self.device))

    def _autocast(self) -> AbstractContextManager[Any]:
        if self.recipe.precision == "float32":
            return nullcontext()
        return torch.autocast(self.device.type, dtype=getattr(torch, self.recipe.precision))

    def _end(self) -> None:
        """Let the banks go, also after an interruption; they keep their prototypes and temperatures."""
        for part in (self.monitor, self.mover, self.schedule):
            if isinstance(part, FollowsBanks):
                part.detach()
        self.model.eval()

    def _parts(self) -> dict[str, Any]:
        parts = {
            "model": self.model,
            "schedule": self.schedule,
            "monitor": self.monitor,
            "mover": self.mover,
            "optimiser": self.optimiser,
            "scaler": self.scaler,
        }
        return {name: part for name, part in parts.items() if part is not None}

    def _save(self, path: str | Path, history: list[Progress]) -> None:
        state = {name: part.state_dict() for name, part in self._parts().items()}
        run = {"scales": tuple(self.scales), "started": self.started, "history": [vars(one) for one in history]}
        save_checkpoint(path, {**state, **run})

    def _restore(self, saved: dict[str, Any]) -> list[Progress]:
        for name, part in self._parts().items():
            part.load_state_dict(saved[name])
        restore_random(saved)
        return [Progress(**one) for one in saved["history"]]
