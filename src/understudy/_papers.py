"""Find the packages that hold papers: ours, and those that other distributions register.

A distribution registers a package by the entry point group `understudy.papers`; every folder of that package is a
paper. Ours is always among them, so that a source tree works without being installed.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pkgutil import iter_modules

GROUP = "understudy.papers"


@cache
def papers() -> tuple[str, ...]:
    """Import names of all papers: ours first, then those of other packages."""
    packages = dict.fromkeys(["understudy.papers", *(point.value for point in entry_points(group=GROUP))])
    return tuple(name for package in packages for name in _folders(package))


def studies_of(paper: str) -> Iterator[str]:
    """Import names of the `study` modules of a paper."""
    return (f"{folder}.study" for folder in _folders(paper) if _has(folder, "study"))


@cache
def load_theory() -> None:
    """Import the theory of every paper, which registers its results."""
    for paper in papers():
        if _has(paper, "theory"):
            for module in _modules(f"{paper}.theory"):
                import_module(module)


def _folders(package: str) -> list[str]:
    return [f"{package}.{found.name}" for found in iter_modules(import_module(package).__path__) if found.ispkg]


def _modules(package: str) -> list[str]:
    return [f"{package}.{found.name}" for found in iter_modules(import_module(package).__path__)]


def _has(package: str, module: str) -> bool:
    return any(found.name == module for found in iter_modules(import_module(package).__path__))
