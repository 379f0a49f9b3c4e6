"""Figure 6: what the text says of each ratio of the learning rates, on both sets that "MNIST Digits" may mean."""

from __future__ import annotations

from functools import partial

from ddcl.experiments.claims.ledger import Claim, Numbers, Verdict
from ddcl.experiments.claims.tables.evidence import evidence, source_of
from ddcl.experiments.claims.tables.rules import Part, across, conclude, exceeds, figure, places_of, recorded
from ddcl.experiments.reproduce.ablation_notes import NEAR_ZERO, SOON, STABLE, grows, share_of_start

STUDY = "ablation"
RATIOS = (0.001, 0.01, 0.1, 0.5, 1.0)
TEMPERATURE, DEFAULT = "paper's T", "default"


def _method(arm: str, ratio: float) -> str:
    return f"{arm}, ratio {ratio:g}"


def _others(ratio: float) -> list[float]:
    """The ratios of the other regime."""
    return [other for other in RATIOS if (other <= STABLE) is not (ratio <= STABLE)]


def measure(ratio: float) -> Numbers:
    """S(P) over its start after 50 epochs and at the end, ACC, and ACC at the ratios of the other regime."""
    record, numbers = evidence(STUDY), dict[str, float]()
    for images in record.places(""):
        runs = record.of(images, _method(TEMPERATURE, ratio))
        numbers |= recorded(f"{images}/share", [share_of_start(one) for one in runs])
        numbers |= recorded(f"{images}/share_soon", [share_of_start(one, SOON) for one in runs])
        numbers |= recorded(f"{images}/growing", [float(grows(one.epochs["separation"])) for one in runs])
        for key in ("acc_best", "acc"):
            numbers |= recorded(f"{images}/{key}", [one.metrics[key] for one in runs])
        for other in _others(ratio):
            values = record.values(images, _method(TEMPERATURE, other), "acc_best")
            numbers |= recorded(f"{images}/acc_best_{other:g}", values)
        if record.has(images, _method(DEFAULT, ratio)):
            numbers |= recorded(f"{images}/default_acc", record.values(images, _method(DEFAULT, ratio), "acc"))
    return numbers


def _number(ratio: float, n: Numbers) -> str:
    """Both sets, with the other regime's ACC and the default's where it was run."""
    shown = []
    for images in places_of(n):
        others = ", ".join(f"{n[f'{images}/acc_best_{other:g}']:.3f} at {other:g}" for other in _others(ratio))
        default = f"; by default {n[f'{images}/default_acc']:.3f}" if f"{images}/default_acc" in n else ""
        grown = f", growing throughout in {n[f'{images}/growing']:.0%} of {n[f'{images}/growing_runs']:.0f} runs"
        shown.append(
            f"{images}: S(P) over its start {n[f'{images}/share_soon']:.3g} after {SOON} epochs, "
            f"{n[f'{images}/share']:.3g} at the end{grown if ratio <= STABLE else ''}; "
            f"ACC {n[f'{images}/acc_best']:.3f} at the best epoch ({others}), "
            f"{n[f'{images}/acc']:.3f} at the last{default}"
        )
    return "; ".join(shown)


def _accuracy(ratio: float, n: Numbers) -> list[Part]:
    """ACC above, or below, that of every ratio of the other regime."""
    stable = ratio <= STABLE
    true = {}
    for images in places_of(n):
        own = figure(n, f"{images}/acc_best")
        others = [figure(n, f"{images}/acc_best_{other:g}") for other in _others(ratio)]
        true[images] = all(exceeds(own, other) if stable else exceeds(other, own) for other in others)
    return across("its best ACC is above that of 0.5 and 1" if stable else "its best ACC is below that up to 0.1", true)


def judge(ratio: float, n: Numbers) -> Verdict:
    """Up to 0.1, S(P) grows and ACC is higher; from 0.5 on, S(P) ends near zero and ACC is lower; at 1, soon."""
    places = places_of(n)
    if ratio <= STABLE:
        parts = across("S(P) grows throughout", {place: n[f"{place}/growing"] == 1 for place in places})
    else:
        parts = across("S(P) ends near zero", {place: n[f"{place}/share"] < NEAR_ZERO for place in places})
    if ratio == RATIOS[-1]:
        soon = {place: n[f"{place}/share_soon"] < NEAR_ZERO for place in places}
        parts += across(f"S(P) is near zero within {SOON} epochs", soon)
    return conclude(parts + _accuracy(ratio, n), _number(ratio, n))


def _claim(ratio: float) -> Claim:
    if ratio <= STABLE:
        says = "S(P) grows monotonically and ACC is higher than from 0.5 on."
        rule = (
            "S(P) never falls by more than 1 % between two measurements in any run, and ACC at the best epoch is above "
        )
    else:
        soon = f", near zero within {SOON} epochs," if ratio == RATIOS[-1] else ""
        says = f"S(P) collapses{soon} and ACC is lower than up to 0.1."
        rule = "S(P) ends below a hundredth of its start"
        rule += f", and is so after {SOON} epochs" if soon else ""
        rule += ", and ACC at the best epoch is below "
    return Claim(
        f"figure-6-ratio-{ratio:g}",
        f"Learning rates at a ratio of {ratio:g}: {says}",
        "Fig. 6; Sec. 7.6",
        f"holds if, at the paper's temperatures and on every set in the record, {rule}that of the other regime by more "
        "than two standard errors; holds if some of it is so",
        partial(measure, ratio),
        partial(judge, ratio),
        source_of(STUDY),
    )


CLAIMS = tuple(map(_claim, RATIOS))
