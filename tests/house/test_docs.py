"""The documentation agrees with the code: links resolve, code blocks run, all public names and studies are listed."""

import ast
import inspect
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import FunctionType as Function
from types import ModuleType

import pytest
import yaml
from markdown.extensions.toc import slugify

import understudy
from understudy.lab.discovery import studies
from understudy.report.glossary import DEFINITIONS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
TEXTS = [*PAGES, *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"))]
ROOMS = [*(path.parent.name for path in (ROOT / "src" / "understudy").glob("*/__init__.py")), "students"]

FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)|<img src=\"([^\"]+)\"")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
CODE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def shown(path: Path) -> str:
    """Path of a page relative to the repository."""
    return str(path.relative_to(ROOT))


def prose(path: Path) -> str:
    """Text of a page without its code blocks."""
    return FENCED.sub("", path.read_text(encoding="utf-8"))


def anchors(path: Path) -> set[str]:
    """Anchors of a page's headings that are the same on the site and where the repository is read as files."""
    titles = [re.sub(r"[`\\*]|\[([^]]*)\]\([^)]*\)", r"\1", title) for title in HEADING.findall(prose(path))]
    as_file = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
    return as_file & {slugify(title, "-") for title in titles}


@pytest.mark.parametrize("page", TEXTS, ids=shown)
def test_relative_links_and_anchors_resolve(page):
    broken = []
    for match in LINK.finditer(prose(page)):
        link = match[1] or match[2]
        if re.match(r"\w+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert not broken


def test_the_check_of_links_sees_them():
    assert {match[1] for match in LINK.finditer(prose(DOCS / "glossary.md"))} >= {"bibliography.md#tian-2020"}
    assert "tian-et-al-2019" in anchors(DOCS / "bibliography.md")


def in_navigation(entry: object) -> set[str]:
    """Pages of an entry of the navigation and of all entries below it."""
    if isinstance(entry, str):
        return {entry}
    below = entry.values() if isinstance(entry, dict) else entry
    return set().union(*map(in_navigation, below))


def test_every_page_is_in_the_navigation():
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert in_navigation(config["nav"]) == {str(page.relative_to(DOCS)) for page in PAGES}


def test_the_site_builds_without_warnings(tmp_path):
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "reference" / "nets.html").is_file()


def code_of(page: Path) -> str:
    """All Python blocks of a page, which are one program."""
    return "\n".join(CODE.findall(page.read_text(encoding="utf-8")))


LONG = DOCS / "guide" / "theorems.md"
WITH_CODE = [page for page in PAGES if code_of(page) and page != LONG]


@pytest.mark.parametrize("page", WITH_CODE, ids=shown)
def test_code_blocks_run(page, tiny, tmp_path, monkeypatch, capsys):
    code = code_of(page).replace("runs/two-layer/…", str(tiny[1]))
    monkeypatch.chdir(tmp_path)
    exec(compile(code, page.name, "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out


@pytest.mark.deep
def test_the_theorems_certify_what_the_guide_says(capsys):
    """Compare numbers of nodes, not ε, whose last digits depend on the machine."""
    code = code_of(LONG)
    exec(compile(code, LONG.name, "exec"), {"__name__": "__main__"})
    certified = re.compile(r"^(?:# )?(\d+) of (\d+) teacher nodes", re.MULTILINE)
    found, stated = certified.findall(capsys.readouterr().out), certified.findall(code)
    assert found == stated == [("4", "8"), ("8", "8")]


def test_the_pages_of_papers_list_every_study_with_its_figures():
    text = "\n".join(prose(page) for page in sorted((DOCS / "papers").glob("*.md")))
    rows = re.findall(r"^\| `([a-z-]+)` \| ([^|]+) \|", text, re.MULTILINE)
    assert len(rows) == len(dict(rows))
    assert {name: study.figures for name, study in studies().items()} == dict(rows)


def test_every_dependency_has_its_reason():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = [re.match(r"[\w-]+", line)[0] for line in project["dependencies"]]
    before_extras = (DOCS / "developing" / "dependencies.md").read_text(encoding="utf-8").partition("Extras:")[0]
    listed = re.findall(r"^\| ([\w-]+) \| .+ \|$", before_extras, re.MULTILINE)
    assert sorted(needed) == sorted(name for name in listed if name not in ("package", "---"))


def test_the_glossary_has_every_term_that_reports_explain():
    titles = {title.lower() for title in HEADING.findall(prose(DOCS / "glossary.md"))}
    assert {term.lower() for term in DEFINITIONS} <= titles


def public_names(room: str) -> set[str]:
    """Names that a package exports in its `__init__` by `import x as x`, or that a module defines; no modules."""
    module = import_module(f"understudy.{room}")
    if hasattr(module, "__path__"):
        tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
        imports = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
        names = {alias.asname for node in imports for alias in node.names if alias.asname}
    else:
        names = {name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__}
    return {name for name in names if name[0] != "_" and not isinstance(getattr(module, name), ModuleType)}


@pytest.mark.parametrize("room", ROOMS)
def test_the_reference_has_every_public_name_of_a_room(room):
    page = DOCS / "reference" / f"{room}.md"
    text = page.read_text(encoding="utf-8") if page.exists() else ""
    listed = re.findall(rf"^::: understudy\.{room}\.(\w+)$", text, re.MULTILINE)
    assert set(listed) == public_names(room)
    assert len(listed) == len(set(listed))


def test_the_reference_has_every_name_of_the_package():
    text = (DOCS / "reference" / "index.md").read_text(encoding="utf-8")
    cells = re.findall(r"^\| (`us\..*?) \|", text, re.MULTILINE)
    assert {name for cell in cells for name in re.findall(r"`us\.(\w+)`", cell)} == set(understudy.__all__)


def public_functions() -> Iterator[tuple[str, Callable]]:
    """Functions of the reference and of the package, and all methods of their classes, by name."""
    paths = (path for page in PAGES for path in re.findall(r"^::: (understudy[\w.]+)$", prose(page), re.MULTILINE))
    documented = {path: getattr(import_module(path.rpartition(".")[0]), path.rpartition(".")[2]) for path in paths}
    for path, value in ({f"us.{name}": getattr(understudy, name) for name in understudy.__all__} | documented).items():
        if inspect.isclass(value):
            members = inspect.getmembers_static(value, lambda m: isinstance(m, staticmethod | classmethod | Function))
            yield from ((f"{path}.{name}", getattr(value, name)) for name, _ in members if name[0] != "_")
        elif inspect.isfunction(value):
            yield path, value


def undocumented(function: Callable) -> set[str]:
    """Arguments besides `self` that the section `Args` of a docstring lacks."""
    names = {name for name in inspect.signature(function).parameters if name not in ("self", "cls")}
    section = re.search(r"^Args:\n((?:    .*\n?|\n)+)", inspect.getdoc(function) or "", re.MULTILINE)
    listed = re.findall(r"^    ((?:\*{0,2}\w+(?:, )?)+): ", section[1] if section else "", re.MULTILINE)
    return names - {name.strip("*") for line in listed for name in line.split(", ")}


def test_public_functions_with_several_arguments_document_each():
    without = {
        name: missing
        for name, function in public_functions()
        if function.__module__.startswith("understudy.")
        and len(set(inspect.signature(function).parameters) - {"self"}) > 1
        and (missing := undocumented(function))
    }
    assert not without


def test_the_check_of_arguments_sees_them():
    names = {name for name, _ in public_functions()}
    assert {"us.train", "understudy.nets.Population.to", "understudy.data.Gaussian.training"} <= names
    assert undocumented(understudy.train) == set()

    def documented_in_part(self, x, *, y, **options):
        """Compute.

        Args:
            x: First line: its colon
                and y: a second line.
            **options: Others.
        """

    assert undocumented(documented_in_part) == {"y"}
