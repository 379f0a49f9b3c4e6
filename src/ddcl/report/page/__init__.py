"""A run as one page of HTML that opens from disk and asks nobody for anything."""

from __future__ import annotations

from pathlib import Path

from ddcl.data.shards import whole_file
from ddcl.report.page.contents import Contents, Drawn, gather
from ddcl.report.page.rendering import render

__all__ = ["Contents", "Drawn", "gather", "render", "write_page"]


def write_page(contents: Contents, path: Path) -> None:
    """Write it, whole or not at all."""
    page = render(contents)
    with whole_file(path) as file:
        file.write(page.encode("utf-8", errors="replace"))
