"""Figures of runs under test are laid out but not rendered; the contract of studies renders those of every study."""

import os

import pytest


@pytest.fixture(scope="module", autouse=True)
def figures_are_laid_out_only():
    """Leave out the files of figures, which take longer than everything else in small runs; not under `make deep`."""
    with pytest.MonkeyPatch.context() as patch:
        if os.environ.get("UNDERSTUDY_PROFILE") != "deep":
            patch.setattr("understudy.report.pool.files", lambda figure: {"pdf": b"", "svg": b""})
        yield
