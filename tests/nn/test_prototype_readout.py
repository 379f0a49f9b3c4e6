"""PrototypeReadout: what each vector is, masks and empty sequences, the loss, tasks with a known best answer."""

from __future__ import annotations

import copy
import math
import pickle
import weakref

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import ddcl
from ddcl.nn.readout import POOLINGS, PooledOutput, PrototypeReadout

slow = pytest.mark.slow
every_output = pytest.mark.parametrize("output", POOLINGS)


def assignments_of(model, x, mask):
    """q (B, T, H, K) and the bank, by the formulas as written."""
    heads = model.num_heads
    z = model.project(torch.where(mask.unsqueeze(-1), x, 0.0)).unflatten(-1, (heads, -1))
    bank = model.bank.prototypes
    d = (z.unsqueeze(-2) - bank).square().sum(-1)
    q = torch.softmax(-d / model.bank.temperature.unsqueeze(-1), -1)
    return q * mask[..., None, None], bank


@pytest.mark.parametrize("heads", [1, 3])
@every_output
def test_the_vector_is_what_its_equation_says(output, heads):
    model = PrototypeReadout(7, 5, output=output, proto_dim=6, num_heads=heads, temperature=0.7)
    if model.query is not None:
        nn.init.normal_(model.query, std=2.0)
    x, mask = torch.randn(2, 11, 7), torch.rand(2, 11) > 0.3
    q, bank = assignments_of(model, x, mask)
    bag = q.sum(1) / mask.sum(1)[:, None, None]
    mean = torch.einsum("bhk,hkm->bhm", bag, bank)
    expected = {"mean": mean.flatten(1), "bag": bag.flatten(1)}
    expected["concatenation"] = torch.cat([expected["mean"], expected["bag"]], 1)
    if model.query is not None:
        weight = bag * torch.exp((bank * model.query.unsqueeze(1)).sum(-1) / math.sqrt(6 // heads))
        weight = weight / weight.sum(-1, keepdim=True)
        expected["attention"] = torch.einsum("bhk,hkm->bhm", weight, bank).flatten(1)
    found = model(x, mask)
    torch.testing.assert_close(found.vector, expected[output])
    assert found.vector.shape == (2, model.vector_dim)
    assert found.logits is None
    assert isinstance(found.readout, ddcl.Readout)


def test_a_bag_holds_each_sequence_once_per_head():
    model = PrototypeReadout(7, 5, output="bag", proto_dim=6, num_heads=3)
    bags = model(torch.randn(4, 11, 7), torch.rand(4, 11) > 0.5).vector
    assert bags.shape == (4, 15)
    torch.testing.assert_close(bags.unflatten(-1, (3, 5)).sum(-1), torch.ones(4, 3))


@pytest.mark.parametrize("gradient", ["full", "stop"])
@pytest.mark.parametrize("heads", [1, 2])
def test_attention_with_equal_scores_is_the_mean_in_value_and_gradient(heads, gradient):
    x = torch.randn(3, 11, 6)
    results = []
    for output in ("mean", "attention"):
        torch.manual_seed(1)
        model = PrototypeReadout(6, 5, output=output, proto_dim=4, num_heads=heads, gradient=gradient)
        inputs = x.clone().requires_grad_()
        vector = model(inputs).vector
        grads = torch.autograd.grad(
            (vector * torch.arange(12.0).reshape(3, 4)).sum(),
            [model.bank.prototypes, inputs],
            materialize_grads=True,
        )
        results.append([vector, *grads])
    torch.testing.assert_close(results[0], results[1], rtol=1e-4, atol=1e-5)
    assert (results[0][2] != 0).any() == (gradient == "full")


def test_attention_moves_with_the_data_and_takes_scores_of_any_size():
    model = PrototypeReadout(3, 5, output="attention", dtype=torch.float64, temperature=1.0)
    nn.init.normal_(model.query)
    x = torch.randn(2, 7, 3, dtype=torch.float64)
    before, shift = model(x).vector, torch.tensor([2.0, -1.0, 0.5], dtype=torch.float64)
    with torch.no_grad():
        model.bank.prototypes += shift
    torch.testing.assert_close(model(x + shift).vector, before + shift)
    with torch.no_grad():
        model.query *= 1e6
    vector = model(x + shift).vector
    best = (model.bank.prototypes[0] @ model.query[0]).argmax()
    torch.testing.assert_close(vector, model.bank.prototypes[0, best].expand(2, 3))
    vector.sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())


@pytest.mark.parametrize("output", ["bag", "attention"])
def test_gradients_through_the_bag_are_those_of_finite_differences(output):
    model = PrototypeReadout(3, 5, output=output, dtype=torch.float64, temperature=0.9)
    if model.query is not None:
        nn.init.normal_(model.query)
    mask = torch.tensor([[True, True, False], [False, False, False]])
    x = torch.randn(2, 3, 3, dtype=torch.float64, requires_grad=True)
    names, values = zip(*model.named_parameters(), strict=True)

    def vector(x, *values):
        return torch.func.functional_call(model, dict(zip(names, values, strict=True)), (x, mask)).vector

    assert torch.autograd.gradcheck(vector, (x, *values))


@pytest.mark.parametrize("heads", [1, 2])
@every_output
def test_masked_content_reaches_neither_outputs_nor_any_gradient(output, heads):
    model = PrototypeReadout(
        6, 4, output=output, proto_dim=4, num_heads=heads, normalise="standard", head="regression", num_outputs=1
    )
    clean, mask = torch.randn(3, 5, 6), torch.rand(3, 5) > 0.4
    results = []
    for junk in (0.0, float("nan"), 1e30):
        x = clean.clone()
        x[~mask] = junk
        x.requires_grad_()
        model.zero_grad()
        found = model(x, mask)
        model.loss(found, torch.arange(3.0)).backward()
        results.append([found.vector, found.logits, *found.readout.loss, x.grad, *(p.grad for p in model.parameters())])
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))
    assert (results[0][-1] != 0).any()


@pytest.mark.parametrize("tokens", ["all", "first"])
@every_output
def test_a_sequence_of_masked_tokens_gives_zeros_and_no_gradient(output, tokens):
    model = PrototypeReadout(6, 4, output=output, tokens=tokens, proto_dim=4, num_heads=2)
    mask = torch.tensor([[True, True, False], [False, False, False]])
    x = torch.randn(2, 3, 6, requires_grad=True)
    vector = model(x, mask).vector
    assert (vector[1] == 0).all()
    assert (vector[0] != 0).any()
    vector[1].sum().backward()
    grads = [x.grad, *(p.grad for p in model.parameters() if p.grad is not None)]
    assert all((grad == 0).all() for grad in grads)
    assert model(torch.randn(2, 0, 6)).vector.eq(0).all()
    assert model(torch.randn(0, 3, 6)).vector.shape == (0, model.vector_dim)


@every_output
def test_the_first_token_alone_is_read_and_only_where_it_counts(output):
    model = PrototypeReadout(6, 4, output=output, tokens="first")
    x, mask = torch.randn(3, 5, 6), torch.ones(3, 5, dtype=torch.bool)
    found = model(x)
    assert found.readout.centroid.shape == (3, 1, 6)
    x[:, 1:] = float("nan")
    assert torch.equal(model(x).vector, found.vector)
    mask[1, 0] = False
    vector = model(x, mask).vector
    assert (vector[1] == 0).all()
    assert torch.equal(vector[[0, 2]], found.vector[[0, 2]])
    everything = PrototypeReadout(6, 4, output=output)
    everything.load_state_dict(model.state_dict())
    assert torch.equal(everything(x[:, :1]).vector, found.vector)


@every_output
def test_the_order_of_the_tokens_and_padding_do_not_matter(output):
    model = PrototypeReadout(6, 4, output=output)
    x = torch.randn(2, 7, 6)
    expected = model(x).vector
    torch.testing.assert_close(model(x[:, torch.randperm(7)]).vector, expected)
    padded = F.pad(x, (0, 0, 0, 4), value=float("inf"))
    torch.testing.assert_close(model(padded, (torch.arange(11) < 7).expand(2, 11)).vector, expected)


def test_only_a_bag_holds_the_assignments_of_all_tokens_until_the_backward_pass_and_only_once():
    class Held:
        def __init__(self, tensor):
            self.tensor = tensor.detach()

    x, held = torch.randn(3, 101, 5), {}
    for output in POOLINGS:
        alive = weakref.WeakSet()

        def keep(tensor, alive=alive):
            box = Held(tensor)
            alive.add(box)
            return box

        model = PrototypeReadout(5, 7, output=output)
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda box: box.tensor):
            vector = model(x).vector
        held[output] = sum(box.tensor.shape == (3, 101, 7) for box in alive)
        vector.sum().backward()
    assert held == {"mean": 0, "bag": 1, "concatenation": 1, "attention": 1}


def test_in_mode_stop_a_bag_passes_no_gradient_on_and_the_quantisation_loss_does():
    model = PrototypeReadout(6, 4, output="bag", gradient="stop", head="classification", num_outputs=3)
    x, target = torch.randn(5, 7, 6, requires_grad=True), torch.arange(5) % 3
    model.loss(model(x), target, lambda_q=0.0).backward()
    assert (model.bank.prototypes.grad == 0).all()
    assert (x.grad == 0).all()
    assert (model.head.weight.grad != 0).any()
    model.loss(model(x), target, lambda_q=0.1).backward()
    assert (model.bank.prototypes.grad != 0).any()


def test_the_loss_is_the_cross_entropy_of_the_labelled_and_a_share_of_the_quantisation_loss():
    model = PrototypeReadout(6, 4, output="concatenation", head="classification", num_outputs=3)
    found = model(torch.randn(5, 7, 6))
    target = torch.tensor([0, -100, 2, 1, -100])
    expected = F.cross_entropy(found.logits, target) + 0.3 * found.readout.loss.total
    torch.testing.assert_close(model.loss(found, target, lambda_q=0.3), expected)
    torch.testing.assert_close(
        model.loss(found, torch.tensor([0, 7, 2, 1, 7]), lambda_q=0.0, ignore_index=7),
        F.cross_entropy(found.logits, target),
    )
    unlabelled = model.loss(found, torch.full((5,), -100), lambda_q=0.3)
    torch.testing.assert_close(unlabelled, 0.3 * found.readout.loss.total)
    unlabelled.backward()
    assert (model.head.weight.grad == 0).all()


def test_the_loss_of_a_regression_is_the_squared_error_and_never_broadcasts():
    one = PrototypeReadout(6, 4, head="regression", num_outputs=1)
    two = PrototypeReadout(6, 4, head="regression", num_outputs=2)
    x = torch.randn(5, 7, 6)
    found, values = one(x), torch.randn(5)
    expected = (found.logits[:, 0] - values).square().mean() + 0.1 * found.readout.loss.total
    torch.testing.assert_close(one.loss(found, values), expected)
    torch.testing.assert_close(one.loss(found, values[:, None]), expected)
    found, values = two(x), torch.randn(5, 2)
    expected = F.mse_loss(found.logits, values) + 0.2 * found.readout.loss.total
    torch.testing.assert_close(two.loss(found, values, lambda_q=0.2), expected)
    for wrong in (torch.randn(5), torch.randn(5, 1), torch.randn(2, 5)):
        with pytest.raises(ValueError, match=r"target: got shape .*, expected \(5, 2\)"):
            two.loss(found, wrong)


@pytest.mark.parametrize("batch", [(), (2, 3)])
@pytest.mark.parametrize("task", ["classification", "regression"])
def test_any_number_of_leading_axes_is_taken(batch, task):
    model = PrototypeReadout(6, 4, output="attention", num_heads=2, head=task, num_outputs=3)
    found = model(torch.randn(*batch, 7, 6))
    assert found.vector.shape == (*batch, 6)
    assert found.logits.shape == (*batch, 3)
    target = torch.ones(batch, dtype=torch.long) if task == "classification" else torch.randn(*batch, 3)
    assert model.loss(found, target).shape == ()


def test_init_from_sees_the_tokens_that_will_be_read():
    x, mask = torch.randn(9, 5, 6), torch.rand(9, 5) > 0.3
    mask[:4, 0] = True
    x[~mask] = float("nan")
    for tokens, seen in (("all", x[mask]), ("first", x[:, 0][mask[:, 0]])):
        for data, given in ((x, mask), ([(x[:4], mask[:4]), (x[4:], mask[4:])], None)):
            model = PrototypeReadout(6, 4, tokens=tokens, proto_dim=4, num_heads=2)
            z = model.project(seen).detach().reshape(-1, 2, 2)
            assert model.init_from(data, mask=given) is model
            expected = 0.1 * ddcl.critical_temperature(z, num_heads=2).float()
            torch.testing.assert_close(model.bank.temperature, expected)
            assert model.bank.initialised


@pytest.mark.parametrize(
    "clone",
    [
        copy.deepcopy,
        lambda model: pickle.loads(pickle.dumps(model)),
        lambda model: _reloaded(model),
    ],
    ids=["deepcopy", "pickle", "state_dict"],
)
@every_output
def test_copies_give_the_same_outputs(output, clone):
    model = PrototypeReadout(6, 4, output=output, num_heads=2, head="classification", num_outputs=3)
    x = torch.randn(5, 7, 6)
    model.init_from(x)
    other = clone(model)
    assert other.bank.initialised
    assert torch.equal(other(x).vector, model(x).vector)
    assert torch.equal(other(x).logits, model(x).logits)


def _reloaded(model):
    other = PrototypeReadout(6, 4, output=model.output, num_heads=2, head="classification", num_outputs=3)
    other.load_state_dict(model.state_dict(), strict=True)
    return other


def test_a_module_has_the_parameters_its_settings_ask_for():
    def names(**settings):
        return {name for name, _ in PrototypeReadout(6, 4, **settings).named_parameters()}

    assert names() == {"bank.prototypes"}
    assert names(output="attention", proto_dim=4) == {"bank.prototypes", "project.weight", "query"}
    assert names(head="regression", num_outputs=1) == {"bank.prototypes", "head.weight", "head.bias"}


@every_output
def test_device_and_dtype_reach_every_part(output):
    place = {"device": "meta", "dtype": torch.bfloat16}
    model = PrototypeReadout(6, 4, output=output, proto_dim=4, head="regression", num_outputs=3, **place)
    assert all(p.is_meta and p.dtype == torch.bfloat16 for p in model.parameters())
    assert model(torch.randn(2, 5, 6, **place)).logits.shape == (2, 3)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
@every_output
def test_every_float_type_trains(output, dtype):
    model = PrototypeReadout(
        6, 4, output=output, proto_dim=4, num_heads=2, head="classification", num_outputs=3, dtype=dtype
    )
    x, target = torch.randn(5, 7, 6), torch.arange(5) % 3
    found = model(x.to(dtype))
    assert found.vector.dtype == found.logits.dtype == dtype
    loss = model.loss(found, target)
    assert loss.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    loss.backward()
    assert all(torch.isfinite(p.grad).all() and p.grad.dtype == dtype for p in model.parameters())
    precise = copy.deepcopy(model).double()(x.to(dtype).double())
    torch.testing.assert_close(found.vector.double(), precise.vector, rtol=0.03, atol=0.01)


@every_output
def test_under_autocast_the_pooling_stays_in_float32(output):
    model = PrototypeReadout(6, 4, output=output, head="classification", num_outputs=3)
    if model.query is not None:
        nn.init.normal_(model.query)
    x, mask, target = torch.randn(5, 7, 6), torch.rand(5, 7) > 0.3, torch.arange(5) % 3
    plain = model(x, mask)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = model(x, mask)
        loss = model.loss(mixed, target)
    assert mixed.logits.dtype == torch.bfloat16
    torch.testing.assert_close(mixed.vector, plain.vector)  # nothing but the head runs in half precision
    torch.testing.assert_close(loss, model.loss(plain, target), rtol=0.02, atol=0.02)
    loss.backward()
    assert model.bank.prototypes.grad.dtype == torch.float32


def marked(function):
    """As a test of the compiler; PyTorch's own modules warn about each other while tracing."""
    for kind in ("DeprecationWarning", "FutureWarning"):
        function = pytest.mark.filterwarnings(f"ignore::{kind}")(function)
    return pytest.mark.compiled(function)


@marked
@pytest.mark.parametrize(
    ("output", "heads"),
    [("attention", 2), *(pytest.param(*settings, marks=slow) for settings in (("mean", 2), ("bag", 1)))],
)
def test_it_compiles_with_masks_and_changing_lengths(output, heads):
    torch._dynamo.reset()
    model = PrototypeReadout(6, 4, output=output, proto_dim=4, num_heads=heads, head="classification", num_outputs=3)
    fast = torch.compile(model, fullgraph=True, backend="aot_eager", dynamic=True)
    for length in (3, 8):
        x, mask, target = torch.randn(2, length, 6), torch.rand(2, length) > 0.3, torch.arange(2)
        results = []
        for run in (fast, model):
            found = run(x, mask)
            assert isinstance(found, PooledOutput)
            grads = torch.autograd.grad(model.loss(found, target), list(model.parameters()))
            results.append([found.vector, found.logits, *grads])
        torch.testing.assert_close(*results)
    torch._dynamo.reset()


@slow
@marked
@pytest.mark.parametrize("tokens", ["all", "first"])
def test_export_with_a_dynamic_batch_gives_the_same_object(tokens, tmp_path):
    model = PrototypeReadout(6, 4, output="attention", tokens=tokens, num_heads=2).eval()
    sizes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length")}
    x, mask = torch.randn(2, 5, 6), torch.rand(2, 5) > 0.3
    program = torch.export.export(model, (x, mask), dynamic_shapes=(sizes, sizes))
    torch.export.save(program, tmp_path / "model.pt2")
    loaded = torch.export.load(tmp_path / "model.pt2").module()
    x, mask = torch.randn(3, 11, 6), torch.rand(3, 11) > 0.3
    found = loaded(x, mask)
    assert found.logits is None
    torch.testing.assert_close(found.vector, model(x, mask).vector)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"output": "max"}, "output: got 'max', expected one of 'mean', 'bag', 'concatenation', 'attention'"),
        ({"tokens": "last"}, "tokens: got 'last', expected one of 'all', 'first'"),
        ({"head": "ranking", "num_outputs": 2}, "head: got 'ranking', expected one of"),
        ({"num_outputs": 2}, "num_outputs: got 2 without a head, expected None"),
        ({"head": "regression", "num_outputs": 0}, "num_outputs: got 0, expected an integer of at least 1"),
        ({"num_heads": 4}, "dim: got 6, expected a multiple of num_heads = 4"),
    ],
)
@pytest.mark.bad_input
def test_bad_settings_are_refused_by_name(arguments, message):
    with pytest.raises(ValueError, match=message):
        PrototypeReadout(**{"dim": 6, "num_prototypes": 4, **arguments})


@pytest.mark.bad_input
def test_bad_tokens_masks_and_targets_are_refused_by_name():
    model = PrototypeReadout(6, 4, head="classification", num_outputs=3)
    with pytest.raises(TypeError, match="num_outputs: got None"):
        PrototypeReadout(6, 4, head="classification")
    with pytest.raises(ValueError, match=r"x: got shape \(6,\), expected \(..., T, 6\)"):
        model(torch.randn(6))
    with pytest.raises(ValueError, match=r"x: got shape \(2, 5, 7\), expected \(..., 6\)"):
        model(torch.randn(2, 5, 7))
    with pytest.raises(ValueError, match=r"mask: got shape \(2,\), expected \(2, 3\)"):
        model(torch.randn(2, 3, 6), torch.ones(2, dtype=torch.bool))
    found = model(torch.randn(2, 3, 6))
    with pytest.raises(ValueError, match=r"target: got torch.float32 of shape \(2,\), expected class numbers"):
        model.loss(found, torch.randn(2))
    with pytest.raises(ValueError, match=r"target: got torch.int64 of shape \(2, 3\), expected .* of shape \(2,\)"):
        model.loss(found, torch.ones(2, 3, dtype=torch.long))
    with pytest.raises(ValueError, match="lambda_q: got -1, expected a finite number of at least 0"):
        model.loss(found, torch.ones(2, dtype=torch.long), lambda_q=-1)
    bare = PrototypeReadout(6, 4)
    with pytest.raises(ValueError, match=r"output: it has no logits.*expected head="):
        bare.loss(bare(torch.randn(2, 3, 6)), torch.ones(2, dtype=torch.long))


CORNERS = 4.0 * torch.tensor([[1.0, 1.0], [-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0]])
SHARE_OF_NOISE, SPREAD_OF_NOISE = 0.3, 5.0
# how much of a document of each class comes from each corner
TASKS = {
    "which corner most tokens come from": torch.full((4, 4), 0.16) + 0.36 * torch.eye(4),
    "which two opposite corners most tokens come from": torch.tensor(
        [[0.35, 0.35, 0.15, 0.15], [0.15, 0.15, 0.35, 0.35]]
    ),
}


def documents(shares, n, seed):
    """Tokens about the corners in the shares of a random class, noise tokens all over the plane, ragged lengths."""
    generator = torch.Generator().manual_seed(seed)
    length = 23
    classes = torch.randint(len(shares), (n,), generator=generator)
    corners = torch.multinomial(shares[classes], length, replacement=True, generator=generator)
    x = CORNERS[corners] + torch.randn(n, length, 2, generator=generator)
    noise = SPREAD_OF_NOISE * torch.randn(n, length, 2, generator=generator)
    x = torch.where(torch.rand(n, length, 1, generator=generator) < SHARE_OF_NOISE, noise, x)
    mask = torch.arange(length) < torch.randint(length // 2, length + 1, (n, 1), generator=generator)
    return x.masked_fill(~mask.unsqueeze(-1), float("nan")), mask, classes


def bayes_accuracy(shares, x, mask, classes):
    """That of the class of the highest likelihood under the densities the documents were drawn from."""
    near = torch.exp(-(x.unsqueeze(-2) - CORNERS).square().sum(-1) / 2)
    wide = torch.exp(-x.square().sum(-1, keepdim=True) / (2 * SPREAD_OF_NOISE**2)) / SPREAD_OF_NOISE**2
    density = (1 - SHARE_OF_NOISE) * near @ shares.T + SHARE_OF_NOISE * wide
    likelihood = torch.where(mask.unsqueeze(-1), density.log(), 0.0).sum(-2)
    return accuracy(likelihood, classes)


def accuracy(scores, classes):
    return float((scores.argmax(-1) == classes).float().mean())


class MeanPooling(nn.Module):
    """What the readout is measured against: the mean of the tokens themselves and a linear head."""

    def __init__(self, dim, num_outputs):
        super().__init__()
        self.head = nn.Linear(dim, num_outputs)

    def forward(self, x, mask):
        return self.head(x.masked_fill(~mask.unsqueeze(-1), 0.0).sum(-2) / mask.sum(-1, keepdim=True))


def trained(model, loss, data, epochs=20):
    optimiser = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=3e-2)
    for _ in range(epochs):
        for rows in torch.randperm(len(data[0])).split(128):
            optimiser.zero_grad()
            loss(model, *(part[rows] for part in data)).backward()
            optimiser.step()
    return model.eval()


def readout_loss(model, x, mask, classes):
    return model.loss(model(x, mask), classes)


@pytest.fixture(scope="module", params=TASKS, ids=lambda name: name.replace(" ", "-"))
def task(request):
    shares = TASKS[request.param]
    return shares, documents(shares, 1024, seed=1), documents(shares, 4096, seed=2)


@slow
@pytest.mark.parametrize("output", ["bag", "concatenation"])
def test_a_bag_of_prototypes_comes_near_the_best_answer_where_mean_pooling_does_not(task, output):
    shares, training, held_out = task
    classes = len(shares)
    model = PrototypeReadout(2, 16, output=output, head="classification", num_outputs=classes)
    model.init_from(training[0], mask=training[1])
    found = accuracy(trained(model, readout_loss, training)(*held_out[:2]).logits, held_out[2])
    pooling = trained(MeanPooling(2, classes), lambda m, x, mask, y: F.cross_entropy(m(x, mask), y), training)
    best, plain = bayes_accuracy(shares, *held_out), accuracy(pooling(*held_out[:2]), held_out[2])
    assert best - 0.03 < found <= best + 0.01  # above the best by luck of the draw only
    assert plain < best - 0.1
    if classes == 2:
        assert abs(plain - 0.5) < 0.03  # the means of the two classes coincide


@slow
def test_through_one_bank_attention_tells_apart_what_the_mean_cannot_and_the_bag_more():
    shares = TASKS["which two opposite corners most tokens come from"]
    training, held_out = documents(shares, 1024, seed=3), documents(shares, 4096, seed=4)
    found = {}
    for output in ("mean", "attention", "bag"):
        torch.manual_seed(0)
        model = PrototypeReadout(2, 8, output=output, head="classification", num_outputs=2)
        model.init_from(training[0], mask=training[1])
        model.bank.requires_grad_(False)  # a task can move prototypes until their means differ: that is not asked here
        found[output] = accuracy(trained(model, readout_loss, training)(*held_out[:2]).logits, held_out[2])
    assert found["mean"] < 0.6
    assert found["attention"] > found["mean"] + 0.15
    assert found["bag"] > found["attention"]


@slow
def test_the_trainer_trains_it_on_a_task_and_keeps_its_bank_alive():
    shares = TASKS["which two opposite corners most tokens come from"]
    training, held_out = documents(shares, 1024, seed=5), documents(shares, 4096, seed=6)
    model = PrototypeReadout(2, 16, output="bag", head="classification", num_outputs=2)
    trainer = ddcl.Trainer(
        model,
        ddcl.Recipe(epochs=12, lr=0.1),
        loss=lambda model, batch: readout_loss(model, *batch),
        forward=lambda model, batch: model(*batch[:2]),
    )
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*training), batch_size=64, shuffle=True)
    last = trainer.fit(loader)[-1]
    assert last.metrics["distinct"] == 16.0
    assert last.metrics["tokens"] == float(training[1].sum())
    assert last.troubles == ()
    assert accuracy(model(*held_out[:2]).logits, held_out[2]) > bayes_accuracy(shares, *held_out) - 0.03


def test_the_trainer_trains_its_bank_on_the_quantisation_loss_alone():
    x, mask, _ = documents(TASKS["which corner most tokens come from"], 128, seed=7)
    model = PrototypeReadout(2, 4, output="bag")
    last = ddcl.Trainer(model, ddcl.Recipe(epochs=2)).fit([(x[:64], mask[:64]), (x[64:], mask[64:])])[-1]
    assert last.metrics["usage"] == 1.0
    assert ddcl.separation(model.bank.prototypes[0]) > 0
