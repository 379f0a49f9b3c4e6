"""The one way through an export: write under another name, check what was written, and only then give it its name."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ddcl.fitting.errors import BadInputError
from ddcl.fitting.exporting.checking import Checked, MismatchError, check
from ddcl.fitting.exporting.describing import MODEL, metadata_of, usage_page
from ddcl.fitting.exporting.files import (
    ENDINGS,
    FORMATS,
    METADATA,
    OPSET,
    Format,
    check_packages,
    load_program,
    newest_opset,
    write_program,
)
from ddcl.fitting.exporting.programs import WHATS, What, program_of

if TYPE_CHECKING:
    from ddcl.fitting.fitted import Fitted

USAGE = "usage.md"


class ExportError(RuntimeError):
    """Something in the packages that trace, convert or run failed; the message is one sentence."""


class Exported(NamedTuple):
    """What was exported, where to, and how near it is to the original."""

    path: Path
    """The file of a readout; of a whole model the folder."""
    bytes: int
    metadata: dict[str, Any]
    checked: Checked


def export_run(
    fitted: Fitted,
    path: str | Path | None = None,
    *,
    export_format: Format = "onnx",
    what: What = "readout",
    opset: int | None = None,
    force: bool = False,
) -> Exported:
    """Write a fitted model as a program that runs without ddcl, if it computes the same.

    Args:
        fitted: what to export.
        path: a file for a readout, a folder for a whole model; None: in the run folder, see :func:`usual_path`.
        export_format: ``"onnx"`` or ``"torch"``.
        what: ``"readout"``, from embeddings, or ``"whole"``, from tokens.
        opset: of ONNX; None: :data:`OPSET`.
        force: replace an earlier export.
    """
    out = Path(path).expanduser() if path is not None else usual_path(fitted, export_format, what)
    _check_request(fitted, out, export_format, what, opset, force)
    if fitted.device.type != "cpu":
        fitted = type(fitted)(fitted.folder)
    program = program_of(fitted, what)
    metadata = metadata_of(fitted, what, program)
    with _staged(out) as stage:
        written = stage / out.name
        if what == "whole":
            written.mkdir()
            _write_beside(fitted, written, metadata)
            page = usage_page(out.name, export_format, head=fitted.classes is not None)
            (written / USAGE).write_text(page, encoding="utf-8")
        file = written / f"{MODEL}{ENDINGS[export_format]}" if what == "whole" else written
        with _one_sentence("written"):
            write_program(program, file, export_format, metadata, opset or OPSET)
        with _one_sentence("run"):
            checked = check(fitted, what, load_program(file, export_format))
        size = _to_disk(written)
        _give_name(written, out, stage / "earlier")
    return Exported(out, size, metadata, checked)


def usual_path(fitted: Fitted, export_format: Format, what: What) -> Path:
    """In the run folder: ``readout.onnx``, ``readout.pt2``, ``whole-onnx`` or ``whole-torch``."""
    name = f"readout{ENDINGS[export_format]}" if what == "readout" else f"whole-{export_format}"
    return fitted.folder.path / name


def _check_request(fitted: Fitted, out: Path, export_format: str, what: str, opset: int | None, force: bool) -> None:
    """What can be told before anything is traced."""
    if export_format not in FORMATS:
        raise BadInputError(f"format: got {export_format!r}, expected {' or '.join(FORMATS)}")
    if what not in WHATS:
        raise BadInputError(f"what: got {what!r}, expected {' or '.join(WHATS)}")
    if what == "whole" and fitted.settings.kind == "embeddings":
        raise BadInputError(
            f"what: {fitted.folder.path} was fitted to embeddings, so there is no encoder to export; export its readout"
        )
    if opset is not None and export_format != "onnx":
        raise BadInputError("opset: only ONNX has operator sets; leave it out for torch")
    if what == "readout" and out.suffix != ENDINGS[export_format]:
        raise BadInputError(f"out: got {out}, expected the name of a file that ends in {ENDINGS[export_format]}")
    if out.exists() and not force:
        raise BadInputError(f"{out} exists already: choose another name, or replace it with --force (force=True)")
    if out.is_dir() and not (what == "whole" and _is_export(out)):
        raise BadInputError(f"{out} is a folder that is no earlier export, so it is not replaced; choose another name")
    if out.exists() and not out.is_dir() and what == "whole":
        raise BadInputError(f"{out} is a file, and a whole model is exported to a folder; choose another name")
    check_packages(export_format)  # type: ignore[arg-type]
    if opset is not None and not OPSET <= opset <= newest_opset():
        raise BadInputError(f"opset: got {opset}, expected a number from {OPSET} to {newest_opset()}")


def _is_export(folder: Path) -> bool:
    return all((folder / name).is_file() for name in (METADATA, USAGE))


def _write_beside(fitted: Fitted, folder: Path, metadata: Mapping[str, Any]) -> None:
    """The tokenizer and the facts beside a whole model."""
    fitted.encoder.tokenizer.save_pretrained(folder)
    if not (folder / "tokenizer.json").is_file():
        raise BadInputError(
            "what: the encoder's tokenizer cannot be written as a tokenizer.json, which running without transformers "
            "needs; export the readout"
        )
    (folder / METADATA).write_text(json.dumps(metadata, indent=1) + "\n", encoding="utf-8")


@contextmanager
def _staged(out: Path) -> Iterator[Path]:
    """A folder beside what is to be written, which is gone afterwards with all that was not moved out of it."""
    out.parent.mkdir(parents=True, exist_ok=True)
    stage = out.with_name(f"{out.name}.{os.getpid()}.partial")
    stage.mkdir()
    try:
        yield stage
    finally:
        shutil.rmtree(stage, ignore_errors=True)


@contextmanager
def _one_sentence(step: str) -> Iterator[None]:
    """The packages of tracing, conversion and running raise many kinds of errors, of many lines."""
    try:
        yield
    except (BadInputError, ImportError, MismatchError, OSError):
        raise
    except Exception as error:
        said = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
        raise ExportError(f"the program could not be {step} ({type(error).__name__}: {said})") from error


def _to_disk(written: Path) -> int:
    """See that the bytes are on the disk; how many there are."""
    total = 0
    for path in sorted(written.rglob("*")) if written.is_dir() else [written]:
        with path.open("rb") as file:
            os.fsync(file.fileno())
            total += os.fstat(file.fileno()).st_size
    return total


def _give_name(written: Path, out: Path, aside: Path) -> None:
    """Put what was written in its place; a folder cannot be replaced in one step, so the earlier one moves aside."""
    earlier = out.is_dir()
    if earlier:
        os.replace(out, aside)
    try:
        os.replace(written, out)
    except OSError:
        if earlier:
            os.replace(aside, out)
        raise
