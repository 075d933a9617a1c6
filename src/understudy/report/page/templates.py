"""HTML templates, escaped by default."""

from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from understudy._citations import cite


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("understudy.report.page", "assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters["path"], made.filters["cite"] = quote, cite
    return made


def render(template: str, **values: Any) -> bytes:
    """Fill a template of the `assets` folder; strings are escaped unless they are `Markup`."""
    return _environment().get_template(template).render(values).encode()


def asset(name: str) -> Markup:
    """The text of a stylesheet or script of this package, to be inserted as it is."""
    return Markup(files("understudy.report.page").joinpath("assets", name).read_text(encoding="utf-8"))
