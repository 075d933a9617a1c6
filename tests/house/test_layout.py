"""The house keeps its order: rooms know only rooms to their left, files are small and named by their subject."""

import ast
import importlib
import inspect
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import understudy

ROOT = Path(understudy.__file__).parent
ORDER = (
    ("nets",),
    ("teachers", "students", "data"),
    ("measures",),
    ("training",),
    ("theory",),
    ("store",),
    ("report",),
    ("claims",),
    ("lab",),
    ("papers",),
    ("bench",),
    ("cli",),
)
RANK = {room: rank for rank, rooms in enumerate(ORDER) for room in rooms}
FILES = sorted(ROOT.rglob("*.py"))
ROOMS = sorted({_first for path in FILES if not (_first := path.relative_to(ROOT).parts[0]).startswith("_")})
FORBIDDEN = ("utils", "util", "helpers", "helper", "common", "misc")


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imported(path: Path) -> Iterator[tuple[str, int]]:
    """The rooms that a file imports, wherever in it, each with its line."""
    yield from ((name.split(".")[1], line) for name, line in names(path) if name.startswith("understudy."))


def names(path: Path) -> Iterator[tuple[str, int]]:
    """Full names of everything that a file imports, wherever in it, each with its line."""
    parts = ("understudy", *path.relative_to(ROOT).with_suffix("").parts)
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            stem = ".".join(
                part for part in (*parts[: len(parts) - node.level] * bool(node.level), node.module) if part
            )
            found = [stem, *(f"{stem}.{alias.name}" for alias in node.names)]
        else:
            continue
        yield from ((name, node.lineno) for name in found)


def test_every_room_has_its_place_in_the_order():
    assert {room.removesuffix(".py") for room in ROOMS} <= set(RANK)


def test_the_check_of_imports_sees_them():
    assert {"report", "store", "lab"} <= {room for room, _ in imported(ROOT / "cli" / "report.py")}
    assert {"measures", "nets"} <= {room for room, _ in imported(ROOT / "measures" / "align.py")}


def test_no_room_imports_one_to_its_right():
    against = [
        f"{path.relative_to(ROOT)}:{line} imports {other}"
        for path in FILES
        for room in [path.relative_to(ROOT).parts[0].removesuffix(".py")]
        if room in RANK
        for other, line in imported(path)
        if other != room and RANK.get(other, -1) > RANK[room]
    ]
    assert not against


def test_no_paper_uses_a_private_name_of_another():
    against = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in FILES
        for paper in [path.relative_to(ROOT).parts[:2]]
        if paper[0] == "papers"
        for name, line in names(path)
        if name.startswith("understudy.papers.")
        and name.split(".")[2] != paper[1]
        and any(part.startswith("_") for part in name.split("."))
    ]
    assert not against


def test_names_say_what_is_in_a_file():
    vague = [path for path in ROOT.rglob("*") if set(path.stem.strip("_").split("_")) & set(FORBIDDEN)]
    assert not vague


def test_every_file_says_what_it_is_about():
    silent = [
        str(path.relative_to(ROOT)) for path in FILES if parsed(path).body and not ast.get_docstring(parsed(path))
    ]
    assert not silent


@pytest.mark.parametrize("room", [room.removesuffix(".py") for room in ROOMS])
def test_every_public_name_of_a_room_has_a_docstring(room):
    module = importlib.import_module(f"understudy.{room}")
    without = [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (inspect.isclass(value) or inspect.isfunction(value))
        and value.__module__.startswith("understudy" if hasattr(module, "__path__") else module.__name__)
        and not _said_by_itself(value)
    ]
    assert not without


def _said_by_itself(value: object) -> bool:
    """A docstring of its own: dataclasses and named tuples are given one, their signature, which says nothing."""
    text = inspect.cleandoc(value.__doc__ or "")
    return bool(text) and not text.startswith(f"{getattr(value, '__name__', '')}(")
