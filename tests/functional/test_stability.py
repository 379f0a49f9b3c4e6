"""The spectrum of J*, Proposition 3 and mu_P / L (the paper's section 4)."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import ddcl
from ddcl.functional.phases.resting import Groups, come_to_rest
from ddcl.functional.stability.lanczos import conjugate_gradients, lanczos_extremes
from ddcl.functional.stability.spectrum import coupled_jacobian, coupled_spectrum, descended_loss
from ddcl.functional.stability.time_scales import ratio_bound, time_scales

F64 = torch.float64
RATIOS = (1e-4, 0.1, 1.0, 30.0)


def symmetric(n: int, *, positive: bool) -> Tensor:
    a = torch.randn(n, n, dtype=F64)
    return a @ a.mT / n + 0.05 * torch.eye(n, dtype=F64) if positive else (a + a.mT) / 2


def quadratic(H: Tensor, num_slow: int):
    """Parameters (slow, fast) and the loss x' H x / 2 in them."""
    slow = torch.randn(num_slow, dtype=F64, requires_grad=True)
    fast = torch.randn(len(H) - num_slow, dtype=F64, requires_grad=True)

    def loss() -> Tensor:
        x = torch.cat([slow, fast])
        return x @ H @ x / 2

    return loss, [slow], [fast]


@pytest.mark.parametrize("positive", [True, False])
def test_as_many_eigenvalues_of_j_are_negative_as_of_h_whatever_the_ratio(positive):
    H = symmetric(11, positive=positive)
    loss, slow, fast = quadratic(H, 4)
    negative = int((torch.linalg.eigvalsh(H) < 0).sum())
    assert (negative == 0) == positive
    for epsilon in RATIOS:
        J = coupled_jacobian(loss, slow, fast, lr=0.3, epsilon=epsilon)
        rates = torch.tensor([0.3 * epsilon] * 4 + [0.3] * 7, dtype=F64)
        torch.testing.assert_close(J, rates[:, None] * H)
        values = torch.linalg.eigvals(J)  # of the matrix as it is, not made symmetric
        assert values.imag.abs().max() < 1e-9
        assert int((values.real < 0).sum()) == negative
        found = coupled_spectrum(loss, slow, fast, lr=0.3, epsilon=epsilon)
        assert found.smallest == pytest.approx(float(values.real.min()), abs=1e-12)
        assert found.largest == pytest.approx(float(values.real.max()), abs=1e-12)
        assert (found.stable, found.unstable) == (positive, not positive)
        torch.testing.assert_close(J @ found.direction, found.smallest * found.direction)


def test_the_unstable_direction_is_placed_in_the_encoder_or_in_the_bank():
    for H, share in (
        (torch.diag(torch.tensor([-1.0, 2.0, 3.0])), 0.0),
        (torch.diag(torch.tensor([1.0, 2.0, -3.0])), 1.0),
    ):
        loss, slow, fast = quadratic(H.double(), 2)
        assert coupled_spectrum(loss, slow, fast, lr=1.0).bank_share == pytest.approx(share, abs=1e-12)


def test_a_flat_direction_is_neither_stable_nor_unstable():
    H = symmetric(6, positive=True)
    H[0, :], H[:, 0] = 0, 0
    found = coupled_spectrum(*quadratic(H, 3), lr=1.0)
    assert not found.stable
    assert not found.unstable


def test_gradient_descent_is_stable_up_to_the_step_limit_and_not_beyond():
    H = symmetric(7, positive=True)
    loss, slow, fast = quadratic(H, 3)
    limit = coupled_spectrum(loss, slow, fast, lr=0.2, epsilon=0.5).step_limit
    rates = torch.tensor([0.1] * 3 + [0.2] * 4, dtype=F64)
    sizes = []
    for factor in (0.99, 1.01):
        x = torch.ones(7, dtype=F64)
        for _ in range(2000):
            x = x - factor * limit * rates * (H @ x)
        sizes.append(float(x.norm()))
    assert sizes[0] < 0.1
    assert sizes[1] > 100


@pytest.mark.parametrize("n", [1, 2, 60])
def test_lanczos_finds_the_ends_that_a_dense_solver_finds(n):
    H = symmetric(n, positive=False)
    loss, slow, fast = quadratic(H, n // 3)
    dense = coupled_spectrum(loss, slow, fast, lr=0.1, method="dense")
    lanczos = coupled_spectrum(loss, slow, fast, lr=0.1, method="lanczos")
    assert lanczos.smallest == pytest.approx(dense.smallest, rel=1e-6)
    assert lanczos.largest == pytest.approx(dense.largest, rel=1e-6)
    assert abs(float(lanczos.direction @ dense.direction)) == pytest.approx(1, abs=1e-6)


def test_the_residual_of_lanczos_bounds_the_distance_to_an_eigenvalue_and_ends_lie_inside():
    H = symmetric(200, positive=False)
    values = torch.linalg.eigvalsh(H)
    for steps in (3, 10, 30):
        found = lanczos_extremes(lambda x: H @ x, torch.randn(200, dtype=F64), steps=steps)
        assert found.products == steps
        assert found.smallest >= float(values[0]) - 1e-12
        assert found.largest <= float(values[-1]) + 1e-12
        for value, vector in ((found.smallest, found.smallest_vector), (found.largest, found.largest_vector)):
            assert float((values - value).abs().min()) <= found.residual + 1e-12
            assert float((H @ vector - value * vector).norm()) <= found.residual + 1e-10


def test_lanczos_keeps_its_directions_apart():
    # without reorthogonalisation copies of the far end come back and the near end is out of reach in n steps
    values = torch.cat([torch.logspace(-4, 0, 80, dtype=F64), torch.tensor([1e4], dtype=F64)])
    Q = torch.linalg.qr(torch.randn(81, 81, dtype=F64))[0]
    H = Q @ torch.diag(values) @ Q.mT
    found = lanczos_extremes(lambda x: H @ x, torch.randn(81, dtype=F64), steps=81, tolerance=0.0)
    assert found.smallest == pytest.approx(1e-4, abs=1e-10)
    assert found.largest == pytest.approx(1e4, rel=1e-12)


def test_conjugate_gradients_solve_and_say_how_well():
    H, b = symmetric(40, positive=True), torch.randn(40, dtype=F64)
    found = conjugate_gradients(lambda x: H @ x, b)
    torch.testing.assert_close(found.x, torch.linalg.solve(H, b))
    assert found.residual < 1e-9
    short = conjugate_gradients(lambda x: H @ x, b, steps=2)
    assert short.residual == pytest.approx(float((H @ short.x - b).norm() / b.norm()))
    assert short.residual > 1e-3


@pytest.mark.parametrize("gradient", ["full", "stop"])
@pytest.mark.parametrize("epsilon", [0.01, 10.0])
def test_the_merged_bank_loses_stability_exactly_at_the_critical_temperature(gradient, epsilon):
    # encoder: a shift b of the tokens, held by b^2; (b, P) = (0, mean) is a fixed point of the coupled flow
    x = torch.randn(60, 3, dtype=F64) * torch.tensor([2.0, 1.0, 0.5], dtype=F64)
    K = 4
    bank = x.mean(0).expand(K, 3).clone().requires_grad_()
    shift = torch.zeros(3, dtype=F64, requires_grad=True)
    critical = float(ddcl.critical_temperature(x, gradient=gradient))
    for a in (0.98, 1.02):

        def loss(T: float = a * critical) -> Tensor:
            return descended_loss(x + shift, bank, T, gradient=gradient) + shift.square().sum()

        found = coupled_spectrum(loss, [shift], [bank], lr=1.0, epsilon=epsilon)
        assert (found.stable, found.unstable) == (a > 1, a < 1)
        alone = coupled_spectrum(loss, [], [bank], lr=1.0)
        assert alone.smallest == pytest.approx(2 * (1 - 1 / a) / K, rel=1e-9)
        if a < 1:  # prototypes part, the encoder does not move
            assert found.smallest == pytest.approx(alone.smallest, rel=1e-9)
            assert found.bank_share == pytest.approx(1, abs=1e-9)


def test_the_second_derivative_of_a_stopped_loss_is_blind_to_the_instability():
    z = torch.randn(50, 2, dtype=F64)
    bank = z.mean(0).expand(3, 2).clone().requires_grad_()
    T = 0.5 * float(ddcl.critical_temperature(z, gradient="stop"))
    blind = coupled_spectrum(
        lambda: ddcl.readout(z, bank, T, gradient="stop", backend="reference").loss.total, [], [bank], lr=1.0
    )
    assert blind.smallest == pytest.approx(2 / 3)  # twice the mass of each
    assert coupled_spectrum(lambda: descended_loss(z, bank, T, gradient="stop"), [], [bank], lr=1.0).unstable


@pytest.mark.parametrize("gradient", ["full", "stop"])
def test_what_is_said_to_be_descended_has_the_gradient_the_bank_follows(gradient):
    z, bank = torch.randn(13, 3, dtype=F64), torch.randn(5, 3, dtype=F64, requires_grad=True)
    mask = torch.rand(13) < 0.6
    z[~mask] = float("nan")
    followed = torch.autograd.grad(ddcl.readout(z, bank, 0.7, gradient=gradient, mask=mask).loss.total, bank)
    said = torch.autograd.grad(descended_loss(z, bank, 0.7, gradient=gradient, mask=mask), bank)
    torch.testing.assert_close(said, followed)


def live_model() -> tuple[torch.nn.Module, object, list[Tensor], list[Tensor]]:
    """A transformer layer with a bank behind it, in float64, and its loss on a fixed masked batch."""
    layer = torch.nn.TransformerEncoderLayer(4, nhead=2, dim_feedforward=4, batch_first=True).double().eval()
    bank = ddcl.PrototypeBank(3, 4, temperature=0.5, backend="reference").double()
    tokens, mask = torch.randn(5, 6, 4, dtype=F64), torch.arange(6) < torch.tensor([6, 4, 2, 5, 6])[:, None]

    def loss() -> Tensor:
        hidden = layer(tokens, src_key_padding_mask=~mask)
        return bank(hidden, mask).loss.total + (hidden - tokens)[mask].square().mean()

    return torch.nn.ModuleList([layer, bank]), loss, list(layer.parameters()), [bank.prototypes]


def test_a_live_model_has_the_same_spectrum_dense_and_by_lanczos():
    model, loss, slow, fast = live_model()
    dense = coupled_spectrum(loss, slow, fast, lr=0.1, method="dense")
    lanczos = coupled_spectrum(loss, slow, fast, lr=0.1, method="lanczos")
    assert sum(p.numel() for p in model.parameters()) == len(dense.direction)
    assert lanczos.smallest == pytest.approx(dense.smallest, rel=1e-6)
    assert lanczos.largest == pytest.approx(dense.largest, rel=1e-6)
    assert lanczos.bank_share == pytest.approx(dense.bank_share, abs=1e-5)
    # and the numbers are those of the function: second differences of the loss along the direction
    step, start = 1e-4, torch.nn.utils.parameters_to_vector([*slow, *fast]).detach()
    values = []
    for move in (-step, 0.0, step):
        torch.nn.utils.vector_to_parameters(start + move * dense.direction, [*slow, *fast])
        values.append(float(loss().detach()))
    curvature = (values[0] - 2 * values[1] + values[2]) / step**2
    rates = torch.cat([torch.full((sum(p.numel() for p in slow),), 0.01), torch.full((fast[0].numel(),), 0.1)]).double()
    # J v = s v means H v = s D^-1 v, so v' H v = s v' D^-1 v
    assert curvature == pytest.approx(dense.smallest * float((dense.direction.square() / rates).sum()), rel=1e-3)


def test_float32_models_are_taken_as_they_are():
    H = symmetric(30, positive=True).float()
    x = [torch.randn(10, requires_grad=True), torch.randn(20, requires_grad=True)]
    found = [
        coupled_spectrum(lambda: torch.cat(x) @ H @ torch.cat(x) / 2, x[:1], x[1:], lr=1.0, epsilon=1.0, method=method)
        for method in ("dense", "lanczos")
    ]
    values = torch.linalg.eigvalsh(H.double())
    for spectrum in found:
        assert spectrum.largest == pytest.approx(float(values[-1]), rel=1e-5)
        assert spectrum.smallest == pytest.approx(float(values[0]), abs=1e-5 * float(values[-1]))


@pytest.mark.parametrize("method", ["dense", "lanczos"])
def test_proposition_three_is_its_formula(method):
    H = symmetric(13, positive=True)
    found = ratio_bound(*quadratic(H, 5), method=method)
    P, t = torch.linalg.eigvalsh(H[5:, 5:]), torch.linalg.eigvalsh(H[:5, :5])
    norm = torch.linalg.matrix_norm(H[:5, 5:], 2)
    assert found.bound == pytest.approx(float(P[0] / (norm**2 / t[0] + P[-1])), rel=1e-6)
    numbers = (found.fast_smallest, found.fast_largest, found.slow_smallest, found.coupling)
    assert numbers == pytest.approx((float(P[0]), float(P[-1]), float(t[0]), float(norm)), rel=1e-6)
    assert found.smallest == pytest.approx(float(torch.linalg.eigvalsh(H)[0]), rel=1e-6)
    assert found.premise


def test_proposition_three_is_sufficient_and_needless_where_its_premise_holds():
    for _ in range(30):
        H = symmetric(8, positive=True)
        loss, slow, fast = quadratic(H, int(torch.randint(1, 8, ())))
        found = ratio_bound(loss, slow, fast)
        assert found.premise
        assert 0 < found.bound <= found.fast_smallest / found.fast_largest  # never above 1 / cond(H_PP)
        for epsilon in (0.9 * found.bound, 1000 * found.bound):
            assert coupled_spectrum(loss, slow, fast, lr=1.0, epsilon=epsilon).stable


def test_without_its_premise_proposition_three_promises_what_no_ratio_keeps():
    H = torch.tensor([[1.0, 2.0], [2.0, 1.0]], dtype=F64)  # blocks positive, H not
    loss, slow, fast = quadratic(H, 1)
    found = ratio_bound(loss, slow, fast)
    assert found.bound == pytest.approx(1 / 5)
    assert not found.premise
    assert "no ratio is stable" in found.reason
    for epsilon in (1e-6, 0.1, 1.0, 1e3):
        assert coupled_spectrum(loss, slow, fast, lr=1.0, epsilon=epsilon).unstable


@pytest.mark.parametrize(("H", "words"), [([[1.0, 0.0], [0.0, -1.0]], "H_PP"), ([[-1.0, 0.0], [0.0, 1.0]], "H_theta")])
def test_the_bound_is_zero_where_a_block_is_not_positive_definite(H, words):
    found = ratio_bound(*quadratic(torch.tensor(H, dtype=F64), 1))
    assert found.bound == 0
    assert not found.premise
    assert words in found.reason


@pytest.mark.parametrize("method", ["dense", "lanczos"])
def test_time_scales_of_a_quadratic_are_those_of_its_schur_complement(method):
    H = symmetric(17, positive=True)
    loss, slow, fast = quadratic(H, 6)
    found = time_scales(loss, slow, fast, method=method)
    schur = H[:6, :6] - H[:6, 6:] @ torch.linalg.inv(H[6:, 6:]) @ H[6:, :6]
    assert found.fast_rate == pytest.approx(float(torch.linalg.eigvalsh(H[6:, 6:])[0]), rel=1e-6)
    assert found.slow_curvature == pytest.approx(float(torch.linalg.matrix_norm(schur, 2)), rel=1e-6)
    assert found.slow_smallest == pytest.approx(float(torch.linalg.eigvalsh(schur)[0]), rel=1e-6)
    assert found.ratio == pytest.approx(found.fast_rate / found.slow_curvature)
    # what the loss still falls when the bank comes to rest
    theta = slow[0].detach()
    assert found.remaining == pytest.approx(float(loss().detach() - theta @ schur @ theta / 2), rel=1e-6)


@pytest.mark.parametrize("gradient", ["full", "stop"])
def test_the_effective_loss_of_a_bank_at_rest_has_the_curvature_that_is_said(gradient):
    x = torch.randn(40, 2, dtype=F64) * torch.tensor([2.0, 1.0], dtype=F64)
    T = 0.4 * float(ddcl.critical_temperature(x, gradient=gradient))

    def at_rest(scale: float) -> tuple[Tensor, float]:
        start = Groups(torch.tensor([[-1.0, 0.1], [1.0, 0.0]], dtype=F64), ((0,), (1,)))
        groups, state, left = come_to_rest(x * scale, start, T, gradient, 5000)
        assert left < 1e-6
        return groups.centers, state.energy

    h = 1e-3
    (_, low), (bank, middle), (_, high) = at_rest(1 - h), at_rest(1.0), at_rest(1 + h)
    scale, bank = torch.ones((), dtype=F64, requires_grad=True), bank.requires_grad_()
    found = time_scales(lambda: descended_loss(x * scale, bank, T, gradient=gradient), [scale], [bank])
    assert found.slow_smallest == pytest.approx((low - 2 * middle + high) / h**2, rel=1e-3)
    assert 0 <= found.remaining < 1e-9


def test_a_bank_that_does_not_converge_has_ratio_zero_and_a_reason():
    z = torch.randn(30, 2, dtype=F64)
    scale = torch.ones((), dtype=F64, requires_grad=True)
    bank = z.mean(0).expand(3, 2).clone().requires_grad_()
    T = 0.5 * float(ddcl.critical_temperature(z))
    found = time_scales(lambda: descended_loss(z * scale, bank, T), [scale], [bank])
    assert found.ratio == 0
    assert found.fast_rate < 0
    assert "H_PP is not positive definite" in found.reason
    assert not any(value != value for value in vars(found).values() if isinstance(value, float))  # no NaN


def test_an_encoder_the_loss_does_not_bend_leaves_every_ratio_open():
    slow, fast = torch.ones(2, dtype=F64, requires_grad=True), torch.ones(2, dtype=F64, requires_grad=True)
    found = time_scales(lambda: slow.sum() + fast.square().sum(), [slow], [fast])
    assert (found.ratio, found.slow_curvature) == (float("inf"), 0.0)


@pytest.mark.bad_input
def test_bad_input_is_refused_by_name():
    a, b = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)

    def loss() -> Tensor:
        return (a * b).sum()

    with pytest.raises(ValueError, match="lr: got 0, expected a positive finite number"):
        coupled_spectrum(loss, [a], [b], lr=0)
    with pytest.raises(ValueError, match="epsilon: got -1, expected a positive"):
        coupled_jacobian(loss, [a], [b], lr=1.0, epsilon=-1)
    with pytest.raises(ValueError, match="method: got 'arnoldi', expected one of 'auto', 'dense', 'lanczos'"):
        coupled_spectrum(loss, [a], [b], lr=1.0, method="arnoldi")
    with pytest.raises(ValueError, match="fast: got no parameters"):
        coupled_spectrum(loss, [a], [], lr=1.0)
    with pytest.raises(ValueError, match="slow: got no parameters, expected the encoder's"):
        ratio_bound(loss, [], [a, b])
    with pytest.raises(ValueError, match="fast: got a parameter twice"):
        coupled_spectrum(loss, [a], [a], lr=1.0)
    with pytest.raises(TypeError, match="slow: got one tensor, expected a list"):
        coupled_spectrum(loss, a, [b], lr=1.0)
    with pytest.raises(ValueError, match=r"slow: got a tensor of shape \(2,\) without requires_grad"):
        coupled_spectrum(loss, [a.detach()], [b], lr=1.0)
    with pytest.raises(ValueError, match=r"loss: returned shape \(2,\), expected a scalar"):
        coupled_spectrum(lambda: a * b, [a], [b], lr=1.0)
    with pytest.raises(ValueError, match=r"loss: two calls gave .*model\.eval"):
        coupled_spectrum(lambda: loss() * torch.rand(()), [a], [b], lr=1.0)
    with pytest.raises(ValueError, match="loss: returned nan, expected a finite number"):
        coupled_spectrum(lambda: loss() * float("nan"), [a], [b], lr=1.0)
    bank = torch.randn(3, 2, requires_grad=True)
    with pytest.raises(RuntimeError, match="backend='reference'"):
        coupled_spectrum(lambda: ddcl.readout(torch.randn(1, 2) * 0, bank, 1.0).loss.total, [], [bank], lr=1.0)
    with pytest.raises(ValueError, match="start: got a vector of length 0"):
        lanczos_extremes(lambda x: x, torch.zeros(3))
