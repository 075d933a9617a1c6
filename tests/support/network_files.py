"""Networks of files as tests read them: without the warning about what was assumed, and what is refused."""

from pathlib import Path
from typing import Any

import pytest

from understudy import nets
from understudy._errors import UserError
from understudy.nets import Population
from understudy.nets.files.stated import Stated


def load(path: Path, **stated: Any) -> Population:
    """Load networks without the warning about what was assumed, which `test_assumptions.py` tests."""
    return nets.read(path, Stated(**stated)).population


def refusal(path: Path, *words: str, load: Any = load, **options: Any) -> str:
    """Return the error message, which must name the file and end with a full stop."""
    with pytest.raises(UserError) as caught:
        load(path, **options)
    text = str(caught.value)
    for word in (path.name, *words):
        assert word in text, text
    assert text.endswith("."), text
    return text
