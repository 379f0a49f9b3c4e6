"""Data sets by name and embeddings of texts, from the user's own folders; nothing is downloaded."""

from ddcl.data.embeddings import embed
from ddcl.data.texts import TextSet, load_texts

__all__ = ["TextSet", "embed", "load_texts"]
