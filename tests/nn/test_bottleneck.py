"""PrototypeBottleneck: what passes through, what it costs, and copying through K codes."""

from __future__ import annotations

import copy
import math
import pickle

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import ddcl
from ddcl.functional import code_rate
from ddcl.nn.bottleneck import PrototypeBottleneck
from ddcl.nn.quantizer import PrototypeQuantizer
from ddcl.nn.rate import RateMeter
from ddcl.nn.residual import ResidualQuantizer

WIDTH, INPUTS, K = 6, 5, 7


class Mixing(nn.Module):
    """Each position sees its neighbours too, as far as they count."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(width, width, 3, padding=1)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        if mask is not None:
            x = x.masked_fill(~mask.unsqueeze(-1), 0.0)
        return x + torch.relu(self.conv(x.mT)).mT


class Encoder(nn.Module):
    def __init__(self, first: nn.Module, width: int) -> None:
        super().__init__()
        self.first, self.mix = first, Mixing(width)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        return self.mix(self.first(x), mask)


class Decoder(nn.Module):
    def __init__(self, width: int, outputs: int) -> None:
        super().__init__()
        self.mix, self.last = Mixing(width), nn.Linear(width, outputs)

    def forward(self, z: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        return self.last(self.mix(z, mask))


def sequences(quantizer: nn.Module | None = None) -> PrototypeBottleneck:
    quantizer = quantizer or PrototypeQuantizer(WIDTH, K)
    return PrototypeBottleneck(Encoder(nn.Linear(INPUTS, WIDTH), WIDTH), quantizer, Decoder(WIDTH, INPUTS))


def images() -> PrototypeBottleneck:
    return PrototypeBottleneck(
        nn.Conv2d(3, WIDTH, 4, stride=4),
        PrototypeQuantizer(WIDTH, K, num_heads=2, channel_last=False),
        nn.ConvTranspose2d(WIDTH, 3, 4, stride=4),
    )


def test_the_decoder_sees_nothing_but_the_codes():
    model = sequences()
    x = torch.randn(2, 11, INPUTS)
    found = model(x)
    reconstruction, indices, loss = found
    expected = model.quantizer(model.encoder(x))
    assert torch.equal(indices, expected.indices)
    assert torch.equal(loss, expected.loss)
    torch.testing.assert_close(reconstruction, model.decoder(model.quantizer.codes(indices)))
    torch.testing.assert_close(model.decode(indices), reconstruction)
    assert found.readouts == (found.readout,)
    assert torch.equal(found.readout.indices, indices)


def test_an_image_goes_through_in_its_own_layout():
    found = images()(torch.randn(2, 3, 12, 20))
    assert found.reconstruction.shape == (2, 3, 12, 20)
    assert found.indices.shape == (2, 3, 5, 2)
    torch.testing.assert_close(found.rate, code_rate(found.indices, K, num_codebooks=2))


@pytest.mark.parametrize("stages", [1, 2])
def test_masked_content_reaches_neither_outputs_nor_any_gradient(stages):
    model = sequences(None if stages == 1 else ResidualQuantizer(stages, dim=WIDTH, num_prototypes=K))
    clean, mask = torch.randn(3, 11, INPUTS), torch.rand(3, 11) > 0.4
    results = []
    for junk in (0.0, float("nan"), 1e30):
        x = torch.where(mask.unsqueeze(-1), clean, junk).requires_grad_()
        model.zero_grad()
        found = model(x, mask)
        (found.reconstruction.sum() + found.loss).backward()
        results.append([*found, found.rate, x.grad, *(p.grad.clone() for p in model.parameters())])
        torch.testing.assert_close(model.decode(found.indices, mask), found.reconstruction)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))
    assert (results[0][0][~mask] == 0).all()
    assert (results[0][1][~mask] == -1).all()


def test_a_mask_reaches_the_parts_that_take_one_and_pytorchs_own_are_left_alone():
    seen = []

    class Reports(nn.Linear):
        def forward(self, x, mask=None):
            seen.append(mask)
            return super().forward(x)

    x, mask = torch.randn(2, 5, 4), torch.rand(2, 5) > 0.4
    PrototypeBottleneck(Reports(4, WIDTH), PrototypeQuantizer(WIDTH, K), Reports(WIDTH, 4))(x, mask.long())
    assert [torch.equal(one, mask) for one in seen] == [True, True]
    # its "mask" is over pairs of positions and true where NOT to look
    block = nn.TransformerEncoderLayer(4, 2, dim_feedforward=8, batch_first=True)
    attention = nn.TransformerEncoder(block, 1, enable_nested_tensor=False)
    found = PrototypeBottleneck(attention, PrototypeQuantizer(4, K), nn.Linear(4, 4))(x, mask)
    assert (found.indices[~mask] == -1).all()


@pytest.mark.parametrize("stages", [1, 2])
def test_init_from_starts_the_bank_from_what_the_encoder_gives(stages):
    x, mask = torch.randn(9, 11, INPUTS), torch.rand(9, 11) > 0.3
    x[~mask] = float("nan")
    for data, of_data in ((x, mask), ([(x[:4], mask[:4]), (x[4:], mask[4:])], None)):
        model = sequences(None if stages == 1 else ResidualQuantizer(stages, dim=WIDTH, num_prototypes=K))
        assert model.init_from(data, mask=of_data) is model
        bank = next(iter(ddcl.banks_of(model).values()))
        tokens = model.encoder(x.nan_to_num(), mask)[mask].detach()
        torch.testing.assert_close(bank.temperature, 0.1 * ddcl.critical_temperature(tokens).float()[None])
        assert model.training
    with pytest.raises(TypeError, match=r"x: got a batch \(z, torch.int64\)"):
        model.init_from([(x, torch.arange(9))])


def test_the_rate_is_the_entropy_of_the_counts_in_bits():
    indices = torch.tensor([0, 0, 1, 2, -1])
    torch.testing.assert_close(code_rate(indices, 4), torch.tensor(1.5))
    pairs = torch.stack([indices, torch.tensor([0, 1, 2, 3, -1])], -1)
    torch.testing.assert_close(code_rate(pairs, 4, num_codebooks=2), torch.tensor(3.5))
    assert code_rate(torch.full((5,), 3), 4) == 0
    assert code_rate(torch.full((5,), -1), 4) == 0
    torch.testing.assert_close(code_rate(pairs.split(2), 4, num_codebooks=2), torch.tensor(3.5))


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("stages", [0, 1, 3])
def test_the_meter_over_batches_gives_the_rate_of_all_of_them_together(heads, stages):
    if stages:
        quantizer = ResidualQuantizer(stages, dim=WIDTH, num_prototypes=[K, 5, 3][:stages], num_heads=heads)
    else:
        quantizer = PrototypeQuantizer(WIDTH, K, num_heads=heads)
    model = sequences(quantizer)
    x = torch.randn(29, 11, INPUTS)
    mask = torch.rand(29, 11) > 0.3
    meter, of_model = RateMeter(quantizer), RateMeter(model)
    for part, of_part in zip(x.split(7), mask.split(7), strict=True):
        indices = model(part, of_part).indices
        meter.update(indices)
        of_model.update(indices)
    whole = model(x, mask)
    torch.testing.assert_close(meter.rate, whole.rate)
    torch.testing.assert_close(of_model.rate, whole.rate)
    sizes = [K, 5, 3][:stages] if stages else [K]
    assert meter.nominal == pytest.approx(heads * sum(map(math.log2, sizes)))
    assert meter.rate <= meter.nominal
    assert meter.tokens == int(mask.sum())
    assert len(meter.perplexity) == heads * len(sizes)
    meter.reset()
    assert (meter.tokens, meter.rate) == (0, 0)


@pytest.mark.bad_input
def test_bad_arguments_are_refused_by_name():
    with pytest.raises(TypeError, match="quantizer: got Linear, expected a PrototypeQuantizer or a ResidualQuantizer"):
        PrototypeBottleneck(nn.Identity(), nn.Linear(2, 2), nn.Identity())
    with pytest.raises(ValueError, match=r"indices: got shape \(3, 3\), expected 2 codes per token"):
        RateMeter(PrototypeQuantizer(WIDTH, K, num_heads=2)).update(torch.zeros(3, 3, dtype=torch.int64))
    with pytest.raises(TypeError, match=r"mask: got dtype torch\.float32"):
        sequences()(torch.randn(2, 3, INPUTS), torch.ones(2, 3))


def test_state_dict_deepcopy_and_pickle_give_the_same_outputs():
    model, other = sequences(), sequences()
    x = torch.randn(2, 11, INPUTS)
    model.init_from(x)
    other.load_state_dict(model.state_dict())
    for same in (other, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(model(x).reconstruction, same(x).reconstruction)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_float_types_and_autocast_train(dtype):
    model = sequences(ResidualQuantizer(2, dim=WIDTH, num_prototypes=K)).to(dtype)
    found = model(torch.randn(2, 11, INPUTS, dtype=dtype))
    assert found.reconstruction.dtype == dtype
    (found.reconstruction.float().sum() + found.loss).backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())
    model = sequences()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = model(torch.randn(2, 11, INPUTS), torch.rand(2, 11) > 0.3)
    assert found.reconstruction.dtype == torch.bfloat16
    assert found.loss.dtype == torch.float32
    (found.reconstruction.float().sum() + found.loss).backward()


@pytest.mark.compiled
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_compiled_without_graph_breaks_it_gives_the_same():
    torch._dynamo.reset()
    model = sequences(ResidualQuantizer(2, dim=WIDTH, num_prototypes=K, temperature=1.0))
    fast = torch.compile(model, fullgraph=True, backend="aot_eager", dynamic=True)
    for length in (5, 11):
        x, mask = torch.randn(2, length, INPUTS), torch.rand(2, length) > 0.3
        found, expected = fast(x, mask), model(x, mask)
        torch.testing.assert_close(tuple(found), tuple(expected))
        torch.testing.assert_close(found.rate, expected.rate)


def test_a_trainer_trains_it_by_the_quantisers_loss_and_a_reconstruction():
    torch.manual_seed(0)
    model = sequences()
    x = torch.randn(8, 7, INPUTS)

    def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        out = model(batch)
        return F.mse_loss(out.reconstruction, batch) + out.loss

    history = ddcl.Trainer(model, ddcl.Recipe(epochs=5), loss=loss).fit(x.split(4))
    assert history[-1].loss < history[0].loss
    assert history[-1].metrics["tokens"] == 56


VOCABULARY, LENGTH, STEPS = 32, 11, 200


def sentences(count: int, g: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    tokens = torch.randint(VOCABULARY, (count, LENGTH), generator=g)
    return tokens, torch.arange(LENGTH) < torch.randint(5, LENGTH + 1, (count, 1), generator=g)


def copying(state: str) -> tuple[float, float]:
    """Token accuracy and rate on unseen sequences after training to copy through as many codes as there are words."""
    g = torch.Generator().manual_seed(1)
    encoder = Encoder(nn.Embedding(VOCABULARY, 16), 16)
    model = PrototypeBottleneck(encoder, PrototypeQuantizer(16, VOCABULARY), Decoder(16, VOCABULARY))
    tokens, mask = sentences(200, g)
    model.init_from(tokens, mask=mask, generator=g)
    bank = model.quantizer.bank
    schedule = ddcl.CriticalSchedule(start=0.3, end=0.0005, steps=round(0.7 * STEPS))
    if state != "healthy":
        one_point = bank.prototypes.detach().mean(1, keepdim=True).expand_as(bank.prototypes)
        bank.move_to(one_point if state == "one point" else one_point + 1e-3 * torch.randn(one_point.shape))
    if state == "above the critical temperature":
        bank.set_temperature(10 * float(ddcl.critical_temperature(encoder(tokens, mask).detach(), mask=mask)))
    else:
        schedule.attach(model)
    optimiser = torch.optim.Adam(ddcl.param_groups(model, lr=3e-2, epsilon=0.1))
    for _ in range(STEPS):
        tokens, mask = sentences(32, g)
        reconstruction, _, loss = model(tokens, mask)
        optimiser.zero_grad()
        (F.cross_entropy(reconstruction[mask], tokens[mask]) + loss).backward()
        optimiser.step()
        schedule.step()
    model.eval()
    tokens, mask = sentences(500, g)
    found = model(tokens, mask)
    right = found.reconstruction.argmax(-1)[mask] == tokens[mask]
    return float(right.float().mean()), float(found.rate)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_sequences_are_copied_through_as_many_codes_as_there_are_words(seed):
    torch.manual_seed(seed)
    accuracy, rate = copying("healthy")
    assert accuracy >= 0.99
    assert rate > 4.9  # of log2 32 = 5 bits


@pytest.mark.slow
@pytest.mark.parametrize("state", ["one point", "above the critical temperature"])
def test_through_a_merged_bank_nothing_is_copied(state):
    accuracy, _ = copying(state)
    assert accuracy < 2 / VOCABULARY  # chance is 1 in 32


@pytest.mark.parametrize("shape", [(2, 6, 6), (2, 6, 6, 6), (3, 6, 5, 7)])
def test_a_mask_of_channel_first_maps_hides_positions_and_never_channels(shape):
    quantizer = PrototypeQuantizer(6, 4, channel_last=False, mode="soft", temperature=1.0)
    model = PrototypeBottleneck(nn.Identity(), quantizer, nn.Identity())
    mask = torch.rand(shape[0], *shape[2:]) > 0.4
    clean = torch.randn(shape)
    noisy = torch.where(mask.unsqueeze(1), clean, float("nan"))
    found, expected = model(noisy, mask), quantizer(clean, mask)
    assert torch.equal(found.indices, expected.indices)
    torch.testing.assert_close(found.reconstruction, expected.quantized)


def test_the_meter_follows_a_bank_that_changes_its_size():
    quantizer = PrototypeQuantizer(2, 2, temperature=1.0)
    meter = RateMeter(quantizer)
    meter.update(torch.tensor([0, 1]))
    quantizer.bank.resize_to(torch.randn(1, 4, 2))
    meter.update(torch.tensor([2, 3]))
    assert (meter.rate, meter.nominal, meter.tokens) == (2.0, 2.0, 4)
    uneven = RateMeter(ResidualQuantizer(2, dim=2, num_prototypes=[4, 8]))
    with pytest.raises(ValueError, match="got codes of 4 and more for a codebook of 4"):
        uneven.update(torch.tensor([[7, 7]]))
