"""Data sets and frozen encoders by name, from the user's own folders or their public homes; embeddings kept on disk."""

from ddcl.data.catalogue import SETS, DataSet, Home
from ddcl.data.embeddings import EmbeddingFiles, embed, embedding_files, import_embeddings
from ddcl.data.encoders import AvailableEncoder, Encoder, available_encoders, load_encoder
from ddcl.data.folder import Available, MissingDataError, available
from ddcl.data.images import ImageSet, load_images
from ddcl.data.progress import progress_bar
from ddcl.data.satellites import Satellites, load_satellites
from ddcl.data.states import TokenStates, token_states
from ddcl.data.texts import TextSet, load_texts

__all__ = [
    "SETS",
    "Available",
    "AvailableEncoder",
    "DataSet",
    "EmbeddingFiles",
    "Encoder",
    "Home",
    "ImageSet",
    "MissingDataError",
    "Satellites",
    "TextSet",
    "TokenStates",
    "available",
    "available_encoders",
    "embed",
    "embedding_files",
    "import_embeddings",
    "load_encoder",
    "load_images",
    "load_satellites",
    "load_texts",
    "progress_bar",
    "token_states",
]
