"""How many cases hypothesis draws: UNDERSTUDY_PROFILE=deep for many, the same few every time otherwise."""

import os

import pytest
from hypothesis import settings

from understudy.training.workers import one_thread_each

settings.register_profile("quick", max_examples=20, deadline=None, derandomize=True)
settings.register_profile("deep", max_examples=500, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("UNDERSTUDY_PROFILE", "quick"))


@pytest.fixture(scope="module")
def one_thread():
    """Torch as it is where the loop calls an engine."""
    with one_thread_each():
        yield
