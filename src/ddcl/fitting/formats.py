"""Files of texts to columns: CSV, TSV, JSON lines, Parquet, a folder of text files; all text is UTF-8."""

from __future__ import annotations

import codecs
import csv
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ddcl.fitting.errors import BadInputError

Columns = dict[str, list[Any]]
DELIMITERS = ",;\t"


def read_text(path: Path) -> str:
    """A file's text, without a byte-order mark; anything but UTF-8 is refused with the place of the first bad byte."""
    return decoded(path.read_bytes(), str(path))


def decoded(given: bytes, origin: str) -> str:
    """The text that some bytes are, as :func:`read_text` has it; ``origin`` is what an error names."""
    mark = len(codecs.BOM_UTF8) if given.startswith(codecs.BOM_UTF8) else 0
    try:
        return given[mark:].decode("utf-8")
    except UnicodeDecodeError as error:
        offset = mark + error.start
        line = given.count(b"\n", 0, offset) + 1
        raise BadInputError(
            f"{origin}: not UTF-8: byte 0x{given[offset]:02x} at offset {offset} (line {line}); save the file as UTF-8"
        ) from error


def read_csv(path: Path) -> Columns:
    """Comma, semicolon or tab, whichever parts the header into the most columns."""
    text = read_text(path)
    header = text.split("\n", 1)[0]
    return _delimited(
        path, text, max(DELIMITERS, key=lambda delimiter: len(next(csv.reader([header], delimiter=delimiter), [])))
    )


def read_tsv(path: Path) -> Columns:
    """Columns parted by tabs."""
    return _delimited(path, read_text(path), "\t")


def read_json_lines(path: Path) -> Columns:
    """One JSON object on each line; a key that a line lacks is None there."""
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise BadInputError(f"{path}: line {number} is not JSON ({error.msg})") from error
        if not isinstance(row, dict):
            raise BadInputError(f"{path}: line {number} holds {type(row).__name__}, expected an object {{...}}")
        rows.append(row)
    names = list(dict.fromkeys(name for row in rows for name in row))
    return {name: [row.get(name) for row in rows] for name in names}


def read_parquet(path: Path) -> Columns:
    """Every column of strings, numbers or booleans; others (lists, say) are left out."""
    pyarrow, parquet = parquet_packages()
    try:
        table = parquet.read_table(path)
    except (pyarrow.ArrowException, OSError) as error:
        raise BadInputError(f"{path}: it cannot be read as Parquet ({str(error).splitlines()[0]})") from error
    columns = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        kind = column.type.value_type if pyarrow.types.is_dictionary(column.type) else column.type
        if not pyarrow.types.is_nested(kind) and not pyarrow.types.is_binary(kind):
            columns[name] = column.to_pylist()
    return columns


def read_text_folder(folder: Path) -> dict[str, str]:
    """Every .txt file in the folder and the folders in it, by its path from there."""
    return {path.relative_to(folder).as_posix(): read_text(path) for path in sorted(folder.rglob("*.txt"))}


def parquet_packages() -> tuple[Any, Any]:
    """pyarrow and its Parquet module."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise ImportError("Parquet files need pyarrow: pip install 'ddcl[text]'") from error
    return pyarrow, parquet


def _delimited(path: Path, text: str, delimiter: str) -> Columns:
    before = csv.field_size_limit(sys.maxsize)  # texts may be longer than the module's limit
    try:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
        header = next(reader, [])
        if doubled := next((name for name in header if header.count(name) > 1), None):
            raise BadInputError(f"{path}: two columns are named {doubled!r}")
        columns: Columns = {name: [] for name in header}
        for row in reader:
            if not row:
                continue
            if len(row) != len(header):
                raise BadInputError(
                    f"{path}: line {reader.line_num} has {len(row)} cells, the header {len(header)}; "
                    "a cell that holds the delimiter or a line break must stand in quotes"
                )
            for name, cell in zip(header, row, strict=True):
                columns[name].append(cell)
    except csv.Error as error:
        raise BadInputError(f"{path}: line {reader.line_num} cannot be read ({error})") from error
    finally:
        csv.field_size_limit(before)
    return columns


READERS: dict[str, Callable[[Path], Columns]] = {
    ".csv": read_csv,
    ".tsv": read_tsv,
    ".jsonl": read_json_lines,
    ".ndjson": read_json_lines,
    ".parquet": read_parquet,
}
"""By the ending of the file's name."""
