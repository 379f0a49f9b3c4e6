"""A run on disk: written whole or not at all, and read back to go on as if it had never stopped."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch


def save_checkpoint(path: str | Path, state: dict[str, Any]) -> None:
    """Write the state and the random generators' beside it; a crash leaves the previous file in place."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    random: dict[str, Any] = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        random["cuda"] = torch.cuda.get_rng_state_all()
    partial = path.with_suffix(path.suffix + ".partial")
    try:
        torch.save({**state, "random": random}, partial)
        os.replace(partial, path)
    except RuntimeError as error:  # torch's writer tells of a full disk as of a wrong position in a file
        raise OSError(f"{path} could not be written: is the disk full?") from error
    finally:
        partial.unlink(missing_ok=True)


def load_checkpoint(path: str | Path) -> dict[str, Any]:
    """Read a state, to the CPU."""
    state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    return state


def restore_random(state: dict[str, Any]) -> None:
    """Return the random generators to where they were when a state was written."""
    random = state["random"]
    torch.set_rng_state(random["cpu"])
    if "cuda" in random and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(random["cuda"])
