"""The ways from one vector per text to a class or a cluster that the readout study compares."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ddcl.experiments.reproduce.dynamics import Watch
from ddcl.experiments.reproduce.readout_texts import Vectors, drawn, standardised_by, unit
from ddcl.experiments.shuffling import Shuffled
from ddcl.nn import NeighbourhoodEncoder, PooledOutput, PrototypeReadout
from ddcl.rivals.clusters import cluster_scores, kmeans_baseline
from ddcl.training import (
    CollapseMonitor,
    CollapseWarning,
    Critical,
    GuardWarning,
    Recipe,
    Trainer,
    cluster_embeddings,
    paper_recipe,
)

WIDTH, LAMBDA_Q = 64, 0.1
PENALTIES = (0.01, 0.1, 1.0)
"""C of logistic regression: the one that does best on a tenth of the training texts."""
HEAD_TEMPERATURE = Critical(0.5, 0.1)
"""Of a bank that a task trains: warm enough that texts on both sides of a border still move it."""


class Plan(NamedTuple):
    """What a bank is trained with."""

    prototypes: int
    epochs: int
    batch: int
    seed: int
    measure_every: int = 1
    device: str = "cpu"


class View(NamedTuple):
    """The training texts as a map shows them."""

    tokens: Tensor
    """(N, m)."""
    prototypes: Tensor
    """(K, m)."""
    indices: Tensor
    """The prototype of each, (N,)."""


class Outcome(NamedTuple):
    """What a way found."""

    metrics: dict[str, float]
    epochs: Mapping[str, Sequence[float]] = {}
    view: View | None = None


def logistic_regression(train: Vectors, test: Vectors) -> Outcome:
    """The supervised yardstick; its penalty is chosen on training texts alone."""
    from sklearn.linear_model import LogisticRegression

    x, x_test = (part.numpy() for part in standardised_by(train.x, test.x))
    y, y_test = train.labels.numpy(), test.labels.numpy()
    held = np.zeros(len(x), dtype=bool)
    held[drawn(len(x), len(x) // 10)] = True

    def fitted(penalty: float, rows: np.ndarray) -> LogisticRegression:
        return LogisticRegression(C=penalty, max_iter=500, tol=1e-3).fit(x[rows], y[rows])

    chosen = max(PENALTIES, key=lambda penalty: float(fitted(penalty, ~held).score(x[held], y[held])))
    final = fitted(chosen, np.ones(len(x), dtype=bool))
    return Outcome({"test_accuracy": float(final.score(x_test, y_test)), "penalty": chosen})


def kmeans(train: Vectors, test: Vectors, prototypes: int, seed: int) -> Outcome:
    """The unsupervised yardstick, on vectors of length 1."""
    found = kmeans_baseline(unit(train.x), prototypes, seed)
    return Outcome(both_scores(found.labels_, train, found.predict(unit(test.x).numpy()), test))


def papers_recipe(train: Vectors, test: Vectors, plan: Plan, *, supervised: bool) -> Outcome:
    """A projection to 64 dimensions and a bank, on vectors as they are, at the paper's temperatures and rates."""
    torch.manual_seed(plan.seed)
    classes = int(train.labels.max()) + 1
    head = {"head": "classification", "num_outputs": classes} if supervised else {}
    model = PrototypeReadout(train.x.shape[1], plan.prototypes, proto_dim=WIDTH, **head)  # type: ignore[arg-type]
    recipe = paper_recipe(plan.epochs, lr=1e-3, epsilon=0.1, seed=plan.seed)
    # the monitor looks on: the paper repairs nothing
    return _train(model, train, test, plan, recipe, LAMBDA_Q, CollapseMonitor())


def default_head(train: Vectors, test: Vectors, plan: Plan) -> Outcome:
    """The library's head on a frozen encoder: everything in units of the tokens' own spread.

    L_q counts by its share of the tokens' variance, which behind a standard normalisation is their dimension. As it is
    it would outweigh any cross entropy, and the projection would look for clusters instead of classes.
    """
    torch.manual_seed(plan.seed)
    x, x_test = standardised_by(train.x, test.x)
    model = PrototypeReadout(
        x.shape[1],
        plan.prototypes,
        proto_dim=WIDTH,
        normalise="standard",
        head="classification",
        num_outputs=int(train.labels.max()) + 1,
    )
    recipe = Recipe(epochs=plan.epochs, temperature=HEAD_TEMPERATURE, seed=plan.seed)
    ready, ready_test = train._replace(x=x), test._replace(x=x_test)
    return _train(model, ready, ready_test, plan, recipe, LAMBDA_Q / WIDTH, None)


def default_clusters(train: Vectors, test: Vectors, plan: Plan) -> Outcome:
    """The library's clusters of a frozen encoder's vectors, without labels."""
    recipe = replace(Recipe(), epochs=plan.epochs, seed=plan.seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CollapseWarning)
        found = cluster_embeddings(unit(train.x).to(plan.device), plan.prototypes, recipe=recipe)
    watch = Watch()
    for progress in found.history:
        watch(progress)
    with torch.no_grad():
        of_test = found.model(unit(test.x).to(plan.device)).indices.cpu().numpy()
    scores = both_scores(found.indices.cpu().numpy(), train, of_test, test)
    neighbourhood = found.model[0]
    assert isinstance(neighbourhood, NeighbourhoodEncoder)
    view = _held(neighbourhood.fitted.cpu(), found.indices.cpu())
    return Outcome(scores | _ending(watch.epochs), watch.epochs, view)


def _held(tokens: Tensor, indices: Tensor) -> View:
    """Prototypes at the mean of the texts they hold: their own space, in which texts agree or do not, has no map."""
    used = indices.unique()
    return View(tokens, torch.stack([tokens[indices == index].mean(0) for index in used]), indices)


def both_scores(found: np.ndarray, train: Vectors, of_test: np.ndarray, test: Vectors) -> dict[str, float]:
    """Scores of clusters on training texts, and on test texts with ``_test`` behind their names."""
    scores = cluster_scores(found, train.labels.numpy())
    return scores | {f"{name}_test": value for name, value in cluster_scores(of_test, test.labels.numpy()).items()}


def _train(
    model: PrototypeReadout,
    train: Vectors,
    test: Vectors,
    plan: Plan,
    recipe: Recipe,
    lambda_q: float,
    monitor: CollapseMonitor | None,
) -> Outcome:
    """One vector is a sequence of one token; batches are numbers of rows."""
    model.to(plan.device)
    x, x_test = (part.x.unsqueeze(1).to(plan.device) for part in (train, test))
    labels = train.labels.to(plan.device)

    def scores() -> dict[str, float]:
        of_train, of_test = _read(model, x), _read(model, x_test)
        found = both_scores(of_train.indices, train, of_test.indices, test)
        if of_test.classes is not None:
            found["test_accuracy"] = float((of_test.classes == test.labels.numpy()).mean())
        return found

    def loss(_: nn.Module, rows: Tensor) -> Tensor:
        output = model(x[rows])
        if model.head is None:
            total: Tensor = output.readout.loss.total
            return total
        return model.loss(output, labels[rows], lambda_q=lambda_q)

    def forward(_: nn.Module, rows: Tensor) -> PooledOutput:
        output: PooledOutput = model(x[rows])
        return output

    watch = Watch(scores)
    trainer = Trainer(
        model,
        recipe,
        loss=loss,
        forward=forward,
        monitor=monitor,
        measure_every=plan.measure_every,
        callback=watch,
    )
    with warnings.catch_warnings():
        # whether the paper's recipe collapses is what the table shows
        warnings.simplefilter("ignore", CollapseWarning)
        warnings.simplefilter("ignore", GuardWarning)
        trainer.fit(Shuffled(torch.arange(len(x), device=x.device), batch=plan.batch, seed=plan.seed))
    kept = [name for name in watch.epochs if name.startswith(("acc", "nmi", "ari", "purity", "test_accuracy"))]
    metrics = {name: watch.epochs[name][-1] for name in kept} | _ending(watch.epochs)
    with torch.no_grad():
        tokens = model.to_heads(x, None)[:, 0].cpu()
    view = View(tokens, model.bank.prototypes[0].detach().cpu(), torch.from_numpy(_read(model, x).indices))
    return Outcome(metrics, watch.epochs, view)


class _Found(NamedTuple):
    indices: np.ndarray
    classes: np.ndarray | None


@torch.no_grad()
def _read(model: PrototypeReadout, x: Tensor) -> _Found:
    model.eval()
    output = model(x)
    classes = None if output.logits is None else output.logits.argmax(-1).cpu().numpy()
    return _Found(output.readout.indices.flatten().cpu().numpy(), classes)


def _ending(epochs: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """The bank's health at the end, and how hot it was."""
    kept = ("distinct", "usage", "relative_entropy", "relative_temperature", "relative_trace", "paper_usage")
    found = {name: epochs[name][-1] for name in kept if name in epochs}
    return found | {"coldest": min(epochs["relative_temperature"]), "hottest": max(epochs["relative_temperature"])}
