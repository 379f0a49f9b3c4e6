"""The run folder: what a run leaves behind, whole or not at all.

Every file is written under another name and renamed when its bytes are on the disk. ``config.json`` says how far the
run came: ``running``, ``interrupted`` (there is a checkpoint to go on from) or ``done``. docs/fit.md lists the files.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ddcl.data.shards import whole_file
from ddcl.fitting.batches import Rows
from ddcl.fitting.errors import BadInputError
from ddcl.fitting.formats import parquet_packages
from ddcl.fitting.settings import FORMAT, Settings
from ddcl.fitting.tables import digest_of
from ddcl.version import __version__

CONFIG, MODEL, CHECKPOINT, METRICS = "config.json", "model.safetensors", "checkpoint.pt", "metrics.jsonl"
ASSIGNMENTS, INPUTS, EMBEDDINGS, NAMES = "assignments.parquet", "inputs.parquet", "embeddings.npy", "names.json"
MAP, PHASES, COMPARISON = "map.json", "phases.json", "comparison.json"
KEPT_TEXT, KEPT_EMBEDDINGS = 2**28, 2**29
"""Bytes of texts and of their embeddings up to which a copy is kept in the folder."""


class RunFolder:
    """One run on disk.

    Args:
        path: of a folder that :meth:`create` made; :func:`open_run` checks what it holds.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path, settings: Settings) -> RunFolder:
        """A new folder of a run that begins; one that exists is left alone and refused."""
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise BadInputError(f"{path} exists already: choose another --out, or go on with its run by --resume")
        path.mkdir(parents=True, exist_ok=True)
        folder = cls(path)
        try:
            folder._write_config({**_beginning(), "state": "running", "settings": settings.as_json(), "result": None})
        except BaseException:
            shutil.rmtree(path, ignore_errors=True)
            raise
        return folder

    @property
    def config(self) -> dict[str, Any]:
        """What config.json holds."""
        found: dict[str, Any] = json.loads((self.path / CONFIG).read_text(encoding="utf-8"))
        return found

    @property
    def settings(self) -> Settings:
        """The settings of the run."""
        return Settings.from_json(self.config["settings"])

    @property
    def state(self) -> str:
        """``running``, ``interrupted`` or ``done``."""
        return str(self.config["state"])

    @property
    def checkpoint(self) -> Path:
        """What an unfinished run goes on from."""
        return self.path / CHECKPOINT

    def finish(self, result: Mapping[str, Any]) -> None:
        """The last thing that is written: from here on the folder is whole."""
        self._write_config({**self.config, "state": "done", "finished": _now(), "result": dict(result)})
        self.checkpoint.unlink(missing_ok=True)

    def stop(self) -> bool:
        """After an interruption or a failure: keep what a run can go on from, if there is any, otherwise nothing."""
        if self.config["state"] == "done":
            return True  # whole before it was stopped
        if not self.checkpoint.exists():
            shutil.rmtree(self.path, ignore_errors=True)
            return False
        self._write_config({**self.config, "state": "interrupted"})
        return True

    def write_model(self, state: Mapping[str, Tensor]) -> None:
        """Parameters and buffers by name."""
        whole = {name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}
        with whole_file(self.path / MODEL) as file:
            file.write(_safetensors().save(whole, {"format": "pt"}))

    def read_model(self) -> dict[str, Tensor]:
        """What :meth:`write_model` was given."""
        found: dict[str, Tensor] = _safetensors().load_file(self.path / MODEL)
        return found

    def write_table(self, name: str, tables: Iterator[Mapping[str, Any]], schema: Any) -> None:
        """A Parquet file, from pieces that hold some of the rows each."""
        pyarrow, parquet = parquet_packages()
        with whole_file(self.path / name) as file, parquet.ParquetWriter(file, schema) as writer:
            for piece in tables:
                writer.write_table(pyarrow.table(dict(piece), schema=schema))

    def read_table(self, name: str) -> Any:
        """A Parquet file of the folder, as pyarrow has it."""
        return parquet_packages()[1].read_table(self.path / name)

    def write_embeddings(self, z: Tensor) -> None:
        """Rows (N, m), float32."""
        with whole_file(self.path / EMBEDDINGS) as file:
            np.save(file, z.numpy())

    def add_metrics(self, line: Mapping[str, Any]) -> None:
        """One more epoch; on the disk when this returns."""
        with (self.path / METRICS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(_finite(line)) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def metrics(self) -> list[dict[str, Any]]:
        """A dict for each epoch; a line that an interruption cut off is left out."""
        path, found = self.path / METRICS, []
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
            try:
                found.append(json.loads(line))
            except json.JSONDecodeError:
                continue
        return found

    def keep_metrics(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Put these in place of all lines, as before going on from a checkpoint."""
        with whole_file(self.path / METRICS) as file:
            file.write("".join(json.dumps(_finite(line)) + "\n" for line in lines).encode())

    def inputs(self) -> Any:
        """The texts with their row numbers, as pyarrow has them: columns row, id, text and label."""
        if not (self.path / INPUTS).exists():
            raise BadInputError(f"{self.path} holds no texts: they lie in {self.settings.source}, or there were none")
        return self.read_table(INPUTS)

    def rows(self) -> Rows:
        """The embeddings that were fitted, as they entered the bank, mapped from the disk."""
        settings = self.settings
        if (self.path / EMBEDDINGS).exists():
            return Rows(np.load(self.path / EMBEDDINGS, mmap_mode="r"), normalise=False)
        from ddcl.fitting.arrays import read_array

        if settings.kind == "texts":
            raise BadInputError(f"{self.path} holds no embeddings: there were too many to keep; embed the texts again")
        source = Path(settings.source)
        if not source.exists() or digest_of(source) != settings.digest:
            raise BadInputError(f"the embeddings of {self.path} are no longer what they were at {source}")
        return Rows(read_array(source, settings.text_column, None).rows, normalise=settings.normalise)

    def names(self) -> dict[int, str]:
        """What people have called prototypes, by number."""
        path = self.path / NAMES
        try:
            found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
            return {int(number): str(name) for number, name in dict(found).items()}
        except (OSError, ValueError, TypeError, RecursionError) as error:
            raise BadInputError(f"{path} cannot be read: put it right or remove it ({error})") from error

    def write_names(self, names: Mapping[int, str]) -> None:
        """Put these names in place of all."""
        with whole_file(self.path / NAMES) as file:
            file.write(
                json.dumps({str(number): names[number] for number in sorted(names)}, ensure_ascii=False).encode(
                    "utf-8", "replace"
                )
            )

    def phases(self) -> dict[str, Any] | None:
        """Which prototypes merge at which temperature; None if nobody has asked yet (:func:`phases_of` makes it)."""
        return self.read_json(PHASES)

    def map(self) -> dict[str, Any] | None:
        """Rows and prototypes in two dimensions; None if nobody has asked yet (:func:`map_of` makes it)."""
        return self.read_json(MAP)

    def read_json(self, name: str) -> dict[str, Any] | None:
        """What a file of the folder holds that can be made again; None if it is not there or broken."""
        try:
            found: dict[str, Any] = json.loads((self.path / name).read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return None
        return found

    def write_json(self, name: str, found: Mapping[str, Any]) -> None:
        """A file that is drawn or told from, and can be made again."""
        with whole_file(self.path / name) as file:
            file.write(json.dumps(_finite(found), ensure_ascii=False, separators=(",", ":")).encode() + b"\n")

    def _write_config(self, config: Mapping[str, Any]) -> None:
        with whole_file(self.path / CONFIG) as file:
            file.write(json.dumps(_finite(config), indent=1, ensure_ascii=False).encode() + b"\n")


def open_run(path: str | Path) -> RunFolder:
    """A run folder that can be read by this version, finished or not."""
    folder = RunFolder(Path(path).expanduser())
    if not (folder.path / CONFIG).is_file():
        raise BadInputError(f"{folder.path} is no run folder: it holds no {CONFIG}")
    try:
        config = folder.config
    except ValueError as error:
        raise BadInputError(f"{folder.path / CONFIG} cannot be read ({error})") from error
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        found = config.get("format") if isinstance(config, dict) else None
        raise BadInputError(f"{folder.path} has the format {found!r}; this version of ddcl reads {FORMAT}")
    return folder


def finished_run(path: str | Path) -> RunFolder:
    """A run folder that is whole; one of an unfinished run is refused."""
    folder = open_run(path)
    if folder.state != "done":
        done = len(folder.metrics())
        raise BadInputError(
            f"the run in {folder.path} is not finished ({folder.state}, {done} of {folder.settings.epochs} epochs): "
            f"go on with `ddcl fit {folder.settings.source} --out {folder.path} --resume`"
        )
    return folder


def _beginning() -> dict[str, Any]:
    return {"format": FORMAT, "ddcl": __version__, "torch": str(torch.__version__), "created": _now(), "finished": None}


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: they become null."""
    if isinstance(value, Mapping):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value


def _safetensors() -> Any:
    try:
        from safetensors import torch as safetensors
    except ImportError as error:
        raise ImportError("run folders need safetensors: pip install 'ddcl[text]'") from error
    return safetensors
