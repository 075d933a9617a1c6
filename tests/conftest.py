"""How many cases hypothesis draws: UNDERSTUDY_PROFILE=deep for many, the same few every time otherwise."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import settings

from commands import TINY, understudy
from understudy.training.workers import one_thread_each

settings.register_profile("quick", max_examples=20, deadline=None, derandomize=True)
settings.register_profile("deep", max_examples=500, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("UNDERSTUDY_PROFILE", "quick"))


@pytest.fixture(scope="module")
def one_thread():
    """Torch as it is where the loop calls an engine."""
    with one_thread_each():
        yield


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """A finished run of the smallest two-layer study, by the command: what it printed, and its folder."""
    here = tmp_path_factory.mktemp("tiny")
    done = understudy("run", "two-layer", *TINY, "--json", cwd=here)
    return done, here / Path(json.loads(done.stdout)["run"])
