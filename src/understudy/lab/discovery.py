"""Which studies there are: every `study.py` of every paper."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from understudy._papers import papers, studies_of
from understudy.lab.study import Study


@cache
def studies() -> dict[str, type[Study]]:
    """Every study by its name on the command line, paper by paper."""
    found: dict[str, type[Study]] = {}
    for paper in papers():
        for module in studies_of(paper):
            for study in defined_in(import_module(module).__dict__, module):
                if study.name in found:
                    other = found[study.name].__module__
                    raise ValueError(f"two studies are called {study.name}, in {other} and {module}: rename one")
                found[study.name] = study
    return found


def defined_in(namespace: dict[str, object], module: str) -> list[type[Study]]:
    """The studies that a module defines itself: classes with a name of their own."""
    return [
        value
        for value in namespace.values()
        if isinstance(value, type) and issubclass(value, Study) and value.__module__ == module and "name" in vars(value)
    ]
