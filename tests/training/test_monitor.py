"""The collapse monitor: every figure against the same figure computed in one go, every condition at its edge."""

from __future__ import annotations

import math
import warnings
from dataclasses import fields, replace

import pytest
import torch
from torch import nn

import ddcl
from ddcl import CollapseError, CollapseMonitor, CollapseWarning, DDCLAttention, PrototypeBank
from ddcl.training import CONDITIONS, HeadMeasure, Trouble, repairing
from ddcl.training.monitor import measures

F64 = torch.float64
H, K, M = 2, 5, 3
NAMES = {condition.name: condition for condition in CONDITIONS}


def bank_and_batches(gradient: str = "full", dtype: torch.dtype = F64) -> tuple[PrototypeBank, list]:
    """A bank of two unequal heads and three batches of unequal shape, the first two masked, one by integers."""
    bank = PrototypeBank(K, M, num_heads=H, temperature=torch.tensor([0.5, 1.7]), gradient=gradient, dtype=dtype)
    with torch.no_grad():
        bank.prototypes[1] += 20
        bank.prototypes[1, 4] = bank.prototypes[1, 2]
        bank.prototypes[0, 3] = 50.0
    batches = []
    for shape in ((7, 11), (13,), (2, 17)):
        z = torch.randn(*shape, H, M, dtype=dtype) * torch.tensor([1.0, 2.0], dtype=dtype)[:, None]
        z[..., 1, :] += 20
        batches.append((z, torch.rand(shape) > 0.3))
    batches[0][0][~batches[0][1]] = float("nan")  # what is masked must not be seen
    batches[1] = (batches[1][0], batches[1][1].to(torch.int64))
    batches[2] = (batches[2][0], None)
    return bank, batches


def unmasked(batches: list) -> torch.Tensor:
    return torch.cat([z.flatten(0, -3) if m is None else z[m.bool()] for z, m in batches])


def measure(monitor: CollapseMonitor, model: nn.Module, batches: list) -> ddcl.training.EpochReport:
    """A measurement whose trouble is not the point."""
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore", CollapseWarning)
        with monitor.measuring() as report:
            for z, mask in batches:
                model(z, mask)
    return report


def healthy(**figures: float) -> HeadMeasure:
    """A measurement without trouble, but for the figures given."""
    values = {field.name: 1.0 for field in fields(HeadMeasure)}
    values |= {"relative_temperature": 0.5, "relative_entropy": 0.5, "tokens": 1, "distinct": 1, "splitting": 1}
    return replace(HeadMeasure(**values), **figures)


@pytest.mark.parametrize("gradient", ["full", "stop"])
@pytest.mark.parametrize("numbers", [measures.MARGIN_NUMBERS, 0], ids=["all tokens", "kept tokens"])
def test_every_figure_is_that_of_all_tokens_in_one_go(gradient, numbers, monkeypatch):
    monkeypatch.setattr(measures, "MARGIN_NUMBERS", numbers)
    bank, batches = bank_and_batches(gradient)
    report = measure(CollapseMonitor().attach(bank), bank, batches)
    z, banks, T = unmasked(batches), bank.prototypes.detach(), bank.temperature
    found = ddcl.readout(z, banks, T, gradient=gradient)
    moments = ddcl.covariance(z, num_heads=H)
    hard, soft = ddcl.usage(found.indices, K, num_heads=H), ddcl.soft_usage(z, banks, T)
    q = ddcl.assignments(z, banks, T)
    for h, one in enumerate(report.measures[""]):
        trace, largest = float(moments.trace[h]), float(moments.largest[h])
        margins = ddcl.split_margins(z[:, h], banks[h], T[h], gradient=gradient)
        # members of a group share their mass: the joint responsibility
        same = (torch.cdist(banks[h], banks[h]) == 0).double()
        gap = (found.centroid[:, h] - banks[h][found.indices[:, h]]).square().sum(-1).mean()
        critical = {"full": 4, "stop": 2}[gradient] * largest
        expected = {
            "tokens": len(z),
            **{name: float(getattr(found.per_head, name)[h]) for name in found.loss._tuple_fields},
            "separation": float(ddcl.separation(banks[h])),
            "relative_separation": float(ddcl.separation(banks[h])) / trace,
            "relative_entropy": float(found.per_head.entropy[h]) / math.log(K),
            "usage": float(hard.usage[h]),
            "relative_usage": float(hard.usage[h]),
            "perplexity": float(hard.perplexity[h]),
            "soft_perplexity": float(soft.perplexity[h]),
            "distinct": int(ddcl.distinct_prototypes(banks[h], trace)),
            "distinct_share": int(ddcl.distinct_prototypes(banks[h], trace)) / K,
            "soft_hard_gap": float(gap) / trace,
            "temperature": float(T[h]),
            "critical_temperature": critical,
            "relative_temperature": float(T[h]) / critical,
            "splitting": int((margins < 0).sum()),
            "smallest_margin": float((margins / (q[:, h].sum(0) @ same)).nan_to_num(0.0).min()),
            "trace": trace,
            "relative_trace": 1.0,
            "paper_usage": float(soft.paper_usage[h]),
        }
        assert set(expected) == {field.name for field in fields(one)}
        for name, value in expected.items():
            assert getattr(one, name) == pytest.approx(value, rel=1e-5, abs=1e-12), (h, name)
    first, second = report.measures[""]
    assert first.usage < 1  # the far prototype of head 0
    assert second.distinct == K - 1  # the pair of head 1
    assert first.splitting
    assert second.splitting


def test_float32_figures_are_those_of_float64():
    bank, batches = bank_and_batches(dtype=torch.float32)
    wide = PrototypeBank(K, M, num_heads=H, dtype=F64)
    wide.load_state_dict(bank.state_dict())
    narrow_report = measure(CollapseMonitor().attach(bank), bank, batches)
    wide_report = measure(CollapseMonitor().attach(wide), wide, [(z.double(), mask) for z, mask in batches])
    for key, value in wide_report.as_dict().items():
        assert narrow_report.as_dict()[key] == pytest.approx(value, rel=1e-4, abs=1e-6), key


def test_with_fewer_tokens_than_prototypes_usage_is_counted_against_the_tokens():
    bank = PrototypeBank(7, 2, temperature=1e-3)
    z = bank.prototypes[0, :3].detach().clone()
    (one,) = measure(CollapseMonitor().attach(bank), bank, [(z, None)]).measures[""]
    assert one.usage == pytest.approx(3 / 7)
    assert one.relative_usage == 1.0


def test_data_without_spread_have_no_scale_and_say_so_without_failing():
    bank = PrototypeBank(3, 2)
    (one,) = measure(CollapseMonitor().attach(bank), bank, [(torch.ones(5, 2), None)]).measures[""]
    assert one.trace == 0
    assert one.relative_temperature == one.relative_separation == math.inf


def test_the_trace_is_compared_with_the_first_measurement():
    bank, batches = bank_and_batches()
    monitor = CollapseMonitor().attach(bank)
    measure(monitor, bank, batches)
    for scale in (0.5, 3.0):
        report = measure(monitor, bank, [(scale * z, mask) for z, mask in batches])
        assert [one.relative_trace for one in report.measures[""]] == pytest.approx([scale**2] * H)


def test_sums_of_steps_are_those_of_the_epoch_when_nothing_moves():
    bank, batches = bank_and_batches()
    monitor = CollapseMonitor().attach(bank)
    for z, mask in batches:
        bank(z, mask)
    steps, epoch = monitor.read(), measure(monitor, bank, batches).as_dict()
    names = (*ddcl.Decomposition._tuple_fields, "usage", "perplexity", "temperature", "separation")
    for key in (f"bank/{head}/{name}" for head in range(H) for name in names):
        assert steps[key] == pytest.approx(epoch[key], rel=1e-6), key
    assert all(type(value) is float for value in steps.values())


def test_the_running_trace_and_temperature_come_near_the_exact_ones():
    bank, z = PrototypeBank(5, 3, temperature=0.4), torch.randn(499, 3)
    monitor = CollapseMonitor(every=1).attach(bank)
    for _ in range(20):
        bank(z)
    steps = monitor.read()
    assert steps["trace"] == pytest.approx(float(ddcl.covariance(z).trace), rel=1e-4)
    assert steps["relative_temperature"] == pytest.approx(0.4 / float(ddcl.critical_temperature(z)), rel=0.01)


def test_clear_begins_the_sums_of_steps_anew():
    bank, z = PrototypeBank(5, 3), torch.randn(11, 3)
    monitor = CollapseMonitor().attach(bank)
    bank(100 * torch.randn(13, 3))
    monitor.clear()
    found = bank(z)
    assert monitor.read()["total"] == pytest.approx(found.loss.total.item())
    assert monitor.read()["usage"] == pytest.approx(float(ddcl.usage(found.indices, 5).usage))


def test_evaluation_is_not_counted():
    bank, z = PrototypeBank(5, 3), torch.randn(11, 3)
    monitor = CollapseMonitor().attach(bank)
    bank(z)
    before = monitor.read()
    bank.eval()
    bank(7 * z)
    assert monitor.read() == before


def test_calls_that_are_measured_are_no_steps():
    bank, batches = bank_and_batches()
    monitor = CollapseMonitor().attach(bank)
    measure(monitor, bank, batches)
    assert monitor.read()["bank/0/usage"] == 0


# the figure just inside trouble, and just outside it
EDGES = [
    ("not finite", "total", math.inf, 1e300),
    ("not finite", "total", math.nan, -1e300),
    ("above the critical temperature", "relative_temperature", 1.0, math.nextafter(1, 0)),
    ("uniform assignments", "relative_entropy", 0.95, math.nextafter(0.95, 0)),
    ("duplicate prototypes", "distinct_share", math.nextafter(0.9, 0), 0.9),
    ("dead prototypes", "relative_usage", math.nextafter(0.9, 0), 0.9),
    ("the encoder shrinks its tokens", "relative_trace", math.nextafter(0.01, 0), 0.01),
]


@pytest.mark.parametrize(("name", "metric", "met", "unmet"), EDGES)
def test_a_condition_is_met_on_one_side_of_its_threshold(name, metric, met, unmet):
    condition = NAMES[name]
    assert condition.metric == metric
    assert condition.met(healthy(**{metric: met}))
    assert not condition.met(healthy(**{metric: unmet}))
    assert [other.name for other in CONDITIONS if other.met(healthy(**{metric: met}))] == [name]


def test_every_condition_has_an_edge_that_is_tested():
    assert {edge[0] for edge in EDGES} == set(NAMES)
    assert not any(condition.met(healthy()) for condition in CONDITIONS)


@pytest.mark.parametrize(("name", "metric", "met"), [edge[:3] for edge in EDGES])
def test_what_a_bank_at_rest_may_show_is_judged_only_while_something_splits(name, metric, met):
    waits = name in ("uniform assignments", "duplicate prototypes", "dead prototypes")
    assert NAMES[name].met(healthy(**{metric: met}, splitting=0)) is not waits


def merged_bank(relative: float) -> tuple[PrototypeBank, torch.Tensor]:
    """A bank of three copies of the mean at a multiple of T_c."""
    z = torch.randn(97, 2, dtype=F64) * torch.tensor([3.0, 1.0], dtype=F64)
    bank = PrototypeBank(3, 2, temperature=relative * ddcl.critical_temperature(z), dtype=F64)
    with torch.no_grad():
        bank.prototypes.copy_(z.mean(0).expand(3, 2))
    return bank, z


def names(report: ddcl.training.EpochReport) -> list[str]:
    return [trouble.condition.name for trouble in report.troubles]


def test_trouble_that_needs_time_to_pass_is_announced_at_the_second_measurement_in_a_row():
    bank, z = merged_bank(0.9)
    monitor = CollapseMonitor().attach(bank)
    lasting = ["uniform assignments", "duplicate prototypes", "dead prototypes"]
    assert names(measure(monitor, bank, [(z, None)])) == []
    assert names(measure(monitor, bank, [(z, None)])) == lasting
    bank.set_temperature(1.01 * ddcl.critical_temperature(z))  # nothing splits: the row is broken
    assert names(measure(monitor, bank, [(z, None)])) == ["above the critical temperature"]
    bank.set_temperature(0.9 * ddcl.critical_temperature(z))
    assert names(measure(monitor, bank, [(z, None)])) == []
    assert names(measure(monitor, bank, [(z, None)])) == lasting


def test_heads_are_judged_each_for_itself():
    bank, batches = bank_and_batches()
    bank.set_temperature(torch.tensor([0.5, 1e3], dtype=F64))
    report = measure(CollapseMonitor().attach(bank), bank, batches)
    assert [(one.condition.name, one.head) for one in report.troubles] == [("above the critical temperature", 1)]
    assert not report.healthy


def test_the_action_warn_warns_at_the_line_that_measures(pytestconfig):
    bank, z = merged_bank(1.01)
    monitor = CollapseMonitor().attach(bank)
    with pytest.warns(CollapseWarning, match=r"above the critical temperature \(head 0\).* = 1.01, above 1") as caught:  # noqa: SIM117
        with monitor.measuring():
            bank(z)
    assert len(caught) == 1
    if not pytestconfig.getoption("--check-shapes"):  # which puts calls of its own between the two
        assert caught[0].filename == __file__


def test_the_action_raise_stops():
    bank, z = merged_bank(1.01)
    monitor = CollapseMonitor({"above the critical temperature": "raise"}).attach(bank)
    with pytest.raises(CollapseError, match="above the critical temperature"), monitor.measuring():
        bank(z)


def test_the_action_repair_puts_idle_prototypes_to_work_and_does_not_warn():
    bank, z = merged_bank(0.1)
    monitor = CollapseMonitor(conditions=repairing()).attach(bank)
    with monitor.measuring() as report:
        bank(z)
    assert {one.condition.name: one.repaired for one in report.troubles} == {
        "duplicate prototypes": 2,
        "dead prototypes": 2,
    }
    assert ddcl.distinct_prototypes(bank.prototypes[0], ddcl.covariance(z).trace) == 3


@pytest.mark.parametrize("where", ["tokens", "prototypes"])
def test_what_is_not_finite_is_announced_by_that_name(where):
    bank, z = PrototypeBank(5, 7), torch.randn(11, 7)
    with torch.no_grad():
        (z if where == "tokens" else bank.prototypes[0])[3] = float("nan")
    monitor = CollapseMonitor().attach(bank)
    with pytest.raises(CollapseError, match="not finite"), monitor.measuring():
        bank(z)


def test_a_trouble_says_where_it_is_and_what_to_do():
    condition = NAMES["dead prototypes"]
    text = str(Trouble(condition, "layer.bank", 1, 0.25))
    assert "bank 'layer.bank', head 1" in text
    assert "relative_usage = 0.25, below 0.9" in text
    assert condition.reason in text
    assert condition.advice in text
    assert "Repaired" not in text
    assert str(Trouble(replace(condition, action="repair"), "", 0, 0.5, repaired=3)).endswith(
        "Repaired: 3 prototypes put to work."
    )


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ({"dead": "warn"}, "actions: got 'dead', expected one of 'above the critical temperature'"),
        ({"dead prototypes": "ignore"}, r"actions\['dead prototypes'\]: got 'ignore', expected one of 'warn', 'raise'"),
        ({"uniform assignments": "repair"}, r"actions\['uniform assignments'\]: got 'repair'"),
    ],
)
def test_wrong_actions_are_refused_by_name(actions, message):
    with pytest.raises(ValueError, match=message):
        CollapseMonitor(actions)


@pytest.mark.bad_input
def test_other_wrong_settings_are_refused():
    with pytest.raises(ValueError, match="every: got 0"):
        CollapseMonitor(every=0)
    with pytest.raises(ValueError, match="holds no PrototypeBank, so there is nothing to watch"):
        CollapseMonitor().attach(nn.Linear(2, 2))


def test_only_what_can_be_repaired_is_repaired_by_the_trainers_conditions():
    assert {one.name for one in repairing() if one.action == "repair"} == {"duplicate prototypes", "dead prototypes"}
    kept = [one for one in repairing() if one.action != "repair"]
    assert kept == [one for one in CONDITIONS if one.name in {other.name for other in kept}]


def test_a_report_is_plain_floats_under_documented_names():
    figures = [field.name for field in fields(HeadMeasure)]
    bank, z = PrototypeBank(5, 3), torch.randn(17, 3)
    one = measure(CollapseMonitor().attach(bank), bank, [(z, None)]).as_dict()
    assert list(one) == figures
    assert all(type(value) is float for value in one.values())

    net = nn.ModuleList([DDCLAttention(6, 5, num_heads=2), PrototypeBank(4, 3)])
    monitor = CollapseMonitor().attach(net)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore", CollapseWarning)
        with monitor.measuring() as report:
            net[0](torch.randn(3, 7, 6))
            net[1](z)
    places = ("0.bank/0", "0.bank/1", "1/0")
    assert list(report.as_dict()) == [f"{place}/{figure}" for place in places for figure in figures]


def test_a_bank_that_is_not_called_is_left_out_of_the_report():
    net = nn.ModuleList([PrototypeBank(5, 3), PrototypeBank(4, 3)])
    monitor = CollapseMonitor().attach(net)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CollapseWarning)
        with monitor.measuring() as report:
            net[1](torch.randn(17, 3))
    assert list(report.measures) == ["1"]


def test_state_goes_with_a_checkpoint():
    bank, batches = bank_and_batches()
    monitor = CollapseMonitor(every=2).attach(bank)
    measure(monitor, bank, batches)
    for z, mask in batches:
        bank(z, mask)
    other = CollapseMonitor(every=2).attach(bank)
    other.load_state_dict(monitor.state_dict())
    for key, value in monitor.read().items():
        if key.endswith(("trace", "relative_temperature", "relative_separation")):
            assert other.read()[key] == value
    halved = [(z / 2, mask) for z, mask in batches]
    assert measure(other, bank, halved).as_dict() == measure(monitor, bank, halved).as_dict()
    with pytest.raises(ValueError, match="state: it knows banks"):
        other.load_state_dict({"elsewhere": {}})


def test_a_resumed_monitor_knows_for_how_long_trouble_has_lasted():
    bank, z = merged_bank(0.9)
    monitor = CollapseMonitor().attach(bank)
    assert names(measure(monitor, bank, [(z, None)])) == []
    saved = monitor.state_dict()
    resumed = CollapseMonitor().attach(bank)
    resumed.load_state_dict(saved)
    assert names(measure(resumed, bank, [(z, None)])) == names(measure(monitor, bank, [(z, None)])) != []


@pytest.mark.compiled
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")  # Dynamo's own, at a graph break
def test_a_compiled_bank_is_counted_without_being_compiled_at_every_step():
    from torch._dynamo.testing import CompileCounterWithBackend

    torch._dynamo.reset()
    bank, plain = PrototypeBank(5, 3, num_heads=2), PrototypeBank(5, 3, num_heads=2)
    plain.load_state_dict(bank.state_dict())
    watched, expected = CollapseMonitor(every=4).attach(bank), CollapseMonitor(every=4).attach(plain)
    counter = CompileCounterWithBackend("aot_eager")
    fast = torch.compile(bank, backend=counter)
    compiled = []
    for _ in range(24):
        z, mask = torch.randn(13, 2, 3), torch.rand(13) > 0.3
        fast(z, mask)
        plain(z, mask)
        compiled.append(counter.frame_count)
    assert compiled[-1] == compiled[11]
    for key, value in expected.read().items():
        assert watched.read()[key] == pytest.approx(value, rel=1e-5), key


@pytest.mark.slow
@pytest.mark.compiled
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
def test_a_compiled_bank_is_measured_exactly_too():
    torch._dynamo.reset()
    bank = PrototypeBank(5, 3, num_heads=2)
    monitor = CollapseMonitor().attach(bank)
    batches = [(torch.randn(13, 2, 3), torch.rand(13) > 0.3), (torch.randn(13, 2, 3), None)]
    plain = measure(monitor, bank, batches).as_dict()
    found = measure(monitor, torch.compile(bank, backend="aot_eager"), batches).as_dict()
    for key, value in plain.items():
        assert found[key] == pytest.approx(value, rel=1e-5), key


def test_detach_leaves_no_hook_and_a_bank_is_hooked_once_however_often_it_is_attached():
    bank = PrototypeBank(5, 3)
    monitor = CollapseMonitor().attach(bank).attach(bank)
    assert len(bank._forward_hooks) == 1
    monitor.detach()
    assert not bank._forward_hooks
    assert not bank._forward_pre_hooks
    assert monitor.read() == {}


def test_an_error_inside_a_measurement_ends_it_without_a_verdict():
    bank, z = merged_bank(1.01)
    monitor = CollapseMonitor({"above the critical temperature": "raise"}).attach(bank)

    def broken_epoch():
        with monitor.measuring():
            bank(z)
            raise RuntimeError("of the loader")

    with pytest.raises(RuntimeError, match="of the loader"):
        broken_epoch()
    bank(z)
    assert monitor.read()["total"] > 0  # counted as a step again
