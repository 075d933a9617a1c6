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
    return tuple(name for package in packages for name, folder in _modules(package).items() if folder)


def studies_of(paper: str) -> Iterator[str]:
    """Import names of the `study` modules of a paper."""
    folders = (name for name, folder in _modules(paper).items() if folder)
    return (f"{folder}.study" for folder in folders if f"{folder}.study" in _modules(folder))


@cache
def load_theory() -> None:
    """Import the theory of every paper, which registers its results."""
    for paper in papers():
        if f"{paper}.theory" in _modules(paper):
            for module in _modules(f"{paper}.theory"):
                import_module(module)


def _modules(package: str) -> dict[str, bool]:
    """Import names of the modules of a package, and whether each is a package itself."""
    return {f"{package}.{found.name}": found.ispkg for found in iter_modules(import_module(package).__path__)}
