"""Data sets and frozen encoders by name, from the user's own folders or their public homes; embeddings kept on disk."""

from ddcl.data.catalogue import SETS, DataSet, Home
from ddcl.data.embeddings import embed
from ddcl.data.folder import Available, MissingDataError, available
from ddcl.data.images import ImageSet, load_images
from ddcl.data.satellites import Satellites, load_satellites
from ddcl.data.texts import TextSet, load_texts

__all__ = [
    "SETS",
    "Available",
    "DataSet",
    "Home",
    "ImageSet",
    "MissingDataError",
    "Satellites",
    "TextSet",
    "available",
    "embed",
    "load_images",
    "load_satellites",
    "load_texts",
]
