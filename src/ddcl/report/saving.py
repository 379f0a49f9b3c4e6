"""One way to write a figure to a file: the same drawing gives the same file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg", ".pdf")


def check_path(path: str | Path | None) -> None:
    """Refuse a file type that is not written, before anything is drawn."""
    if path is not None and Path(path).suffix.lower() not in FORMATS:
        raise ValueError(f"path: got {str(path)!r}, expected a file ending in {', '.join(FORMATS)}")


def save(figure: Figure, path: str | Path) -> None:
    """Write it; folders are made as needed."""
    import matplotlib as mpl

    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # without its date the same drawing gives the same file
    dates = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
    metadata: dict[str, Any] = dates.get(path.suffix.lower(), {})
    with mpl.rc_context({"svg.hashsalt": "ddcl"}):
        figure.savefig(path, dpi=150, metadata=metadata)
