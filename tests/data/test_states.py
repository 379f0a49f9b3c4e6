"""States of every token: those of each text alone, ragged on disk, padded on reading."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ddcl.data import encoding, states, token_states

pytestmark = [
    # the packages warn about each other
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
TEXTS = ["my card was declined", "the", "the cats sat the cats sat the cats sat", "my cat", "sat my card declined"]
LENGTHS = [6, 3, 8, 4, 6]  # with the first and the last token; the third is cut


@pytest.fixture
def small_pieces(monkeypatch):
    monkeypatch.setattr(states, "PIECE", 2)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("layer", [-1, 0, 1, -3])
def test_states_are_those_of_each_text_alone(tiny, layer):
    found = token_states(TEXTS, encoder=tiny, max_tokens=8, layer=layer, batch_size=2, progress=False)
    assert (len(found), found.dim, found.lengths.tolist()) == (5, 12, LENGTHS)
    assert found.offsets.tolist() == [0, 6, 9, 17, 21, 27]
    assert isinstance(found.states, np.memmap)
    assert found.states.dtype == np.float16
    x, mask = found.batch([3, 0, 2])
    assert x.shape == (3, 8, 12)
    assert x.dtype == torch.float32
    assert mask.sum(1).tolist() == [4, 6, 8]
    assert not x[~mask].any()
    for row, index in enumerate([3, 0, 2]):
        batch = tiny.tokenizer(TEXTS[index], truncation=True, max_length=8, return_tensors="pt")
        with torch.no_grad():
            expected = tiny.model(**batch, output_hidden_states=True).hidden_states[layer][0]
        torch.testing.assert_close(x[row, mask[row]], expected, rtol=2e-3, atol=2e-3)


def test_the_tokens_can_be_read(tiny):
    found = token_states(TEXTS, encoder=tiny, max_tokens=8, progress=False)
    assert found.tokens(0) == ["[CLS]", "my", "card", "was", "declined", "[SEP]"]
    assert found.tokens(2) == ["[CLS]", "the", "cat", "##s", "sat", "the", "cat", "[SEP]"]


def test_a_tensor_of_indices_and_no_index_at_all_are_fine(tiny):
    found = token_states(TEXTS, encoder=tiny, max_tokens=8, progress=False)
    x, mask = found.batch(torch.tensor([1]))
    assert x.shape == (1, 3, 12)
    assert mask.all()
    assert found.batch([]).x.shape == (0, 0, 12)


def test_a_layer_counted_from_the_end_is_the_same_entry(tiny, monkeypatch):
    first = token_states(TEXTS, encoder=tiny, max_tokens=8, layer=-1, progress=False)
    monkeypatch.setattr(encoding.Encoding, "batches", lambda *_: pytest.fail("the cache was not used"))
    again = token_states(TEXTS, encoder=tiny, max_tokens=8, layer=2)
    np.testing.assert_array_equal(again.states, first.states)
    with pytest.raises(ValueError, match="layer must be in 0 to 2, or -1 to -3 from the end; got 3"):
        token_states(TEXTS, encoder=tiny, max_tokens=8, layer=3)


@pytest.mark.usefixtures("small_pieces")
def test_interrupted_work_goes_on_where_it_stopped(tiny):
    seen = []

    def stop_at_three(done, total):
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        token_states(TEXTS, encoder=tiny, max_tokens=8, batch_size=1, progress=stop_at_three)
    token_states(TEXTS, encoder=tiny, max_tokens=8, batch_size=1, progress=lambda *done: seen.append(done))
    assert seen == [(2, 5), (3, 5), (4, 5), (5, 5)]
