"""Find studies: every `study.py` of every paper, and the study in a user's file."""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from understudy._errors import UserError
from understudy._papers import papers, studies_of
from understudy.lab.study import Study

USER_MODULE = "understudy_user_"
"""Beginning of the name under which a user's file is imported."""


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


def studies_by_paper() -> dict[str, list[type[Study]]]:
    """All studies by the import name of their paper."""
    found = studies().values()
    return {paper: [study for study in found if study.__module__.startswith(f"{paper}.")] for paper in papers()}


def defined_in(namespace: dict[str, object], module: str) -> list[type[Study]]:
    """The studies that a module defines itself: classes with a name of their own."""
    return [
        value
        for value in namespace.values()
        if isinstance(value, type) and issubclass(value, Study) and value.__module__ == module and "name" in vars(value)
    ]


def load_file(path: Path) -> type[Study]:
    """Load the study that a user's Python file defines.

    The file is imported under a name of its own, as any script that the user runs.

    Args:
        path: A Python file with one subclass of `TrainingStudy` or `ComputedStudy` that has a `name`.

    Returns:
        The study.

    Raises:
        UserError: If there is no such file, it cannot be imported, or it does not define exactly one study.
    """
    if not path.is_file():
        raise UserError(f"{path}: no such file; give a Python file that defines a study")
    module_name = f"{USER_MODULE}{path.stem}"
    spec = spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise UserError(f"{path} is not a Python file; give one that ends in .py and defines a study")
    module = module_from_spec(spec)
    sys.modules[module_name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{path} cannot be imported: {type(error).__name__}: {error}") from error
    found = defined_in(vars(module), module_name)
    if len(found) != 1:
        what = f"{len(found)} studies ({', '.join(study.name for study in found)})" if found else "no study"
        raise UserError(
            f"{path} defines {what}, but one is needed: a subclass of TrainingStudy or ComputedStudy with a name"
        )
    found[0].source_file = str(path)
    return found[0]
