"""The floors of the house: a floor imports only floors below it, and the core needs torch and numpy only."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "ddcl"
# lowest first; what is not named here may not exist
FLOORS = [
    ["shapes", "version"],
    ["ops"],
    ["functional"],
    ["nn"],
    ["training"],
    ["data", "explain", "rivals"],
    ["experiments", "fitting"],
    ["report"],
    ["explorer"],
    ["commands"],
    ["cli"],
    ["__main__"],
]
LEVEL = {room: level for level, rooms in enumerate(FLOORS) for room in rooms}
MODULES = [path for path in sorted(SOURCE.rglob("*.py")) if path != SOURCE / "__init__.py"]


def imported_rooms(path: Path) -> set[str]:
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        rooms |= {name.split(".")[1] for name in names if name.startswith("ddcl.")}
    return rooms


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_module_imports_only_its_own_room_and_floors_below(path):
    room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    assert room in LEVEL, f"{room} is not in the house: give it a floor"
    for other in imported_rooms(path) - {room}:
        assert LEVEL[other] < LEVEL[room], f"{path.name} ({room}) imports {other}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_file_grows_too_long(path):
    assert len(path.read_text().splitlines()) <= 400


def test_importing_ddcl_needs_torch_and_numpy_only():
    code = (
        "import sys, torch, numpy; before = set(sys.modules)\n"
        "class Wall:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in {'jaxtyping', 'beartype', 'matplotlib', 'sklearn', 'scipy'}:\n"
        "            raise ImportError(name)\n"
        "sys.meta_path.insert(0, Wall())\n"
        "import ddcl\n"
        "bank = torch.randn(3, 2)\n"
        "ddcl.readout(torch.randn(4, 2), bank, 1.0)\n"
        "new = {name.split('.')[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names)\n"
        "print(sorted(new - {'torch', 'numpy'}), 'ddcl.data' in sys.modules)\n"
        "print(ddcl.load.__name__, 'ddcl.data' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["['ddcl'] False", "load True"]


def test_every_public_name_exists_and_has_a_docstring():
    import ddcl

    for name in ddcl.__all__:
        assert getattr(ddcl, name).__doc__, name
