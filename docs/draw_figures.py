"""Draw the figures of the paradigm pages by running the code on them: ``python docs/draw_figures.py [page ...]``."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl

PAGES = Path(__file__).parent / "paradigms"


def python_blocks(page: Path) -> list[str]:
    """The Python on a page, block by block."""
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def run_page(page: Path) -> dict[str, Any]:
    """Everything a page's code leaves behind, run from top to bottom."""
    names: dict[str, Any] = {"__name__": "page"}
    for block in python_blocks(page):
        exec(compile(block, str(page), "exec"), names)
    return names


def main(names: list[str]) -> None:
    """Run the pages named, or all of them, and save what each calls ``figure``."""
    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "ddcl"  # the same drawing gives the same file
    for page in sorted(PAGES.glob("*.md")):
        if (names and page.stem not in names) or page.name == "README.md":
            continue
        path = PAGES / "figures" / f"{page.stem}.svg"
        run_page(page)["figure"].savefig(path, metadata={"Date": None})
        print(f"{page.name}: {path.relative_to(PAGES.parent)}", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
