"""K_eff(T) and the tree of splits (theory: section 4)."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import ddcl
from ddcl.functional.phases.diagram import PhaseDiagram, cooling_grid, effective_prototypes, phase_diagram
from ddcl.functional.phases.resting import Groups
from ddcl.functional.stability.spectrum import coupled_spectrum, descended_loss

F64 = torch.float64
MODES = ("stop", "full")
PAIR = torch.tensor([[-1.0], [1.0]], dtype=F64)


def blobs(centers: list[list[float]], each: int = 40, width: float = 0.3) -> Tensor:
    c = torch.tensor(centers, dtype=F64)
    return (c[:, None] + width * torch.randn(len(c), each, c.shape[1], dtype=F64)).flatten(0, 1)


def two_groups_of_two_pairs(each: int = 40) -> Tensor:
    corners = [[x, y] for x in (-4.0, 4.0) for y in (-2.0, 2.0)]
    return blobs([[x + s * 0.9, y + s * 0.25] for x, y in corners for s in (-1, 1)], each, 0.22)


def smallest_curvature(z: Tensor, diagram: PhaseDiagram, place: int) -> float:
    """Of what is descended, in all prototypes, in units of a merged bank's."""
    bank, T = diagram.positions[place].clone().requires_grad_(), float(diagram.temperatures[place])
    found = coupled_spectrum(lambda: descended_loss(z, bank, T, gradient=diagram.gradient), [], [bank], lr=1.0)
    return found.smallest * bank.shape[0] / 2


@pytest.mark.parametrize("gradient", MODES)
def test_two_points_part_as_the_closed_form_says(gradient):
    # tokens at -1 and 1, prototypes at -p and p: L = 1 + p^2 - 2 p tanh(2p/T), F = 1 + p^2 - T ln(2 cosh(2p/T))
    diagram = phase_diagram(PAIR, 2, gradient=gradient, relative=[1.1, 1.001, 0.98, 0.7, 0.3, 0.1])
    assert diagram.critical == {"stop": 2.0, "full": 4.0}[gradient]
    assert diagram.distinct.tolist() == [1, 1, 2, 2, 2, 2]
    grid = torch.linspace(0, 2, 200_001, dtype=F64)
    for place, T in enumerate(diagram.temperatures.tolist()):
        loss = 1 + grid**2 - 2 * grid * torch.tanh(2 * grid / T)
        free_energy = 1 + grid**2 - T * torch.log(2 * torch.cosh(2 * grid / T))
        best = int((loss if gradient == "full" else free_energy).argmin())
        position = diagram.positions[place, :, 0].abs()
        torch.testing.assert_close(position, grid[best].expand(2), rtol=0, atol=2e-4)
        assert float(diagram.loss[place]) == pytest.approx(float(loss[best]), abs=2e-4)
        assert float(diagram.free_energy[place]) == pytest.approx(float(free_energy[best]), abs=2e-4)
    (split,) = diagram.splits
    assert split.relative == pytest.approx(1, abs=1e-4)
    assert (split.parent, sorted(split.children)) == ((0, 1), [(0,), (1,)])


def test_in_mode_full_prototypes_rest_outside_their_tokens_and_in_mode_stop_never():
    for gradient, outside in (("stop", False), ("full", True)):
        diagram = phase_diagram(PAIR, 2, gradient=gradient, relative=[1.1, 0.5])
        assert bool(diagram.positions[-1].abs().max() > 1) == outside


@pytest.mark.parametrize("gradient", MODES)
def test_two_and_three_blobs_give_two_and_three_prototypes_at_the_temperatures_of_their_cells(gradient):
    two = blobs([[-5.0, 0.0], [5.0, 0.0]])
    critical = float(ddcl.critical_temperature(two, gradient=gradient))
    for a, count in ((1.5, 1), (1.02, 1), (0.95, 2), (0.1, 2)):
        assert effective_prototypes(two, 2, a * critical, gradient=gradient) == count
    # a blob alone and a pair of blobs: the pair's cell splits at its own critical temperature, far below T_c
    three = blobs([[-9.0, 0.0], [5.0, 2.0], [5.0, -2.0]])
    diagram = phase_diagram(three, 3, gradient=gradient, relative=cooling_grid(1.1, 0.02, 40))
    assert sorted(set(diagram.distinct.tolist())) == [1, 2, 3]
    first, second = diagram.splits
    assert first.relative == pytest.approx(1, abs=1e-4)
    own = float(ddcl.critical_temperature(three[40:], gradient=gradient))
    assert second.temperature == pytest.approx(own, rel=1e-3)
    assert len(second.parent) == 2  # of three prototypes the two went to the pair
    nearest = ddcl.readout(three, diagram.positions[-1], 1.0).indices
    assert sorted(set(nearest[40:].tolist())) == sorted(second.parent)
    assert not set(nearest[:40].tolist()) & set(second.parent)


@pytest.mark.parametrize("gradient", MODES)
def test_a_hierarchy_of_clusters_comes_apart_level_by_level(gradient):
    z = two_groups_of_two_pairs()
    diagram = phase_diagram(z, 8, gradient=gradient, relative=cooling_grid(1.1, 0.02, 40))
    for a, count in ((1.05, 1), (0.6, 2), (0.12, 4), (0.025, 8)):
        assert int(diagram.distinct[int((diagram.relative - a).abs().argmin())]) == count
    assert diagram.merges == ()
    # the tree: every parent is the whole bank or a child of an earlier split, and children are its members
    groups = {tuple(range(8))}
    for split in diagram.splits:
        assert split.parent in groups
        groups.remove(split.parent)
        assert sorted(split.children[0] + split.children[1]) == sorted(split.parent)
        groups |= set(split.children)
    assert groups == {(k,) for k in range(8)}
    assert [split.temperature for split in diagram.splits] == sorted(
        (s.temperature for s in diagram.splits), reverse=True
    )
    trace = ddcl.covariance(z).trace
    for place, bank in enumerate(diagram.positions):
        assert int(ddcl.distinct_prototypes(bank, trace)) == int(diagram.distinct[place])
    torch.testing.assert_close(diagram.mass.sum(1), torch.ones(40, dtype=F64))
    assert float(diagram.entropy[0]) == pytest.approx(math.log(8))


@pytest.mark.parametrize("gradient", MODES)
def test_every_bank_of_the_diagram_is_at_rest_stably_and_has_the_values_it_says(gradient):
    z = two_groups_of_two_pairs(each=12)
    diagram = phase_diagram(z, 5, gradient=gradient, relative=cooling_grid(1.2, 0.03, 13))
    for place, (T, bank) in enumerate(zip(diagram.temperatures.tolist(), diagram.positions, strict=True)):
        leaf = bank.clone().requires_grad_()
        loss = ddcl.readout(z, leaf, T, gradient=gradient).loss
        (slope,) = torch.autograd.grad(loss.total, leaf)
        step = slope / (2 * diagram.mass[place][:, None])  # what soft k-means would move
        assert float(step.norm(dim=1).max()) < 1e-5 * T**0.5
        torch.testing.assert_close(loss.total.detach(), diagram.loss[place])
        torch.testing.assert_close(loss.entropy.detach(), diagram.entropy[place])
        torch.testing.assert_close(loss.free_energy.detach(), diagram.free_energy[place])
        torch.testing.assert_close(ddcl.assignments(z, bank, T).mean(0), diagram.mass[place])
        assert smallest_curvature(z, diagram, place) > 0
    if gradient == "stop":
        torch.testing.assert_close(ddcl.soft_kmeans_step(z, bank, T), bank, rtol=0, atol=1e-5 * T**0.5)


@pytest.mark.parametrize("gradient", MODES)
@pytest.mark.parametrize("points", [[-2.0, -1.0, 0.0, 1.0, 2.0], [0.0, 1.0, 3.0, 4.0]])
def test_symmetric_data_hold_no_bank_on_a_saddle(gradient, points):
    z = torch.tensor(points, dtype=F64)[:, None]
    diagram = phase_diagram(z, 2, gradient=gradient, relative=cooling_grid(1.1, 0.05, 12))
    for place in range(12):
        assert smallest_curvature(z, diagram, place) > 0


def test_a_group_that_cannot_be_halved_evenly_may_split_and_meet_again():
    # K_eff need not grow as T falls: seven prototypes on eight clusters have five places, then four, then seven
    z = two_groups_of_two_pairs()
    diagram = phase_diagram(z, 7, relative=cooling_grid(1.1, 0.03, 50))
    (merge,) = diagram.merges
    counts = [int(diagram.distinct[int((diagram.relative - a).abs().argmin())]) for a in (0.2, 0.12, 0.03)]
    assert counts == [5, 4, 7]
    assert 0.12 < merge.relative < 0.2
    # not our bookkeeping: soft k-means, from the five places, lets the two meet again as well
    warm, cold = (int((diagram.relative - a).abs().argmin()) for a in (0.2, 0.12))
    bank = diagram.positions[warm]
    first, second = (part[0] for part in merge.parts)
    assert float((bank[first] - bank[second]).norm()) > 0.1
    for _ in range(500):
        bank = ddcl.soft_kmeans_step(z, bank, float(diagram.temperatures[cold]))
    assert float((bank[first] - bank[second]).norm()) < 1e-6
    torch.testing.assert_close(bank, diagram.positions[cold], rtol=0, atol=1e-4)


@pytest.mark.parametrize("gradient", MODES)
def test_in_units_of_the_critical_temperature_the_diagram_has_no_scale(gradient):
    # powers of two leave every digit as it is, so nothing but a length without a scale could make a difference
    z = two_groups_of_two_pairs(each=12)
    grid = cooling_grid(1.1, 0.04, 9)
    here = phase_diagram(z, 6, gradient=gradient, relative=grid)
    for scale in (2.0**-12, 2.0**15):
        there = phase_diagram(z * scale, 6, gradient=gradient, relative=grid)
        assert there.distinct.tolist() == here.distinct.tolist()
        assert there.critical == pytest.approx(scale**2 * here.critical, rel=1e-12)
        for found, expected in zip(there.splits, here.splits, strict=True):
            assert (found.parent, found.children) == (expected.parent, expected.children)
            assert found.relative == pytest.approx(expected.relative, rel=1e-9)
            assert found.temperature == pytest.approx(scale**2 * expected.temperature, rel=1e-9)
        torch.testing.assert_close(there.positions / scale, here.positions, rtol=0, atol=1e-9)
        torch.testing.assert_close(there.entropy, here.entropy, rtol=1e-9, atol=0)
        torch.testing.assert_close(there.loss / scale**2, here.loss, rtol=1e-9, atol=0)


@pytest.mark.parametrize("gradient", MODES)
def test_the_diagram_moves_with_the_tokens(gradient):
    z = two_groups_of_two_pairs(each=12)
    grid = cooling_grid(1.1, 0.04, 14)
    here = phase_diagram(z, 8, gradient=gradient, relative=grid)
    there = phase_diagram(z + 1000, 8, gradient=gradient, relative=grid)
    assert there.distinct.tolist() == here.distinct.tolist()
    # at rest what is descended is accurate to the square of the step that was left
    found, expected = (d.loss if gradient == "full" else d.free_energy for d in (there, here))
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=0)
    for split, other in zip(there.splits, here.splits, strict=True):
        assert split.relative == pytest.approx(other.relative, rel=1e-4)  # the accuracy they are found to


@pytest.mark.parametrize("gradient", MODES)
def test_a_group_of_copies_has_the_energy_and_gradient_of_the_bank_it_stands_for(gradient):
    z = torch.randn(31, 3, dtype=F64)
    groups = Groups(torch.randn(3, 3, dtype=F64), ((0, 3), (1,), (2, 4, 5)))
    bank = groups.spread_out(groups.centers).requires_grad_()
    torch.testing.assert_close(bank[0], groups.centers[0])
    torch.testing.assert_close(bank[5], groups.centers[2])
    state = groups.state(z, 0.8, gradient)
    loss = ddcl.readout(z, bank, 0.8, gradient=gradient).loss
    (slope,) = torch.autograd.grad(loss.total, bank)
    torch.testing.assert_close(state.gradient, torch.stack([slope[[0, 3]].sum(0), slope[1], slope[[2, 4, 5]].sum(0)]))
    expected = loss.total if gradient == "full" else loss.free_energy
    assert state.energy == pytest.approx(float(expected.detach()))
    assert state.entropy == pytest.approx(float(loss.entropy.detach()))


def test_masked_tokens_and_batches_give_the_same_diagram():
    z = blobs([[-5.0, 0.0], [5.0, 0.0]], each=11)
    padded = torch.full((2, 15, 2), float("nan"), dtype=F64)
    padded[:, :11] = z.reshape(2, 11, 2)
    mask = torch.arange(15).expand(2, 15) < 11
    plain = phase_diagram(z, 3, relative=[1.1, 0.5, 0.1])
    for data, m in ((padded, mask), ([(padded, mask)], None), (list(z.split(5)), None)):
        found = phase_diagram(data, 3, relative=[1.1, 0.5, 0.1], mask=m)
        torch.testing.assert_close(found.positions, plain.positions)
        assert found.distinct.tolist() == plain.distinct.tolist()
        T = float(plain.temperatures[1])
        assert effective_prototypes(data, 3, T, mask=m) == int(plain.distinct[1])


def test_the_grid_falls_by_the_same_factor():
    grid = cooling_grid(2.0, 0.5, 5)
    torch.testing.assert_close(grid[1:] / grid[:-1], torch.full((4,), 0.25**0.25, dtype=F64))
    assert (float(grid[0]), float(grid[-1])) == pytest.approx((2.0, 0.5))


@pytest.mark.bad_input
def test_bad_input_is_refused_by_name():
    with pytest.raises(ValueError, match="num_prototypes: got 0, expected an integer of at least 1"):
        phase_diagram(PAIR, 0)
    with pytest.raises(ValueError, match="gradient: got 'half', expected one of 'full', 'stop'"):
        phase_diagram(PAIR, 2, gradient="half")
    with pytest.raises(ValueError, match=r"relative: got \[1.0, 2.0\], expected temperatures that fall"):
        phase_diagram(PAIR, 2, relative=[1.0, 2.0])
    with pytest.raises(ValueError, match=r"relative: got \[1.0, 0.0\], expected positive finite multiples of T_c"):
        phase_diagram(PAIR, 2, relative=[1.0, 0.0])
    with pytest.raises(ValueError, match="steps: got 0"):
        phase_diagram(PAIR, 2, steps=0)
    with pytest.raises(ValueError, match="z: all tokens are the same"):
        phase_diagram(torch.full((5, 2), 3.3), 2)
    with pytest.raises(ValueError, match="z: got no unmasked tokens"):
        phase_diagram(PAIR, 2, mask=torch.zeros(2, dtype=torch.bool))
    with pytest.raises(ValueError, match="z: 1 of 4 values are NaN"):
        phase_diagram(torch.tensor([[1.0, 2.0], [float("nan"), 1.0]]), 2)
    with pytest.raises(ValueError, match="temperature: got -1, expected a positive"):
        effective_prototypes(PAIR, 2, -1)
    with pytest.raises(ValueError, match=r"end: got 2.0, expected at most start = 1.0"):
        cooling_grid(1.0, 2.0)
    with pytest.raises(ValueError, match="points: got 0"):
        cooling_grid(points=0)
