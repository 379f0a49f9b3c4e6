"""An encoder small enough to be made on the spot."""

from __future__ import annotations

import warnings

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "my", "card", "was", "declined", "the", "cat", "sat", "##s"]


def write_encoder(folder, seed=0):
    """Two layers of 12 dimensions for at most 20 tokens, with random weights."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the packages warn about each other
        from transformers import BertConfig, BertModel, BertTokenizerFast

        folder.mkdir(parents=True)
        (folder / "words.txt").write_text("\n".join(WORDS))
        torch.manual_seed(seed)
        sizes = {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 20}
        BertModel(BertConfig(vocab_size=len(WORDS), max_position_embeddings=20, **sizes)).save_pretrained(folder)
        BertTokenizerFast(vocab_file=str(folder / "words.txt"), model_max_length=20).save_pretrained(folder)
    return folder
